/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_format.c - number formats, scale layouts, views and the definition of
 * quantisation, each compared with a second method.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/unit.h"
#include "format/e2m1.h"
#include "format/e4m3.h"
#include "format/half.h"
#include "format/quantize_ref.h"
#include "format/scale_layout.h"
#include "format/view.h"

static uint64_t random_state = 20;

static uint64_t next_random(void)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return random_state;
}

/* The value of a format's bits, from the definition. */
static double value_of(uint64_t bits, struct nib_float_format f)
{
	const int bias = (1 << (f.exponent_bits - 1)) - 1;
	const double scale = ldexp(1, -f.fraction_bits);
	const uint64_t sign = bits >> (f.exponent_bits + f.fraction_bits);
	const int exponent =
	    (int)(bits >> f.fraction_bits) & ((1 << f.exponent_bits) - 1);
	const double fraction =
	    (double)(bits & ((UINT64_C(1) << f.fraction_bits) - 1)) * scale;
	double value;

	if (exponent == (1 << f.exponent_bits) - 1)
		value = fraction != 0 ? (double)NAN : (double)INFINITY;
	else if (exponent == 0)
		value = ldexp(fraction, 1 - bias);
	else
		value = ldexp(1 + fraction, exponent - bias);
	return sign ? -value : value;
}

static const double e2m1_values[8] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
static const double e2m1_ties[7] = {0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5};
static const unsigned e2m1_tie_codes[7] = {0, 2, 2, 4, 4, 6, 6};

/* ---- e2m1 ---------------------------------------------------------------- */

static void e2m1_has_its_sixteen_values(void **state)
{
	for (int code = 0; code < 8; code++) {
		assert_true(nib_e2m1_twice[code] == 2 * e2m1_values[code]);
		assert_true(nib_e2m1_twice[code + 8] == -2 * e2m1_values[code]);
	}
}

static void e2m1_rounds_ties_to_even(void **state)
{
	for (unsigned i = 0; i < 7; i++) {
		const float tie = (float)e2m1_ties[i];

		assert_int_equal(nib_e2m1_encode(tie), e2m1_tie_codes[i]);
		assert_int_equal(nib_e2m1_encode(-tie), e2m1_tie_codes[i] | 8);
		assert_int_equal(nib_e2m1_encode(nextafterf(tie, 0)), i);
		assert_int_equal(nib_e2m1_encode(nextafterf(tie, 9)), i + 1);
	}
	for (unsigned code = 0; code < 8; code++) {
		assert_int_equal(nib_e2m1_encode((float)e2m1_values[code]), code);
		assert_int_equal(nib_e2m1_encode(-(float)e2m1_values[code]), code | 8);
	}
	assert_int_equal(nib_e2m1_encode(INFINITY), 7);
	assert_int_equal(nib_e2m1_encode(-1e30f), 15);
	assert_int_equal(nib_e2m1_encode_ratio(0x1p-149f, 0.0), 7);
	assert_int_equal(nib_e2m1_encode_ratio(-0.0f, 0.0), 8);
}

/* The nearest code to x / d, by looking at all of them in long double. */
static unsigned e2m1_search(float x, double d)
{
	const long double size = fabsl((long double)x);
	long double best_distance = INFINITY;
	unsigned best = 0;

	for (unsigned code = 0; code < 8; code++) {
		long double distance = fabsl(size - (long double)e2m1_values[code] * d);

		if (distance < best_distance ||
		    (distance == best_distance && code % 2 == 0)) {
			best_distance = distance;
			best = code;
		}
	}
	return best | (signbit(x) ? 8u : 0u);
}

static void e2m1_ratio_is_exact(void **state)
{
	for (int i = 0; i < 300000; i++) {
		uint8_t scale = (uint8_t)(1 + next_random() % 126);
		float global = (float)(1 + next_random() % 0xFFFFFF) * 0x1p-40f;
		double d = (double)nib_e4m3_to_float(scale) * global;
		double at = e2m1_ties[next_random() % 7] * d;
		float x = (float)at; /* the tie, or an fp32 next to it */

		x = nextafterf(x, i % 3 == 0 ? 0 : i % 3 == 1 ? x : 1e30f);
		if (i & 8)
			x = -x;
		assert_int_equal(nib_e2m1_encode_ratio(x, d), e2m1_search(x, d));
	}
}

