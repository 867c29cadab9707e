/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_exact.c - the exact sum, its one rounding and the bounds, each compared with a
 * second, slower method.
 */
#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "common/data.h"
#include "common/unit.h"
#include "format/bound.h"
#include "format/e4m3.h"
#include "format/exact.h"
#include "format/half.h"
#include "format/view.h"

__extension__ typedef __int128 int128;

static struct rng rng;

static uint64_t next_random(void)
{
	return rng_next(&rng);
}

static struct test_nvfp4 make(int64_t batch, int64_t rows, int64_t k,
			      enum nib_scale_layout layout, int64_t gap)
{
	return test_nvfp4_new(&rng, rows, k, batch, layout, TEST_SCALES_ANY, gap,
			      layout == NIB_SCALE_LAYOUT_LINEAR ? gap : 0);
}

/* ---- the slow way ------------------------------------------------------- */

/* value * 2^10, from the definition. */
static int64_t slow_value(const struct nib_fp4 *v, int64_t b, int64_t row, int64_t i)
{
	static const int twice[8] = {0, 1, 2, 3, 4, 6, 8, 12};
	const uint8_t *codes = v->codes, *scales = v->scales;
	const int64_t g = i / 16, groups = v->k / 16;
	const int64_t stride = v->row_stride_bytes ? v->row_stride_bytes : v->k / 2;
	const int64_t batch_stride =
	    v->batch_stride_bytes ? v->batch_stride_bytes : v->rows * stride;
	int64_t at, base, scale;
	int code, byte;

	code = codes[b * batch_stride + row * stride + i / 2] >> (i % 2 * 4);
	if (v->scale_layout == NIB_SCALE_LAYOUT_TILED_128X4) {
		at = ((row / 128) * ((groups + 3) / 4) + g / 4) * 512 +
		     (row % 32) * 16 + ((row % 128) / 32) * 4 + g % 4;
		base = (v->rows + 127) / 128 * ((groups + 3) / 4) * 512;
	} else {
		at = v->scale_row_stride_bytes ? v->scale_row_stride_bytes : groups;
		base = v->rows * at;
		at = row * at + g;
	}
	if (v->scale_batch_stride_bytes)
		base = v->scale_batch_stride_bytes;
	byte = scales[b * base + at];
	scale = (int64_t)(ldexp(byte < 8 ? byte : 8 + byte % 8,
				byte < 8 ? 0 : byte / 8 - 1));
	return (code & 8 ? -1 : 1) * twice[code & 7] * scale;
}

static struct nib_exact_sum slow_dot(const struct nib_fp4 *a, int64_t a_batch,
				     int64_t a_row, const struct nib_fp4 *b,
				     int64_t b_batch, int64_t b_row)
{
	int128 sum = 0, magnitude = 0, products = 0;

	for (int64_t i = 0; i < a->k; i += 16) {
		int128 partial = 0;

		for (int64_t j = i; j < i + 16; j++) {
			const int128 product =
			    (int128)slow_value(a, a_batch, a_row, j) *
			    slow_value(b, b_batch, b_row, j);

			partial += product;
			products += product < 0 ? -product : product;
		}
		sum += partial;
		magnitude += partial < 0 ? -partial : partial;
	}
	assert_true(sum == (int64_t)sum && magnitude == (int64_t)magnitude);
	assert_true(products == (int64_t)products);
	return (struct nib_exact_sum){(int64_t)sum, (int64_t)magnitude,
				      (int64_t)products, 0, false};
}

/* ---- the sum ------------------------------------------------------------ */

static struct nib_exact_sum fast_dot(const struct nib_fp4 *a, int64_t a_batch,
				     int64_t a_row, const struct nib_fp4 *b,
				     int64_t b_batch, int64_t b_row)
{
	const size_t k = (size_t)a->k;
	struct nib_exact_row x = {malloc(k * 2 + 1), malloc(k / 4 + 1), false};
	struct nib_exact_row y = {malloc(k * 2 + 1), malloc(k / 4 + 1), false};
	struct nib_exact_sum s;

	nib_exact_decode(&x, a, a_batch, a_row, a_row);
	nib_exact_decode(&y, b, b_batch, b_row, b_row);
	s = nib_exact_dot(&x, &y, a->k);
	s.products = nib_exact_products(&x, &y, a->k);
	free(x.twice);
	free(x.scale);
	free(y.twice);
	free(y.scale);
	return s;
}

