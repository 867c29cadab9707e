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
/* The most rows of A; the variants have 2, 4 and 8. */
#define NIB_GEMV100_MAX_ROWS 8
/* Steps of a range of k: the sums of ranges are added in their order. */
#define NIB_GEMV100_RANGE 2
/* Steps of a window: the k of A that is in shared memory at a time, as fp16. */
#define NIB_GEMV100_WINDOW(m) ((m) <= 4 ? 64 : 32)
/* Bytes of the items of A in shared memory, and how many of them there may be. */
#define NIB_GEMV100_A_BYTES (131072 + NIB_GEMV100_MAX_ROWS * NIB_GEMV100_ROW_PAD)
#define NIB_GEMV100_SLOTS   4
/* Padding after each row of A, so that rows begin in different banks. */
#define NIB_GEMV100_ROW_PAD 16
/* The most rows of A of an MoE problem, and so items. */
#define NIB_GEMV100_ITEMS 1024
/* Zeros before A: for lanes whose column is not theirs. */
#define NIB_GEMV100_ZEROS 256

/* In the order of their first use, because each 64 bytes are a miss of the cache. */
struct nib_gemv100_params {
	struct nib_gemv_operand a;
	int32_t m, steps;	    /* m: of a matrix, not of MoE; steps of k */
	const int32_t *row_offsets; /* MoE, else NULL */
	int32_t tiles;		    /* of a matrix: 16 rows of b */
	/* Not MoE: units of a CTA; how many CTAs have one more; log2 of the warps that
	 * share a unit. */
	int32_t share, rest, unit_warps_log2;
	uint32_t tiles_inverse, pieces_inverse; /* 2^32 over them; of a row of A */
	int32_t slots;				/* items of A in shared memory */
	int32_t k;
	const float *alpha; /* NULL = 1; of MoE an array */
	int64_t n;
	struct nib_gemv_operand b;
	int32_t matrices;   /* batches, or experts */
	int32_t partial_at; /* an offset in shared memory */
	void *c;
	int64_t c_row_stride, c_batch_stride; /* elements */
	int32_t c_dtype;
	/* MoE, else NULL and 0. */
	int32_t rows, scale_rows_total;
	int32_t multiprocessors;
	const int32_t *scale_rows;
};

NIB_GEMV_FN int32_t nib_gemv100_steps(int64_t k)
{
	return (int32_t)((k + NIB_GEMV_STEP - 1) / NIB_GEMV_STEP);
}

/* Steps of A in shared memory. */
NIB_GEMV_FN int32_t nib_gemv100_window_steps(int32_t steps, int m)
{
	return steps < NIB_GEMV100_WINDOW(m) ? steps : NIB_GEMV100_WINDOW(m);
}

/* A row of A in shared memory. */
NIB_GEMV_FN int32_t nib_gemv100_row_bytes(int32_t steps, int m)
{
	return nib_gemv100_window_steps(steps, m) * NIB_GEMV_STEP * 2 +
	       NIB_GEMV100_ROW_PAD;
}

/*
 * Offsets in dynamic shared memory: alphas of the items in slots, items of MoE, zeros,
 * A, and sums of ranges in two buffers.
 */
#define NIB_GEMV100_ITEMS_AT 64
#define NIB_GEMV100_ZEROS_AT (NIB_GEMV100_ITEMS_AT + NIB_GEMV100_ITEMS * 8)
#define NIB_GEMV100_A_AT     (NIB_GEMV100_ZEROS_AT + NIB_GEMV100_ZEROS)

/* The slots for items of A, if the CTAs need as many as `items`. */
NIB_GEMV_FN int32_t nib_gemv100_slots(int32_t steps, int m, int64_t items)
{
	const int32_t fit = NIB_GEMV100_A_BYTES / (m * nib_gemv100_row_bytes(steps, m));
	const int32_t most = fit < NIB_GEMV100_SLOTS ? fit : NIB_GEMV100_SLOTS;

	if (steps > NIB_GEMV100_WINDOW(m))
		return 1;
	return items < most ? (int32_t)items : most;
}

NIB_GEMV_FN int32_t nib_gemv100_partial_at(int32_t steps, int m, int32_t slots)
{
	return NIB_GEMV100_A_AT + slots * m * nib_gemv100_row_bytes(steps, m);
}

/* The sums of a group's ranges of a window: 16 rows of B, m of A. */
NIB_GEMV_FN int32_t nib_gemv100_partial_bytes(int32_t steps, int m)
{
	const int32_t ranges =
	    (nib_gemv100_window_steps(steps, m) + NIB_GEMV100_RANGE - 1) /
	    NIB_GEMV100_RANGE;

	return ranges * NIB_GEMV_TILE_ROWS * m * 4;
}

NIB_GEMV_FN int64_t nib_gemv100_shared_bytes(int32_t steps, int m, int32_t slots)
{
	return nib_gemv100_partial_at(steps, m, slots) +
	       NIB_GEMV100_WARPS(m) * nib_gemv100_partial_bytes(steps, m);
}

/*
 * log2 of the warps that share a unit, if a CTA has at most `units` of them: all groups
 * of warps should end together, and few warps have less to add.  The order of sums does
 * not depend on it.
 */
NIB_GEMV_FN int32_t nib_gemv100_unit_warps_log2(uint32_t units, int32_t steps, int m)
{
	const uint32_t warps = NIB_GEMV100_WARPS(m);
	const uint32_t ranges = (uint32_t)nib_gemv100_partial_bytes(steps, m) /
				(uint32_t)(NIB_GEMV_TILE_ROWS * m * 4);
	uint32_t least = ~0u;
	int32_t best = 0;

	for (int32_t log2 = 0; warps >> log2 && ranges >> log2; log2++) {
		const uint32_t groups = warps >> log2;
		const uint32_t rounds = (units + groups - 1) / groups;
		const uint32_t each = (ranges + (1u << log2) - 1) >> log2;
		/* A round ends with sums that are worth a part of a range. */
		const uint32_t cost = rounds * (4 * each + (log2 > 0));

		if (cost < least) {
			least = cost;
			best = log2;
		}
	}
	return best;
}

#endif