/* ---- e4m3 ---------------------------------------------------------------- */

static double e4m3_value(int byte)
{
	const int exponent = byte >> 3 & 15, fraction = byte & 7;
	const double size = exponent ? ldexp(1 + fraction / 8.0, exponent - 7)
				     : ldexp(fraction / 8.0, -6);

	return byte & 128 ? -size : size;
}

static void e4m3_has_its_256_values(void **state)
{
	for (int byte = 0; byte < 256; byte++) {
		const float got = nib_e4m3_to_float((uint8_t)byte);

		if ((byte & 127) == 127) {
			assert_true(nib_e4m3_is_nan((uint8_t)byte));
			assert_int_equal(nib_fp32_bits(got), 0x7FC00000);
			continue;
		}
		assert_false(nib_e4m3_is_nan((uint8_t)byte));
		assert_true(got == e4m3_value(byte));
		assert_int_equal(nib_fp32_bits(got) >> 31, byte >> 7);
		assert_true(nib_e4m3_integer((uint8_t)byte) == e4m3_value(byte) * 512);
	}
	assert_true(nib_e4m3_to_float(NIB_E4M3_MAX) == 448);
	assert_true(nib_e4m3_to_float(NIB_E4M3_MIN) == 0x1p-9f);
	assert_true(nib_e4m3_to_float(NIB_E4M3_ONE) == 1);
	assert_true(nib_e4m3_to_float(NIB_E4M3_EIGHTH) == 0.125f);
}

static void e4m3_encodes_to_nearest_even(void **state)
{
	for (int byte = 1; byte <= 0x7E; byte++) {
		const float value = (float)e4m3_value(byte);

		assert_int_equal(nib_e4m3_encode(value), byte);
		if (byte < 0x7E) {
			const float tie = (value + (float)e4m3_value(byte + 1)) / 2;

			assert_int_equal(nib_e4m3_encode(tie), byte + (byte & 1));
			assert_int_equal(nib_e4m3_encode(nextafterf(tie, 0)), byte);
			assert_int_equal(nib_e4m3_encode(nextafterf(tie, 999)),
					 byte + 1);
		}
	}
	assert_int_equal(nib_e4m3_encode(0), 1);
	assert_int_equal(nib_e4m3_encode(-0.0f), 1);
	assert_int_equal(nib_e4m3_encode(-3), 1);
	assert_int_equal(nib_e4m3_encode(-INFINITY), 1);
	assert_int_equal(nib_e4m3_encode(0x1p-149f), 1);
	assert_int_equal(nib_e4m3_encode(0x1.7p-9f), 1);
	assert_int_equal(nib_e4m3_encode(449), 0x7E);
	assert_int_equal(nib_e4m3_encode(1e38f), 0x7E);
	assert_int_equal(nib_e4m3_encode(INFINITY), 0x7E);
	assert_int_equal(nib_e4m3_encode(NAN), 0x7F);
	assert_int_equal(nib_e4m3_encode(-NAN), 0x7F);
}

/* ---- half ---------------------------------------------------------------- */

static void half_widens_exactly(void **state)
{
	for (unsigned bits = 0; bits < 0x10000; bits++) {
		const float fp16 = nib_fp16_to_fp32((uint16_t)bits);
		const float bf16 = nib_bf16_to_fp32((uint16_t)bits);
		const double want16 = value_of(bits, nib_format_fp16);
		const double wantb = value_of(bits, nib_format_bf16);

		assert_true(isnan(want16) ? isnan(fp16) : fp16 == want16);
		assert_true(isnan(wantb) ? isnan(bf16) : bf16 == wantb);
		assert_int_equal(nib_fp32_bits(fp16) >> 31, bits >> 15);
		assert_int_equal(nib_fp32_bits(bf16) >> 31, bits >> 15);
		if (!isnan(want16))
			assert_int_equal(nib_fp32_to_fp16(fp16), bits);
		if (!isnan(wantb))
			assert_int_equal(nib_fp32_to_bf16(bf16), bits);
	}
}

