/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemv_activations.cuh - A in the shared memory of a CTA of gemv.cuh: codes as int8
 * (twice their values) and scales as fp32.
 *
 * The bytes of A are loaded into the end of the buffers and converted in place while B
 * is in flight.  For each row, with K = kept:
 *
 *   codes    0                    K / 2                K
 *            |                    | e2m1 as loaded     |    before
 *            | int8                                    |    after
 *   scales   0                           3 K / 16      K / 4
 *            |                           | e4m3        |    before
 *            | fp32                                    |    after
 *
 * A round of conversion writes only below what later rounds read.  With M = 1 the
 * blocks of a step are permuted for the banks (offset_of_block()).
 */
#ifndef NIB_GEMV_ACTIVATIONS_CUH
#define NIB_GEMV_ACTIVATIONS_CUH

#include <cuda_fp16.h>

#include "gemv_load.cuh"
#include "ptx.cuh"
#include "quantize_block.cuh"

/* Twice the values of codes 0..3 and 4..7. */
#define TWICE_LOW  0x03020100u
#define TWICE_HIGH 0x0C080604u
#define SIGNS	   0x88888888u

/* Addresses in shared memory. */
struct layout {
	uint32_t zeros, codes, scales;
	int kept; /* k of each row of A in codes and scales */
};

/* Eight codes as int8: codes whose sign bit is clear as twice their values, others as
 * 0. low: TWICE_LOW, or table_low() where it is faster. */
DEVICE void look_up(uint32_t codes, uint32_t low, uint32_t *first, uint32_t *second)
{
	*first = prmt(low, TWICE_HIGH, codes);
	*second = prmt(low, TWICE_HIGH, codes >> 16);
}

/* The addresses of a row's codes and scales before conversion. */
DEVICE uint32_t raw_codes(const struct layout &at, int row)
{
	return at.codes + row * at.kept + at.kept / 2;
}

DEVICE uint32_t raw_scales(const struct layout &at, int row)
{
	return at.scales + row * (at.kept / 4) + at.kept / 16 * 3;
}

/* Loads four scales: the first `bytes` of the source, then zeros. */
template <bool ALIGNED>
DEVICE void load_4(uint32_t to, const uint8_t *from, int bytes, int align)
{
	if (ALIGNED || align >= 4) {
		cp_async_4(to, from, bytes);
	} else {
		uint32_t word = 0;

		for (int i = 0; i < bytes; i++)
			word |= (uint32_t)from[i] << i * 8;
		sts_32(to, word);
	}
}

/* Loads `blocks` blocks of a row, up to a phase, and zeros up to its end. */
template <bool ALIGNED>
DEVICE void load_row(const struct nib_gemv_operand &a, const uint8_t *codes,
		     const uint8_t *scales, uint32_t to, uint32_t scales_to, int blocks,
		     int kept)
{
	const int pitch = a.is_tiled ? 512 : 4;

#pragma unroll 1
	for (int i = threadIdx.x; i < kept / 32; i += NIB_GEMV_THREADS) {
		const int bytes = min(max(blocks * 8 - i * 16, 0), 16);

		load_16(to + i * 16, bytes ? codes + i * 16 : a.codes, bytes,
			ALIGNED ? 16 : a.codes_align);
	}
#pragma unroll 1
	for (int i = threadIdx.x; i < kept / 64; i += NIB_GEMV_THREADS) {
		const int bytes = min(max(blocks - i * 4, 0), 4);

		load_4<ALIGNED>(scales_to + i * 4,
				bytes ? scales + i * pitch : a.scales, bytes,
				a.scales_align);
	}
}

/* Loads a phase, which begins with block `first`. */
template <int M, bool ALIGNED>
DEVICE void load_rows(const struct nib_gemv_params &p, const struct nib_gemv_operand &a,
		      const struct layout &at, int first)
{
#pragma unroll 1
	for (int row = 0; row < M; row++)
		load_row<ALIGNED>(a, a.codes + row * a.row_stride + first * 8,
				  a.scales + (a.is_tiled
						  ? first * 128 + row * 16
						  : row * a.scale_row_stride + first),
				  raw_codes(at, row), raw_scales(at, row),
				  row < p.m ? p.k / 16 - first : 0, at.kept);
}

/* An operand whose `codes` are a row of fp32 to be quantised, if global is not NULL. */
struct row_operand : nib_gemv_operand {
	const float *global;
	uint32_t zero_scale; /* of a block of zeros */
};

/* |x| as bits; 0 for NaN. */
DEVICE uint32_t size_of(uint32_t bits)
{
	const uint32_t size = bits & 0x7FFFFFFF;

	return size > INFINITY_BITS ? 0 : size;
}

/* The scale and the codes of 16 values.  They are read twice, the second time from the
 * L1, to save registers. */
