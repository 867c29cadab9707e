/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_quantize.c - compares quantisation and amax of every instruction set with the
 * definition (format/quantize_ref.h), byte for byte, at guard pages.
 * test_quantize_arguments.c tests what they refuse.
 */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/data.h"
#include "common/float_mode.h"
#include "common/unit.h"
#include "format/e4m3.h"
#include "format/half.h"
#include "format/quantize_ref.h"
#include "format/view.h"

enum data {
	BITS,	    /* every finite bit pattern */
	NORMAL,	    /* a bell curve */
	SPREAD,	    /* each block its own magnitude: every scale byte */
	TIES,	    /* on the boundaries between codes, and next to them */
	SUBNORMALS, /* of x's type */
	ZEROS,	    /* most blocks 0 and -0 */
	DATA_COUNT,
};

struct test_case {
	enum data data;
	enum nib_dtype dtype;
	int64_t rows, k, batch, x_gap;
	enum nib_scale_layout layout;
	int64_t code_gap, scale_gap;
	bool is_between; /* batches between the rows, of x and of q */
	struct nib_quantize_options options;
};

static const enum nib_dtype dtypes[3] = {NIB_DTYPE_FP32, NIB_DTYPE_FP16,
					 NIB_DTYPE_BF16};

static struct nib_quantize_options options_of(enum nib_zero_scale zero_scale,
					      float global, int saturate)
{
	return (struct nib_quantize_options){.struct_bytes =
						 sizeof(struct nib_quantize_options),
					     .zero_scale = zero_scale,
					     .global = global,
					     .saturate = saturate};
}

/* ---- data --------------------------------------------------------------- */

static uint32_t finite_bits(uint32_t bits, enum nib_dtype dtype)
{
	const struct nib_float_format f = nib_dtype_format(dtype);
	const uint32_t infinity = (uint32_t)nib_infinity_bits(f);

	if (dtype != NIB_DTYPE_FP32)
		bits &= 0xFFFF;
	return (bits & infinity) == infinity ? bits ^ (UINT32_C(1) << f.fraction_bits)
					     : bits;
}

static uint32_t round_finite(double x, enum nib_dtype dtype)
{
	return finite_bits(nib_fp64_to_dtype(x, dtype), dtype);
}

/* One block of a case; scale: the byte that the block should get. */
static uint32_t element_bits(struct rng *rng, const struct test_case *c, int i,
			     double d)
{
	static const double edges[8] = {0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5, 6};
	const uint32_t random = (uint32_t)rng_next(rng);
	uint32_t bits;

	switch (c->data) {
	case BITS:
		return finite_bits(random, c->dtype);
	case NORMAL:
		return round_finite(rng_normal(rng), c->dtype);
	case SPREAD:
		return round_finite(rng_normal(rng) * d, c->dtype);
	case TIES:
		bits = round_finite((i ? edges[random % 8] : 6) * d, c->dtype);
		bits += i && (bits & 0x7FFF) ? random / 8 % 3 - 1 : 0;
		bits = finite_bits(bits, c->dtype);
		return bits ^ (random >> 31 << (c->dtype == NIB_DTYPE_FP32 ? 31 : 15));
	case SUBNORMALS:
		if (c->dtype == NIB_DTYPE_FP32)
			return random & 0x80FFFFFF;
		return random & (c->dtype == NIB_DTYPE_FP16 ? 0x87FF : 0x80FF);
	default:
		break;
	}
	return random % 256 == 0
		   ? finite_bits(random, c->dtype)
		   : (random & 1) << (c->dtype == NIB_DTYPE_FP32 ? 31 : 15);
}

static void fill(struct rng *rng, const struct test_case *c, const struct nib_dense *x)
{
	const float global = c->options.global > 0 ? c->options.global : 0.01f;
	double d = 0;

	for (int64_t i = 0; i < c->batch * c->rows * c->k; i++) {
		if (i % NIB_NVFP4_BLOCK == 0)
			d = (double)nib_e4m3_to_float(
				(uint8_t)(1 + rng_below(rng, 126))) *
			    (double)global;
		nib_dense_set_bits(x, i / (c->rows * c->k), i / c->k % c->rows,
				   i % c->k,
				   element_bits(rng, c, (int)(i % NIB_NVFP4_BLOCK), d));
	}
}

/* ---- the definition ----------------------------------------------------- */

