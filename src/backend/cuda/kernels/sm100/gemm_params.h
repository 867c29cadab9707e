/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemm_params.h - the parameters of Blackwell's kernel for products in tiles
 * (sm100/gemm.cuh): plain structs for C17 on the host and CUDA C on the device, and the
 * sizes that both compute.  Tiles are those of gemm_tile.h: NIB_TILE_N rows of B a CTA
 * by up to NIB_TILE_M_MAX rows of A.
 */
#ifndef NIB_SM100_PARAMS_H
#define NIB_SM100_PARAMS_H

#include "backend/cuda/kernels/common/gemm_tile.h"

/*
 * The most problems of a launch.  Kernels exist with two sizes of parameters, because a
 * launch copies all parameters.
 */
#define NIB_SM100_FEW_PROBLEMS	8
#define NIB_SM100_MANY_PROBLEMS 32
/* The most clusters of a launch: one on each of 160 SMs. */
#define NIB_SM100_CLUSTERS 160
/*
 * Warps that store results: of the dual operation two for each quarter of an SM, so
 * that one issues while the other waits for SiLU's operands.  One more loads, one
 * multiplies, one schedules (gemm.cuh).
 */
#define NIB_SM100_EPILOGUE_WARPS(dual) ((dual) ? 8 : 4)
#define NIB_SM100_THREADS(dual)	       (32 * (NIB_SM100_EPILOGUE_WARPS(dual) + 3))
/* The most split-k slices of a tile; they form one cluster. */
#define NIB_SM100_SLICES_MAX 4

/* k of a stage: 128 bytes of codes of a row, 4 tiles of scales. */
#define NIB_SM100_STAGE_K 256
/* Scales of 128 rows and one stage. */
#define NIB_SM100_SCALES_BYTES 2048
/* Codes of a CTA's rows of B, and of a row of A. */
#define NIB_SM100_B_BYTES     (NIB_TILE_N * NIB_SM100_STAGE_K / 2)
#define NIB_SM100_A_ROW_BYTES (NIB_SM100_STAGE_K / 2)
#define NIB_SM100_STAGES_MAX  12
/*
 * Shared memory after the ring of stages: struct shared100, and its size for lists of
 * tiles, which lack its last member (tiles of experts).
 */
#define NIB_SM100_TAIL_BYTES	  5120
#define NIB_SM100_LIST_TAIL_BYTES 1024

/* Columns of tensor memory, and those of the scales of 128 rows and a stage. */
#define NIB_SM100_COLUMNS	512
#define NIB_SM100_SCALE_COLUMNS 16
/*
 * A slot: scales of B (and B2), then of A.  A k step of A has two neighbouring blocks,
 * whether both are used or not.
 */
#define NIB_SM100_SLOT_COLUMNS(dual) (NIB_SM100_SCALE_COLUMNS * ((dual) ? 4 : 3))

/* A CUtensorMap, encoded by the driver. */
struct nib_tensor_map {
#ifdef __cplusplus
	alignas(64)
#else
	_Alignas(64)
#endif
	    uint64_t words[16];
};

/*
 * The operands of a problem.  All maps have rank 3, the last coordinate is the matrix
 * of the stack (or the expert), and elements outside read as 0.
 *
 *   codes   UINT8, sizes {k / 2, rows, matrices}, 128-byte swizzle,
 *           box {128, rows of a load, 1}
 *   scales  INT64, sizes {64 * ceil(k / 64), ceil(rows / 128), matrices}: tiles
 *           of 512 bytes of NIB_SCALE_LAYOUT_TILED_128X4, box {256, blocks of a load,
 *           1}
 */
struct nib_sm100_maps {
	/* box rows: a_box_rows; blocks: a_scale_blocks of the launch */
	struct nib_tensor_map a, a_scales;
	/* box rows: NIB_TILE_N; blocks: 1.  b2 of the dual operation only. */
	struct nib_tensor_map b, b_scales, b2, b2_scales;
};

struct nib_sm100_problem {
	struct nib_sm100_maps maps;
	void *c;
	const float *alpha, *alpha2; /* NULL: 1; of MoE an array */
	int64_t c_stride_elems, c_batch_stride_elems;
	int32_t m, n, k;
	/*
	 * Row units of a matrix of B; a unit has NIB_TILE_N rows for each CTA of a
	 * pair.  Unit u of a tile is unit u % units of matrix u / units of the stack.
	 */
	int32_t units;
	int32_t b_matrices; /* 1: all matrices of A share it */
	/* Rows of A of a load: at least a CTA's share of a tile. */
	int32_t a_box_rows;
};