static uint64_t narrow32(float x, struct nib_float_format f)
{
	return f.exponent_bits == 5 ? nib_fp32_to_fp16(x) : nib_fp32_to_bf16(x);
}

static uint64_t narrow64(double x, struct nib_float_format f)
{
	return f.exponent_bits == 5 ? nib_fp64_to_fp16(x) : nib_fp64_to_bf16(x);
}

/* Every number, every midpoint and its neighbours, both signs. */
static void half_narrows_to_nearest_even(void **state)
{
	const struct nib_float_format formats[2] = {nib_format_fp16, nib_format_bf16};

	for (int i = 0; i < 2; i++) {
		const struct nib_float_format f = formats[i];
		const uint64_t infinity = nib_infinity_bits(f);

		for (uint64_t bits = 0; bits < infinity; bits++) {
			const double low = value_of(bits, f);
			/* As if the format went on beyond its largest. */
			const double high = bits + 1 < infinity
						? value_of(bits + 1, f)
						: ldexp(1, 1 << (f.exponent_bits - 1));
			const double tie = (low + high) / 2;
			const uint64_t even = bits + (bits & 1);
			const uint64_t sign = UINT64_C(1) << 15;
			const float t = (float)tie;

			assert_true(t == tie);
			assert_int_equal(narrow32(t, f), even);
			assert_int_equal(narrow32(-t, f), even | sign);
			assert_int_equal(narrow32(nextafterf(t, 0), f), bits);
			assert_int_equal(narrow32(nextafterf(t, INFINITY), f),
					 bits + 1);
			assert_int_equal(narrow64(tie, f), even);
			assert_int_equal(narrow64(-tie, f), even | sign);
			assert_int_equal(narrow64(nextafter(tie, 0), f), bits);
			assert_int_equal(narrow64(-nextafter(tie, INFINITY), f),
					 (bits + 1) | sign);
		}
	}
}

/* A NaN keeps its sign and the upper bits of its payload, and becomes quiet. */
static void nans_keep_sign_and_payload(void **state)
{
	for (uint32_t payload = 1; payload < 0x400; payload++) {
		for (uint32_t sign = 0; sign < 2; sign++) {
			const uint32_t half = sign << 15 | 0x7C00 | payload;
			const uint32_t wide = sign << 31 | 0x7F800000 | payload << 13;
			const float x = nib_fp32_from_bits(wide);

			assert_int_equal(
			    nib_fp32_bits(nib_fp16_to_fp32((uint16_t)half)),
			    wide | 0x400000);
			assert_int_equal(nib_fp32_to_fp16(x), half | 0x200);
			assert_int_equal(nib_fp32_to_bf16(x), wide >> 16 | 0x40);
		}
	}
}

static void double_narrows_as_the_cpu_does(void **state)
{
	for (int i = 0; i < 2000000; i++) {
		uint64_t bits = next_random();
		double x = nib_fp64_from_bits(bits);
		float want;

		if (i & 1) /* near and below the range of fp32 */
			x = ldexp((double)bits, -64 - (int)(bits % 160));
		if (i & 2) /* halfway between two of fp32 */
			x = nib_fp64_from_bits((nib_fp64_bits(x) >> 29 << 29) |
					       1 << 28);
		if (isnan(x))
			continue;
		want = (float)x;
		assert_int_equal(nib_fp32_bits(nib_fp64_to_fp32(x)),
				 nib_fp32_bits(want));
		assert_true(nib_fp32_to_fp64(want) == (double)want);
	}
	assert_int_equal(nib_fp32_bits(nib_fp64_to_fp32(0x1p-150)), 0);
	assert_int_equal(nib_fp32_bits(nib_fp64_to_fp32(-0x1.0000001p-150)),
			 0x80000001);
	assert_int_equal(nib_fp32_bits(nib_fp64_to_fp32(0x1.FFFFFFp127)), 0x7F800000);
	assert_int_equal(nib_fp32_bits(nib_fp64_to_fp32(-0.0)), 0x80000000);
}

