/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemm_params.h - the parameters of Hopper's kernels for products in tiles: plain
 * structs for C17 on the host and CUDA C on the device.  Sizes and pointers are kernel
 * parameters, since a table in memory would cost a miss before the first load.  The
 * list of tiles is long and is in memory.
 */
#ifndef NIB_CUDA_GEMM_PARAMS_H
#define NIB_CUDA_GEMM_PARAMS_H

#include <stdint.h>

#include "backend/cuda/kernels/common/gemm_tile.h"

/* Problems of one launch: 9,008 bytes of parameters. */
#define NIB_GEMM_PROBLEMS NIB_TILE_PROBLEMS

/*
 * Steps of an activation stage select the kernel: one in general; two if no
 * tile has more than NIB_MEDIUM_M_MAX rows of A (gemm_mainloop.cuh; the same
 * bits); all four of a weight stage for a single problem or MoE whose tiles
 * have at most NIB_SMALL_M_MAX rows of A and two weight stages or more
 * (gemm_small_m.cuh).
 */
#define NIB_LARGE_M_STEPS   1
#define NIB_MEDIUM_M_STEPS  2
#define NIB_MEDIUM_M_MAX    64
#define NIB_SMALL_M_STEPS   NIB_WEIGHT_STAGE_STEPS
#define NIB_SMALL_M_MAX	    32
#define NIB_SMALL_M_THREADS 640
/* Accumulators that one pair of warpgroups hands to the other. */
#define NIB_SMALL_M_EXCHANGE_BYTES(m) ((m)*512)

/* Threads of a CTA. */
#define NIB_GEMM_THREADS 384
/* Shared memory: codes and scales of a weight stage; behind the rings. */
#define NIB_WEIGHT_STAGE_BYTES                                                         \
	(NIB_TILE_N * (NIB_WEIGHT_STAGE_K / 2 + NIB_WEIGHT_STAGE_K / 16))
#define NIB_GEMM_TAIL_BYTES 27648
#define NIB_GEMM_STAGES_MAX 16
/* Pairs of CTAs in a launch: Hopper has at most 144 multiprocessors. */
#define NIB_GEMM_CLUSTERS 72

/*
 * The activation conversion kernel: a block converts an atom, eight rows of A,
 * over 16 steps of k; two threads make the 128 bytes of a row and step.
 */
#define NIB_ATOM_ROWS	    8
#define NIB_CONVERT_STEPS   16
#define NIB_CONVERT_THREADS (NIB_ATOM_ROWS * NIB_CONVERT_STEPS * 2)

/*
 * A as the caller has it (fp16 and bf16: the values of enum nib_dtype).  The activation
 * conversion kernel (sm90/activations.cuh) dequantises NVFP4 to fp16, and only reorders
 * fp16 and bf16.
 */
#define NIB_A_NVFP4 0
#define NIB_A_FP16  1
#define NIB_A_BF16  2

enum nib_gemm_flags {
	NIB_A_TILED = 1, /* scale layouts */
	NIB_B_TILED = 2,
	NIB_B2_TILED = 4,
	/* Rows of B's and B2's codes are not all 16-byte aligned, only 8. */
	NIB_B_CODES_BY_8 = 8,
	/*
	 * Rows of linear scales are loaded by 16 bytes, else by 4, else by
	 * single bytes.
	 */
	NIB_B_SCALES_BY_4 = 16,
	NIB_B_SCALES_BY_1 = 32,
	/* Eight elements of c, from a multiple of eight, are 16 aligned bytes.
	 */
	NIB_C_BY_16 = 64,
};

/*
 * Floats of the split-k partial results of one CTA: half of tile_m of each of
 * 256 threads. The 256 floats more keep slices in different slices of the L2.
 */
#define NIB_GEMM_PARTIALS(tile_m) (((tile_m) / 2 + 1) * 256)

/* One problem as the plan knows it; the experts of an MoE problem share one. */
struct nib_gemm_shape {
	int32_t m, n, k;
	int32_t flags;
	/* Its first row among the converted activations; a multiple of 16. */
	int32_t first_row;
	int64_t a_stride_bytes, a_scale_stride_bytes;
	int64_t b_stride_bytes, b_scale_stride_bytes;
	int64_t b2_stride_bytes, b2_scale_stride_bytes;
	int64_t c_stride_elems;
};

/* The same problem as a run knows it. */
struct nib_gemm_pointers {
	const uint8_t *a, *a_scales;
	const uint8_t *b, *b_scales;
	const uint8_t *b2, *b2_scales;
	void *c;
	const float *alpha, *alpha2;
	int64_t flags; /* beside the shape's: what alignment forbids */
};

struct nib_gemm_args {
	struct nib_gemm_shape shapes[NIB_GEMM_PROBLEMS];
	/*
	 * Entry i * clusters + c is the i-th tile of cluster c.  The first ones
	 * are here, too: from memory they would be a miss before the first
	 * load.
	 */
	const struct nib_gemm_tile *tiles;
	int32_t tile_rounds;
	int32_t count; /* problems */
	/*
	 * A as fp16 or bf16, in the order that wgmma reads (sm90/activations.cuh):
	 * a_atoms atoms of 8 rows x 128 bytes for each 64 of k.
	 */
	uint8_t *activations;
	int64_t a_atoms;
	int32_t rows;  /* rows of A of all problems */
	int32_t dtype; /* of c: enum nib_dtype */
	/*
	 * Rings in shared memory; a_stages is a multiple of the activation
	 * stages of a weight stage, except in the small-m kernels.
	 */
	int32_t a_stages, a_stage_bytes, weight_stages;
	/*
	 * Split-k slices of each tile. If there are several, there is one
	 * problem and no CTA has two tiles. Their accumulators meet in memory:
	 * partials has NIB_GEMM_PARTIALS(tile_m) floats for each tile, CTA of
	 * the pair and slice; arrivals counts the slices stored for each tile
	 * and CTA, and is cleared by the activation conversion kernel.
	 */
	int32_t k_slices;
	float *partials;
	uint32_t *arrivals;
	int32_t n_arrivals;
	/* MoE, else experts = 0. */
	int32_t experts;
	int32_t tile_m; /* most rows of A of a tile */
	const int32_t *row_offsets, *scale_rows;
	int32_t scale_rows_total; /* bounds what scale_rows says */
	/*
	 * A batch of one problem, whose matrices are strides apart; then a
	 * tile's problem is the matrix. Else 0. Its strides lie last, so that
	 * small products need not wait for more parameters.
	 */
	int32_t batch;
	/* From one matrix or expert to the next. */
	int64_t b_batch_bytes, b_scale_batch_bytes;
	int64_t b2_batch_bytes, b2_scale_batch_bytes;
	struct nib_gemm_tile first[NIB_GEMM_CLUSTERS]; /* rows = 0: no tile */
	int64_t a_batch_bytes, a_scale_batch_bytes, c_batch_elems;
	int32_t batch_rows; /* of each matrix among the converted activations */
	/*
	 * Whether no kernel before may write the weights: they are packed.
	 * False for MoE, whose row offsets are read with them.
	 */
	int32_t are_weights_ready;
};

struct nib_gemm_launch {
	struct nib_gemm_args args;
	struct nib_gemm_pointers problems[NIB_GEMM_PROBLEMS];
};

#endif
