/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_cuda_staging.c - the command's operands on a GPU, on the fake driver: the calls
 * get an equal copy of the oracle's operands, with the same layout.
 */
#include <stdio.h>
#include <string.h>

#include "cli/shared/activations.c"
#include "cli/shared/data.c"
#include "cli/shared/data_fill.c"
#include "cli/shared/message.h"
#include "cli/shared/shape_text.c"
#include "cli/shared/staging.c"
#include "common/unit.h"
#include "fake_bed.h"

/* Stand in for the functions that data.c and staging.c use. */
int cli_is_host(const struct nib_device *device)
{
	const struct nib_device_info info = test_device_info(device);

	return strcmp(info.name, "cpu") == 0;
}

const char *cli_size_text(double bytes, char text[CLI_SIZE_TEXT])
{
	snprintf(text, CLI_SIZE_TEXT, "%.0f B", bytes);
	return text;
}

int cli_fail(const char *what, const struct nib_error *err)
{
	fail_msg("%s: %s", what, err->message);
	return CLI_FAILED;
}

static void same(const void *there, const void *here, size_t bytes)
{
	assert_true((there == NULL) == (here == NULL));
	if (!here)
		return;
	assert_ptr_not_equal(there, here);
	assert_memory_equal(there, here, bytes);
}

static void same_nvfp4(const struct nib_fp4 *there, const struct nib_fp4 *here)
{
	assert_int_equal(there->rows, here->rows);
	same(there->codes, here->codes,
	     (size_t)(here->batch * here->rows * here->k / 2));
	same(there->scales, here->scales,
	     (size_t)here->batch *
		 nib_scales_bytes(here->scale_layout, here->rows, here->k));
}

static struct data *make_of(struct nib_device *device, enum shape_op op, int64_t count,
			    enum cli_activations activations)
{
	static struct shape_size sizes[] = {{3, 40, 64}, {17, 40, 64}};
	const struct shape shape = {
	    .op = op, .count = count, .sizes = sizes, .batch = 1};
	const struct data_options options = {.layout = NIB_SCALE_LAYOUT_TILED_128X4,
					     .out = NIB_DTYPE_FP16,
					     .dtype = NIB_DTYPE_BF16,
					     .activations = activations,
					     .seed = 7};
	struct data *data;
	struct nib_error err;

	assert_ok_err(data_new(&shape, &options, device, &data, &err), &err);
	return data;
}

static struct data *make(struct nib_device *device, enum shape_op op, int64_t count)
{
	return make_of(device, op, count, ACT_NVFP4);
}

static void same_x(const struct nib_dense *there, const struct nib_dense *here,
		   enum nib_dtype dtype, int64_t rows)
{
	assert_int_equal(there->dtype, dtype);
	assert_int_equal(there->rows, rows);
	assert_int_equal(there->cols, 64);
	same(there->data, here->data, (size_t)(rows * 64) * nib_dtype_bytes(dtype));
}

/* A that is dense is x, and NVFP4's view is empty. */
static void dense_activations(void)
{
	const enum nib_dtype dtypes[] = {NIB_DTYPE_FP32, NIB_DTYPE_BF16, NIB_DTYPE_FP16,
					 NIB_DTYPE_FP32, NIB_DTYPE_BF16};
	struct fake_cuda *fake = fake_open(FAKE_CUDA);
	struct nib_device *device;
	struct data *data;

	assert_ok(nib_device_open("cuda", NULL, &device, NULL));
	for (enum cli_activations a = ACT_BF16; a <= ACT_INT8; a++) {
		const enum nib_activations kind =
		    a == ACT_INT8 ? NIB_ACTIVATIONS_INT8 : NIB_ACTIVATIONS_DENSE;

		data = make_of(device, OP_GROUP_DUAL, 2, a);
		for (int i = 0; i < 2; i++) {
			const struct nib_problem *p = &data->problems[i];

			assert_int_equal(p->activations, kind);
			assert_null(p->a.codes);
			same_x(&p->x, &data->views[i].x, dtypes[a], i ? 17 : 3);
			same_nvfp4(&p->b2, &data->views[i].b2);
		}
		data_free(data);
		data = make_of(device, OP_MOE, 2, a);
		assert_int_equal(data->moe.problem.activations, kind);
		assert_null(data->moe.problem.a.codes);
		assert_null(data->moe.scale_rows);
		same_x(&data->moe.problem.x, &data->moe_views.problem.x, dtypes[a], 20);
		same_nvfp4(&data->moe.problem.b, &data->moe_views.problem.b);
		data_free(data);
	}
	assert_int_equal(fake->allocations, 0);
	nib_device_close(device);
}

