/* SPDX-License-Identifier: Apache-2.0 */
/* moe_bed.c - see moe_bed.h. */
#include "moe_bed.h"

#include <string.h>

#include "common/unit.h"

/* Addresses that are the GPU's: no memory backs them, and nothing reads them. */
#define SPACE_BEGIN ((uintptr_t)1 << 40)
#define SPACE	    ((size_t)1 << 32)

int64_t size_of(enum nib_dtype dtype)
{
	return dtype == NIB_DTYPE_FP32 ? 4 : 2;
}

int64_t slots_of(const struct spec *s)
{
	return s->tokens * s->top_k;
}

bool is_nvfp4(const struct spec *s)
{
	return s->activations == NIB_ACTIVATIONS_NVFP4;
}

/* Addresses of the GPU for so many bytes. */
static void *reserve(struct bed *bed, int64_t bytes)
{
	void *at = (void *)bed->next;

	bed->next += (uintptr_t)(bytes + 64 + 63) / 64 * 64;
	assert_true(bed->next <= SPACE_BEGIN + SPACE);
	return at;
}

static struct nib_fp4 nvfp4(struct bed *bed, int64_t rows, int64_t k, int64_t batch,
			    bool is_tiled)
{
	return (struct nib_fp4){.codes = reserve(bed, batch * rows * k / 2),
				.scales = reserve(bed, batch * rows * k / 16),
				.rows = rows,
				.k = k,
				.batch = batch,
				.scale_layout = is_tiled ? NIB_SCALE_LAYOUT_TILED_128X4
							 : NIB_SCALE_LAYOUT_LINEAR};
}

static struct nib_dense dense(struct bed *bed, enum nib_dtype dtype, int64_t rows,
			      int64_t cols)
{
	/* Rows have a gap after them. */
	return (struct nib_dense){.data =
				      reserve(bed, rows * (cols + 8) * size_of(dtype)),
				  .dtype = dtype,
				  .rows = rows,
				  .cols = cols,
				  .row_stride_elems = cols + 8};
}

static struct nib_moe_layer make_layer(struct bed *bed, const struct spec *s)
{
	return (struct nib_moe_layer){
	    .x = dense(bed, s->dtype, s->tokens, s->k),
	    .a = nvfp4(bed, s->tokens, s->k, 1, false),
	    .is_quantized = s->is_quantized,
	    .activations = s->activations,
	    .ids = reserve(bed, slots_of(s) * s->ids_bytes),
	    .ids_bytes = s->ids_bytes,
	    .top_k = s->top_k,
	    .expert_offset = OFFSET,
	    .weights = reserve(bed, slots_of(s) * 4),
	    .gate = nvfp4(bed, bed->width, s->k, bed->experts, s->is_tiled),
	    .up = nvfp4(bed, bed->width, s->k, bed->experts, s->is_tiled),
	    .down = nvfp4(bed, s->cols, bed->width, bed->experts, s->is_tiled),
	    .gate_alpha = reserve(bed, bed->experts * 4),
	    .up_alpha = reserve(bed, bed->experts * 4),
	    .down_alpha = reserve(bed, bed->experts * 4),
	    .x_global = reserve(bed, 4),
	    .h_global = reserve(bed, 4),
	    .activation = s->activation,
	    .limit = 7.0f,
	    .swiglu_alpha = 1.702f,
	    .up_bias = 0.25f,
	    .y = dense(bed, s->dtype, s->tokens, s->cols),
	};
}

void open_bed(struct bed *bed, int64_t width, int64_t experts)
{
	memset(bed, 0, sizeof(*bed));
	bed->fake = fake_open(FAKE_CUDA);
	bed->width = width;
	bed->experts = experts;
	bed->next = SPACE_BEGIN;
	fake_register_memory((void *)SPACE_BEGIN, SPACE, CU_MEMORYTYPE_DEVICE, 0, 0);
	assert_ok(nib_device_open("cuda", NULL, &bed->device, NULL));
}

void close_bed(struct bed *bed)
{
	nib_moe_layer_plan_free(bed->plan);
	nib_device_close(bed->device);
	assert_int_equal(bed->fake->allocations, 0);
	assert_int_equal(bed->fake->retained, 0);
	assert_int_equal(bed->fake->depth, 0);
	assert_int_equal(bed->fake->outside, 0);
}

enum nib_status make_plan(struct bed *bed, int caller_workspace)
{
	const struct nib_plan_options options = {.struct_bytes = sizeof(options),
						 .caller_workspace = caller_workspace};

	return nib_moe_layer_plan_create(bed->device, &bed->layer, &options, &bed->plan,
					 &bed->err);
}

void use(struct bed *bed, const struct spec *s)
{
	struct nib_moe_layer_plan_info info = {.struct_bytes = sizeof(info)};

	nib_moe_layer_plan_free(bed->plan);
	bed->next = SPACE_BEGIN;
	bed->spec = s;
	bed->layer = make_layer(bed, s);
	if (make_plan(bed, 1))
		fail_msg("%s", bed->err.message);
	assert_ok_err(nib_moe_layer_plan_get_info(bed->plan, &info, &bed->err),
		      &bed->err);
	bed->workspace_bytes = info.workspace_bytes;
	bed->workspace = reserve(bed, (int64_t)bed->workspace_bytes);
}

enum nib_status run(struct bed *bed)
{
	const struct nib_run_options options = {
	    .struct_bytes = sizeof(options),
	    .workspace = bed->workspace,
	    .workspace_bytes = bed->workspace_bytes,
	    .stream = bed,
	};

	bed->first = bed->fake->launches;
	return nib_moe_layer_run(bed->plan, &bed->layer, &options, &bed->err);
}

const struct fake_launch *launch_of(const struct bed *bed, int i)
{
	return &bed->fake->history[(bed->first + i) % FAKE_HISTORY];
}

int launches_of(const struct bed *bed)
{
	const int count = bed->fake->launches - bed->first;

	assert_true(count <= FAKE_HISTORY);
	return count;
}