static void sum_equals_the_slow_one(void **state)
{
	static const int64_t ks[] = {0, 16, 32, 48, 240, 7168};
	static const enum nib_scale_layout layouts[] = {NIB_SCALE_LAYOUT_LINEAR,
							NIB_SCALE_LAYOUT_TILED_128X4};

	for (int i = 0; i < 24; i++) {
		const int64_t k = ks[i % 6];
		struct test_nvfp4 a = make(2, 130, k, layouts[i / 6 & 1], i & 2);
		struct test_nvfp4 b = make(2, 35, k, layouts[i / 12], i & 1);

		for (int j = 0; j < 20; j++) {
			int64_t row = (int64_t)(next_random() % 130);
			int64_t col = (int64_t)(next_random() % 35);
			struct nib_exact_sum want, got;

			want = slow_dot(&a.view, j & 1, row, &b.view, j / 2 & 1, col);
			got = fast_dot(&a.view, j & 1, row, &b.view, j / 2 & 1, col);
			assert_true(want.sum == got.sum);
			assert_true(want.magnitude == got.magnitude);
			assert_true(want.products == got.products);
			assert_false(got.is_nan);
		}
		test_nvfp4_free(&a);
		test_nvfp4_free(&b);
	}
}

static void largest_sum_fits(void **state)
{
	struct test_nvfp4 a = make(1, 1, NIB_MAX_K, NIB_SCALE_LAYOUT_LINEAR, 0);
	const int64_t want = (NIB_MAX_K / 16) * 2304 * 229376 * 229376;
	struct nib_exact_sum s;

	memset(a.view.codes, 0x77, (size_t)a.view.k / 2);
	memset(a.view.scales, 0x7E, (size_t)a.view.k / 16);
	s = fast_dot(&a.view, 0, 0, &a.view, 0, 0);
	assert_true(s.sum == want && s.magnitude == want);
	assert_true(s.products == want);
	assert_true(want > INT64_C(1) << 62);
	test_nvfp4_free(&a);
}

static void nan_scale_is_seen(void **state)
{
	struct test_nvfp4 a = make(1, 2, 64, NIB_SCALE_LAYOUT_TILED_128X4, 0);
	struct nib_exact_sum s;

	*nib_fp4_scale(&a.view, 0, 1, 3) = 0x7F;
	assert_true(fast_dot(&a.view, 0, 1, &a.view, 0, 0).is_nan);
	assert_true(fast_dot(&a.view, 0, 0, &a.view, 0, 1).is_nan);
	assert_false(fast_dot(&a.view, 0, 0, &a.view, 0, 0).is_nan);
	s = fast_dot(&a.view, 0, 1, &a.view, 0, 1);
	assert_true(isnan(nib_exact_double(&s, 0)));
	assert_int_equal(nib_exact_round(&s, 1, NIB_DTYPE_FP32), 0x7FC00000);
	assert_int_equal(nib_exact_round(&s, 1, NIB_DTYPE_FP16), 0x7E00);
	assert_int_equal(nib_exact_round(&s, 1, NIB_DTYPE_BF16), 0x7FC0);
	test_nvfp4_free(&a);
}

/* ---- the rounding ------------------------------------------------------- */

static float round32(int64_t sum, float alpha)
{
	const struct nib_exact_sum s = {sum, 0, 0, 0, false};

	return nib_fp32_from_bits(nib_exact_round(&s, alpha, NIB_DTYPE_FP32));
}

/* Products of at most 64 bits are exact in a long double. */
static void product_is_rounded_once(void **state)
{
	if (LDBL_MANT_DIG < 64)
		skip();
	for (int i = 0; i < 1000000; i++) {
		const int bits = 1 + (int)(next_random() % 40);
		const int64_t sum = (int64_t)next_random() >> (64 - bits - 1);
		const float alpha =
		    ldexpf((float)(next_random() >> 40), -(int)(next_random() % 150));
		const long double exact = (long double)sum * alpha * 0x1p-20L;
		const struct nib_exact_sum s = {sum, 0, 0, 0, false};

		assert_true(round32(sum, alpha) == (float)exact);
		assert_true(round32(sum, -alpha) == -(float)exact);
		assert_true(nib_exact_double(&s, alpha) == (double)exact);
	}
}

