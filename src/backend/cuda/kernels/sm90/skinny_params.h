/* SPDX-License-Identifier: Apache-2.0 */
/*
 * skinny_params.h - the parameters of the skinny kernels (skinny.cuh) and the wide
 * kernels (skinny_wide.cuh), and the sizes that host and kernels share.
 */
#ifndef NIB_SKINNY_PARAMS_H
#define NIB_SKINNY_PARAMS_H

#include "backend/cuda/kernels/common/gemv_params.h"

/* Consumer warps of a CTA, and producer warps, which load A. */
#define NIB_SKINNY_WARPS     16
#define NIB_SKINNY_PRODUCERS 4
#define NIB_SKINNY_THREADS   (32 * (NIB_SKINNY_WARPS + NIB_SKINNY_PRODUCERS))
/* The most rows of A of a CTA; variants have 8 or 16. */
#define NIB_SKINNY_MAX_ROWS 16

/* Stages of a warp's ring, and chunks of A, in the variant for eights * 8 rows. */
#define NIB_SKINNY_STAGES(eights) ((eights) == 1 ? 4 : 2)
#define NIB_SKINNY_CHUNKS(eights) ((eights) == 1 ? 16 : 12)
/* A chunk: k256 of each row, in fp16 or bf16. */
#define NIB_SKINNY_CHUNK_BYTES(eights) ((eights)*8 * NIB_GEMV_STEP * 2)

/*
 * The wide kernels (skinny_wide.cuh): the most rows of A, stages and chunks, and the
 * sums that a CTA gets from the others of its cluster.
 */
#define NIB_WIDE_MAX_ROWS	64
#define NIB_WIDE_STAGES		2
#define NIB_WIDE_CHUNKS(eights) (32 / (eights))
#define NIB_WIDE_EXCHANGE_BYTES (16 << 10)

/*
 * Limits of a mixture of experts, from a CTA's tables: rows of A, experts, and units.
 * A unit is up to 8 rows of an expert.
 */
#define NIB_SKINNY_ROWS	   512
#define NIB_SKINNY_EXPERTS 1024
#define NIB_SKINNY_UNITS   (NIB_SKINNY_ROWS + NIB_SKINNY_ROWS / 8)

/*
 * Grid: x = CTAs of one matrix or of all experts, y = batches.  With experts p.m is
 * 0, and the scales of p.b are tiled.
 */
struct nib_skinny_params {
	struct nib_gemv_params p;
	/*
	 * A CTA multiplies up to tiles_at_once tiles in a round, each with k_groups
	 * warps.  k_groups divides the number of chunks.
	 */
	int32_t tiles_at_once, k_groups;
	/*
	 * The number of half tiles, the last tiles of a round: 0 or 2 / k_groups.  They
	 * have two warps for each k group, and each warp multiplies one half of every
	 * block.
	 */
	int32_t half_tiles;
	/* Each warp's NIB_SKINNY_ASSIGNMENT(). */
	uint16_t assignments[NIB_SKINNY_WARPS];
	struct nib_gemv_experts moe; /* zeros: one matrix */
};

/* The wide kernels.  Grid: x = CTAs, in clusters of k_slices. */
struct nib_wide_params {
	struct nib_gemv_params p;
	/* A cluster has tiles_at_once tiles; in each CTA a tile has k_groups warps. */
	int32_t tiles_at_once, k_groups;
	int32_t k_slices; /* CTAs of a cluster, which divide k */
};

/*
 * The work of a warp: a tile of the round (bits 0 to 3), a k group (4 to 7), and half
 * 0, half 1 or NIB_SKINNY_WHOLE of each block (from bit 8 on).
 */
#define NIB_SKINNY_ASSIGNMENT(tile, group, half) ((tile) | (group) << 4 | (half) << 8)
#define NIB_SKINNY_WHOLE			 2

/* The sums of a warp: 16 rows of B for each row of A. */
#define NIB_SKINNY_SUMS(eights) (NIB_GEMV_TILE_ROWS * 8 * (eights))

/*
 * Dynamic shared memory: rings, chunks, sums, and two barriers for each chunk.  With
 * experts also the tables of units and of the rows of A's scales.
 */
NIB_GEMV_FN int32_t nib_skinny_shared_bytes(int eights, int is_moe)
{
	return NIB_SKINNY_WARPS * NIB_SKINNY_STAGES(eights) * NIB_GEMV_STAGE_BYTES +
	       NIB_SKINNY_CHUNKS(eights) * NIB_SKINNY_CHUNK_BYTES(eights) +
	       NIB_SKINNY_WARPS * NIB_SKINNY_SUMS(eights) * 4 +
	       NIB_SKINNY_CHUNKS(eights) * 16 +
	       (is_moe ? (NIB_SKINNY_UNITS + NIB_SKINNY_ROWS) * 4 : 0);
}

/* The same of the wide kernels, whose sums are in the chunks. */
NIB_GEMV_FN int32_t nib_wide_shared_bytes(int eights)
{
	return NIB_SKINNY_WARPS * NIB_WIDE_STAGES * NIB_GEMV_STAGE_BYTES +
	       NIB_WIDE_CHUNKS(eights) * NIB_SKINNY_CHUNK_BYTES(eights) +
	       NIB_WIDE_EXCHANGE_BYTES + NIB_WIDE_CHUNKS(eights) * 16;
}

#endif
