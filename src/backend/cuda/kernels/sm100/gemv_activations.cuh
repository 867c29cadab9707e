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
	/* Nothing may wait for a load before the weights are requested. */
	if (p.a.scales_align >= 4 && blocks == 2)
		return ld_global_u16(from);
	return bytes_of(from, blocks);
}

/* The items of A in the slots, and the window of k. */
struct stored {
	int item, items;
	int window;
};

/*
 * The row in the slots, item * M + row of the item, that has pieces number r *
 * row_pieces to (r + 1) * row_pieces - 1.  The first rows of all items come first, so
 * that threads load rows that exist before others: what they load later is requested
 * after the weights, and arrives 2 us later.
 */
template <int M>
DEVICE int slot_row(const struct stored &stored, int r)
{
	int row = 0;

#pragma unroll
	for (int i = 1; i < M; i++)
		row += r >= i * stored.items;
	return (r - row * stored.items) * M + row;
}

/* Piece number i of all rows in the slots. */
template <int M>
DEVICE struct piece load_piece(const struct nib_gemv100_params &p,
			       const struct run &run, const struct stored &stored,
			       int i)
{
	const int row_pieces =
	    nib_gemv100_window_steps(p.steps, M) * (NIB_GEMV_STEP / 32);
	const int all_rows = (int)__umulhi((uint32_t)i, p.pieces_inverse);
	const int slot = slot_row<M>(stored, all_rows), row = slot % M;
	const int block = stored.window * NIB_GEMV100_WINDOW(M) * (NIB_GEMV_STEP / 16) +
			  (i - all_rows * row_pieces) * 2;
	const int blocks = min(p.k / 16 - block, 2);
	struct piece x = {make_uint4(0, 0, 0, 0), 0};
	struct item item;
	const uint8_t *from;

	if (all_rows >= stored.items * M || blocks <= 0)
		return x;
	item = item_of(p, run, stored.item + slot / M);
	if (row >= item.rows)
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

/* What a thread loads of A before its weights: its first piece, an alpha. */
struct first_loads {
	struct piece piece;
	float alpha;
};

template <int M>
DEVICE struct first_loads load_first(const struct nib_gemv100_params &p,
				     const struct run &run, const struct stored &stored)
{
	struct first_loads x = {load_piece<M>(p, run, stored, threadIdx.x), 1};

	if (p.alpha && (int)threadIdx.x < stored.items)
		x.alpha = load_alpha(p, item_of(p, run, stored.item + threadIdx.x));
	return x;
}

/* Stores all pieces and the alphas of the items. */
template <int M>
DEVICE void store_pieces(const struct nib_gemv100_params &p, const struct run &run,
			 const struct stored &stored, const struct first_loads &first)
{
	const int row_pieces =
	    nib_gemv100_window_steps(p.steps, M) * (NIB_GEMV_STEP / 32);
	const int pitch = nib_gemv100_row_bytes(p.steps, M);
	struct piece piece = first.piece;

#pragma unroll 1
	for (int i = threadIdx.x; i < stored.items * M * row_pieces;) {
		const int row = (int)__umulhi((uint32_t)i, p.pieces_inverse);

		store_piece(shared_at(NIB_GEMV100_A_AT +
				      slot_row<M>(stored, row) * pitch +
				      (i - row * row_pieces) * 64),
			    piece);
		i += NIB_GEMV100_THREADS(M);
		if (i < stored.items * M * row_pieces)
			piece = load_piece<M>(p, run, stored, i);
	}
	if ((int)threadIdx.x < stored.items)
		sts_f32(shared_at(threadIdx.x * 4), first.alpha);
}

#endif
