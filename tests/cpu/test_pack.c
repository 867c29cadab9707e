/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_pack.c - packed weights: their memory, their updates, and unpacking bit for bit.
 * test_multiply.c and test_same_bits.c test products with them.
 */
#include <malloc.h>
#include <string.h>

#include "common/data.h"
#include "common/isas.h"
#include "common/unit.h"
#include "emu/tests/common/alloc.h"
#include "format/view.h"

#define MATRICES 64

/* In use, mapped blocks included. */
static size_t used_bytes(void)
{
	const struct mallinfo2 info = mallinfo2();

	return info.uordblks + info.hblkhd;
}

/* A model has thousands of tiny matrices (routers, test models). */
static void tiny_weights_take_little(void **state)
{
	struct nib_device *device = test_device("scalar", 2);
	struct rng rng = rng_new(test_seed());
	struct test_nvfp4 b = test_nvfp4_new(&rng, 3, 48, 1, NIB_SCALE_LAYOUT_LINEAR,
					     TEST_SCALES_ANY, 0, 0);
	struct nib_packed *packed[MATRICES];
	size_t before;

	if (!test_alloc_works()) {
		test_nvfp4_free(&b);
		nib_device_close(device);
		skip();
	}
	/* Whatever threads and streams allocate once. */
	assert_ok(nib_pack(device, &b.view, NULL, &packed[0], NULL));
	nib_packed_free(packed[0]);
	before = used_bytes();
	for (int i = 0; i < MATRICES; i++)
		assert_ok(nib_pack(device, &b.view, NULL, &packed[i], NULL));
	assert_in_range(used_bytes() - before, MATRICES * 3 * 48 / 2, MATRICES * 2048);
	for (int i = 0; i < MATRICES; i++)
		nib_packed_free(packed[i]);
	test_nvfp4_free(&b);
	nib_device_close(device);
}

/* Sizes without values are not bounded by any memory. */
static void nothing_takes_nothing(void **state)
{
	static const struct nib_fp4 views[] = {
	    {.rows = INT64_C(1) << 40, .batch = INT64_C(1) << 21},
	    {.rows = 17, .batch = 3},
	    {.k = 64, .batch = 5},
	    {.k = 0},
	};
	struct nib_device *device = test_device("scalar", 2);

	for (size_t i = 0; i < sizeof(views) / sizeof(*views); i++) {
		struct nib_packed *packed = NULL;
		struct nib_error err;

		if (nib_pack(device, &views[i], NULL, &packed, &err) != NIB_STATUS_OK)
			fail_msg("%zu: %s", i, err.message);
		assert_int_equal(nib_packed_bytes(packed), 0);
		nib_packed_free(packed);
	}
	nib_device_close(device);
}

#define ROWS  37
#define COLS  96
#define BATCH 2

static struct test_nvfp4 matrix(struct rng *rng, int64_t rows)
{
	return test_nvfp4_new(rng, rows, COLS, BATCH, NIB_SCALE_LAYOUT_LINEAR,
			      TEST_SCALES_ANY, 0, 0);
}

static void assert_same_product(struct nib_plan *plan, struct nib_problem p,
				const struct nib_packed *packed,
				const struct test_dense *want)
{
	struct test_dense c = test_dense_new(NIB_DTYPE_FP32, 3, ROWS, BATCH, 0);
	struct nib_error err;

	p.c = c.view;
	p.b = (struct nib_fp4){0};
	p.b_packed = packed;
	assert_ok_err(nib_run(plan, &p, 1, NULL, &err), &err);
	assert_memory_equal(c.view.data, want->view.data, want->bytes);
	test_dense_free(&c);
}

/* A plan of the old weights multiplies by the new ones. */
static void an_update_gives_the_new_weights(void **state)
{
	struct nib_device *device = test_device("scalar", 2);
	struct rng rng = rng_new(test_seed());
	struct test_nvfp4 a = matrix(&rng, 3);
	struct test_nvfp4 b[] = {matrix(&rng, ROWS), matrix(&rng, ROWS)};
	struct test_dense want = test_dense_new(NIB_DTYPE_FP32, 3, ROWS, BATCH, 0);
	struct nib_problem p = {.a = a.view, .c = want.view};
	struct nib_packed *packed;
	struct nib_plan *plan;
	struct nib_error err;

	assert_ok(nib_pack_shared(device, &b[0].view, NULL, &packed, &err));
	/* A CPU has an order of its own. */
	assert_true(nib_packed_bytes(packed) >= b[0].codes_bytes);
	p.b_packed = packed;
	assert_ok(nib_plan_create(device, NIB_OP_GEMM, &p, 1, NULL, &plan, &err));
	p.b_packed = NULL;
	for (int i = 0; i < 2; i++) {
		p.b = b[i].view;
		if (i)
			assert_ok(nib_packed_update(packed, &b[i].view, NULL, &err));
		assert_ok(nib_multiply(device, NIB_OP_GEMM, &p, 1, &err));
		assert_same_product(plan, p, packed, &want);
	}
	nib_plan_free(plan);
	nib_packed_free(packed);
	test_dense_free(&want);
	test_nvfp4_free(&a);
	test_nvfp4_free(&b[0]);
	test_nvfp4_free(&b[1]);
	nib_device_close(device);
}