struct nib_sm100_args {
	/* Entry i * clusters + c is the i-th tile of cluster c; rows = 0 ends the list.
	 * The first row of a tile is a multiple of 64, and its rows are in at most
	 * a_scale_blocks blocks of 128.  k_slice is not read: the CTAs of a cluster are
	 * the slices. */
	const struct nib_gemm_tile *tiles;
	int32_t tile_rounds;
	int32_t dtype;	/* of c: enum nib_dtype */
	int32_t tile_m; /* most rows of A of a tile */
	int32_t stages, stage_bytes;
	int32_t a_scale_blocks; /* 1 or 2 */
	int32_t k_slices;	/* if > 1, no cluster has two tiles */
	/*
	 * Tensor memory, in columns (nib_sm100_columns()): accumulators of odd tiles;
	 * slots for the scales of a stage.  The MMAs of a tile wait until the epilogue
	 * of the tile `lag` before it has read `early` columns, or all if it has fewer.
	 */
	int32_t odd_column, lag, early;
	int32_t scale_column, scale_slots;
	/* L2 policies of loads. */
	uint64_t a_policy, b_policy;
	/*
	 * The experts of an MoE problem, otherwise 0.  It is one problem.
	 * problems[i].maps.a has a_box_rows = 8 << i, for as many i as a tile of tile_m
	 * rows needs.
	 */
	int32_t experts;
	int32_t rows; /* of A */
	const int32_t *row_offsets;
	/*
	 * NULL: scales were staged, those of expert e from row
	 * nib_sm100_staged_row() on.
	 */
	const int32_t *scale_rows;
	int32_t scale_rows_total; /* the limit of scale_rows */
	struct nib_gemm_tile first[NIB_SM100_CLUSTERS];
};

struct nib_sm100_few {
	struct nib_sm100_args args;
	struct nib_sm100_problem problems[NIB_SM100_FEW_PROBLEMS];
};

struct nib_sm100_many {
	struct nib_sm100_args args;
	struct nib_sm100_problem problems[NIB_SM100_MANY_PROBLEMS];
};

#ifdef __CUDACC__
#define NIB_HOST_DEVICE static __host__ __device__ __forceinline__
#else
#define NIB_HOST_DEVICE static inline
#endif

/* Bytes of a stage: codes of B (and B2), codes of A, scales of each. */
NIB_HOST_DEVICE int32_t nib_sm100_stage_bytes(int32_t tile_m, int32_t ctas,
					      int32_t a_scale_blocks, int dual)
{
	const int32_t weights = dual ? 2 : 1;

	return weights * (NIB_SM100_B_BYTES + NIB_SM100_SCALES_BYTES) +
	       tile_m / ctas * NIB_SM100_A_ROW_BYTES +
	       a_scale_blocks * NIB_SM100_SCALES_BYTES;
}

/* Dynamic shared memory of a CTA.  It and the stages begin at multiples of 1024. */
NIB_HOST_DEVICE int32_t nib_sm100_shared_bytes(int32_t stages, int32_t stage_bytes,
					       int32_t experts)
{
	return stages * stage_bytes +
	       (experts ? NIB_SM100_TAIL_BYTES : NIB_SM100_LIST_TAIL_BYTES);
}

/*
 * The first row of expert e in the staged scales, a multiple of 128.  It needs no
 * prefix sum; padding costs at most 127 rows for each expert that has rows.
 */
NIB_HOST_DEVICE int32_t nib_sm100_staged_row(int32_t e, int32_t offset)
{
	return 128 * (offset / 128 + (e < offset ? e : offset));
}

/*
 * Divides the columns of tensor memory.  There are at least two slots of scales, so
 * that the scales of a stage are copied while the previous stage is multiplied; with a
 * slot for each stage the multiply warp does not wait for slots.  Accumulators have two
 * sets if they fit.  Otherwise single products have two sets that overlap by `early`
 * columns, which the epilogue reads first, and dual products have one set.
 */
NIB_HOST_DEVICE void nib_sm100_columns(struct nib_sm100_args *args, int dual)
{
	const int32_t set = args->tile_m * (dual ? 2 : 1);
	const int32_t slot = NIB_SM100_SLOT_COLUMNS(dual);
	const int32_t left = NIB_SM100_COLUMNS - 2 * slot;

	args->scale_slots = 2;
	args->lag = 1;
	if (2 * set <= left) {
		args->lag = 2;
		args->odd_column = set;
		args->early = set;
		args->scale_slots = (NIB_SM100_COLUMNS - 2 * set) / slot;
	} else if (!dual) {
		args->odd_column = left - set;
		args->early = 2 * set - left;
	} else {
		args->odd_column = 0;
		args->early = set;
		args->scale_slots = (NIB_SM100_COLUMNS - set) / slot;
	}
	if (args->scale_slots > args->stages)
		args->scale_slots = args->stages;
	args->scale_column = NIB_SM100_COLUMNS - args->scale_slots * slot;
}

#endif
