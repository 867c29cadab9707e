/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemv_params.h - the parameters of the kernels of sm100/gemv.cu, and constants shared
 * by host and device.
 */
#ifndef NIB_SM100_GEMV_PARAMS_H
#define NIB_SM100_GEMV_PARAMS_H

#include "backend/cuda/kernels/common/gemv_operand.h"

/*
 * Warps of a CTA for m rows of A.  An SM has one CTA.  With more rows a thread needs
 * more registers.
 */
#define NIB_GEMV100_WARPS(m)   ((m) <= 2 ? 16 : 8)
#define NIB_GEMV100_THREADS(m) (32 * NIB_GEMV100_WARPS(m))
/* log2 of the most warps that share the k of a tile, and of the fewest. */
#define NIB_GEMV100_TILE_WARPS_LOG2_MAX 3
#define NIB_GEMV100_TILE_WARPS_LOG2_MIN 2
/* The most rows of A; the variants have 2, 4 and 8. */
#define NIB_GEMV100_MAX_ROWS 8
/*
 * k of A in shared memory at a time, as fp16: 128 KiB in all.  A multiple of
 * NIB_GEMV_STEP times the warps of a tile, so that each warp continues with its next
 * step in the next phase.
 */
#define NIB_GEMV100_PHASE(m) (65536 / (m))
/* Padding after each row of A, so that rows begin in different banks. */
#define NIB_GEMV100_ROW_PAD 16
/* The most rows of A of an MoE problem, and so items. */
#define NIB_GEMV100_ITEMS 1024
/* Zeros before A: for lanes whose column is not theirs. */
#define NIB_GEMV100_ZEROS 256

struct nib_gemv100_params {
	struct nib_gemv_operand a, b;
	const float *alpha; /* NULL = 1; of MoE an array */
	void *c;
	int64_t c_row_stride, c_batch_stride; /* elements */
	int64_t n;
	int32_t m, k; /* m: of a matrix; not of MoE */
	int32_t c_dtype;
	int32_t matrices;	 /* batches, or experts */
	int32_t tiles;		 /* of a matrix: 16 rows of b */
	int32_t tile_warps_log2; /* of those that share the k of a tile */
	int32_t multiprocessors;
	/* MoE, else NULL and 0. */
	const int32_t *row_offsets, *scale_rows;
	int32_t rows, scale_rows_total;
};

/* k of a phase, rounded up to the step: what is kept of each row of A. */
NIB_GEMV_FN int64_t nib_gemv100_kept(int64_t k, int m)
{
	const int64_t phase = NIB_GEMV100_PHASE(m);
	const int64_t whole = (k + NIB_GEMV_STEP - 1) / NIB_GEMV_STEP * NIB_GEMV_STEP;

	return whole < phase ? whole : phase;
}

/*
 * Offsets in dynamic shared memory: words common to all warps, items of MoE, zeros,
 * partial sums of the warps (two buffers), A.
 */
#define NIB_GEMV100_ITEMS_AT   64
#define NIB_GEMV100_ZEROS_AT   (NIB_GEMV100_ITEMS_AT + NIB_GEMV100_ITEMS * 8)
#define NIB_GEMV100_PARTIAL_AT (NIB_GEMV100_ZEROS_AT + NIB_GEMV100_ZEROS)
#define NIB_GEMV100_A_AT(m)                                                            \
	(NIB_GEMV100_PARTIAL_AT + 2 * NIB_GEMV100_WARPS(m) * NIB_GEMV_TILE_ROWS * (m)*4)

/* A row of A in shared memory. */
NIB_GEMV_FN int32_t nib_gemv100_row_bytes(int64_t k, int m)
{
	return (int32_t)nib_gemv100_kept(k, m) * 2 + NIB_GEMV100_ROW_PAD;
}

NIB_GEMV_FN int64_t nib_gemv100_shared_bytes(int64_t k, int m)
{
	return NIB_GEMV100_A_AT(m) + m * nib_gemv100_row_bytes(k, m);
}

/*
 * The number of CTAs for `units` tiles in all.  If groups of warps have several tiles,
 * it is the fewest CTAs with the same number of rounds, so that all groups end
 * together.  Otherwise each group has at most one tile, on all SMs.
 */
NIB_GEMV_FN uint32_t nib_gemv100_ctas(uint32_t units, int m, int tile_warps_log2,
				      int multiprocessors)
{
	const uint32_t groups = (uint32_t)NIB_GEMV100_WARPS(m) >> tile_warps_log2;
	const uint32_t slots = groups * (uint32_t)multiprocessors;
	const uint32_t rounds = (units + slots - 1) / slots;
	const uint32_t full = rounds > 1
				  ? (units + rounds * groups - 1) / (rounds * groups)
				  : (uint32_t)multiprocessors;

	return full < units ? full : units;
}

#endif
