/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_dequantize.c - compares dequantisation and scale layouts of every instruction
 * set with the definitions, byte for byte, at guard pages.
 */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/data.h"
#include "common/unit.h"
#include "format/half.h"
#include "format/quantize_ref.h"
#include "format/view.h"

static const enum nib_dtype dtypes[3] = {NIB_DTYPE_FP32, NIB_DTYPE_FP16,
					 NIB_DTYPE_BF16};

/* ---- dequantise
 * -------------------------------------------------------------- */

static void dequantize_ref(const struct nib_fp4 *q, float global,
			   const struct nib_dense *y)
{
	for (int64_t b = 0; b < nib_fp4_batches(q); b++)
		for (int64_t r = 0; r < q->rows; r++)
			for (int64_t c = 0; c < q->k; c++) {
				const uint8_t *row = nib_fp4_row(q, b, r);
				const unsigned code = row[c / 2] >> (c % 2 * 4) & 15;

				nib_dense_set_bits(
				    y, b, r, c,
				    nib_dequantize_ref(
					code,
					*nib_fp4_scale(q, b, r, c / NIB_NVFP4_BLOCK),
					global, y->dtype));
			}
}

static void check_dequantize(const struct nib_fp4 *q, float global,
			     enum nib_dtype dtype, int64_t gap, int threads)
{
	struct test_dense want = test_dense_new(dtype, q->rows, q->k, q->batch, gap);
	const bool is_between = q->batch_stride_bytes < q->row_stride_bytes;
	const struct nib_dequantize_options by_pointer = {sizeof(by_pointer), NULL,
							  &global};

	if (is_between)
		test_dense_between(&want.view);
	dequantize_ref(q, global, &want.view);
	for (int i = 0; i < TEST_ISAS; i++) {
		struct nib_device *device = test_device(test_isas[i], threads);
		struct test_dense got;

		if (!device)
			continue;
		got = test_dense_new(dtype, q->rows, q->k, q->batch, gap);
		if (is_between)
			test_dense_between(&got.view);
		assert_ok(nib_dequantize(device, q, i % 2 ? 0 : global, &got.view,
					 i % 2 ? &by_pointer : NULL, NULL));
		if (memcmp(got.view.data, want.view.data, want.bytes) != 0)
			print_error("isa %s dtype %d global %a [%lld, %lld]\n",
				    test_isas[i], (int)dtype, (double)global,
				    (long long)q->rows, (long long)q->k);
		assert_memory_equal(got.view.data, want.view.data, want.bytes);
		test_dense_free(&got);
		nib_device_close(device);
	}
	test_dense_free(&want);
}

/*
 * All 256 scale bytes times all 16 codes, at every kind of global scale.  With
 * 0x1.3f07c2p+8, rounding to fp32 first makes a tie of bf16 that is none.
 */
static void every_value(void **state)
{
	static const float globals[] = {1,
					0.0123f,
					0,
					-0.0f,
					-3.1f,
					0x1p-149f,
					1e-40f,
					1e-30f,
					1e38f,
					FLT_MAX,
					INFINITY,
					NAN,
					0x1p-24f,
					0.1f,
					0x1p-15f,
					36.55f,
					-1e-41f,
					0x1.fffffep-127f,
					0x1.3f07c2p+8f};
	struct rng rng = rng_new(test_seed());
	struct test_nvfp4 q = test_nvfp4_new(
	    &rng, 3, 16 * 256, 1, NIB_SCALE_LAYOUT_LINEAR, TEST_SCALES_ANY, 0, 0);

	for (int i = 0; i < 3 * 256; i++) {
		((uint8_t *)q.view.scales)[i] = (uint8_t)i;
		for (int j = 0; j < 8; j++)
			((uint8_t *)q.view.codes)[8 * i + j] =
			    (uint8_t)((2 * j) | (2 * j + 1) << 4);
	}
	for (size_t g = 0; g < sizeof(globals) / sizeof(*globals); g++)
		for (int t = 0; t < 3; t++)
			check_dequantize(&q.view, globals[g], dtypes[t], 0, 1);
	test_nvfp4_free(&q);
}

static void shapes(void **state)
{
	static const int64_t rows[] = {0, 1, 2, 127, 129, 300};
	static const int64_t ks[] = {0, 16, 32, 48, 64, 80, 240, 4112};
	struct rng rng = rng_new(test_seed());

	for (size_t r = 0; r < 6; r++)
		for (size_t k = 0; k < 8; k++)
			for (int i = 0; i < 4; i++) {
				const enum nib_scale_layout layout =
				    (enum nib_scale_layout)(i % 2);
				struct test_nvfp4 q;

				if (rows[r] > 2 && ks[k] > 240)
					continue;
				q = test_nvfp4_new(&rng, rows[r], ks[k], 1 + i / 2,
						   layout, TEST_SCALES_ANY, i / 2 * 5,
						   layout ? 0 : i / 2 * 3);
				if (i / 2 && r % 2)
					test_nvfp4_between(&q.view);
				check_dequantize(&q.view, 0.37f, dtypes[(r + k) % 3],
						 i / 2 * 7, 1 + i % 3);
				test_nvfp4_free(&q);
			}
}