static float amax_ref(const struct nib_dense *x)
{
	float most = 0;

	for (int64_t b = 0; b < nib_dense_batches(x); b++)
		for (int64_t r = 0; r < x->rows; r++)
			for (int64_t c = 0; c < x->cols; c++) {
				const float v = fabsf(nib_dense_get(x, b, r, c));

				if (isfinite(v) && v > most)
					most = v;
			}
	return most;
}

static void quantize_ref(const struct nib_dense *x, const struct nib_fp4 *q,
			 const struct nib_quantize_options *options, float *global)
{
	float block[NIB_NVFP4_BLOCK];

	*global = options->global > 0 ? options->global
				      : nib_global_ref(amax_ref(x), options->scales);
	for (int64_t b = 0; b < nib_dense_batches(x); b++) {
		if (q->scale_layout == NIB_SCALE_LAYOUT_TILED_128X4)
			memset(nib_fp4_scales(q, b), 0,
			       nib_scales_bytes(NIB_SCALE_LAYOUT_TILED_128X4, q->rows,
						q->k));
		for (int64_t r = 0; r < x->rows; r++)
			for (int64_t g = 0; g < x->cols / NIB_NVFP4_BLOCK; g++) {
				for (int i = 0; i < NIB_NVFP4_BLOCK; i++)
					block[i] = nib_dense_get(
					    x, b, r, g * NIB_NVFP4_BLOCK + i);
				assert_int_equal(
				    nib_quantize_block_ref(
					block, *global, options->zero_scale,
					options->scales,
					options->column_weights
					    ? options->column_weights +
						  g * NIB_NVFP4_BLOCK
					    : NULL,
					options->saturate, nib_fp4_row(q, b, r) + 8 * g,
					nib_fp4_scale(q, b, r, g)),
				    -1);
			}
	}
}

/* ---- one case on every instruction set ---------------------------------- */

static struct test_nvfp4 output_new(const struct test_case *c)
{
	struct rng rng = rng_new(1);
	struct test_nvfp4 q =
	    test_nvfp4_new(&rng, c->rows, c->k, c->batch, c->layout, TEST_SCALES_ONE,
			   c->code_gap, c->scale_gap);

	if (c->is_between)
		test_nvfp4_between(&q.view);
	memset(q.view.codes, GUARD_POISON, q.codes_bytes);
	memset(q.view.scales, GUARD_POISON, q.scales_bytes);
	return q;
}

static void describe(const struct test_case *c, const char *isa, int threads)
{
	print_error(
	    "isa %s threads %d: data %d dtype %d [%lld, %lld] batch "
	    "%lld gaps %lld %lld %lld between %d layout %d zero_scale %d scales %d global %a\n",
	    isa, threads, (int)c->data, (int)c->dtype, (long long)c->rows,
	    (long long)c->k, (long long)c->batch, (long long)c->x_gap,
	    (long long)c->code_gap, (long long)c->scale_gap, c->is_between,
	    (int)c->layout, (int)c->options.zero_scale, (int)c->options.scales,
	    (double)c->options.global);
}

static void check_backend(const struct test_case *c, const struct nib_dense *x,
			  const struct test_nvfp4 *want, float want_global,
			  const char *isa, int threads)
{
	struct nib_device *device = test_device(isa, threads);
	struct test_nvfp4 got;
	struct nib_error err;
	float global = -1;
	enum nib_status status;

	if (!device)
		return;
	got = output_new(c);
	status = nib_quantize(device, x, &got.view, &c->options, &global, &err);
	if (status != NIB_STATUS_OK ||
	    nib_fp32_bits(global) != nib_fp32_bits(want_global) ||
	    memcmp(got.view.scales, want->view.scales, want->scales_bytes) != 0 ||
	    memcmp(got.view.codes, want->view.codes, want->codes_bytes) != 0)
		describe(c, isa, threads);
	if (status != NIB_STATUS_OK)
		fail_msg("%s", err.message);
	assert_int_equal(nib_fp32_bits(global), nib_fp32_bits(want_global));
	assert_memory_equal(got.view.scales, want->view.scales, want->scales_bytes);
	assert_memory_equal(got.view.codes, want->view.codes, want->codes_bytes);
	test_nvfp4_free(&got);
	nib_device_close(device);
}

static void check_case(struct rng *rng, const struct test_case *c)
{
	struct test_dense x =
	    test_dense_new(c->dtype, c->rows, c->k, c->batch, c->x_gap);
	struct test_nvfp4 want = output_new(c);
	float global;

	if (c->is_between)
		test_dense_between(&x.view);
	fill(rng, c, &x.view);
	quantize_ref(&x.view, &want.view, &c->options, &global);
	for (int i = 0; i < TEST_ISAS; i++)
		for (int threads = 1; threads <= 3; threads++)
			check_backend(c, &x.view, &want, global, test_isas[i], threads);
	test_nvfp4_free(&want);
	test_dense_free(&x);
}