static void an_update_has_the_sizes(void **state)
{
	struct nib_device *device = test_device("scalar", 2);
	struct rng rng = rng_new(test_seed());
	struct test_nvfp4 b = matrix(&rng, ROWS);
	struct nib_packed *packed;
	struct nib_fp4 other = b.view;
	struct nib_error err;

	assert_ok(nib_pack(device, &b.view, NULL, &packed, &err));
	other.rows--;
	assert_int_equal(nib_packed_update(packed, &other, NULL, &err),
			 NIB_STATUS_BAD_ARGUMENT);
	assert_string_equal(err.argument, "b.rows");
	assert_string_equal(err.message, "b.rows = 36: must be 37, as in packed");
	other = b.view;
	other.k -= 16;
	assert_int_equal(nib_packed_update(packed, &other, NULL, &err),
			 NIB_STATUS_BAD_ARGUMENT);
	assert_string_equal(err.argument, "b.k");
	other = b.view;
	other.batch = 1;
	assert_int_equal(nib_packed_update(packed, &other, NULL, &err),
			 NIB_STATUS_BAD_ARGUMENT);
	assert_string_equal(err.argument, "b.batch");
	assert_ok(nib_packed_update(packed, &b.view, NULL, &err));
	nib_packed_free(packed);
	test_nvfp4_free(&b);
	nib_device_close(device);
}

/* ---- nib_unpack ------------------------------------------------------------ */

/* Rows, k, batch; gaps between rows of codes and, where linear, of scales. */
struct sizes {
	int64_t rows, k, batch, row_gap, scale_gap;
	enum nib_scale_layout layout;
};

static struct test_nvfp4 matrix_of(struct rng *rng, const struct sizes *s)
{
	return test_nvfp4_new(rng, s->rows, s->k, s->batch, s->layout, TEST_SCALES_ANY,
			      s->row_gap, s->scale_gap);
}

/* Scales of 0, over codes of 0 and others, and NaN, also at the edges. */
static void add_extremes(struct rng *rng, const struct nib_fp4 *v)
{
	const int64_t blocks = v->k / NIB_NVFP4_BLOCK;

	for (int64_t i = 0; i < v->batch * v->rows * blocks; i++) {
		const int64_t row = i / blocks % v->rows;
		const int64_t batch = i / blocks / v->rows;
		uint8_t *codes = nib_fp4_row(v, batch, row);
		uint8_t *scale = nib_fp4_scale(v, batch, row, i % blocks);

		switch (rng_below(rng, 8)) {
		case 0:
			memset(codes + i % blocks * 8, 0, 8);
			*scale = 0;
			break;
		case 1:
			*scale = 0;
			break;
		case 2:
			*scale = 0x7f;
			break;
		default:
			break;
		}
	}
}

static void assert_same_values(const struct nib_fp4 *got, const struct nib_fp4 *want)
{
	for (int64_t i = 0; i < want->batch * want->rows; i++) {
		const int64_t batch = i / want->rows, row = i % want->rows;

		assert_memory_equal(nib_fp4_row(got, batch, row),
				    nib_fp4_row(want, batch, row), (size_t)want->k / 2);
		for (int64_t k = 0; k < want->k / NIB_NVFP4_BLOCK; k++)
			assert_int_equal(*nib_fp4_scale(got, batch, row, k),
					 *nib_fp4_scale(want, batch, row, k));
	}
}

/* What lies between rows stays; the padding of tiles is 0. */
static void assert_gaps(const struct sizes *s, const struct test_nvfp4 *got,
			const uint8_t *codes_before, const uint8_t *scales_before)
{
	const int64_t stride = s->k / 2 + s->row_gap;
	const uint8_t *codes = got->view.codes, *scales = got->view.scales;
	const int64_t groups = s->k / NIB_NVFP4_BLOCK,
		      scale_stride = groups + s->scale_gap;
	int64_t sum = 0, want = 0;

	for (size_t i = 0; i < got->codes_bytes; i++)
		if ((int64_t)i % stride >= s->k / 2)
			assert_int_equal(codes[i], codes_before[i]);
	for (size_t i = 0; i < got->scales_bytes; i++) {
		sum += scales[i];
		if (s->layout == NIB_SCALE_LAYOUT_LINEAR &&
		    (int64_t)i % scale_stride >= groups)
			assert_int_equal(scales[i], scales_before[i]);
	}
	if (s->layout == NIB_SCALE_LAYOUT_LINEAR)
		return;
	for (int64_t i = 0; i < s->batch * s->rows * groups; i++)
		want += *nib_fp4_scale(&got->view, i / groups / s->rows,
				       i / groups % s->rows, i % groups);
	assert_int_equal(sum, want);
}