static void wide_products_keep_their_last_bit(void **state)
{
	const int64_t tie = (INT64_C(1) << 62) + (INT64_C(1) << 38);
	const struct nib_exact_sum half = {3 << 7, 0, 0, 0, false};
	const struct nib_exact_sum large = {INT64_C(1) << 62, 0, 0, 0, false};

	assert_true(round32(tie, 1) == 0x1p42f);
	assert_true(round32(tie + 1, 1) == 0x1.000002p42f);
	assert_true(round32(-tie - 1, 1) == -0x1.000002p42f);
	assert_true(round32(tie - 1, 1) == 0x1p42f);
	/* 1.5, 0.75 and 0.375 of fp16's smallest. */
	assert_int_equal(nib_exact_round(&half, 0x1p-12f, NIB_DTYPE_FP16), 2);
	assert_int_equal(nib_exact_round(&half, 0x1p-13f, NIB_DTYPE_FP16), 1);
	assert_int_equal(nib_exact_round(&half, 0x1p-14f, NIB_DTYPE_FP16), 0);
	/* A full 64 bits, all of them below fp16's last: 0.75 and 0.5. */
	assert_int_equal(nib_exact_round(&large, 0x1.8p-67f, NIB_DTYPE_FP16), 1);
	assert_int_equal(nib_exact_round(&large, 0x1p-67f, NIB_DTYPE_FP16), 0);
}

/*
 * 87 bits: (2^63 - x) * (2^23 + 1) a little above a tie of fp32, by less than
 * the bits that a 64-bit product would lose.
 */
static void what_64_bits_lose_breaks_ties(void **state)
{
	const int128 alpha = (1 << 23) + 1;
	int tried = 0;

	while (tried < 1000) {
		const int128 even = (1 << 23) + (next_random() >> 43) * 2;
		const int128 tie = (2 * even + 1) << 61;
		const int64_t sum = (int64_t)((tie + alpha - 1) / alpha);
		const int128 above = sum * alpha - tie;

		if (above <= 0 || above >= 1 << 22)
			continue;
		tried++;
		assert_true(round32(sum, 0x1.000002p0f) ==
			    ldexpf((float)(even + 1), 62 - 23 - 20));
		assert_true(round32(sum - 1, 0x1.000002p0f) ==
			    ldexpf((float)even, 62 - 23 - 20));
	}
}

static void special_alphas_follow_ieee(void **state)
{
	const struct nib_exact_sum one = {1 << 20, 1 << 20, 0, 0, false};

	assert_true(isnan(round32(5, NAN)));
	assert_true(isnan(round32(0, INFINITY)));
	assert_true(isnan(round32(0, -INFINITY)));
	assert_true(round32(5, INFINITY) == INFINITY);
	assert_true(round32(-5, INFINITY) == -INFINITY);
	assert_true(round32(-5, -INFINITY) == INFINITY);
	assert_int_equal(nib_fp32_bits(round32(5, 0)), 0);
	assert_int_equal(nib_fp32_bits(round32(5, -0.0f)), 0x80000000);
	assert_int_equal(nib_fp32_bits(round32(0, -2)), 0x80000000);
	assert_int_equal(nib_fp32_bits(round32(0, 2)), 0);
	assert_true(round32(INT64_C(1) << 60, 0x1p100f) == INFINITY);
	assert_true(round32(1 << 20, 0x1p-149f) == 0x1p-149f);
	assert_true(round32(3 << 19, 0x1p-149f) == 0x1p-148f);
	assert_int_equal(nib_exact_round(&one, 65519.996f, NIB_DTYPE_FP16), 0x7BFF);
	assert_int_equal(nib_exact_round(&one, 65520.0f, NIB_DTYPE_FP16), 0x7C00);
	assert_int_equal(nib_exact_round(&one, -0x1.FFp127f, NIB_DTYPE_BF16), 0xFF80);
	assert_int_equal(nib_exact_round(&one, 0x1.FEFFFEp127f, NIB_DTYPE_BF16),
			 0x7F7F);
}