static void nan_stays_quiet_nan(void **state)
{
	for (uint32_t payload = 1; payload < 0x800000; payload += 4093) {
		const float x = nib_fp32_from_bits(0xFF800000 | payload);
		const uint32_t want16 = 0xFE00 | payload >> 13;
		const uint32_t wantb = 0xFFC0 | payload >> 16;

		assert_int_equal(nib_fp32_to_fp16(x), want16);
		assert_int_equal(nib_fp32_to_bf16(x), wantb);
		assert_true(isnan(nib_fp32_to_fp64(x)));
	}
	assert_int_equal(nib_fp64_to_fp16((double)NAN), 0x7E00);
	assert_int_equal(nib_fp64_to_dtype((double)NAN, NIB_DTYPE_BF16), 0x7FC0);
	assert_int_equal(nib_fp64_to_dtype((double)NAN, NIB_DTYPE_FP32), 0x7FC00000);
	assert_int_equal(nib_fp64_to_dtype(1e6, NIB_DTYPE_FP16), 0x7C00);
	assert_int_equal(nib_fp64_to_dtype(-1e39, NIB_DTYPE_BF16), 0xFF80);
}

/* ---- scale layout, views ------------------------------------------------ */

static void tiled_offsets_are_the_golden_ones(void **state)
{
	assert_int_equal(nib_scale_offset_tiled(16, 200, 9), 3209);
	assert_int_equal(nib_scale_offset_tiled(448, 130, 447), 114211);
	assert_int_equal(nib_scale_offset_tiled(1, 0, 0), 0);
	assert_int_equal(nib_scale_offset_tiled(5, 33, 4), 512 + 16 + 4);
}

/* Every byte of the padded array is hit once. */
static void tiled_offsets_are_a_permutation(void **state)
{
	static const int64_t groups[] = {1, 3, 4, 5, 9, 16};

	for (size_t i = 0; i < sizeof(groups) / sizeof(*groups); i++) {
		const int64_t padded = (groups[i] + 3) / 4 * 4;
		const size_t bytes =
		    nib_scales_bytes(NIB_SCALE_LAYOUT_TILED_128X4, 200, groups[i] * 16);
		uint8_t *hit = calloc(bytes, 1);

		assert_int_equal(bytes, 256 * padded);
		assert_non_null(hit);
		for (int64_t row = 0; row < 256; row++)
			for (int64_t g = 0; g < padded; g++) {
				int64_t at = nib_scale_offset_tiled(groups[i], row, g);

				assert_in_range(at, 0, bytes - 1);
				assert_int_equal(hit[at]++, 0);
			}
		free(hit);
	}
}

