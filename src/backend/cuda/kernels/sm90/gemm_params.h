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
 * The steps of an activation stage, which select the kernel.  One in general.  Two if
 * no tile has more than NIB_MEDIUM_M_MAX rows of A (gemm_mainloop.cuh; the same bits).
 * Four, a whole weight stage, for a single problem or MoE whose tiles have at most
 * NIB_SMALL_M_MAX rows of A and at least two weight stages (gemm_small_m.cuh).
 */
#define NIB_LARGE_M_STEPS   1
#define NIB_MEDIUM_M_STEPS  2
#define NIB_MEDIUM_M_MAX    64
#define NIB_SMALL_M_STEPS   NIB_WEIGHT_STAGE_STEPS
#define NIB_SMALL_M_MAX	    32
#define NIB_SMALL_M_THREADS 640
/* Bytes of the accumulators that one pair of warpgroups passes to the other. */
#define NIB_SMALL_M_EXCHANGE_BYTES(m) ((m)*512)

/* Threads of a CTA. */
#define NIB_GEMM_THREADS 384
/* Shared memory: codes and scales of a weight stage; what follows the rings. */
#define NIB_WEIGHT_STAGE_BYTES                                                         \
	(NIB_TILE_N * (NIB_WEIGHT_STAGE_K / 2 + NIB_WEIGHT_STAGE_K / 16))
#define NIB_GEMM_TAIL_BYTES 27648
#define NIB_GEMM_STAGES_MAX 16
/* The most pairs of CTAs in a launch: Hopper has at most 144 SMs. */
#define NIB_GEMM_CLUSTERS 72

/*
 * The activation conversion kernel: a CTA converts an atom (eight rows of A) for 16
 * steps of k.  Two threads write the 128 bytes of a row and step.
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
	/* Some rows of codes of B or B2 are aligned to 8 bytes only, not to 16. */
	NIB_B_CODES_BY_8 = 8,
	/*
	 * Rows of linear scales are loaded 16 bytes at a time; with this flag 4 bytes,
	 * with the next one single bytes.
	 */
	NIB_B_SCALES_BY_4 = 16,
	NIB_B_SCALES_BY_1 = 32,
	/* Every eight elements of c from a multiple of eight on are 16 aligned
	 * bytes. */
	NIB_C_BY_16 = 64,
};

/*
 * Floats of the split-k partial results of one CTA: tile_m / 2 for each of 256 threads.
 * The additional 256 floats keep split-k slices in different slices of the L2.
 */
#define NIB_GEMM_PARTIALS(tile_m) (((tile_m) / 2 + 1) * 256)

/* What the plan knows of a problem; the experts of an MoE problem share one. */
struct nib_gemm_shape {
	int32_t m, n, k;
	int32_t flags;
	/* Its first row in the converted activations, a multiple of 16. */
	int32_t first_row;
	int64_t a_stride_bytes, a_scale_stride_bytes;
	int64_t b_stride_bytes, b_scale_stride_bytes;
	int64_t b2_stride_bytes, b2_scale_stride_bytes;
	int64_t c_stride_elems;
};

/* What only a run knows of the problem. */
struct nib_gemm_pointers {
	const uint8_t *a, *a_scales;
	const uint8_t *b, *b_scales;
	const uint8_t *b2, *b2_scales;
	void *c;
	const float *alpha, *alpha2;
	int64_t flags; /* added to the shape's: limits of alignment */
};

struct nib_gemm_args {
	struct nib_gemm_shape shapes[NIB_GEMM_PROBLEMS];
	/*
	 * Entry i * clusters + c is the i-th tile of cluster c.  The first tile of each
	 * cluster is also in `first`: in memory it would cost a miss before the first
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
	 * Split-k slices of each tile.  If there are several, the launch has one
	 * problem and no CTA has two tiles.  The slices exchange accumulators in
	 * memory: partials has NIB_GEMM_PARTIALS(tile_m) floats for each tile, CTA of
	 * the pair and slice; arrivals counts the slices stored for each tile and CTA,
	 * and is cleared by the activation conversion kernel.
	 */
	int32_t k_slices;
	float *partials;
	uint32_t *arrivals;
	int32_t n_arrivals;
	/* MoE, else experts = 0. */
	int32_t experts;
	int32_t tile_m; /* most rows of A of a tile */
	const int32_t *row_offsets, *scale_rows;
	int32_t scale_rows_total; /* the limit of scale_rows */
	/*
	 * The matrices of a batch with constant strides, which is the only problem;
	 * otherwise 0.  A tile's problem is then the matrix.  The strides are last, so
	 * that small products need not wait for more parameters.
	 */
	int32_t batch;
	/* Strides from one matrix or expert to the next. */
	int64_t b_batch_bytes, b_scale_batch_bytes;
	int64_t b2_batch_bytes, b2_scale_batch_bytes;
	struct nib_gemm_tile first[NIB_GEMM_CLUSTERS]; /* rows = 0: no tile */
	int64_t a_batch_bytes, a_scale_batch_bytes, c_batch_elems;
	int32_t batch_rows; /* of each matrix in the converted activations */
	/*
	 * Whether the weights are packed, so that no earlier kernel writes them.  False
	 * for MoE, whose row offsets are read with the weights.
	 */
	int32_t are_weights_ready;
};

struct nib_gemm_launch {
	struct nib_gemm_args args;
	struct nib_gemm_pointers problems[NIB_GEMM_PROBLEMS];
};

#endif
