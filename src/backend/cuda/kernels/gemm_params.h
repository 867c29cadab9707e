/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemm_params.h - what the host hands to the multiplication kernels: plain
 * structs, read by C17 on the host and by CUDA C on the device.  Sizes and
 * pointers travel in the kernel's parameters (a table in memory would be a miss
 * before the first load); the list of tiles, which is long, lies in memory.
 */
#ifndef NIB_CUDA_GEMM_PARAMS_H
#define NIB_CUDA_GEMM_PARAMS_H

#include <stdint.h>

/* Problems of one launch: 8,976 bytes of parameters. */
#define NIB_GEMM_PROBLEMS 48
/* Experts of a mixture. */
#define NIB_GEMM_EXPERTS 1024

/* A tile of one CTA: rows of B (dual: half of B, half of B2) x tokens. */
#define NIB_TILE_ROWS	    128
#define NIB_TILE_TOKENS_MAX 256
/* Tokens of a tile come in steps of this, above 128 in steps of 32. */
#define NIB_TILE_TOKENS_STEP 16
/* k of a step: a stage of the token ring; and of one of the weight ring. */
#define NIB_TOKEN_STAGE_K  64
#define NIB_WEIGHT_STAGE_K 256
/* Steps of a weight stage. */
#define NIB_WEIGHT_STAGE_STEPS (NIB_WEIGHT_STAGE_K / NIB_TOKEN_STAGE_K)

/*
 * Steps of a token stage say which kernel runs: one in general, two where no
 * tile has more tokens than NIB_SHORT_TOKENS (gemm_sums.cuh; the same bits),
 * all steps of a weight stage where none of a single product or a mixture has
 * more than NIB_FEW_TOKENS and each has two weight stages or more
 * (gemm_few.cuh).
 */
#define NIB_MANY_STEPS	 1
#define NIB_SHORT_STEPS	 2
#define NIB_SHORT_TOKENS 64
#define NIB_FEW_STEPS	 NIB_WEIGHT_STAGE_STEPS
#define NIB_FEW_TOKENS	 32
#define NIB_FEW_THREADS	 640
/* Sums on their way from one pair of warpgroups to the other. */
#define NIB_FEW_EXCHANGE_BYTES(tokens) ((tokens)*512)

/* Threads of a CTA, CTAs of a cluster that share tokens. */
#define NIB_GEMM_THREADS 384
#define NIB_GEMM_PAIR	 2
/* Shared memory: codes and scales of a weight stage; behind the rings. */
#define NIB_WEIGHT_STAGE_BYTES                                                 \
	(NIB_TILE_ROWS * (NIB_WEIGHT_STAGE_K / 2 + NIB_WEIGHT_STAGE_K / 16))
#define NIB_GEMM_TAIL_BYTES 27648
#define NIB_GEMM_STAGES_MAX 16
/* Pairs of CTAs in a launch: Hopper has at most 144 multiprocessors. */
#define NIB_GEMM_CLUSTERS 72

/*
 * The kernel that prepares tokens: a block makes an atom, eight rows of tokens,
 * of so many k64; two threads make a row's 128 bytes of one.
 */
#define NIB_TOKENS_ATOM	   8
#define NIB_TOKENS_STEPS   16
#define NIB_TOKENS_THREADS (NIB_TOKENS_ATOM * NIB_TOKENS_STEPS * 2)

enum nib_gemm_flags {
	NIB_A_TILED = 1, /* scale layouts */
	NIB_B_TILED = 2,
	NIB_B2_TILED = 4,
	/* Rows of B's and B2's codes are not all 16-byte aligned, only 8. */
	NIB_B_CODES_BY_8 = 8,
	/* Rows of linear scales: 16-byte copies, else 4, else single bytes. */
	NIB_B_SCALES_BY_4 = 16,
	NIB_B_SCALES_BY_1 = 32,
	/* Eight elements of c, from a multiple of eight, are 16 aligned bytes.
	 */
	NIB_C_BY_16 = 64,
};

/*
 * Floats of a part's sums, of one CTA: half a tile's tokens of each of 256
 * threads.  The rest keeps parts off the same slices of the L2.
 */
#define NIB_GEMM_SUMS(tile_tokens) (((tile_tokens) / 2 + 1) * 256)

/* One problem as the plan knows it; of a mixture, all experts share one. */
struct nib_gemm_shape {
	int32_t m, n, k;
	int32_t flags;
	/* Where its rows begin in the converted tokens; a multiple of 16. */
	int32_t first_token;
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

/*
 * Work of one pair of CTAs: rows of B from unit * 2 * NIB_TILE_ROWS on (dual:
 * unit * NIB_TILE_ROWS), tokens [token, token + tokens).
 */
struct nib_gemm_tile {
	int32_t problem;
	int32_t unit;
	int32_t token;
	int16_t tokens; /* a multiple of 16; 0: no more work */
	int16_t part;	/* of its k: which of args.k_parts */
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
	 * The tokens as fp16, in the order that wgmma wants (nib_tokens_sm90):
	 * token_atoms atoms of 8 rows x 128 bytes for each 64 of k.
	 */
	uint8_t *tokens;
	int64_t token_atoms;
	int32_t rows;  /* tokens of all problems */
	int32_t dtype; /* of c: enum nib_dtype */
	/* Rings in shared memory; token stages are a multiple of those that
	 * have a weight stage's k, but where tokens are few. */
	int32_t token_stages, token_stage_bytes, weight_stages;
	/*
	 * Parts of each tile's k.  If there are several, there is one problem,
	 * no CTA has two tiles, and they meet in memory: of each tile, CTA of
	 * the pair and part NIB_GEMM_SUMS(tile_tokens), and, cleared by
	 * nib_tokens_sm90, how many parts of a tile and CTA are there.
	 */
	int32_t k_parts;
	float *sums;
	uint32_t *arrivals;
	int32_t n_arrivals;
	/* Mixture of experts, else experts = 0. */
	int32_t experts;
	int32_t tile_tokens; /* most tokens of a tile */
	const int32_t *row_offsets, *scale_rows;
	int32_t scale_rows_total; /* bounds what scale_rows says */
	int64_t b_batch_bytes, b_scale_batch_bytes;
	int64_t b2_batch_bytes, b2_scale_batch_bytes;
	struct nib_gemm_tile first[NIB_GEMM_CLUSTERS]; /* tokens = 0: no tile */
};

struct nib_gemm_launch {
	struct nib_gemm_args args;
	struct nib_gemm_pointers problems[NIB_GEMM_PROBLEMS];
};

#endif