static void sizes_are_checked(void **state)
{
	assert_int_equal(nib_scales_bytes(NIB_SCALE_LAYOUT_LINEAR, 3, 48), 9);
	assert_int_equal(nib_scales_bytes(NIB_SCALE_LAYOUT_TILED_128X4, 1, 16), 512);
	assert_int_equal(nib_scales_bytes(NIB_SCALE_LAYOUT_TILED_128X4, 129, 80), 2048);
	assert_int_equal(nib_scales_bytes(NIB_SCALE_LAYOUT_LINEAR, 0, 16), 0);
	assert_int_equal(nib_scales_bytes(NIB_SCALE_LAYOUT_LINEAR, 5, 0), 0);
	assert_int_equal(nib_scales_bytes(NIB_SCALE_LAYOUT_LINEAR, -1, 16), 0);
	assert_int_equal(nib_scales_bytes(NIB_SCALE_LAYOUT_LINEAR, 1, -16), 0);
	assert_int_equal(nib_scales_bytes(NIB_SCALE_LAYOUT_LINEAR, 1, 24), 0);
	assert_int_equal(nib_scales_bytes(NIB_SCALE_LAYOUT_LINEAR, 1, NIB_MAX_K),
			 65536);
	assert_int_equal(nib_scales_bytes(NIB_SCALE_LAYOUT_LINEAR, 1, NIB_MAX_K + 16),
			 0);
	assert_int_equal(nib_scales_bytes(NIB_SCALE_LAYOUT_LINEAR, INT64_MAX, 32), 0);
	assert_int_equal(nib_scales_bytes(NIB_SCALE_LAYOUT_TILED_128X4, INT64_MAX, 16),
			 0);
	assert_int_equal(nib_scales_bytes((enum nib_scale_layout)2, 1, 16), 0);
	assert_int_equal(nib_dtype_bytes(NIB_DTYPE_FP32), 4);
	assert_int_equal(nib_dtype_bytes(NIB_DTYPE_FP16), 2);
	assert_int_equal(nib_dtype_bytes(NIB_DTYPE_BF16), 2);
	assert_int_equal(nib_dtype_bytes((enum nib_dtype)3), 0);
}

static void views_resolve_zeros(void **state)
{
	uint8_t base[1];
	struct nib_fp4 v = {.codes = base, .scales = base, .rows = 5, .k = 64};
	struct nib_dense d = {
	    .data = base, .dtype = NIB_DTYPE_FP16, .rows = 5, .cols = 7};

	assert_int_equal(nib_fp4_batches(&v), 1);
	assert_int_equal(nib_fp4_row(&v, 2, 3) - base, 2 * 160 + 3 * 32);
	assert_int_equal(nib_fp4_scale(&v, 2, 3, 1) - base, 2 * 20 + 13);
	v.scale_row_stride_bytes = 6;
	assert_int_equal(nib_fp4_scale(&v, 2, 3, 1) - base, 2 * 30 + 19);
	v.scale_layout = NIB_SCALE_LAYOUT_TILED_128X4;
	assert_int_equal(nib_fp4_scale(&v, 2, 3, 1) - base, 1024 + 49);
	v.row_stride_bytes = 40;
	assert_int_equal(nib_fp4_row(&v, 2, 3) - base, 2 * 200 + 120);
	v.batch_stride_bytes = 1000;
	v.scale_batch_stride_bytes = 2000;
	assert_int_equal(nib_fp4_row(&v, 2, 3) - base, 2120);
	assert_int_equal(nib_fp4_scale(&v, 2, 3, 1) - base, 4049);

	assert_int_equal((uint8_t *)nib_dense_at(&d, 2, 3, 4) - base,
			 2 * (2 * 35 + 3 * 7 + 4));
	d.row_stride_elems = 10;
	d.dtype = NIB_DTYPE_FP32;
	assert_int_equal((uint8_t *)nib_dense_at(&d, 2, 3, 4) - base,
			 4 * (2 * 50 + 34));
}

/* ---- quantise ----------------------------------------------------------- */

static void global_is_amax_over_2688(void **state)
{
	assert_true(nib_global_ref(2688, NIB_SCALES_AMAX) == 1);
	assert_true(nib_global_ref(3, NIB_SCALES_AMAX) == 3.0f / 2688.0f);
	assert_true(nib_global_ref(0, NIB_SCALES_AMAX) == 1);
	assert_true(nib_global_ref(0x1p-149f, NIB_SCALES_AMAX) == 0x1p-149f);
}

/*
 * The first three are a tie of e4m3 for the two roundings of fp32, and not for
 * the exact quotient, which would give 111, 41 and 93.
 */