/* valgrind computes long doubles as doubles: no judge of a double. */
static bool has_long_double(void)
{
	volatile long double one = 1;

	one += LDBL_EPSILON;
	return one > 1;
}

static void silu_has_its_limits(void **state)
{
	assert_true(nib_exact_silu(0) == 0);
	assert_true(nib_exact_silu(INFINITY) == INFINITY);
	assert_true(nib_exact_silu(-INFINITY) == 0);
	assert_true(signbit(nib_exact_silu(-INFINITY)));
	assert_true(nib_exact_silu(1e300) == 1e300);
	assert_true(nib_exact_silu(-1e300) == 0);
	assert_true(isnan(nib_exact_silu((double)NAN)));
	if (!has_long_double())
		skip();
	for (int i = 0; i < 100000; i++) {
		const double x = ((double)next_random() * 0x1p-63 - 1) * 740;
		const long double want = x / (1 + expl(-(long double)x));
		const long double off = nib_exact_silu(x) - want;

		assert_true(fabsl(off) <= 0x1p-50L * fabsl(want) + 0x1p-1060L);
	}
}

#define BLOCKS NIB_ARITHMETIC_BLOCKS
#define TENSOR NIB_ARITHMETIC_FP16_TENSOR
#define FP4    NIB_ARITHMETIC_FP4_TENSOR

/* ---- bounds ------------------------------------------------------------- */

static double fraction_of(const struct nib_expected *e, enum nib_dtype dtype,
			  double got)
{
	return nib_judge(e, dtype, (float)got).fraction;
}

static void judge_knows_overflow_and_nan(void **state)
{
	const struct nib_exact_sum one = {1 << 20, 1 << 20, 0, 0, false};
	const struct nib_exact_sum nan = {0, 0, 0, 0, true};
	const struct nib_exact_sum cancelled = {0, 1 << 20, 0, 0, false};
	struct nib_expected e = nib_expect_gemm(&one, 1, 16, BLOCKS);

	assert_true(fraction_of(&e, NIB_DTYPE_FP32, 1) == 0);
	assert_true(fraction_of(&e, NIB_DTYPE_FP32, 1 + 0x1p-22) <= 1);
	assert_true(fraction_of(&e, NIB_DTYPE_FP32, 1 + 0x1p-21) > 1);
	assert_true(fraction_of(&e, NIB_DTYPE_FP16, 1 + 0x1p-10) > 1);
	assert_true(fraction_of(&e, NIB_DTYPE_BF16, 1 + 0x1p-7) > 1);
	assert_true(fraction_of(&e, NIB_DTYPE_FP32, (double)NAN) > 1);
	assert_true(fraction_of(&e, NIB_DTYPE_FP32, (double)INFINITY) > 1);

	e = nib_expect_gemm(&nan, 1, 16, BLOCKS);
	assert_true(fraction_of(&e, NIB_DTYPE_FP32, (double)NAN) == 0);
	assert_true(fraction_of(&e, NIB_DTYPE_FP32, 0) > 1);

	e = nib_expect_gemm(&one, 65519.996f, 16, BLOCKS); /* may go either way */
	assert_true(fraction_of(&e, NIB_DTYPE_FP16, 65504) <= 1);
	assert_true(fraction_of(&e, NIB_DTYPE_FP16, (double)INFINITY) == 0);
	assert_true(fraction_of(&e, NIB_DTYPE_FP16, (double)-INFINITY) > 1);
	e = nib_expect_gemm(&one, -65536, 16, BLOCKS);
	assert_true(fraction_of(&e, NIB_DTYPE_FP16, (double)-INFINITY) == 0);
	assert_true(fraction_of(&e, NIB_DTYPE_FP16, -65504) > 1);
	assert_true(fraction_of(&e, NIB_DTYPE_FP16, (double)INFINITY) > 1);
	assert_true(fraction_of(&e, NIB_DTYPE_FP32, -65536) == 0);

	e = nib_expect_gemm(&one, INFINITY, 16, BLOCKS);
	assert_true(fraction_of(&e, NIB_DTYPE_FP32, (double)INFINITY) == 0);
	assert_true(fraction_of(&e, NIB_DTYPE_FP32, (double)-INFINITY) > 1);
	assert_true(fraction_of(&e, NIB_DTYPE_FP32, 1) > 1);
	/* Backends may see either sign, or zero. */
	e = nib_expect_gemm(&cancelled, INFINITY, 16, BLOCKS);
	assert_true(fraction_of(&e, NIB_DTYPE_FP32, (double)NAN) == 0);
	assert_true(fraction_of(&e, NIB_DTYPE_FP32, (double)-INFINITY) == 0);
	e = nib_expect_gemm(&one, 0, 16, BLOCKS);
	assert_true(fraction_of(&e, NIB_DTYPE_FP32, -0.0) == 0);
	assert_true(fraction_of(&e, NIB_DTYPE_FP32, 0x1p-149) > 1);
	assert_true(fraction_of(&e, NIB_DTYPE_FP16, 0x1p-24) > 1);
	e = nib_expect_gemm(&cancelled, 1, 16, BLOCKS);
	assert_true(fraction_of(&e, NIB_DTYPE_FP32, 0x1p-22) <= 1);
	assert_true(fraction_of(&e, NIB_DTYPE_FP32, 0x1p-21) > 1);
}

