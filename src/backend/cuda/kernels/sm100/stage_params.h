/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stage_params.h - the parameters of the staging kernel (sm100/stage.cu).  It copies
 * operands that tensor maps cannot describe into the workspace: codes whose rows do not
 * begin at multiples of 16 bytes, linear scales, and tiled scales whose padding is not
 * zero or whose tiles are not where a map needs them.
 */
#ifndef NIB_SM100_STAGE_PARAMS_H
#define NIB_SM100_STAGE_PARAMS_H

#include "gemm_params.h"

#define NIB_STAGE_THREADS 256
/* The most copies of a launch: A, B, B2 and their scales, for each problem. */
#define NIB_STAGE_COPIES (6 * NIB_SM100_MANY_PROBLEMS)
/* The bytes that a thread writes at a time. */
#define NIB_STAGE_PIECE 16

enum nib_stage_kind {
	NIB_STAGE_CODES,
	NIB_STAGE_LINEAR,
	NIB_STAGE_TILED,
};

/*
 * The copy of one operand.  Copies are dense: codes in rows of whole pieces, scales in
 * tiles of NIB_SCALE_LAYOUT_TILED_128X4.  The padding is zero.
 */
struct nib_stage_copy {
	const uint8_t *from;
	uint8_t *to;
	/* Strides of the source; tiled scales have no row stride. */
	int64_t row_stride_bytes, batch_stride_bytes;
	/* Pieces of the earlier copies; pieces of a matrix. */
	int64_t first_piece, matrix_pieces;
	int32_t rows, k;
	int32_t kind;
	/*
	 * Scales of A of an MoE problem: those of expert e begin at row
	 * nib_sm100_staged_row() of the copy.
	 */
	int32_t is_of_experts;
};

struct nib_stage_params {
	int64_t pieces; /* in all */
	int32_t count;
	/* MoE: as in struct nib_sm100_args. */
	int32_t experts, rows, scale_rows_total;
	const int32_t *row_offsets, *scale_rows;
	struct nib_stage_copy copies[NIB_STAGE_COPIES];
};

/* Pieces of a row of codes, and tiles of scales across a row. */
NIB_HOST_DEVICE int32_t nib_stage_row_pieces(int32_t k)
{
	return k / 32 + (k % 32 != 0);
}

NIB_HOST_DEVICE int32_t nib_stage_tiles_across(int32_t k)
{
	return k / 64 + (k % 64 != 0);
}

#endif