/* ---- tests -------------------------------------------------------------- */

static void values(void **state)
{
	static const float globals[] = {0,	   1,		0x1p-7f,       0.0123f,
					3.7f,	   1e30f,	1e-30f,	       1e-40f,
					0x1p-149f, 0x1p-140f,	0x1p60f,       5e-7f,
					FLT_MIN,   FLT_MAX / 6, 0x1.fffffep-1f};
	struct rng rng = rng_new(test_seed());

	for (int data = 0; data < DATA_COUNT; data++)
		for (int t = 0; t < 3; t++)
			for (size_t g = 0; g < sizeof(globals) / sizeof(*globals);
			     g++) {
				struct test_case c = {
				    .data = (enum data)data,
				    .dtype = dtypes[t],
				    .rows = test_is_tiny() ? 2 : 7,
				    .k = test_is_tiny() ? 16 * 19 : 16 * 83,
				    .batch = 1,
				};
				c.options = options_of((enum nib_zero_scale)(g % 3),
						       globals[g], 0);
				check_case(&rng, &c);
			}
}

/* Zeros, ones and any numbers up to the largest that is allowed; of exactly k. */
static float *weights_new(struct rng *rng, int64_t k)
{
	float *weights = malloc((size_t)k * sizeof(*weights));

	assert_non_null(weights);
	for (int64_t i = 0; i < k; i++)
		weights[i] = rng_below(rng, 8) == 0
				 ? (float)rng_below(rng, 2)
				 : ldexpf((float)(1 + rng_below(rng, 1000)) / 1000,
					  (int)rng_below(rng, 2) *
					      ((int)rng_below(rng, 200) - 99));
	return weights;
}

/* Every rule of enum nib_scales; tests/python/test_scales.py tests the definition. */
static void searched_scales(void **state)
{
	static const float globals[] = {0,	   0.0123f, 1e30f,	1e-40f,
					0x1p-149f, 0x1p60f, FLT_MAX / 6};
	/* Odd numbers of blocks. */
	const int64_t ks[] = {test_is_tiny() ? 16 * 7 : 16 * 33,
			      test_is_tiny() ? 16 * 5 : 16 * 19};
	struct rng rng = rng_new(test_seed());

	for (int i = 0; i < 4 * DATA_COUNT * 3; i++)
		for (size_t g = 0; g < sizeof(globals) / sizeof(*globals); g++) {
			struct test_case c = {
			    .data = (enum data)(i / 4 % DATA_COUNT),
			    .dtype = dtypes[i / 4 / DATA_COUNT],
			    .rows = 3,
			    .k = ks[g % 2],
			    .batch = 1,
			    .x_gap = g % 3 ? 0 : 5,
			    .layout = (enum nib_scale_layout)(g % 2),
			};
			float *weights;

			c.options =
			    options_of((enum nib_zero_scale)(g % 3), globals[g], 0);
			c.options.scales = (enum nib_scales)(1 + i % 2);
			c.options.column_weights = weights =
			    i & 2 ? weights_new(&rng, c.k) : NULL;
			check_case(&rng, &c);
			free(weights);
		}
}

static void zero_scales(void **state)
{
	struct rng rng = rng_new(test_seed());

	for (int zero_scale = 0; zero_scale < 3; zero_scale++)
		for (int t = 0; t < 3; t++)
			for (int data = 0; data < DATA_COUNT; data++) {
				struct test_case c = {
				    .data = (enum data)data,
				    .dtype = dtypes[t],
				    .rows = 3,
				    .k = 16 * 40,
				    .batch = 2,
				};
				c.options =
				    options_of((enum nib_zero_scale)zero_scale, 0, 0);
				check_case(&rng, &c);
			}
}