static void tensor_bound_is_of_the_products(void **state)
{
	struct nib_exact_sum s = {1 << 20, 1 << 20, 1 << 20, 0, false};
	const struct nib_exact_sum opposed = {0, 0, 1 << 20, 0, false};
	const struct nib_exact_sum zero = {0, 0, 0, 0, false};
	struct nib_expected e = nib_expect_gemm(&s, 1, 32, TENSOR);

	assert_true(e.unit == 1);
	assert_true(fabs(e.slack - 28 * 0x1p-24) < 0x1p-100);
	s.products = 3 << 20;
	e = nib_expect_gemm(&s, -2, 32, TENSOR);
	assert_true(e.want == -2 && e.unit == 6);
	assert_true(fabs(e.slack - 6 * 28 * 0x1p-24) < 0x1p-100);
	/* What cancels in a block does so only on a CPU. */
	e = nib_expect_gemm(&opposed, 1, 16, TENSOR);
	assert_true(fraction_of(&e, NIB_DTYPE_FP32, 0x1p-20) <= 1);
	assert_true(fraction_of(&e, NIB_DTYPE_FP32, 0x1.3p-20) > 1);
	e = nib_expect_gemm(&opposed, 1, 16, BLOCKS);
	assert_true(fraction_of(&e, NIB_DTYPE_FP32, 0x1p-20) > 1);
	e = nib_expect_gemm(&opposed, INFINITY, 16, TENSOR);
	assert_true(fraction_of(&e, NIB_DTYPE_FP32, (double)-INFINITY) == 0);
	s.products = INT64_C(1) << 39;
	e = nib_expect_gemm(&s, INFINITY, 16, TENSOR);
	assert_true(fraction_of(&e, NIB_DTYPE_FP32, (double)INFINITY) == 0);
	assert_true(fraction_of(&e, NIB_DTYPE_FP32, (double)-INFINITY) > 1);
	s.products = INT64_C(1) << 40;
	e = nib_expect_gemm(&s, INFINITY, 16, TENSOR);
	assert_true(fraction_of(&e, NIB_DTYPE_FP32, (double)-INFINITY) == 0);
	e = nib_expect_gemm(&zero, 1, 16, TENSOR);
	assert_true(fraction_of(&e, NIB_DTYPE_FP32, 0x1p-149) > 1);
	/* silu(0) * y and silu(x) * 0, give or take what cancels. */
	e = nib_expect_dual(&opposed, 1, &zero, 1, 16, TENSOR);
	assert_true(fraction_of(&e, NIB_DTYPE_FP32, 0x1p-100) > 1);
	s.products = 1 << 20;
	e = nib_expect_dual(&s, 1, &opposed, 1, 16, TENSOR);
	assert_true(fraction_of(&e, NIB_DTYPE_FP32, 0.73 * 18.5 * 0x1p-24) <= 1);
	assert_true(fraction_of(&e, NIB_DTYPE_FP32, 0.74 * 18.5 * 0x1p-24) > 1);
}

