/* SPDX-License-Identifier: Apache-2.0 */
/*
 * quantize.cuh - fp32, fp16 and bf16 to NVFP4 and back, the largest |x|, scales from
 * one layout to another, and the first rows of experts.  The same bits as
 * src/format/quantize_ref.c.
 *
 * The warps have no roles: each thread loads, computes and stores a block of 16 values
 * (convert_scales: one scale), and then the block a grid further on.
 *
 *   quantize         x --ldg--> bits[16] --boundaries--> codes, scale --stg--> q
 *   quantize_search  the same, after the errors of 2 or 9 scales (quantize_search.cuh)
 *   dequantize       codes, scale --ldg--> value table --> y[16] --stg--> y
 *   amax             x --ldg--> largest --warp, block--> atomicMax(found)
 *   convert_scales   scale --ldg--> stg
 *   expert_rows      one warp: 32 experts at a time, a prefix sum by shuffles
 *
 * Threads go in the order of the scales' bytes, so that those are written together: in
 * NIB_SCALE_LAYOUT_TILED_128X4 a warp has 2 rows out of each of 4 quarters of a tile, 4
 * blocks each.
 *
 * Barriers: one __syncthreads() of amax, between the maxima of its warps and
 * that of the block; the others have none.  Shared memory: 32 bytes of amax,
 * for these maxima.  Registers: docs/kernels.md.  Roofline: the rate
 * of memory, each input read once and each output written once.
 *
 * A code is the number of boundaries b * d that |x| has passed, where d = scale *
 * global, exact in a double (set_bounds()).  Each boundary becomes the smallest fp32
 * beyond it, and positive floats are ordered as their bits.  With NIB_HAS_E2M1 the
 * conversion instruction finds the codes, and the boundaries decide near a tie.
 */
#ifndef NIB_QUANTIZE_CUH
#define NIB_QUANTIZE_CUH

#include "kernel_name.h"
#ifdef NIB_HAS_E2M1
#include "ptx_e2m1.cuh"
#endif
#include "quantize_block.cuh"
#include "quantize_params.h"
#include "quantize_search.cuh"

#define NAN_BITS 0x7FC00000u

/* The scale and the block of a byte of the scale tensor. */
struct place {
	int64_t batch, row, group;
	uint8_t *scale;
	bool is_padding;
};

/* i / d, faster for numbers below 2^32, which most tensors have. */
DEVICE uint64_t divide(uint64_t i, uint64_t d)
{
	if ((i | d) >> 32 == 0)
		return (uint32_t)i / (uint32_t)d;
	return i / d;
}

DEVICE struct place place_of(const struct nib_quantize_nvfp4 &q, uint64_t i)
{
	struct place at;
	uint64_t in_batch, tile, byte;

	at.batch = divide(i, q.scale_bytes);
	in_batch = i - at.batch * q.scale_bytes;
	at.scale = q.scales + at.batch * q.scale_batch_stride;
	if (!q.is_tiled) {
		at.row = divide(in_batch, q.groups);
		at.group = in_batch - at.row * q.groups;
		at.scale += at.row * q.scale_row_stride + at.group;
		at.is_padding = false;
		return at;
	}
	tile = in_batch / 512;
	byte = in_batch % 512;
	at.row = divide(tile, q.tile_columns);
	at.group = (tile - at.row * q.tile_columns) * 4 + byte % 4;
	at.row = at.row * 128 + byte / 16 + byte % 16 / 4 * 32;
	at.scale += in_batch;
	at.is_padding = at.row >= q.rows || at.group >= q.groups;
	return at;
}

/* The place of the scale of (batch, row, group). */
DEVICE const uint8_t *scale_at(const struct nib_quantize_nvfp4 &q,
			       const struct place &at)
{
	const uint8_t *scales = q.scales + at.batch * q.scale_batch_stride;

	if (!q.is_tiled)
		return scales + at.row * q.scale_row_stride + at.group;
	return scales + (at.row / 128 * q.tile_columns + at.group / 4) * 512 +
	       at.row % 32 * 16 + at.row % 128 / 32 * 4 + at.group % 4;
}

