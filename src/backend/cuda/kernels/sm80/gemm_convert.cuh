/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemm_convert.cuh - A of NVFP4 to fp16, once for all tiles.  A value is e2m1 * scale,
 * exact in fp16.
 *
 *   codes, scales --8 and 1 bytes a thread--> registers: dequantise --> workspace
 *
 * Grid: x = rows of A, y = blocks of scale groups; a thread has one group, no roles, no
 * shared memory.  Roofline: the writes, 3.6 bytes for each byte read.
 */
#ifndef NIB_SM80_GEMM_CONVERT_CUH
#define NIB_SM80_GEMM_CONVERT_CUH

#include "backend/cuda/kernels/common/moe_tiles.cuh"
#include "gemm_decode.cuh"
#include "gemm_params.h"

#define E4M3_NAN 0x7F

/* Row r, group g of a tensor of scales. */
DEVICE uint32_t load_scale(const struct nib_convert_matrix &x, const uint8_t *scales,
			   int32_t r, int32_t g)
{
	if (!x.is_tiled)
		return __ldg(scales + r * x.scale_stride + g);
	return __ldg(scales + ((int64_t)(r / 128) * ((x.k + 63) / 64) + g / 4) * 512 +
		     r % 32 * 16 + r % 128 / 32 * 4 + g % 4);
}

/*
 * The row of scales of a row of an MoE problem whose experts have rows of their own.
 * -1: outside their tensor; -2: no expert has the row.
 */
DEVICE int32_t expert_scale_row(const struct nib_convert_args &p, int32_t row)
{
	int32_t low = 0, high = p.experts, first, m, begin;

	while (high - low > 1) {
		const int32_t mid = (low + high) / 2;

		if (expert_row(&p, mid) <= row)
			low = mid;
		else
			high = mid;
	}
	first = expert_row(&p, low);
	m = expert_row(&p, low + 1) - first;
	begin = __ldg(p.scale_rows + low);
	if (row < first || row - first >= m)
		return -2;
	return begin >= 0 && begin <= p.scale_rows_total - m ? begin + row - first : -1;
}

DEVICE void convert(const struct nib_convert_args &p)
{
	const int32_t g = blockIdx.y * NIB_CONVERT_THREADS + threadIdx.x;
	int32_t row = blockIdx.x, scale_row;
	const int32_t i =
	    find_last(&p.matrices->first_row, sizeof(struct nib_convert_matrix) / 4,
		      p.count, row);
	const struct nib_convert_matrix &x = p.matrices[i];
	const uint8_t *codes = x.codes, *scales = x.scales;
	uint8_t *to;
	uint32_t scale = E4M3_NAN, values[8];
	uint2 word;

	if (g >= x.k / 16)
		return;
	row -= x.first_row;
	to = x.to + ((int64_t)row * x.k + g * 16) * 2;
	if (p.is_batch) {
		codes += row / x.m * p.batch_stride;
		scales += row / x.m * p.batch_scale_stride;
		row %= x.m;
	}
	scale_row = p.scale_rows ? expert_scale_row(p, row) : row;
	if (scale_row == -2)
		return;
	word = __ldg((const uint2 *)(codes + row * x.stride) + g);
	if (scale_row >= 0)
		scale = load_scale(x, scales, scale_row, g);
	scale = low_halves(cvt_f16x2_e4m3x2(scale));
	decode_in_order<false>(word.x, scale, values);
	decode_in_order<false>(word.y, scale, values + 4);
	((uint4 *)to)[0] = make_uint4(values[0], values[1], values[2], values[3]);
	((uint4 *)to)[1] = make_uint4(values[4], values[5], values[6], values[7]);
}

#endif