static void fp4_bound_grows_by_steps_and_large_blocks(void **state)
{
	struct nib_exact_sum s = {1 << 20, 1 << 20, 0, 0, false};
	struct nib_exact_sum opposed = {0, 0, 0, 0, false};
	struct nib_expected e;

	for (int64_t k = 16; k <= 64; k += 16) {
		e = nib_expect_gemm(&s, 1, k, FP4);
		assert_true(e.unit == 1);
		assert_true(fabs(e.slack - 6.002 * 0x1p-24) < 0x1p-80);
	}
	e = nib_expect_gemm(&s, -2, 80, FP4);
	assert_true(e.want == -2 && e.unit == 2);
	assert_true(fabs(e.slack - 2 * 8.004 * 0x1p-24) < 0x1p-80);
	s.large = 3;
	e = nib_expect_gemm(&s, -2, 80, FP4);
	assert_true(fabs(e.slack - 2 * (8.004 * 0x1p-24 + 3 * 0x1p-16)) < 0x1p-80);
	/* Blocks that cancel leave nothing, unless another is large. */
	e = nib_expect_gemm(&opposed, 1, 64, FP4);
	assert_true(fraction_of(&e, NIB_DTYPE_FP32, 0x1p-149) > 1);
	opposed.large = 1;
	e = nib_expect_gemm(&opposed, -1, 64, FP4);
	assert_true(e.unit == 1);
	assert_true(fraction_of(&e, NIB_DTYPE_FP32, 0x1p-16) <= 1);
	assert_true(fraction_of(&e, NIB_DTYPE_FP32, 0x1.1p-16) > 1);
	e = nib_expect_gemm(&opposed, 0, 64, FP4);
	assert_true(fraction_of(&e, NIB_DTYPE_FP32, 0x1p-149) > 1);
	/* An infinite alpha shows the sign, if it is sure. */
	e = nib_expect_gemm(&opposed, INFINITY, 64, FP4);
	assert_true(fraction_of(&e, NIB_DTYPE_FP32, (double)-INFINITY) == 0);
	opposed.sum = 16;
	e = nib_expect_gemm(&opposed, INFINITY, 64, FP4);
	assert_true(fraction_of(&e, NIB_DTYPE_FP32, (double)-INFINITY) == 0);
	opposed.sum = 17;
	e = nib_expect_gemm(&opposed, INFINITY, 64, FP4);
	assert_true(fraction_of(&e, NIB_DTYPE_FP32, (double)INFINITY) == 0);
	assert_true(fraction_of(&e, NIB_DTYPE_FP32, (double)-INFINITY) > 1);
}

static void large_blocks_are_of_two_scales(void **state)
{
	static const uint8_t bytes[] = {0x77, 0x78, 0x7E, 0x7F, 0, 1};
	enum { N = sizeof(bytes) };
	int16_t twice[N * N * NIB_NVFP4_BLOCK] = {0};
	int32_t scale_a[N * N], scale_b[N * N];
	const struct nib_exact_row a = {twice, scale_a, false};
	const struct nib_exact_row b = {twice, scale_b, false};

	for (int i = 0; i < N * N; i++) {
		const uint8_t x = bytes[i / N], y = bytes[i % N];

		scale_a[i] = nib_e4m3_is_nan(x) ? 0 : nib_e4m3_integer(x);
		scale_b[i] = nib_e4m3_is_nan(y) ? 0 : nib_e4m3_integer(y);
	}
	assert_int_equal(nib_exact_large_blocks(&a, &b, N * N * NIB_NVFP4_BLOCK), 4);
	assert_int_equal(nib_exact_large_blocks(&a, &b, 2 * N * NIB_NVFP4_BLOCK), 2);
	assert_int_equal(nib_exact_large_blocks(&a, &b, 0), 0);
}