/* n <= 16 elements from index on as the bits of fp32, then zeros. */
DEVICE void load_16(const struct nib_quantize_dense &x, int64_t index, int n,
		    uint32_t out[16])
{
	const uint32_t *wide = (const uint32_t *)x.data + index;
	const uint16_t *narrow = (const uint16_t *)x.data + index;

	if (x.is_aligned && n == 16 && x.dtype == 0) {
#pragma unroll
		for (int i = 0; i < 4; i++) {
			const uint4 v = ((const uint4 *)wide)[i];

			out[4 * i] = v.x, out[4 * i + 1] = v.y;
			out[4 * i + 2] = v.z, out[4 * i + 3] = v.w;
		}
	} else if (x.is_aligned && n == 16) {
#pragma unroll
		for (int i = 0; i < 2; i++) {
			const uint4 v = ((const uint4 *)narrow)[i];
			const uint32_t pair[4] = {v.x, v.y, v.z, v.w};

#pragma unroll
			for (int j = 0; j < 4; j++) {
				out[8 * i + 2 * j] = widen(pair[j] & 0xFFFF, x.dtype);
				out[8 * i + 2 * j + 1] = widen(pair[j] >> 16, x.dtype);
			}
		}
	} else {
#pragma unroll
		for (int i = 0; i < 16; i++)
			out[i] = i >= n		? 0
				 : x.dtype == 0 ? wide[i]
						: widen(narrow[i], x.dtype);
	}
}

/* index: of bits[0] in x, row-major. */
DEVICE void note_bad(struct nib_quantize_found *found, const uint32_t bits[16],
		     int64_t index)
{
	int first = 0;

#pragma unroll
	for (int i = 15; i >= 0; i--)
		if ((bits[i] & 0x7FFFFFFF) >= INFINITY_BITS)
			first = i;
	atomicMax(&found->first_bad, ~(unsigned long long)(index + first));
}

/* ---- amax ---------------------------------------------------------------- */

DEVICE uint32_t block_max(uint32_t x)
{
	__shared__ uint32_t warps[NIB_QUANTIZE_THREADS / 32];

	x = __reduce_max_sync(~0u, x);
	if (threadIdx.x % 32 == 0)
		warps[threadIdx.x / 32] = x;
	__syncthreads();
	return __reduce_max_sync(~0u, warps[threadIdx.x % (NIB_QUANTIZE_THREADS / 32)]);
}

extern "C" __global__ void __launch_bounds__(NIB_QUANTIZE_THREADS)
    NIB_KERNEL(amax)(const __grid_constant__ struct nib_amax_params p)
{
	const uint64_t pieces = (p.x.cols + 15) / 16;
	const uint64_t all = pieces * p.x.rows * p.x.batch;
	const uint64_t stride = (uint64_t)gridDim.x * NIB_QUANTIZE_THREADS;
	uint64_t i = (uint64_t)blockIdx.x * NIB_QUANTIZE_THREADS + threadIdx.x;
	uint32_t largest = 0;

	for (; i < all; i += stride) {
		const uint64_t line = divide(i, pieces);
		const uint64_t batch = divide(line, p.x.rows);
		const uint64_t row = line - batch * p.x.rows;
		const int64_t col = (i - line * pieces) * 16;
		uint32_t bits[16], sum = 0;

		load_16(p.x, batch * p.x.batch_stride + row * p.x.row_stride + col,
			(int)min(p.x.cols - col, (int64_t)16), bits);
#pragma unroll
		for (int j = 0; j < 16; j++) {
			const uint32_t size = bits[j] & 0x7FFFFFFF;

			sum = max(sum, size);
			if (size < INFINITY_BITS)
				largest = max(largest, size);
		}
		if (sum >= INFINITY_BITS && !p.saturate)
			note_bad(p.found, bits, line * p.x.cols + col);
	}
	largest = block_max(largest);
	if (threadIdx.x == 0)
		atomicMax(&p.found->amax, largest);
}

/* ---- quantise ------------------------------------------------------------ */

DEVICE float load_global(const struct nib_quantize_params &p)
{
	float global;

	if (p.global_pointer)
		return *p.global_pointer;
	if (!p.global_of_amax)
		return p.global;
	if (p.found->amax == 0)
		return 1.0f;
	global = __fdiv_rn(__uint_as_float(p.found->amax), p.largest);
	return global > 0 ? global : __uint_as_float(1);
}

#ifdef NIB_HAS_E2M1
/*
 * Converts two quotients, one too small and one too large.  The exact quotient is
 * between them, so that codes on which both agree are right.  Returns false if they
 * differ, near a tie.  The quotients are moved by 2^-20; rounding errors are at most
 * 2^-22.
 */