static void problems(void)
{
	struct fake_cuda *fake = fake_open(FAKE_CUDA);
	struct nib_device *device;
	struct data *data;
	uint16_t *c;

	assert_ok(nib_device_open("cuda", NULL, &device, NULL));
	data = make(device, OP_GROUP_DUAL, 2);
	assert_int_equal(fake->allocations, 1);
	for (int i = 0; i < 2; i++) {
		const struct nib_problem *p = &data->problems[i];
		const struct nib_problem *v = &data->views[i];

		same_nvfp4(&p->a, &v->a);
		same_nvfp4(&p->b, &v->b);
		same_nvfp4(&p->b2, &v->b2);
		same(p->alpha, v->alpha, sizeof(float));
		same(p->alpha2, v->alpha2, sizeof(float));
		assert_ptr_not_equal(p->c.data, v->c.data);
	}
	/* Poison goes there, results come back. */
	assert_ok(data_poison(data, NULL));
	c = data->problems[1].c.data;
	assert_int_equal(c[17 * 40 - 1], 0xFFFF);
	c[5] = 0x3C00;
	assert_ok(data_fetch(data, NULL));
	c = data->views[1].c.data;
	assert_int_equal(c[5], 0x3C00);
	assert_int_equal(c[6], 0xFFFF);
	data_free(data);
	assert_int_equal(fake->allocations, 0);
	nib_device_close(device);
}

static void experts_and_numbers(void)
{
	struct fake_cuda *fake = fake_open(FAKE_CUDA);
	struct nib_device *device;
	struct data *data;

	assert_ok(nib_device_open("cuda", NULL, &device, NULL));
	data = make(device, OP_MOE_DUAL, 2);
	same_nvfp4(&data->moe.problem.b, &data->moe_views.problem.b);
	same_nvfp4(&data->moe.problem.b2, &data->moe_views.problem.b2);
	same(data->moe.problem.a.codes, data->moe_views.problem.a.codes, 20 * 32);
	same(data->moe.row_offsets, data->moe_views.row_offsets, 12);
	same(data->moe.scale_rows, data->moe_views.scale_rows, 8);
	same(data->moe.problem.alpha, data->moe_views.problem.alpha, 8);
	same(data->moe.problem.alpha2, data->moe_views.problem.alpha2, 8);
	assert_ptr_not_equal(data->moe.problem.c.data, data->moe_views.problem.c.data);
	data_free(data);
	/* quantize and convert have no views: all is the GPU's. */
	data = make(device, OP_QUANTIZE, 1);
	assert_ptr_equal(data->q.codes, data->staging.data);
	assert_in_range((uintptr_t)data->x.data, (uintptr_t)data->staging.data,
			(uintptr_t)data->staging.data + data->memory_bytes);
	data_free(data);
	data = make(device, OP_CONVERT, 1);
	assert_in_range((uintptr_t)data->to.scales, (uintptr_t)data->staging.data,
			(uintptr_t)data->staging.data + data->memory_bytes);
	data_free(data);
	assert_int_equal(fake->allocations, 0);
	nib_device_close(device);
}

static void the_cpu_has_no_copy(void)
{
	struct nib_device *device;
	struct data *data;

	assert_ok(nib_device_open("cpu", NULL, &device, NULL));
	data = make(device, OP_GEMM, 1);
	assert_ptr_equal(data->problems[0].a.codes, data->views[0].a.codes);
	assert_ptr_equal(data->problems[0].c.data, data->views[0].c.data);
	assert_ptr_equal(data->staging.data, data->memory);
	data_free(data);
	nib_device_close(device);
}

static void no_memory_there(void)
{
	struct fake_cuda *fake = fake_open(FAKE_CUDA);
	static struct shape_size size = {3, 40, 64};
	const struct shape shape = {
	    .op = OP_GEMM, .count = 1, .sizes = &size, .batch = 1};
	const struct data_options options = {.seed = 1};
	struct nib_device *device;
	struct data *data;
	struct nib_error err;

	assert_ok(nib_device_open("cuda", NULL, &device, NULL));
	fake->memory_bytes = 1000;
	assert_int_equal(data_new(&shape, &options, device, &data, &err),
			 NIB_STATUS_OUT_OF_MEMORY);
	assert_null(data);
	assert_contains(err.message, "cuda:0: no memory for");
	nib_device_close(device);
}

int main(int argc, char **argv)
{
	static const struct fake_test tests[] = {
	    {"problems", problems},
	    {"dense_activations", dense_activations},
	    {"experts_and_numbers", experts_and_numbers},
	    {"the_cpu_has_no_copy", the_cpu_has_no_copy},
	    {"no_memory_there", no_memory_there},
	};

	return fake_main(argc, argv, tests, sizeof(tests) / sizeof(*tests));
}