/* Large enough to be streamed past the caches, at odd addresses. */
static void streamed(void **state)
{
	struct rng rng = rng_new(test_seed());
	struct test_nvfp4 q = test_nvfp4_new(
	    &rng, 261, 16 * 2100, 1, NIB_SCALE_LAYOUT_LINEAR, TEST_SCALES_ANY, 1, 0);

	check_dequantize(&q.view, 0.5f, NIB_DTYPE_FP32, 3, 2);
	check_dequantize(&q.view, 0.5f, NIB_DTYPE_BF16, 5, 2);
	test_nvfp4_free(&q);
}

/* ---- scale layouts
 * ------------------------------------------------------------ */

static void convert_ref(const struct nib_fp4 *from, const struct nib_fp4 *to)
{
	for (int64_t b = 0; b < nib_fp4_batches(from); b++) {
		if (to->scale_layout == NIB_SCALE_LAYOUT_TILED_128X4)
			memset(nib_fp4_scales(to, b), 0,
			       nib_scales_bytes(NIB_SCALE_LAYOUT_TILED_128X4, to->rows,
						to->k));
		for (int64_t r = 0; r < from->rows; r++)
			for (int64_t g = 0; g < from->k / NIB_NVFP4_BLOCK; g++)
				*nib_fp4_scale(to, b, r, g) =
				    *nib_fp4_scale(from, b, r, g);
	}
}

/* The output lies behind_bytes before a guard page. */
static void check_convert(struct rng *rng, int64_t rows, int64_t k, int64_t batch,
			  enum nib_scale_layout from, enum nib_scale_layout to,
			  int64_t gap, int threads, size_t behind_bytes,
			  bool is_between)
{
	struct test_nvfp4 source = test_nvfp4_new(rng, rows, k, batch, from,
						  TEST_SCALES_ANY, 0, from ? 0 : gap);
	struct test_nvfp4 want =
	    test_nvfp4_new(rng, rows, k, batch, to, TEST_SCALES_ONE, 0, to ? 0 : gap);

	if (is_between) {
		test_nvfp4_between(&source.view);
		test_nvfp4_between(&want.view);
	}
	memset(want.view.scales, GUARD_POISON, want.scales_bytes);
	convert_ref(&source.view, &want.view);
	for (int i = 0; i < TEST_ISAS; i++) {
		struct nib_device *device = test_device(test_isas[i], threads);
		struct nib_fp4 in = source.view, out = want.view;

		if (!device)
			continue;
		out.scales = guard_new(want.scales_bytes + behind_bytes);
		in.codes = out.codes = NULL; /* not looked at */
		assert_ok(nib_convert_scales(device, &in, &out, NULL, NULL));
		if (memcmp(out.scales, want.view.scales, want.scales_bytes))
			print_error("isa %s [%lld, %lld] %d to %d\n", test_isas[i],
				    (long long)rows, (long long)k, (int)from, (int)to);
		assert_memory_equal(out.scales, want.view.scales, want.scales_bytes);
		for (size_t j = 0; j < behind_bytes; j++)
			assert_int_equal(((uint8_t *)out.scales)[want.scales_bytes + j],
					 GUARD_POISON);
		guard_free(out.scales, want.scales_bytes + behind_bytes);
		nib_device_close(device);
	}
	test_nvfp4_free(&source);
	test_nvfp4_free(&want);
}

static void layouts(void **state)
{
	static const int64_t rows[] = {0,  1,  4,   5,	 31,  32, 33,
				       96, 97, 127, 128, 129, 300};
	static const int64_t ks[] = {0,	  16,  32,  48,	 64,   80,   240,
				     256, 272, 320, 448, 1040, 4096, 4176};
	struct rng rng = rng_new(test_seed());

	for (size_t r = 0; r < sizeof(rows) / sizeof(*rows); r++)
		for (size_t k = 0; k < sizeof(ks) / sizeof(*ks); k++)
			for (int i = 0; i < 4; i++)
				check_convert(&rng, rows[r], ks[k], 1 + (int)(k % 3),
					      (enum nib_scale_layout)(i % 2),
					      (enum nib_scale_layout)(i / 2),
					      (int)(r % 2) * 3, 1 + (int)(r + k) % 3, 0,
					      (r + k) % 2);
}