DEVICE bool encode_by_cvt(const uint32_t bits[16], double d, uint32_t codes[2])
{
	const float inverse = __frcp_rn((float)d);
	const float less = inverse * (1.0f - 0x1p-20f);
	const float more = inverse * (1.0f + 0x1p-20f);
	uint32_t differ = 0;

#pragma unroll
	for (int i = 0; i < 2; i++) {
		float low[8], high[8];

#pragma unroll
		for (int j = 0; j < 8; j++) {
			const float x = __uint_as_float(bits[8 * i + j]);

			low[j] = x * less;
			high[j] = x * more;
		}
		codes[i] = cvt_satfinite_e2m1x8_f32(low);
		differ |= codes[i] ^ cvt_satfinite_e2m1x8_f32(high);
	}
	return differ == 0;
}
#endif

/* worst: the largest |bits|. */
DEVICE void set_codes(const uint32_t bits[16], uint32_t worst, double d,
		      uint32_t codes[2])
{
#ifdef NIB_HAS_E2M1
	/* If 1 / d is a normal number and no x is NaN. */
	if (d > 0x1p-100 && d < 0x1p100 && worst <= INFINITY_BITS &&
	    encode_by_cvt(bits, d, codes))
		return;
	codes[0] = codes[1] = 0;
#endif
	encode_by_bounds(bits, d, codes);
}

/* Loads the 8 bytes of a block; word must be 0. */
DEVICE void load_codes(const uint8_t *codes, bool is_aligned, uint32_t word[2])
{
	if (is_aligned) {
		const uint2 v = *(const uint2 *)codes;

		word[0] = v.x, word[1] = v.y;
	} else {
#pragma unroll
		for (int i = 0; i < 8; i++)
			word[i / 4] |= (uint32_t)codes[i] << i % 4 * 8;
	}
}

DEVICE void store_codes(const struct nib_quantize_nvfp4 &q, const struct place &at,
			uint32_t low, uint32_t high)
{
	uint8_t *to =
	    q.codes + at.batch * q.batch_stride + at.row * q.row_stride + at.group * 8;

	if (q.is_aligned) {
		*(uint2 *)to = make_uint2(low, high);
		return;
	}
#pragma unroll
	for (int i = 0; i < 4; i++) {
		to[i] = low >> 8 * i;
		to[4 + i] = high >> 8 * i;
	}
}

/* Returns the scale of a block and sets its codes, which must be 0. */
DEVICE uint32_t encode_block(const uint32_t bits[16], uint32_t amax, uint32_t worst,
			     float global, uint32_t zero_scale, uint32_t codes[2])
{
	const uint32_t scale = scale_of_block(amax, global, zero_scale);

	set_codes(bits, worst, (double)e4m3_to_f32(scale) * (double)global, codes);
	return scale;
}

DEVICE void quantize_block(const struct nib_quantize_params &p, const struct place &at,
			   float global)
{
	const int64_t col = at.group * 16;
	uint32_t bits[16], codes[2] = {0, 0}, amax, worst, scale;

	load_16(p.x, at.batch * p.x.batch_stride + at.row * p.x.row_stride + col, 16,
		bits);
	worst = worst_of(bits, &amax);
	if (worst >= INFINITY_BITS && !p.saturate)
		note_bad(p.found, bits,
			 (at.batch * p.x.rows + at.row) * p.x.cols + col);
	scale = encode_block(bits, amax, worst, global, p.zero_scale, codes);
	store_codes(p.q, at, codes[0], codes[1]);
	*at.scale = (uint8_t)scale;
}

/* As quantize_block(), with the scale of least squared error. */
DEVICE void quantize_block_by_search(const struct nib_quantize_params &p,
				     const struct place &at, float global)
{
	const int64_t col = at.group * 16;
	uint32_t bits[16], codes[2] = {0, 0}, amax, worst, scale;

	load_16(p.x, at.batch * p.x.batch_stride + at.row * p.x.row_stride + col, 16,
		bits);
	worst = worst_of(bits, &amax);
	if (worst >= INFINITY_BITS && !p.saturate)
		note_bad(p.found, bits,
			 (at.batch * p.x.rows + at.row) * p.x.cols + col);
	scale = scale_of_block(amax, global, p.zero_scale);
	if (amax != 0 && amax < INFINITY_BITS)
		scale = search_scale(bits, p.weights ? p.weights + col : NULL, amax,
				     global, p.is_mse, scale);
	set_codes(bits, worst, (double)e4m3_to_f32(scale) * (double)global, codes);
	store_codes(p.q, at, codes[0], codes[1]);
	*at.scale = (uint8_t)scale;
}

