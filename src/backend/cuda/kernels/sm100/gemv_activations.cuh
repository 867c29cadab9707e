/* SPDX-License-Identifier: Apache-2.0 */
/* gemv_activations.cuh - A in the shared memory of a CTA of gemv.cu: code * scale as
 * fp16, exact, [row of A][k], rows padded by 16 bytes for the banks. */
#ifndef NIB_SM100_GEMV_ACTIVATIONS_CUH
#define NIB_SM100_GEMV_ACTIVATIONS_CUH

#include <cuda_fp16.h>

#include "backend/cuda/kernels/common/ptx_e2m1.cuh"
#include "gemv_run.cuh"

#define NAN_SCALES 0x7F7Fu

/* 32 k of a row: codes, and two scales. */
struct piece {
	uint4 codes;
	uint32_t scales;
};

DEVICE uint32_t bytes_of(const uint8_t *from, int bytes)
{
	uint32_t x = 0;

#pragma unroll
	for (int i = 0; i < 4; i++)
		if (i < bytes)
			x |= (uint32_t)ld_global_u8(from + i) << 8 * i;
	return x;
}

/* The scales of two blocks; `blocks` of them are inside k. */
DEVICE uint32_t piece_scales(const struct nib_gemv100_params &p,
			     const struct item &item, int row, int block, int blocks)
{
	const uint8_t *from = p.a.scales;
	int64_t at = item.row + row;

	if (p.row_offsets && p.scale_rows) {
		const int first_row = __ldg(p.scale_rows + item.matrix);
		const int first = expert_row(p, item.matrix);
		const int rows = expert_row(p, item.matrix + 1) - first;

		/* An expert whose scales lie outside the tensor gets NaN. */
		if (first_row < 0 || first_row > p.scale_rows_total - rows)
			return NAN_SCALES;
		at += first_row - first;
	}
	if (!p.row_offsets)
		from += item.matrix * p.a.scale_batch_stride;
	if (!p.a.is_tiled)
		from += at * p.a.scale_row_stride + block;
	else
		from += (at / 128 * ((p.k + 63) / 64) + block / 4) * 512 +
			at % 32 * 16 + at % 128 / 32 * 4 + block % 4;
	return bytes_of(from, blocks);
}

/* Piece number i of the rows, for the phase that begins with step `begin`. */
template <int M>
DEVICE struct piece load_piece(const struct nib_gemv100_params &p,
			       const struct item &item, int i, int begin)
{
	const int row_pieces = max((int)nib_gemv100_kept(p.k, M) / 32, 1);
	const int row = i / row_pieces;
	const int block = begin * (NIB_GEMV_STEP / 16) + i % row_pieces * 2;
	const int blocks = min(p.k / 16 - block, 2);
	struct piece x = {make_uint4(0, 0, 0, 0), 0};
	const uint8_t *from;

	if (row >= item.rows || blocks <= 0)
		return x;
	from = p.a.codes + (item.row + row) * p.a.row_stride + block * 8;
	if (!p.row_offsets)
		from += item.matrix * p.a.batch_stride;
	if (p.a.codes_align == 16 && blocks == 2) {
		x.codes = ld_global_16(from);
	} else {
		x.codes.x = bytes_of(from, 4);
		x.codes.y = bytes_of(from + 4, 4);
		if (blocks == 2) {
			x.codes.z = bytes_of(from + 8, 4);
			x.codes.w = bytes_of(from + 12, 4);
		}
	}
	x.scales = piece_scales(p, item, row, block, blocks);
	return x;
}

/* Eight codes times the pair of equal scales. */
DEVICE uint4 scaled(uint32_t codes, __half2 scale)
{
	uint32_t w[4];

	cvt_f16x8_e2m1x8(codes, w);
#pragma unroll
	for (int i = 0; i < 4; i++) {
		const __half2 y = __hmul2(*(const __half2 *)&w[i], scale);

		w[i] = *(const uint32_t *)&y;
	}
	return make_uint4(w[0], w[1], w[2], w[3]);
}

DEVICE void store_piece(uint32_t to, const struct piece &x)
{
	const uint32_t h = cvt_f16x2_e4m3x2(x.scales);
	const __half2 s = *(const __half2 *)&h;

	sts_128(to, scaled(x.codes.x, __low2half2(s)));
	sts_128(to + 16, scaled(x.codes.y, __low2half2(s)));
	sts_128(to + 32, scaled(x.codes.z, __high2half2(s)));
	sts_128(to + 48, scaled(x.codes.w, __high2half2(s)));
}

/* Stores all pieces of a phase; `piece`: this thread's first, which it has loaded. */
template <int M>
DEVICE void store_pieces(const struct nib_gemv100_params &p, const struct item &item,
			 int begin, struct piece piece)
{
	const int row_pieces = (int)nib_gemv100_kept(p.k, M) / 32;
	const int pitch = nib_gemv100_row_bytes(p.k, M);

#pragma unroll 1
	for (int i = threadIdx.x; i < M * row_pieces;) {
		store_piece(shared_at(NIB_GEMV100_A_AT(M) + i / row_pieces * pitch +
				      i % row_pieces * 64),
			    piece);
		i += NIB_GEMV100_THREADS(M);
		if (i < M * row_pieces)
			piece = load_piece<M>(p, item, i, begin);
	}
}

#endif
