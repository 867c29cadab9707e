/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemm_shared.cuh - what all roles of the GEMM's CTA share: its measures, the
 * shared memory behind the rings, rings and waiting.
 */
#ifndef NIB_GEMM_SHARED_CUH
#define NIB_GEMM_SHARED_CUH

#include "gemm_params.h"
#include "ptx_sm90.cuh"

#define DEVICE static __device__ __forceinline__

/* Two consumer warpgroups, 64 rows of the tile each; one more for copies. */
#define GROUPS	2
#define WARPS	(4 * GROUPS)
#define THREADS NIB_GEMM_THREADS
/* Rows of B that a CTA takes of each matrix. */
#define CTA_ROWS(dual) ((dual) ? NIB_TILE_ROWS / 2 : NIB_TILE_ROWS)
/* Registers of a thread, by the pairs of consumer warpgroups; a quarter of the SM
 * has 512 for each lane. */
#define CONSUMER_REGISTERS(pairs) ((pairs) == 2 ? 104 : 216)
#define PRODUCER_REGISTERS(pairs) ((pairs) == 2 ? 64 : 72)
#define WEIGHT_PRODUCERS   64
/* The thread that schedules, of a warp of its own. */
#define SCHEDULER 96
/* A weight stage: codes, then scales, 64 rows of each after the other. */
#define PART_CODES   (64 * (NIB_WEIGHT_STAGE_K / 2))
#define PART_SCALES  (64 * (NIB_WEIGHT_STAGE_K / 16))
#define WEIGHT_STAGE NIB_WEIGHT_STAGE_BYTES
#define STAGES_MAX   NIB_GEMM_STAGES_MAX
#define EXPERTS_MAX  NIB_GEMM_EXPERTS
/* k64 steps of a weight stage. */
#define STEPS NIB_WEIGHT_STAGE_STEPS
/* Sixteen tokens of a warp, 16 rows each, rows 48 bytes apart: no two of eight
 * rows of a stmatrix share a bank. */
#define STAGING_STRIDE 48
#define STAGING_WARP   (16 * STAGING_STRIDE)
/* Sums of 32 tokens, 16 of each consumer thread, on their way to c. */
#define BLOCK_TOKENS 32
#define SUMS_STRIDE  (WARPS * 32 * 4)
#define SUMS_BYTES   (BLOCK_TOKENS / 2 * SUMS_STRIDE)

/* Tiles that are known ahead. */
#define WORKS 4

/* What one CTA has to do next: written by the scheduler, read by all roles. */
struct work {
	int32_t tokens;	 /* of the tile, padded to its step; 0: no more */
	int32_t valid;	 /* of them, real ones */
	int32_t atom;	 /* first atom of the tile's tokens */
	int32_t stage0, stages; /* of k256 */
	int32_t problem; /* index of its shape and pointers */
	int32_t expert;	 /* of a mixture, else 0 */
	int32_t row0;	 /* first row of B of this CTA */
	int32_t part;	 /* of the tile's k */
	int32_t tile;	 /* k in parts: which tile, parts aside */
	/* Where it goes: the first token's element of row0. */
	int32_t rows_left; /* rows of B from row0 on */
	int32_t flags;	   /* of the shape */
	int64_t c_stride_elems;
	char *c;
	const float *alpha, *alpha2; /* of this expert; NULL: 1 */
};

/* Behind the rings, at addresses that depend on no runtime size. */
struct gemm_shared {
	uint64_t weights_full[STAGES_MAX], weights_empty[STAGES_MAX];
	uint64_t tokens_full[STAGES_MAX], tokens_empty[STAGES_MAX];
	uint64_t works_full[WORKS], works_empty[WORKS];
	uint64_t sums_full, sums_empty; /* gemm_few.cuh */
	struct work works[WORKS];
	uint8_t staging[WARPS * STAGING_WARP];
	uint8_t sums[SUMS_BYTES];
	/* Mixture: tiles of the experts before e. */
	int32_t first_tile[EXPERTS_MAX + 1];
};

static_assert(THREADS == 128 * (GROUPS + 1), "the groups and the copies");
static_assert(sizeof(struct gemm_shared) <= NIB_GEMM_TAIL_BYTES, "host's size");

/* A place in a ring: which stage, and the parity of its barriers. */
struct ring {
	uint32_t stage, parity;
};

DEVICE void advance(struct ring *r, uint32_t stages)
{
	if (++r->stage == stages) {
		r->stage = 0;
		r->parity ^= 1;
	}
}

DEVICE void wait(uint32_t bar, uint32_t parity)
{
	while (!mbarrier_try_wait_parity(bar, parity))
		;
}

#endif