static void dual_bound_is_tight_and_knows_overflow(void **state)
{
	const struct nib_exact_sum one = {1 << 20, 1 << 20, 0, 0, false};
	const struct nib_exact_sum cancelled = {0, 1 << 20, 0, 0, false};
	const struct nib_exact_sum vague = {-5 * (1 << 20), INT64_C(1) << 44, 0, 0,
					    false};
	const struct nib_exact_sum nan = {0, 0, 0, 0, true};
	const double want = 3 * 2 / (1 + exp(-2));
	struct nib_expected e = nib_expect_dual(&one, 2, &one, 3, 16, BLOCKS);

	assert_true(fabs(e.want - want) < 1e-14);
	assert_true(e.slack < 32 * 0x1p-24 * want);
	/*
	 * Where silu(x) is x: 5 u of x, 8 u of silu, 5 u of y, and the
	 * rounding of their product.
	 */
	e = nib_expect_dual(&one, 40, &one, 3, 16, BLOCKS);
	assert_true(e.slack >= 19 * 0x1p-24 * 120 * (1 + 0x1p-20));
	assert_true(e.slack < 19.01 * 0x1p-24 * 120);
	e = nib_expect_dual(&one, 2, &one, 3, 16, BLOCKS);
	assert_true(fraction_of(&e, NIB_DTYPE_FP32, want) <= 1);
	assert_true(fraction_of(&e, NIB_DTYPE_FP32, want * (1 + 0x1p-19)) > 1);

	/* Far on the left silu is tiny, and so is what it may err. */
	e = nib_expect_dual(&one, -60, &one, 1, 16, BLOCKS);
	assert_true(e.slack < 0x1p-10 * fabs(e.want));
	/* exp(100) is infinite in fp32: a plain fp32 silu gives -0. */
	e = nib_expect_dual(&one, -100, &one, 1, 16, BLOCKS);
	assert_true(fraction_of(&e, NIB_DTYPE_FP32, -0.0) <= 1);
	assert_true(fraction_of(&e, NIB_DTYPE_FP32, -1e-30) > 1);

	/* x is -5, give or take 5: silu's minimum is inside. */
	e = nib_expect_dual(&vague, 1, &one, 1, 16, BLOCKS);
	assert_true(fraction_of(&e, NIB_DTYPE_FP32, -0.278) <= 1);
	assert_true(fraction_of(&e, NIB_DTYPE_FP32, -0.3) > 1);

	/* y is 0, give or take 5u. */
	e = nib_expect_dual(&one, 1, &cancelled, 1, 16, BLOCKS);
	assert_true(fraction_of(&e, NIB_DTYPE_FP32, 0.73 * 5 * 0x1p-24) <= 1);
	assert_true(fraction_of(&e, NIB_DTYPE_FP32, 0.74 * 5 * 0x1p-24) > 1);
	/* Infinity times zero in fp32. */
	e = nib_expect_dual(&one, 0x1.FFFFFEp127f, &cancelled, 1, 16, BLOCKS);
	assert_true(fraction_of(&e, NIB_DTYPE_FP32, (double)NAN) == 0);
	e = nib_expect_dual(&nan, 1, &one, 1, 16, BLOCKS);
	assert_true(fraction_of(&e, NIB_DTYPE_FP32, 0) > 1);
	e = nib_expect_dual(&one, 1, &nan, 1, 16, BLOCKS);
	assert_true(fraction_of(&e, NIB_DTYPE_FP32, (double)NAN) == 0);
	e = nib_expect_dual(&one, 0x1p127f, &one, 4, 16, BLOCKS);
	assert_true(fraction_of(&e, NIB_DTYPE_FP32, (double)INFINITY) == 0);
	assert_true(fraction_of(&e, NIB_DTYPE_FP32, 1) > 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(sum_equals_the_slow_one),
	    cmocka_unit_test(largest_sum_fits),
	    cmocka_unit_test(nan_scale_is_seen),
	    cmocka_unit_test(product_is_rounded_once),
	    cmocka_unit_test(wide_products_keep_their_last_bit),
	    cmocka_unit_test(what_64_bits_lose_breaks_ties),
	    cmocka_unit_test(special_alphas_follow_ieee),
	    cmocka_unit_test(silu_has_its_limits),
	    cmocka_unit_test(judge_knows_overflow_and_nan),
	    cmocka_unit_test(tensor_bound_is_of_the_products),
	    cmocka_unit_test(fp4_bound_grows_by_steps_and_large_blocks),
	    cmocka_unit_test(large_blocks_are_of_two_scales),
	    cmocka_unit_test(dual_bound_is_tight_and_knows_overflow),
	};

	rng = rng_new(test_seed());
	return cmocka_run_group_tests(tests, NULL, NULL);
}