static void unpack_one(struct nib_device *device, struct rng *rng,
		       const struct sizes *from, const struct sizes *to)
{
	struct test_nvfp4 b = matrix_of(rng, from), back = matrix_of(rng, to);
	uint8_t *codes = guard_copy(back.view.codes, back.codes_bytes);
	uint8_t *scales = guard_copy(back.view.scales, back.scales_bytes);
	struct nib_packed *packed;
	struct nib_error err;

	add_extremes(rng, &b.view);
	if (nib_pack(device, &b.view, NULL, &packed, &err) ||
	    nib_unpack(packed, &back.view, NULL, &err))
		fail_msg("%s", err.message);
	assert_same_values(&back.view, &b.view);
	assert_gaps(to, &back, codes, scales);
	/* Other weights in the same place, none of the old ones. */
	add_extremes(rng, &b.view);
	if (nib_packed_update(packed, &b.view, NULL, &err) ||
	    nib_unpack(packed, &back.view, NULL, &err))
		fail_msg("%s", err.message);
	assert_same_values(&back.view, &b.view);
	nib_packed_free(packed);
	guard_free(codes, back.codes_bytes);
	guard_free(scales, back.scales_bytes);
	test_nvfp4_free(&b);
	test_nvfp4_free(&back);
}

static void unpacking_gives_what_was_packed(void **state)
{
	static const int64_t rows[] = {1, 2, 15, 16, 17, 33, 64, 130};
	static const int64_t blocks[] = {1, 3, 4, 5, 8, 15, 66};
	struct rng rng = rng_new(test_seed());

	for (int isa = 0; isa < TEST_ISAS; isa++)
		for (size_t i = 0; devices[isa] && i < sizeof(rows) / sizeof(*rows) * 7;
		     i++) {
			struct sizes from = {rows[i / 7],
					     blocks[i % 7] * NIB_NVFP4_BLOCK,
					     1 + rng_below(&rng, 3),
					     rng_below(&rng, 2) * 24,
					     0,
					     NIB_SCALE_LAYOUT_TILED_128X4};
			struct sizes to = from;

			if (rng_below(&rng, 2)) {
				from.layout = NIB_SCALE_LAYOUT_LINEAR;
				from.scale_gap = rng_below(&rng, 2) * 3;
			}
			to.row_gap = rng_below(&rng, 2) * 5;
			if (rng_below(&rng, 2)) {
				to.layout = NIB_SCALE_LAYOUT_LINEAR;
				to.scale_gap = rng_below(&rng, 2) * 7;
			}
			unpack_one(devices[isa], &rng, &from, &to);
		}
}

/* A view that nib_unpack() refuses keeps its bytes. */
static void unpacking_has_the_sizes(void **state)
{
	struct nib_device *device = test_device("scalar", 2);
	struct rng rng = rng_new(test_seed());
	struct test_nvfp4 b = matrix(&rng, ROWS);
	struct nib_fp4 other = b.view;
	struct nib_packed *packed;
	struct nib_error err;

	assert_ok(nib_pack(device, &b.view, NULL, &packed, &err));
	other.rows++;
	assert_int_equal(nib_unpack(packed, &other, NULL, &err),
			 NIB_STATUS_BAD_ARGUMENT);
	assert_string_equal(err.message, "to.rows = 38: must be 37, as in packed");
	other = b.view;
	other.k += 16;
	assert_int_equal(nib_unpack(packed, &other, NULL, &err),
			 NIB_STATUS_BAD_ARGUMENT);
	assert_string_equal(err.argument, "to.k");
	other = b.view;
	other.batch++;
	assert_int_equal(nib_unpack(packed, &other, NULL, &err),
			 NIB_STATUS_BAD_ARGUMENT);
	assert_string_equal(err.argument, "to.batch");
	other = b.view;
	other.scales = (uint8_t *)other.codes + 1;
	assert_int_equal(nib_unpack(packed, &other, NULL, &err),
			 NIB_STATUS_BAD_ARGUMENT);
	assert_string_equal(err.argument, "to.scales");
	other = b.view;
	other.codes = NULL;
	assert_int_equal(nib_unpack(packed, &other, NULL, &err),
			 NIB_STATUS_BAD_ARGUMENT);
	assert_string_equal(err.argument, "to.codes");
	nib_packed_free(packed);
	test_nvfp4_free(&b);
	nib_device_close(device);
}

/* Weights without values have none to write, whatever their sizes are. */
static void unpacking_nothing_writes_nothing(void **state)
{
	static const struct nib_fp4 view = {.rows = INT64_C(1) << 40,
					    .batch = INT64_C(1) << 21};
	struct nib_device *device = test_device("scalar", 2);
	struct nib_packed *packed;
	struct nib_error err;

	assert_ok(nib_pack(device, &view, NULL, &packed, &err));
	assert_ok(nib_unpack(packed, &view, NULL, &err));
	nib_packed_free(packed);
	nib_device_close(device);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(an_update_gives_the_new_weights),
	    cmocka_unit_test(an_update_has_the_sizes),
	    cmocka_unit_test(tiny_weights_take_little),
	    cmocka_unit_test(nothing_takes_nothing),
	    cmocka_unit_test(unpacking_gives_what_was_packed),
	    cmocka_unit_test(unpacking_has_the_sizes),
	    cmocka_unit_test(unpacking_nothing_writes_nothing),
	};

	return cmocka_run_group_tests(tests, open_devices, close_devices);
}
