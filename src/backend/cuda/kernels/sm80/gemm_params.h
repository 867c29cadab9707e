/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemm_params.h - the parameters of the kernels for products in tiles of Ampere and
 * Ada: plain structs for C17 on the host and CUDA C on the device.
 */
#ifndef NIB_SM80_GEMM_PARAMS_H
#define NIB_SM80_GEMM_PARAMS_H

#include <stdint.h>

#include "backend/cuda/kernels/common/gemm_tile.h"

/* Matrices of one launch. */
#define NIB_GEMM_MATRICES NIB_TILE_PROBLEMS

#define NIB_GEMM_WARPS	 8
#define NIB_GEMM_THREADS (32 * NIB_GEMM_WARPS)
/*
 * A tile of a CTA: 256 rows of B (dual: 128 of B and 128 of B2), the unit of
 * tile_plan.h, by up to 128 rows of A.
 */
#define NIB_GEMM_B_ROWS (NIB_GEMM_PAIR * NIB_TILE_N)
#define NIB_GEMM_M_MAX	128
/*
 * Shared memory: a stage of k64 has a row of A in 128 bytes, and of B 32 bytes of codes
 * and 4 of scales.  After the stages come their barriers and tags, then for MoE the
 * experts' tiles.
 */
#define NIB_GEMM_A_ROW_BYTES	       (NIB_STEP_K * 2)
#define NIB_GEMM_B_BYTES	       (NIB_GEMM_B_ROWS * NIB_STEP_K / 16 * 9)
#define NIB_GEMM_STAGE_BYTES(m)	       ((m)*NIB_GEMM_A_ROW_BYTES + NIB_GEMM_B_BYTES)
#define NIB_GEMM_STAGES_MIN	       3
#define NIB_GEMM_STAGES_MAX	       6
#define NIB_GEMM_TAIL_BYTES	       (20 * NIB_GEMM_STAGES_MAX)
#define NIB_GEMM_EXPERT_BYTES(experts) (((experts) + 1) * 4)

enum nib_gemm_flags {
	NIB_B_TILED = 1, /* scale layouts */
	NIB_B2_TILED = 2,
	/* Some rows of codes of B or B2 are aligned to 8 bytes only, not to 16. */
	NIB_B_CODES_BY_8 = 4,
	/* Some rows of linear scales are not aligned to 4 bytes. */
	NIB_B_SCALES_BY_1 = 8,
	/* All scales are tiled and all codes aligned to 16 bytes. */
	NIB_B_BY_16 = 32,
	/* Every eight elements of c from a multiple of eight on are 16 aligned
	 * bytes. */
	NIB_C_BY_16 = 16,
};

/* One matrix; the matrices of a batch, and experts, share one. */
struct nib_gemm_matrix {
	const uint8_t *a; /* fp16 or bf16; NVFP4: converted, in the workspace */
	const uint8_t *b, *b_scales, *b2, *b2_scales;
	void *c;
	const float *alpha, *alpha2; /* NULL = 1 */
	int64_t a_stride;	     /* strides in bytes, c_stride in elements */
	int64_t b_stride, b_scale_stride, b2_stride, b2_scale_stride;
	int64_t c_stride;
	int32_t m, n, k;
	int32_t flags;
};

/* Strides from one matrix of a batch, or from one expert, to the next. */
struct nib_gemm_batch {
	int64_t a, b, b_scales, b2, b2_scales, c; /* bytes */
};

struct nib_gemm_args {
	/* Entry i * CTAs + c is the i-th tile of CTA c. */
	const struct nib_gemm_tile *tiles;
	int32_t tile_rounds;
	int32_t count; /* matrices */
	int32_t dtype; /* of c: enum nib_dtype */
	int32_t stages, stage_bytes;
	int32_t tile_m; /* most rows of A of a tile */
	/*
	 * Split-k slices of each tile.  If there are several, the launch has one
	 * matrix; the slices store their sums in `partials`, and another kernel adds
	 * them.  The sums of a slice are a matrix [m, partial_stride], those of B2
	 * follow.
	 */
	int32_t k_slices;
	int32_t partial_stride; /* elements, a multiple of 4 */
	float *partials;
	/* A tile's problem is the number of a matrix of a batch. */
	int32_t is_batch;
	/* MoE, else experts = 0. */
	int32_t experts;
	int32_t rows; /* of A of all experts */
	const int32_t *row_offsets;
	struct nib_gemm_batch batch;
	struct nib_gemm_matrix matrices[NIB_GEMM_MATRICES];
};

/* ---- A of NVFP4 to fp16 ---------------------------------------------------- */

#define NIB_CONVERT_THREADS 128
/* Pieces of eight values of k: of a thread, and of a CTA. */
#define NIB_CONVERT_EACH   4
#define NIB_CONVERT_PIECES (NIB_CONVERT_EACH * NIB_CONVERT_THREADS)

/* One matrix; the matrices of a batch share one. */
struct nib_convert_matrix {
	const uint8_t *codes, *scales;
	uint8_t *to; /* k values for each row */
	int64_t stride, scale_stride;
	int32_t first_row; /* of the launch's rows */
	int32_t m, k;
	int32_t is_tiled;
};

struct nib_convert_args {
	int32_t count, rows; /* rows: of all matrices */
	/* Matrices of a batch, and strides in bytes from one to the next. */
	int32_t is_batch;
	int64_t batch_stride, batch_scale_stride;
	/* MoE with rows of scales of their own, else scale_rows = NULL. */
	int32_t experts, scale_rows_total;
	const int32_t *row_offsets, *scale_rows;
	struct nib_convert_matrix matrices[NIB_GEMM_MATRICES];
};

/* ---- sums of split-k slices -------------------------------------------------- */

#define NIB_REDUCE_THREADS 128
/* Sums are 1 / SUM_SCALE of their values: scales of fp16 are 2^-6 times theirs. */
#define NIB_SUM_SCALE_F16  64
#define NIB_SUM_SCALE_BF16 1

#endif