DEVICE uint32_t quantize_values(const uint4 *from, float global, uint32_t zero_scale,
				uint32_t codes[2])
{
	uint32_t amax = 0, scale, bound[8];

#pragma unroll
	for (int i = 0; i < 4; i++) {
		const uint4 x = from[i];

		amax = max(max(amax, size_of(x.x)), size_of(x.y));
		amax = max(max(amax, size_of(x.z)), size_of(x.w));
	}
	scale = scale_of_block(amax, global, zero_scale);
	set_bounds((double)e4m3_to_f32(scale) * (double)global, bound);
#pragma unroll 1
	for (int i = 3; i >= 0; i--) {
		const uint4 x = from[i];

		codes[1] = codes[1] << 16 | codes[0] >> 16;
		codes[0] = codes[0] << 16 | encode(x.x, bound) |
			   encode(x.y, bound) << 4 | encode(x.z, bound) << 8 |
			   encode(x.w, bound) << 12;
	}
	return scale;
}

/* As load_rows(), for a row that it quantises, with the bits of nib_quantize(). */
DEVICE void quantize_row(const struct nib_gemv_params &p, const struct row_operand &a,
			 const struct layout &at, int first)
{
	const float global = *a.global;
	const int blocks = p.k / 16 - first;

#pragma unroll 1
	for (int i = threadIdx.x; i < at.kept / 16; i += NIB_GEMV_THREADS) {
		const uint4 *from = (const uint4 *)a.codes + (first + i) * 4;
		uint32_t codes[2] = {0, 0}, scale = 0;

		if (i < blocks)
			scale = quantize_values(from, global, a.zero_scale, codes);
		sts_32(raw_codes(at, 0) + i * 8, codes[0]);
		sts_32(raw_codes(at, 0) + i * 8 + 4, codes[1]);
		sts_u8(raw_scales(at, 0) + i, scale);
	}
}

/* positive - negative by bytes, one of which is 0; no byte borrows from the next. */
DEVICE uint32_t difference(uint32_t positive, uint32_t negative)
{
	return ((positive | 0x80808080u) - negative) ^ 0x80808080u;
}

DEVICE void store_block(uint32_t to, uint32_t low, uint32_t high)
{
	uint32_t plus[4], minus[4];

	look_up(low, TWICE_LOW, &plus[0], &plus[1]);
	look_up(high, TWICE_LOW, &plus[2], &plus[3]);
	look_up(low ^ SIGNS, TWICE_LOW, &minus[0], &minus[1]);
	look_up(high ^ SIGNS, TWICE_LOW, &minus[2], &minus[3]);
	sts_128(to, make_uint4(
			difference(plus[0], minus[0]), difference(plus[1], minus[1]),
			difference(plus[2], minus[2]), difference(plus[3], minus[3])));
}

/*
 * The offset of a block of 16 codes.  With M = 1 the lanes of a quad read neighbouring
 * blocks: block b of lane t, number 4t + b of a step, is stored at 16 * (4b + t).
 */
template <int M>
DEVICE uint32_t offset_of_block(unsigned block)
{
	return 16 * (M > 1 ? block : block / 16 * 16 + block % 4 * 4 + block / 4 % 4);
}

/* Converts a row in rounds of NIB_GEMV_THREADS pairs of blocks. */
template <int M>
DEVICE void convert_row(const struct layout &at, int row)
{
	const uint32_t codes = at.codes + row * at.kept;
	const uint32_t scales = at.scales + row * (at.kept / 4);

#pragma unroll 1
	for (unsigned first = 0; first < at.kept / 32u; first += NIB_GEMV_THREADS) {
		const unsigned i = first + threadIdx.x;
		const bool is_inside = i < at.kept / 32u;
		uint4 x = make_uint4(0, 0, 0, 0);
		uint32_t h = 0;

		if (is_inside) {
			x = lds_128(raw_codes(at, row) + i * 16);
			h = lds_u16(raw_scales(at, row) + i * 2);
		}
		__syncthreads();
		if (is_inside) {
			h = cvt_f16x2_e4m3x2(h);
			store_block(codes + offset_of_block<M>(2 * i), x.x, x.y);
			store_block(codes + offset_of_block<M>(2 * i + 1), x.z, x.w);
			sts_f32(scales + i * 8, __low2float(*(const __half2 *)&h));
			sts_f32(scales + i * 8 + 4, __high2float(*(const __half2 *)&h));
		}
	}
}

/* Converts all rows; the loads of the calling thread have completed. */
template <int M>
DEVICE void convert_rows(const struct layout &at)
{
	__syncthreads();
#pragma unroll 1
	for (int row = 0; row < M; row++)
		convert_row<M>(at, row);
	__syncthreads();
}

#endif
