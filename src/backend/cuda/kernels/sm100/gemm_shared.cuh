/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemm_shared.cuh - what the warps of a CTA of Blackwell's GEMM have in common: roles,
 * the layout of shared memory, tile descriptors.
 *
 *   shared memory     stage 0 | stage 1 | ... | struct shared100
 *   a stage           codes of B | of B2 | of A | scales of B | of B2 | of A
 *   a row of codes    128 bytes, k256, in the 128-byte swizzle of TMA and tensor core:
 *                     16-byte piece p of row r is at slot p ^ r % 8
 */
#ifndef NIB_SM100_SHARED_CUH
#define NIB_SM100_SHARED_CUH

#include "backend/cuda/kernels/common/ring.cuh"
#include "gemm_params.h"
#include "ptx_tcgen05.cuh"

/*
 * The first warps store results: warp w can read lanes 32 (w % 4) .. 32 (w % 4) + 31 of
 * tensor memory.  Each set of four warps has all lanes.
 */
template <bool DUAL>
struct roles {
	static constexpr uint32_t EPILOGUE_WARPS = NIB_SM100_EPILOGUE_WARPS(DUAL);
	static constexpr uint32_t EPILOGUE_SETS = EPILOGUE_WARPS / 4;
	static constexpr uint32_t LOAD_WARP = EPILOGUE_WARPS;
	static constexpr uint32_t MULTIPLY_WARP = EPILOGUE_WARPS + 1;
	static constexpr uint32_t SCHEDULE_WARP = EPILOGUE_WARPS + 2;
};

/* Tile descriptors that the scheduler may be ahead. */
#define TILE_SLOTS 4

/* A tile of one CTA, written by its scheduler and read by the other roles. */
struct tile_desc {
	int32_t n;		/* rows of A, padded to 16: the MMA's N; 0: the end */
	int32_t problem;	/* of the maps of B */
	int32_t stage0, stages; /* of k256 that this slice multiplies */
	/* Coordinates: first rows of this CTA, scale blocks, matrices. */
	int32_t b_row, b_block, b_matrix;
	int32_t a_row, a_block, a_matrix;
	int32_t a_map;	 /* the problem whose map of A has the box to load */
	int32_t a_bytes; /* of that box */
	/* Columns from the slot's scales of A to those of the first row. */
	int32_t a_scale_shift;
	/* Output: c is at the tile's first row of A and row b_row of B. */
	int32_t valid;	   /* rows of A inside the problem */
	int32_t rows_left; /* rows of B from b_row on; may be negative */
	int32_t is_nan;	   /* the expert's scales leave their tensor */
	int64_t c_stride_elems;
	char *c;
	const float *alpha, *alpha2; /* of this matrix; NULL: 1 */
};

struct shared100 {
	uint64_t full[NIB_SM100_STAGES_MAX], empty[NIB_SM100_STAGES_MAX];
	uint64_t tiles_full[TILE_SLOTS], tiles_empty[TILE_SLOTS];
	uint64_t summed[2];	  /* accumulators of even and odd tiles complete */
	uint64_t drained[2];	  /* ... and read as far as the next tile needs */
	uint64_t ready, received; /* split-k: gemm_epilogue.cuh */
	uint32_t tensor_memory;
	struct tile_desc tiles[TILE_SLOTS];
	/* MoE: tiles of the experts before e; not allocated for lists. */
	int32_t first_tile[NIB_GEMM_EXPERTS + 1];
};

static_assert(sizeof(struct shared100) <= NIB_SM100_TAIL_BYTES, "host's size");
static_assert(offsetof(struct shared100, first_tile) <= NIB_SM100_LIST_TAIL_BYTES,
	      "host's size");

/* The position of a CTA in its cluster: slices of k, each one CTA or a pair. */
template <int CTAS>
DEVICE uint32_t rank_in_pair(void)
{
	return CTAS == 2 ? cluster_ctarank() % 2 : 0;
}

template <int CTAS>
DEVICE uint32_t k_slice_of_cta(void)
{
	return cluster_ctarank() / CTAS;
}

/* The CTAs of this one's pair, as a mask of ranks in the cluster. */
template <int CTAS>
DEVICE uint32_t pair_mask(void)
{
	return 3u << cluster_ctarank() / 2 * 2;
}

/* Offsets in a stage. */
template <bool DUAL>
struct stage_layout {
	static constexpr uint32_t B = 0;
	static constexpr uint32_t B2 = NIB_SM100_B_BYTES;
	static constexpr uint32_t A = (DUAL ? 2 : 1) * NIB_SM100_B_BYTES;
	/* From the end of A on, whose size depends on the launch. */
	static constexpr uint32_t B_SCALES = 0;
	static constexpr uint32_t B2_SCALES = NIB_SM100_SCALES_BYTES;
	static constexpr uint32_t A_SCALES = (DUAL ? 2 : 1) * NIB_SM100_SCALES_BYTES;
};

/* Bytes of the codes of A in a stage of one CTA. */
template <int CTAS>
DEVICE uint32_t a_stage_bytes(const struct nib_sm100_args *args)
{
	return (uint32_t)args->tile_m / CTAS * NIB_SM100_A_ROW_BYTES;
}

/* Waits for threads, or for bytes, of any CTA of the cluster. */
DEVICE void wait_cluster(uint32_t bar, uint32_t parity)
{
	while (!mbarrier_try_wait_parity_cluster(bar, parity))
		;
}

/* The next tile of the calling role; n = 0 ends the queue. */
DEVICE const struct tile_desc *await_tile(const struct shared100 *shared,
					  const struct ring *tiles)
{
	wait(smem_addr(shared->tiles_full + tiles->stage), tiles->parity);
	return shared->tiles + tiles->stage;
}

/* Called by one thread of each warp that reads descriptors. */
DEVICE void release_tile(const struct shared100 *shared, const struct ring *tiles)
{
	mbarrier_arrive(smem_addr(shared->tiles_empty + tiles->stage));
}

#endif