static void shapes(void **state)
{
	static const int64_t rows[] = {0, 1, 2, 127, 128, 129, 300};
	static const int64_t ks[] = {0, 16, 32, 48, 64, 80, 240, 8192, 8240};
	struct rng rng = rng_new(test_seed());

	for (size_t r = 0; r < 7; r++)
		for (size_t k = 0; k < 9; k++)
			for (int i = 0; i < 6; i++) {
				struct test_case c = {
				    .data = SPREAD,
				    .dtype = dtypes[(r + k) % 3],
				    .rows = rows[r],
				    .k = ks[k],
				    .batch = 1 + i % 3,
				    .layout = (enum nib_scale_layout)(i % 2),
				    .x_gap = i / 2 % 2 * 3,
				    .code_gap = i / 2 % 2 * 5,
				    .scale_gap = i % 2 ? 0 : i / 2 % 2 * 7,
				    .is_between = i > 3,
				};
				if (rows[r] > 2 && ks[k] > 240 && i > 1)
					continue;
				if (test_is_tiny() && rows[r] * ks[k] > 20000)
					continue;
				c.options = options_of(NIB_ZERO_SCALE_MODELOPT,
						       i % 2 ? 0.0f : 0.01f, 0);
				check_case(&rng, &c);
			}
}

/* Without gaps rows are one long row: a gap in only one of x, codes and scales. */
static void single_gaps(void **state)
{
	struct rng rng = rng_new(test_seed());

	for (int i = 0; i < 12; i++) {
		struct test_case c = {
		    .data = SPREAD,
		    .dtype = dtypes[i % 3],
		    .rows = 5,
		    .k = 48,
		    .batch = 1 + i % 2,
		    .x_gap = i / 3 == 0 ? 16 : 0,
		    .code_gap = i / 3 == 1 ? 8 : 0,
		    .scale_gap = i / 3 == 2 ? 1 : 0,
		};

		c.options = options_of(NIB_ZERO_SCALE_MODELOPT, 0.01f, 0);
		check_case(&rng, &c);
	}
}

/* The caller's rounding and flush modes change nothing. */
static void caller_modes(void **state)
{
	static const int modes[] = {MODE_FLUSH, MODE_DOWN, MODE_UP, MODE_ZERO};
	struct nib_device *device = test_device("scalar", 1);
	const float globals[] = {0, 1e-40f};
	struct rng rng = rng_new(test_seed());

	nib_device_close(device);
	for (int i = 0; i < 4; i++)
		for (int g = 0; g < 2; g++)
			for (int isa = 0; isa < TEST_ISAS; isa++) {
				struct test_case c = {
				    .data = SUBNORMALS,
				    .rows = 3,
				    .k = 496,
				    .batch = 1,
				};
				struct test_dense x;
				struct test_nvfp4 want;
				float global;

				c.options =
				    options_of(NIB_ZERO_SCALE_MODELOPT, globals[g], 0);
				c.options.scales = (enum nib_scales)(i % 3);
				x = test_dense_new(NIB_DTYPE_FP32, 3, 496, 1, 0);
				want = output_new(&c);
				fill(&rng, &c, &x.view);
				quantize_ref(&x.view, &want.view, &c.options, &global);
				test_mode_set(modes[i]);
				check_backend(&c, &x.view, &want, global,
					      test_isas[isa], 1);
				test_mode_set(0);
				test_nvfp4_free(&want);
				test_dense_free(&x);
			}
}

static uint32_t bad_bits(enum nib_dtype dtype, bool nan, bool negative)
{
	const struct nib_float_format f = nib_dtype_format(dtype);

	return (uint32_t)(nib_sign_bits(f, negative) | nib_infinity_bits(f) | nan);
}

static void check_bad(const char *isa, int threads, const struct test_case *c,
		      const struct nib_dense *x, const char *where)
{
	struct nib_device *device = test_device(isa, threads);
	struct test_nvfp4 q;
	struct nib_error err = {0};
	float amax = 7;

	if (!device)
		return;
	q = output_new(c);
	assert_int_equal(nib_quantize(device, x, &q.view, &c->options, NULL, &err),
			 NIB_STATUS_BAD_DATA);
	if (!strstr(err.message, where))
		fail_msg("%s: '%s' has no '%s'", isa, err.message, where);
	err.message[0] = '\0';
	assert_int_equal(nib_amax(device, x, 0, NULL, &amax, &err),
			 NIB_STATUS_BAD_DATA);
	assert_true(amax == 7);
	if (!strstr(err.message, where))
		fail_msg("%s: '%s' has no '%s'", isa, err.message, where);
	assert_ok(nib_amax(device, x, 1, NULL, &amax, &err));
	assert_true(amax == amax_ref(x));
	test_nvfp4_free(&q);
	nib_device_close(device);
}