static void scale_rounds_twice_as_torch_does(void **state)
{
	static const struct {
		float amax, global;
		uint8_t want;
	} cases[] = {
	    {0x1.0cbf9ap-3f, 0x1.71e3eep-13f, 112},
	    {0x1.a19ab6p-13f, 0x1.d4e39cp-14f, 42},
	    {0x1.530de4p-6f, 0x1.215388p-13f, 92},
	    {6, 1, 0x38},
	    {2688, 1, 0x7E},
	    {1e9f, 1, 0x7E},
	    {INFINITY, 1, 0x7E},
	    {1e-9f, 1, 0x01},
	    {0x1p-149f, 0x1p-149f, 0x23}, /* 1/6 -> 0.171875 */
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
		assert_int_equal(nib_scale_ref(cases[i].amax, cases[i].global,
					       NIB_ZERO_SCALE_MODELOPT),
				 cases[i].want);
	assert_int_equal(nib_scale_ref(0, 1, NIB_ZERO_SCALE_MODELOPT), 0x38);
	assert_int_equal(nib_scale_ref(0, 1, NIB_ZERO_SCALE_COMPRESSED_TENSORS), 0x20);
	assert_int_equal(nib_scale_ref(0, 1, NIB_ZERO_SCALE_GGML), 0);
}

static void block_quantises_to_known_bytes(void **state)
{
	/* amax 6 and global 1 give scale 1. */
	const float x[16] = {6,	   -6, 0.25f, -0.25f, 0.75f, 1.25f, 1.75f, 2.5f,
			     3.5f, 5,  -0.0f, 0,      0.26f, -5.1f, 1.5f,  -3};
	static const uint8_t want[8] = {0xF7, 0x80, 0x22, 0x44, 0x66, 0x08, 0xF1, 0xD3};
	uint8_t codes[8], scale;

	assert_int_equal(nib_quantize_block_ref(x, 1, NIB_ZERO_SCALE_MODELOPT, 0, NULL,
						0, codes, &scale),
			 -1);
	assert_int_equal(scale, 0x38);
	assert_memory_equal(codes, want, 8);
}

static void block_of_zeros_follows_the_recipe(void **state)
{
	static const uint8_t want[3] = {0x38, 0x20, 0x00};
	float x[16] = {0};
	uint8_t codes[8], scale;

	x[3] = -0.0f;
	for (int zero_scale = 0; zero_scale < 3; zero_scale++) {
		assert_int_equal(nib_quantize_block_ref(x, 1,
							(enum nib_zero_scale)zero_scale,
							0, NULL, 0, codes, &scale),
				 -1);
		assert_int_equal(scale, want[zero_scale]);
		assert_int_equal(codes[0], 0);
		assert_int_equal(codes[1], 0x80);
	}
}

static void block_refuses_or_saturates_inf_and_nan(void **state)
{
	float x[16] = {1, 2, 3, 4, 5, 6, 7, -INFINITY, NAN, INFINITY};
	uint8_t codes[8], scale = 0x55;

	memset(codes, 0x55, sizeof(codes));
	assert_int_equal(nib_quantize_block_ref(x, 1, NIB_ZERO_SCALE_GGML, 0, NULL, 0,
						codes, &scale),
			 7);
	assert_int_equal(scale, 0x55);
	assert_int_equal(codes[3], 0x55);
	assert_int_equal(nib_quantize_block_ref(x, 1, NIB_ZERO_SCALE_GGML, 0, NULL, 1,
						codes, &scale),
			 -1);
	assert_int_equal(scale, 0x7E);
	assert_int_equal(codes[0], 0x00);
	assert_int_equal(codes[3], 0xF0);
	assert_int_equal(codes[4], 0x70);
	x[7] = x[9] = 0;
	x[8] = nib_fp32_from_bits(0xFFC00000);
	assert_int_equal(nib_quantize_block_ref(x, 1, NIB_ZERO_SCALE_GGML, 0, NULL, 0,
						codes, &scale),
			 8);
	nib_quantize_block_ref(x, 1, NIB_ZERO_SCALE_GGML, 0, NULL, 1, codes, &scale);
	assert_int_equal(scale, nib_e4m3_encode(7.0f / 6.0f));
	assert_int_equal(codes[4], 0x00);
}

/* |got - exact| is no more than to either neighbour; ties are to even. */
static void dequantise_rounds_once(void **state)
{
	static const enum nib_dtype dtypes[3] = {NIB_DTYPE_FP32, NIB_DTYPE_FP16,
						 NIB_DTYPE_BF16};

	for (int i = 0; i < 200000; i++) {
		const unsigned code = (unsigned)(next_random() % 16);
		const uint8_t scale = (uint8_t)(next_random() % 127);
		const float global = ldexpf((float)(next_random() % 0xFFFFFF),
					    -20 - (int)(next_random() % 30));
		const enum nib_dtype dtype = dtypes[i % 3];
		const long double exact =
		    (long double)e2m1_values[code & 7] * e4m3_value(scale) * global;
		const uint32_t bits = nib_dequantize_ref(code, scale, global, dtype);
		const uint32_t size = bits & (dtype ? 0x7FFF : 0x7FFFFFFF);
		const struct nib_float_format f = nib_dtype_format(dtype);
		long double up, down;

		assert_int_equal(bits >> (dtype ? 15 : 31), code >> 3);
		if (size == nib_infinity_bits(f)) {
			assert_true(exact >= 65520 && dtype == NIB_DTYPE_FP16);
			continue;
		}
		if (size + 1 < nib_infinity_bits(f)) {
			up = ((long double)value_of(size, f) + value_of(size + 1, f)) /
			     2;
			assert_true(size & 1 ? exact < up : exact <= up);
		}
		if (size) {
			down =
			    ((long double)value_of(size, f) + value_of(size - 1, f)) /
			    2;
			assert_true(size & 1 ? exact > down : exact >= down);
		}
	}
}

static void dequantise_special_values(void **state)
{
	assert_int_equal(nib_dequantize_ref(8, 0x38, 1, NIB_DTYPE_FP32), 0x80000000);
	assert_int_equal(nib_dequantize_ref(10, 0, 1, NIB_DTYPE_FP16), 0x8000);
	assert_int_equal(nib_dequantize_ref(9, 0x7F, 1, NIB_DTYPE_FP32), 0x7FC00000);
	assert_int_equal(nib_dequantize_ref(0, 0x7F, 1, NIB_DTYPE_FP16), 0x7E00);
	assert_int_equal(nib_dequantize_ref(8, 0x7F, 1, NIB_DTYPE_BF16), 0x7FC0);
	assert_int_equal(nib_dequantize_ref(0, 0x38, INFINITY, NIB_DTYPE_BF16), 0x7FC0);
	assert_int_equal(nib_dequantize_ref(15, 0x7E, 1e38f, NIB_DTYPE_FP32),
			 0xFF800000);
	assert_int_equal(nib_dequantize_ref(7, 0x7E, 1, NIB_DTYPE_FP16), 0x6940);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(e2m1_has_its_sixteen_values),
	    cmocka_unit_test(e2m1_rounds_ties_to_even),
	    cmocka_unit_test(e2m1_ratio_is_exact),
	    cmocka_unit_test(e4m3_has_its_256_values),
	    cmocka_unit_test(e4m3_encodes_to_nearest_even),
	    cmocka_unit_test(half_widens_exactly),
	    cmocka_unit_test(half_narrows_to_nearest_even),
	    cmocka_unit_test(nans_keep_sign_and_payload),
	    cmocka_unit_test(double_narrows_as_the_cpu_does),
	    cmocka_unit_test(nan_stays_quiet_nan),
	    cmocka_unit_test(tiled_offsets_are_the_golden_ones),
	    cmocka_unit_test(tiled_offsets_are_a_permutation),
	    cmocka_unit_test(sizes_are_checked),
	    cmocka_unit_test(views_resolve_zeros),
	    cmocka_unit_test(global_is_amax_over_2688),
	    cmocka_unit_test(scale_rounds_twice_as_torch_does),
	    cmocka_unit_test(block_quantises_to_known_bytes),
	    cmocka_unit_test(block_of_zeros_follows_the_recipe),
	    cmocka_unit_test(block_refuses_or_saturates_inf_and_nan),
	    cmocka_unit_test(dequantise_rounds_once),
	    cmocka_unit_test(dequantise_special_values),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
