/* SPDX-License-Identifier: Apache-2.0 */
/*
 * quantize_search.cuh - the scale of least squared error of a block, which a thread
 * finds: the same bits as choose_scale() of src/format/quantize_ref.c.
 *
 *   bits[16] --7 boundaries, 7 values a scale--> e_i = |x_i| - value --> squares
 *   squares i and i + 8 --> 8 sums --> 4 --> 2 --> the error of the scale
 *
 * Roofline: instructions.  About 20 a value and scale, so 40 a value for four-six and
 * 180 for mse, against 2 to 4 bytes of source.
 */
#ifndef NIB_QUANTIZE_SEARCH_CUH
#define NIB_QUANTIZE_SEARCH_CUH

#include "quantize_block.cuh"

/* nib_error_unit() of the bits of amax, which is finite. */
DEVICE float error_unit(uint32_t amax)
{
	return __uint_as_float((uint32_t)max(254 - (int)(amax >> 23), 1) << 23);
}

/* value[i]: the fp32 of code i in units of d. */
DEVICE void set_values(double d, float value[8])
{
	value[0] = 0;
	value[1] = __double2float_rn(0.5 * d);
	value[2] = __double2float_rn(d);
	value[3] = __double2float_rn(1.5 * d);
	value[4] = __double2float_rn(2.0 * d);
	value[5] = __double2float_rn(3.0 * d);
	value[6] = __double2float_rn(4.0 * d);
	value[7] = __double2float_rn(6.0 * d);
}

/* The squared error of an element; a NaN counts as 0. */
DEVICE float square_of(uint32_t bits, const uint32_t bound[8], const float value[8],
		       float unit)
{
	uint32_t size = bits & 0x7FFFFFFF;
	float nearest = 0, e;

	size = size > INFINITY_BITS ? 0 : size;
#pragma unroll
	for (int i = 1; i < 8; i++)
		nearest = size >= bound[i] ? value[i] : nearest;
	e = __fmul_rn(__fsub_rn(__uint_as_float(size), nearest), unit);
	return __fmul_rn(e, e);
}

/* weights: of the 16 elements, or NULL. */
DEVICE float squared_error(const uint32_t bits[16], const float *weights, float unit,
			   double d)
{
	uint32_t bound[8];
	float value[8], sum[8];

	set_bounds(d, bound);
	set_values(d, value);
#pragma unroll
	for (int i = 0; i < 8; i++) {
		float low = square_of(bits[i], bound, value, unit);
		float high = square_of(bits[i + 8], bound, value, unit);

		if (weights) {
			low = __fmul_rn(low, weights[i]);
			high = __fmul_rn(high, weights[i + 8]);
		}
		sum[i] = __fadd_rn(low, high);
	}
#pragma unroll
	for (int half = 4; half > 0; half /= 2)
#pragma unroll
		for (int i = 0; i < half; i++)
			sum[i] = __fadd_rn(sum[i], sum[i + half]);
	return sum[0];
}

/* six: the scale by which amax, > 0 and finite, becomes 6. */
DEVICE uint32_t search_scale(const uint32_t bits[16], const float *weights,
			     uint32_t amax, float global, bool is_mse, uint32_t six)
{
	const uint32_t four = max(cvt_satfinite_e4m3_f32(__fdiv_rn(
				      __uint_as_float(amax), __fmul_rn(4.0f, global))),
				  1u);
	const float unit = error_unit(amax);
	float least = __uint_as_float(INFINITY_BITS);
	uint32_t best = six;

	/* The larger scale comes first and keeps a tie; six before four. */
#pragma unroll 1
	for (int i = 0; i < (is_mse ? 9 : 2); i++) {
		const uint32_t s = is_mse ? six + 6 - i : i ? four : six;
		float error;

		/* Below 1 it wraps. */
		if (s - 1 > 125)
			continue;
		error = squared_error(bits, weights, unit,
				      (double)e4m3_to_f32(s) * (double)global);
		if (error < least) {
			least = error;
			best = s;
		}
	}
	return best;
}

#endif