/* One thread a block of 16 values; IS_SEARCH: its scale is the best of several. */
template <bool IS_SEARCH>
DEVICE void quantize_blocks(const struct nib_quantize_params &p)
{
	const uint64_t all = (uint64_t)p.q.scale_bytes * p.q.batch;
	const uint64_t stride = (uint64_t)gridDim.x * NIB_QUANTIZE_THREADS;
	const float global = load_global(p);
	uint64_t i = (uint64_t)blockIdx.x * NIB_QUANTIZE_THREADS + threadIdx.x;

	for (; i < all; i += stride) {
		const struct place at = place_of(p.q, i);

		if (at.is_padding)
			*at.scale = 0;
		else if (IS_SEARCH)
			quantize_block_by_search(p, at, global);
		else
			quantize_block(p, at, global);
	}
}

extern "C" __global__ void __launch_bounds__(NIB_QUANTIZE_THREADS)
    NIB_KERNEL(quantize_search)(const __grid_constant__ struct nib_quantize_params p)
{
	quantize_blocks<true>(p);
}

extern "C" __global__ void __launch_bounds__(NIB_QUANTIZE_THREADS)
    NIB_KERNEL(quantize)(const __grid_constant__ struct nib_quantize_params p)
{
	quantize_blocks<false>(p);
}

/* ---- dequantise ---------------------------------------------------------- */

#ifdef NIB_HAS_E2M1
/* The global scale where dequantising multiplies by it. */
typedef float wide;

/* x * global, rounded once to dtype.  For 16 bits the product is first rounded to odd:
 * toward zero, with the last bit set if it is inexact. */
DEVICE uint32_t narrow_product(float x, float global, int dtype)
{
	const float size = fabsf(x), by = fabsf(global);
	const float down = __fmul_rd(size, by);
	const uint32_t sign = (__float_as_uint(x) ^ __float_as_uint(global)) & 1u << 31;
	const float odd = __uint_as_float(__float_as_uint(down) |
					  (down != __fmul_ru(size, by)) | sign);

	if (isnan(down))
		return dtype == 0 ? NAN_BITS : dtype == 1 ? 0x7E00 : 0x7FC0;
	if (dtype == 0)
		return __float_as_uint(__fmul_rn(x, global));
	if (dtype == 1)
		return __half_as_ushort(__float2half_rn(odd));
	return __bfloat16_as_ushort(__float2bfloat16_rn(odd));
}

DEVICE void decode_16(const uint32_t word[2], float scale, wide global, int dtype,
		      uint32_t bits[16])
{
#pragma unroll
	for (int i = 0; i < 2; i++) {
		uint32_t h[4];

		cvt_f16x8_e2m1x8(word[i], h);
#pragma unroll
		for (int j = 0; j < 4; j++) {
			const float2 x = __half22float2(*(const __half2 *)&h[j]);
			uint32_t *to = &bits[8 * i + 2 * j];

			/* 6 bits: exact. */
			to[0] = narrow_product(x.x * scale, global, dtype);
			to[1] = narrow_product(x.y * scale, global, dtype);
		}
	}
}
#else
typedef double wide;

/* x rounded to odd: toward zero, with the last bit set if it is inexact.  Rounding the
 * result to fp16 or bf16 gives the rounding of x. */
DEVICE float round_to_odd(double x)
{
	const float f = __double2float_rz(x);

	return (double)f == x ? f : __uint_as_float(__float_as_uint(f) | 1);
}

DEVICE uint32_t narrow_to(double x, int dtype)
{
	if (isnan(x))
		return dtype == 0 ? NAN_BITS : dtype == 1 ? 0x7E00 : 0x7FC0;
	if (dtype == 0)
		return __float_as_uint(__double2float_rn(x));
	if (dtype == 1)
		return __half_as_ushort(__float2half_rn(round_to_odd(x)));
	return __bfloat16_as_ushort(__float2bfloat16_rn(round_to_odd(x)));
}
#endif

DEVICE void store_16(const struct nib_quantize_dense &y, int64_t index,
		     const uint32_t bits[16])
{
	uint32_t *wide = (uint32_t *)y.data + index;
	uint16_t *narrow = (uint16_t *)y.data + index;

	if (y.is_aligned && y.dtype == 0) {
#pragma unroll
		for (int i = 0; i < 16; i += 4)
			((uint4 *)wide)[i / 4] =
			    make_uint4(bits[i], bits[i + 1], bits[i + 2], bits[i + 3]);
	} else if (y.is_aligned) {
#pragma unroll
		for (int i = 0; i < 16; i += 8)
			((uint4 *)narrow)[i / 8] =
			    make_uint4(bits[i] | bits[i + 1] << 16,
				       bits[i + 2] | bits[i + 3] << 16,
				       bits[i + 4] | bits[i + 5] << 16,
				       bits[i + 6] | bits[i + 7] << 16);
	} else {
#pragma unroll
		for (int i = 0; i < 16; i++) {
			if (y.dtype == 0)
				wide[i] = bits[i];
			else
				narrow[i] = (uint16_t)bits[i];
		}
	}
}