/* The first inf or NaN is named, for any threads; saturated, it is a value. */
static void not_finite(void **state)
{
	/* Threads get parts of long rows, and several short ones. */
	const int64_t few_rows = test_is_small() ? 3 : 13;
	const int64_t short_k = test_is_small() ? 112 : 1040;
	struct rng rng = rng_new(test_seed());
	char where[80];

	for (int i = 0; i < 36; i++) {
		struct test_case c = {
		    .data = SPREAD,
		    .dtype = dtypes[i % 3],
		    .rows = i % 2 ? few_rows : 130,
		    .k = i % 2 ? 9232 : short_k,
		    .batch = 2,
		    .x_gap = i & 4 ? 3 : 0,
		    .layout = (enum nib_scale_layout)(i / 3 % 2),
		};
		struct test_dense x;
		const int64_t n = c.batch * c.rows * c.k;
		int64_t first = n;

		c.options =
		    options_of(NIB_ZERO_SCALE_MODELOPT, i & 8 ? 0.01f : 0.0f, 0);
		x = test_dense_new(c.dtype, c.rows, c.k, c.batch, c.x_gap);
		c.options.scales = (enum nib_scales)(i / 2 % 3);
		fill(&rng, &c, &x.view);
		for (int j = 0; j < 1 + i % 5; j++) {
			const int64_t at = rng_below(&rng, n);

			nib_dense_set_bits(&x.view, at / (c.rows * c.k),
					   at / c.k % c.rows, at % c.k,
					   bad_bits(c.dtype, i % 2, j % 2));
			first = at < first ? at : first;
		}
		snprintf(where, sizeof(where), "batch %d, row %d, col %d] = %s",
			 (int)(first / (c.rows * c.k)), (int)(first / c.k % c.rows),
			 (int)(first % c.k), i % 2 ? "nan" : "inf");
		for (int isa = 0; isa < TEST_ISAS; isa++)
			for (int threads = 1; threads <= 3; threads++)
				check_bad(test_isas[isa], threads, &c, &x.view, where);
		test_dense_free(&x);
	}
}

static void saturated(void **state)
{
	struct rng rng = rng_new(test_seed());

	for (int i = 0; i < 24; i++) {
		struct test_case c = {
		    .data = i & 4 ? SPREAD : ZEROS,
		    .dtype = dtypes[i % 3],
		    .rows = 5,
		    .k = 1040,
		    .batch = 1,
		    .layout = (enum nib_scale_layout)(i / 3 % 2),
		};
		struct test_dense x = test_dense_new(c.dtype, 5, c.k, 1, 0);
		struct test_nvfp4 want = output_new(&c);
		float global;

		c.options = options_of((enum nib_zero_scale)(i / 2 % 3),
				       i & 8 ? 0.01f : 0.0f, 1);
		c.options.scales = (enum nib_scales)(i / 6 % 3);
		fill(&rng, &c, &x.view);
		for (int j = 0; j < 40; j++)
			nib_dense_set_bits(&x.view, 0, j % 5, rng_below(&rng, c.k),
					   bad_bits(c.dtype, j & 1, j & 2));
		quantize_ref(&x.view, &want.view, &c.options, &global);
		for (int isa = 0; isa < TEST_ISAS; isa++)
			check_backend(&c, &x.view, &want, global, test_isas[isa],
				      1 + i % 3);
		test_nvfp4_free(&want);
		test_dense_free(&x);
	}
}

static void amax_sizes(void **state)
{
	struct rng rng = rng_new(test_seed());

	for (int t = 0; t < 3; t++)
		for (int64_t n = 0; n < 300; n += n < 140 ? 1 : 31) {
			struct test_case c = {.data = BITS,
					      .dtype = dtypes[t],
					      .rows = 3,
					      .k = n,
					      .batch = 1};
			struct test_dense x =
			    test_dense_new(c.dtype, 3, n, 1, (int)(n % 2));

			fill(&rng, &c, &x.view);
			for (int isa = 0; isa < TEST_ISAS; isa++) {
				struct nib_device *device =
				    test_device(test_isas[isa], 2);
				float amax = -1;

				if (!device)
					continue;
				assert_ok(
				    nib_amax(device, &x.view, 0, NULL, &amax, NULL));
				assert_true(amax == amax_ref(&x.view));
				nib_device_close(device);
			}
			test_dense_free(&x);
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(values),	       cmocka_unit_test(zero_scales),
	    cmocka_unit_test(shapes),	       cmocka_unit_test(caller_modes),
	    cmocka_unit_test(not_finite),      cmocka_unit_test(saturated),
	    cmocka_unit_test(amax_sizes),      cmocka_unit_test(single_gaps),
	    cmocka_unit_test(searched_scales),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