/*
 * Large enough to go past the caches, in several pieces a row: rows of whole
 * cache lines, with a gap of one, at odd addresses, and with every kind of end.
 */
static void layouts_streamed(void **state)
{
	static const struct {
		int64_t rows, groups, gap;
		size_t behind_bytes;
	} cases[] = {
	    {256, 2112, 0, 0},	{256, 2112, 64, 0}, {384, 1408, 0, 16},
	    {1280, 448, 0, 32}, {300, 1801, 0, 0},  {300, 1802, 5, 1},
	    {511, 1084, 3, 64}, {129, 4160, 0, 0},
	};
	struct rng rng = rng_new(test_seed());

	for (size_t c = 0; c < sizeof(cases) / sizeof(*cases); c++)
		for (int i = 0; i < 2; i++)
			check_convert(
			    &rng, cases[c].rows, cases[c].groups * NIB_NVFP4_BLOCK,
			    1 + (int64_t)(c % 2),
			    i ? NIB_SCALE_LAYOUT_LINEAR : NIB_SCALE_LAYOUT_TILED_128X4,
			    i ? NIB_SCALE_LAYOUT_TILED_128X4 : NIB_SCALE_LAYOUT_LINEAR,
			    cases[c].gap, 1 + (int)c % 3, cases[c].behind_bytes, false);
}

/* ---- refusals
 * ----------------------------------------------------------------- */

static void begins(const struct nib_error *err, const char *what)
{
	if (strncmp(err->message, what, strlen(what)) != 0)
		fail_msg("'%s' does not begin with '%s'", err->message, what);
}

static void refusals(void **state)
{
	struct nib_device *device = test_device("scalar", 1);
	struct rng rng = rng_new(test_seed());
	struct test_nvfp4 q = test_nvfp4_new(&rng, 4, 64, 1, NIB_SCALE_LAYOUT_LINEAR,
					     TEST_SCALES_ANY, 0, 0);
	struct test_dense y = test_dense_new(NIB_DTYPE_FP32, 4, 64, 1, 0);
	struct nib_fp4 to = q.view;
	struct nib_dense yv = y.view;
	float global = 1;
	struct nib_dequantize_options options = {sizeof(options), NULL, &global};
	struct nib_error err;

	assert_int_equal(nib_dequantize(NULL, &q.view, 1, &y.view, NULL, &err),
			 NIB_STATUS_BAD_ARGUMENT);
	begins(&err, "device = NULL");
	assert_int_equal(nib_dequantize(device, NULL, 1, &y.view, NULL, &err),
			 NIB_STATUS_BAD_ARGUMENT);
	begins(&err, "q = NULL");
	assert_int_equal(nib_dequantize(device, &q.view, 1, NULL, NULL, &err),
			 NIB_STATUS_BAD_ARGUMENT);
	begins(&err, "y = NULL");
	yv.rows = 3;
	assert_int_equal(nib_dequantize(device, &q.view, 1, &yv, NULL, &err),
			 NIB_STATUS_BAD_ARGUMENT);
	begins(&err, "y.rows = 3: must equal q.rows = 4");
	yv = y.view;
	yv.data = q.view.codes;
	assert_int_equal(nib_dequantize(device, &q.view, 1, &yv, NULL, &err),
			 NIB_STATUS_BAD_ARGUMENT);
	begins(&err, "y = ");
	assert_int_equal(nib_dequantize(device, &q.view, 1, &y.view, &options, &err),
			 NIB_STATUS_BAD_ARGUMENT);
	begins(&err, "global = 1: must be 0 with options.global_pointer");
	options.global_pointer = (const float *)y.view.data + 5;
	assert_int_equal(nib_dequantize(device, &q.view, 0, &y.view, &options, &err),
			 NIB_STATUS_BAD_ARGUMENT);
	begins(&err, "y = ");
	assert_int_equal(nib_convert_scales(device, &q.view, &to, NULL, &err),
			 NIB_STATUS_BAD_ARGUMENT);
	begins(&err, "to.scales = ");
	to.scales = NULL;
	assert_int_equal(nib_convert_scales(device, &q.view, &to, NULL, &err),
			 NIB_STATUS_BAD_ARGUMENT);
	begins(&err, "to.scales = ");
	to.scales = y.view.data;
	to.k = 48;
	assert_int_equal(nib_convert_scales(device, &q.view, &to, NULL, &err),
			 NIB_STATUS_BAD_ARGUMENT);
	begins(&err, "to.k = 48: must equal from.k = 64");
	test_nvfp4_free(&q);
	test_dense_free(&y);
	nib_device_close(device);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(every_value),	cmocka_unit_test(shapes),
	    cmocka_unit_test(streamed),		cmocka_unit_test(layouts),
	    cmocka_unit_test(layouts_streamed), cmocka_unit_test(refusals),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