DEVICE void dequantize_block(const struct nib_dequantize_params &p,
			     const struct place &at, wide global)
{
	const uint8_t *codes = p.q.codes + at.batch * p.q.batch_stride +
			       at.row * p.q.row_stride + at.group * 8;
	const float scale = e4m3_to_f32(*at.scale);
	uint32_t word[2] = {0, 0}, bits[16];

	load_codes(codes, p.q.is_aligned, word);
#ifdef NIB_HAS_E2M1
	decode_16(word, scale, global, p.y.dtype, bits);
#else
#pragma unroll
	for (int i = 0; i < 16; i++) {
		const uint32_t code = word[i / 8] >> i % 8 * 4;
		/* The table has twice the values. */
		const uint32_t twice = prmt(0x03020100u, 0x0C080604u, code & 7) & 0xFF;
		const float size = 0.5f * (float)twice;
		const float value = code & 8 ? -size : size;

		/* 6 bits times 24 bits: exact in a double. */
		bits[i] = narrow_to((double)(value * scale) * global, p.y.dtype);
	}
#endif
	store_16(p.y,
		 at.batch * p.y.batch_stride + at.row * p.y.row_stride + at.group * 16,
		 bits);
}

extern "C" __global__ void __launch_bounds__(NIB_QUANTIZE_THREADS)
    NIB_KERNEL(dequantize)(const __grid_constant__ struct nib_dequantize_params p)
{
	const uint64_t all = (uint64_t)p.q.scale_bytes * p.q.batch;
	const uint64_t stride = (uint64_t)gridDim.x * NIB_QUANTIZE_THREADS;
	const wide global = p.global_pointer ? *p.global_pointer : p.global;
	uint64_t i = (uint64_t)blockIdx.x * NIB_QUANTIZE_THREADS + threadIdx.x;

	for (; i < all; i += stride) {
		const struct place at = place_of(p.q, i);

		if (!at.is_padding)
			dequantize_block(p, at, global);
	}
}

/* ---- scales from layout to layout ---------------------------------------- */

extern "C" __global__ void __launch_bounds__(NIB_QUANTIZE_THREADS)
    NIB_KERNEL(convert_scales)(const __grid_constant__ struct nib_convert_params p)
{
	const uint64_t all = (uint64_t)p.to.scale_bytes * p.to.batch;
	const uint64_t stride = (uint64_t)gridDim.x * NIB_QUANTIZE_THREADS;
	uint64_t i = (uint64_t)blockIdx.x * NIB_QUANTIZE_THREADS + threadIdx.x;

	for (; i < all; i += stride) {
		const struct place at = place_of(p.to, i);

		*at.scale = at.is_padding ? 0 : *scale_at(p.from, at);
	}
}

/* ---- experts' rows ------------------------------------------------------- */

/* One warp, 32 experts at a time. */
extern "C" __global__ void __launch_bounds__(NIB_QUANTIZE_THREADS)
    NIB_KERNEL(expert_rows)(const __grid_constant__ struct nib_expert_rows_params p)
{
	const int lane = threadIdx.x;
	uint32_t before = 0; /* padded rows of the experts of earlier rounds */

	if (lane >= 32)
		return;
	if (lane == 0)
		st_relaxed(p.row_offsets, 0);
	for (int64_t first = 0; first < p.experts; first += 32) {
		const int64_t e = first + lane;
		const bool is_one = e < p.experts;
		const uint32_t end = is_one ? p.ends[e] : 0;
		const uint32_t begin = is_one && e > 0 ? p.ends[e - 1] : 0;
		const uint32_t rows = is_one ? (end - begin + 127) & ~127u : 0;
		uint32_t sum = rows; /* of this lane and those before it */

#pragma unroll
		for (int i = 1; i < 32; i *= 2) {
			const uint32_t other = __shfl_up_sync(0xFFFFFFFF, sum, i);

			sum += lane >= i ? other : 0;
		}
		if (is_one) {
			st_relaxed(p.row_offsets + e + 1, (int32_t)end);
			if (p.scale_rows)
				st_relaxed(p.scale_rows + e,
					   (int32_t)(before + sum - rows));
		}
		before += __shfl_sync(0xFFFFFFFF, sum, 31);
	}
}

#endif
