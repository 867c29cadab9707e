/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemm_shared.cuh - what all warps of a GEMM CTA have in common: sizes, and the part of
 * shared memory after the rings.
 */
#ifndef NIB_GEMM_SHARED_CUH
#define NIB_GEMM_SHARED_CUH

#include "backend/cuda/kernels/common/ring.cuh"
#include "gemm_params.h"
#include "ptx_wgmma.cuh"

/*
 * Two consumer warpgroups (or two pairs of them), 64 rows of the tile each, and
 * one producer warpgroup.
 */
#define GROUPS	2
#define WARPS	(4 * GROUPS)
#define THREADS NIB_GEMM_THREADS
/* Rows of B that a CTA multiplies of each matrix. */
#define CTA_ROWS(dual) ((dual) ? NIB_TILE_N / 2 : NIB_TILE_N)
/*
 * Registers of a thread, by the pairs of consumer warpgroups; a quarter of the
 * SM has 512 for each lane.
 */
#define CONSUMER_REGISTERS(pairs) ((pairs) == 2 ? 104 : 216)
#define PRODUCER_REGISTERS(pairs) ((pairs) == 2 ? 64 : 72)
#define WEIGHT_PRODUCERS	  64
/* The scheduler thread; no other thread of its warp has a role. */
#define SCHEDULER 96
/* A weight stage: codes, then scales, each of 64 rows (drawn in gemm_mainloop.cuh). */
#define HALF_CODES   (64 * (NIB_WEIGHT_STAGE_K / 2))
#define HALF_SCALES  (64 * (NIB_WEIGHT_STAGE_K / 16))
#define WEIGHT_STAGE NIB_WEIGHT_STAGE_BYTES
#define STAGES_MAX   NIB_GEMM_STAGES_MAX
#define EXPERTS_MAX  NIB_GEMM_EXPERTS
/* k64 steps of a weight stage. */
#define STEPS NIB_WEIGHT_STAGE_STEPS
/*
 * A warp transposes 16 rows of A by 16 rows of B through shared memory. A
 * stride of 48 bytes keeps the eight rows of a stmatrix in different banks.
 */
#define STAGING_STRIDE 48
#define STAGING_WARP   (16 * STAGING_STRIDE)
/* Accumulators of 32 rows of A, 16 of each consumer thread, before they are stored. */
#define BLOCK_M	   32
#define ACC_STRIDE (WARPS * 32 * 4)
#define ACC_BYTES  (BLOCK_M / 2 * ACC_STRIDE)

/* Tile descriptors that the scheduler may write ahead. */
#define TILE_SLOTS 4

/*
 * A tile descriptor of one CTA: written by the scheduler warp, read by the
 * producer and consumer warps.
 */
struct tile_desc {
	int32_t rows;		/* of A, padded to a tile size; 0: no more tiles */
	int32_t valid;		/* of them, inside the problem */
	int32_t atom;		/* first atom of the converted activations */
	int32_t stage0, stages; /* of k256 */
	int32_t problem;	/* index of its shape and pointers */
	int32_t matrix;		/* of a batch; the expert of MoE; else 0 */
	int32_t row0;		/* first row of B of this CTA */
	int32_t k_slice;	/* split-k slice */
	int32_t tile;		/* split-k: index of the tile, not counting slices */
	/* Output: c is at the tile's first row of A and row0. */
	int32_t rows_left; /* rows of B from row0 on */
	int32_t flags;	   /* of the shape */
	int64_t c_stride_elems;
	char *c;
	const float *alpha, *alpha2; /* of this expert; NULL: 1 */
};

/* After the rings. */
struct gemm_shared {
	/*
	 * With two pairs of warpgroups each pair has half of weights_full.  The pairs
	 * alternate stages, and each has to see all phases of its barriers.
	 */
	uint64_t weights_full[STAGES_MAX], weights_empty[STAGES_MAX];
	uint64_t a_full[STAGES_MAX], a_empty[STAGES_MAX];
	uint64_t tiles_full[TILE_SLOTS], tiles_empty[TILE_SLOTS];
	uint64_t exchange_full, exchange_empty; /* gemm_small_m.cuh */
	struct tile_desc tiles[TILE_SLOTS];
	uint8_t staging[WARPS * STAGING_WARP];
	uint8_t accumulators[ACC_BYTES];
	/* MoE: tiles of the experts before e. */
	int32_t first_tile[EXPERTS_MAX + 1];
};

/* ---- the layout of a weight stage ---------------------------------------- */

/*
 * The slot of 16-byte piece c of a row's 128 bytes.  A lane 4g + t reads 8 bytes of row
 * g, half of piece 2 i + t / 2 in step i, and the four rows of a half-warp use
 * different banks:
 *
 *   slot     0 1 2 3 4 5 6 7
 *   row 0    0 1 2 3 4 5 6 7         row 4    1 0 3 2 5 4 7 6
 *   row 1    2 3 0 1 6 7 4 5         row 5    3 2 1 0 7 6 5 4
 *   row 2    4 5 6 7 0 1 2 3         row 6    5 4 7 6 1 0 3 2
 *   row 3    6 7 4 5 2 3 0 1         row 7    7 6 5 4 3 2 1 0
 */
DEVICE uint32_t swizzled(uint32_t row, uint32_t piece)
{
	return piece ^ ((row & 3) * 2 + (row >> 2 & 1));
}

static_assert(THREADS == 128 * (GROUPS + 1), "consumers and producers");
static_assert(sizeof(struct gemm_shared) <= NIB_GEMM_TAIL_BYTES, "host's size");

#endif
