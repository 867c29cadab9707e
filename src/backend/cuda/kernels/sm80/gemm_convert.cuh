/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemm_convert.cuh - A of NVFP4 to fp16, once for all tiles.  A value is e2m1 * scale,
 * exact in fp16.
 *
 *   codes, scales --4 and 1 bytes a piece--> registers: dequantise --> workspace
 *
 * Grid: x = rows of A, y = blocks of pieces of eight values; a thread has up to four,
 * no roles, no shared memory.  A warp stores 512 consecutive bytes at once.  Roofline:
 * the writes, 3.6 bytes for each byte read.
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

/* The first byte of codes, scales and results of a row of A. */
struct convert_row {
	const uint8_t *codes, *scales;
	uint8_t *to;
	int32_t scale_row; /* -1: none, so that the row is NaN */
};

/* Row `row` of the launch; false: no expert has it. */
DEVICE bool find_row(const struct nib_convert_args &p,
		     const struct nib_convert_matrix &x, int32_t row,
		     struct convert_row *r)
{
	row -= x.first_row;
	*r = (struct convert_row){x.codes, x.scales, x.to + (int64_t)row * x.k * 2};
	if (p.is_batch) {
		r->codes += row / x.m * p.batch_stride;
		r->scales += row / x.m * p.batch_scale_stride;
		row %= x.m;
	}
	r->codes += row * x.stride;
	r->scale_row = p.scale_rows ? expert_scale_row(p, row) : row;
	return r->scale_row != -2;
}

DEVICE void convert(const struct nib_convert_args &p)
{
	const int32_t first = blockIdx.y * NIB_CONVERT_PIECES + threadIdx.x;
	const int32_t row = blockIdx.x;
	const int32_t i =
	    find_last(&p.matrices->first_row, sizeof(struct nib_convert_matrix) / 4,
		      p.count, row);
	const struct nib_convert_matrix &x = p.matrices[i];
	uint32_t codes[NIB_CONVERT_EACH], scales[NIB_CONVERT_EACH], values[4];
	struct convert_row r;

	if (first >= x.k / 8 || !find_row(p, x, row, &r))
		return;
#pragma unroll
	for (int j = 0; j < NIB_CONVERT_EACH; j++) {
		const int32_t piece = min(first + j * NIB_CONVERT_THREADS, x.k / 8 - 1);

		codes[j] = __ldg((const uint32_t *)r.codes + piece);
		scales[j] = r.scale_row < 0
				? E4M3_NAN
				: load_scale(x, r.scales, r.scale_row, piece / 2);
	}
#pragma unroll
	for (int j = 0; j < NIB_CONVERT_EACH; j++) {
		const int32_t piece = first + j * NIB_CONVERT_THREADS;

		if (piece >= x.k / 8)
			break;
		decode_in_order<false>(codes[j],
				       low_halves(cvt_f16x2_e4m3x2(scales[j])), values);
		((uint4 *)r.to)[piece] =
		    make_uint4(values[0], values[1], values[2], values[3]);
	}
}

#endif
