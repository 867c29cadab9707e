/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemm.cuh - C = alpha * A * B^T on Blackwell, one problem or many, and the dual
 * operation: the tensor core multiplies NVFP4 operands without conversion.
 *
 *   codes of B, codes of A   --TMA, 128-byte swizzle--> ring of stages of k256
 *   scales of both           --TMA-->                   the same stage
 *                            --tcgen05.cp-->            slots in tensor memory
 *   tcgen05.mma mxf4nvf4: D[row of B, row of A] += B * A^T, fp32 accumulators
 *     in tensor memory --tcgen05.ld--> alpha, SiLU --> C
 *
 * Rows of B are the tensor core's M, always 128 a CTA.  Rows of A are its N, 16 to 256.
 * So a product of few rows of A wastes nothing ("swap AB"), and accumulators come out
 * in the order of rows of C.  A pair of CTAs (CTAS = 2) has 256 rows of B, and each of
 * them loads half of the rows of A.
 *
 *   warp    dual     role                                       waits for
 *   0 .. 3  0 .. 7   epilogue: 32 lanes of tensor memory each   summed; ready
 *   4       8        one thread loads stages                    empty
 *   5       9        one thread multiplies (the pair's leader)  full, drained
 *                    or forwards drained to it
 *   6       10       schedules tiles                            tiles_empty
 *
 *   barrier      arrivals of a phase                        first wait
 *   full         1, and the bytes of both CTAs (leader's)   phase 0
 *   empty        1: commit of a stage's products, to both   passes at once
 *   summed       1: commit of a tile's products, to both    phase 0
 *   drained      epilogue warps; the leader's also the      tile `lag`
 *                other CTA's multiply warp
 *   tiles_full   1: the scheduler                           phase 0
 *   tiles_empty  all warps but the scheduler                passes at once
 *   ready        split-k: commits of all slices' products   phase 0
 *   received     split-k: epilogue warps of other slices    phase 0
 *
 * "Passes at once": a wait for parity 1 of a barrier that never completed a phase, so
 * that an empty ring can be filled.  The cluster ends with its hardware barrier, at
 * which epilogue warps arrive before they store the last rows.
 *
 *   dynamic shared memory   bytes
 *   ring of stages          stages * stage_bytes; a stage (gemm_shared.cuh):
 *     codes of B, B2        16384 each: 128 rows of 128 bytes
 *     codes of A            tile_m / CTAS * 128
 *     scales of B, B2       2048 each: 4 tiles of 512 bytes, one for each k64
 *     scales of A           2048 or 4096: of one or two blocks of 128 rows
 *   struct shared100        at most 5120; 1024 for lists of tiles
 *
 *   tensor memory, columns   (nib_sm100_columns())
 *   0 ..                     accumulators of even tiles, tile_m (dual: twice)
 *   odd_column ..            ... of odd tiles; may overlap
 *   scale_column .. 511      slots of scales, one for each stage or fewer
 *                            (gemm_mainloop.cuh)
 *
 * Registers: 99, dual 164 (docs/kernels.md).  Roofline: the rate of the tensor cores,
 * of the TMA or of memory (docs/performance-blackwell.md).  A stage of tile_m = 128 in
 * a pair is 28 KB a CTA, with eight stages in flight; its four MMAs take 256 cycles,
 * and its 192 rows about 310 cycles of the TMA.
 *
 * Read in this order: gemm_params.h, gemm_schedule.cuh (which tile), gemm_mainloop.cuh,
 * gemm_epilogue.cuh, this file.
 */
#ifndef NIB_SM100_GEMM_CUH
#define NIB_SM100_GEMM_CUH

#include "gemm_epilogue.cuh"
#include "gemm_mainloop.cuh"
#include "gemm_schedule.cuh"

/* Called by a whole warp, whose lanes initialise barriers in parallel. */
template <bool DUAL, int CTAS>
DEVICE void init_barriers(const struct nib_sm100_args *args, struct shared100 *shared)
{
	constexpr uint32_t warps = roles<DUAL>::EPILOGUE_WARPS;
	const uint32_t is_leader = rank_in_pair<CTAS>() == 0;
	const uint32_t slices = args->k_slices, i = lane_of_thread();

	if (i < NIB_SM100_STAGES_MAX) {
		mbarrier_init(smem_addr(shared->full + i), 1);
		mbarrier_init(smem_addr(shared->empty + i), 1);
	}
	if (i < TILE_SLOTS) {
		mbarrier_init(smem_addr(shared->tiles_full + i), 1);
		mbarrier_init(smem_addr(shared->tiles_empty + i), warps + 2);
	}
	if (i < 2) {
		mbarrier_init(smem_addr(shared->summed + i), 1);
		mbarrier_init(smem_addr(shared->drained + i),
			      warps + (CTAS == 2 && is_leader));
	}
	if (i == 0) {
		mbarrier_init(smem_addr(&shared->ready), slices);
		mbarrier_init(smem_addr(&shared->received),
			      max((slices - 1) * warps, 1u));
	}
	fence_mbarrier_init();
}

/* The roles that use tensor memory: the epilogue and the multiplication. */
template <bool DUAL, int CTAS>
DEVICE void run_tensor_roles(const struct nib_sm100_args *args,
			     struct shared100 *shared, uint32_t warp,
			     uint32_t stages_at, uint32_t tensor_memory)
{
	if (warp < roles<DUAL>::EPILOGUE_WARPS) {
		store_tiles<DUAL, CTAS>(args, shared, stages_at, tensor_memory);
	} else if (warp == roles<DUAL>::MULTIPLY_WARP) {
		if (rank_in_pair<CTAS>() != 0) {
			if (args->k_slices == 1 && elect_one())
				forward_drained(shared);
		} else if (elect_one()) {
			multiply_tiles<DUAL, CTAS>(args, shared, stages_at,
						   tensor_memory);
		}
	}
}

template <bool DUAL, int CTAS>
DEVICE void gemm(const struct nib_sm100_args *args,
		 const struct nib_sm100_problem *problems)
{
	using role = roles<DUAL>;
	extern __shared__ __align__(1024) uint8_t smem[];
	struct shared100 *shared =
	    (struct shared100 *)(smem + args->stages * args->stage_bytes);
	const uint32_t stages_at = smem_addr(smem);
	const uint32_t warp = __shfl_sync(~0u, threadIdx.x / 32, 0);
	uint32_t tensor_memory;

	griddepcontrol_launch_dependents();
	if (warp == role::MULTIPLY_WARP)
		init_barriers<DUAL, CTAS>(args, shared);
	if (warp == role::LOAD_WARP && elect_one())
		prefetch_maps<DUAL>(args, problems);
	__syncwarp();
	cluster_arrive_release();
	/* A list of tiles belongs to the plan, and no kernel writes it.  The other
	 * roles wait for the tile at its barrier, not here. */
	if (warp == role::SCHEDULE_WARP && !args->experts && elect_one()) {
		struct tile_desc tile;

		next_tile<CTAS>(args, problems, shared, 0, &tile);
		shared->tiles[0] = tile;
	}
	__syncwarp();
	/* From here on the barriers of the other CTAs are initialised. */
	cluster_wait();
	if (warp == role::MULTIPLY_WARP)
		tcgen05_alloc<CTAS>(smem_addr(&shared->tensor_memory),
				    NIB_SM100_COLUMNS);
	/* What is read below may be a result of the previous kernel. */
	griddepcontrol_wait();
	if (warp == role::SCHEDULE_WARP && args->experts)
		count_tiles<share_of_expert>(args, problems->units, lane_of_thread(),
					     shared->first_tile);
	tcgen05_fence_before();
	cluster_arrive_release();
	__syncwarp();
	/* Loads need no tensor memory and begin before it is allocated. */
	if (warp == role::SCHEDULE_WARP)
		schedule<CTAS>(args, problems, shared);
	if (warp == role::LOAD_WARP && elect_one())
		load_tiles<DUAL, CTAS>(args, problems, shared, stages_at);
	__syncwarp();
	cluster_wait();
	tcgen05_fence_after();
	tensor_memory = shared->tensor_memory;
	run_tensor_roles<DUAL, CTAS>(args, shared, warp, stages_at, tensor_memory);
	__syncwarp();
	/* No CTA may end while another one uses its memory.  Epilogue warps have joined
	 * this barrier before they stored the end of their last tile. */
	if (warp >= role::EPILOGUE_WARPS)
		cluster_arrive_release();
	cluster_wait();
	tcgen05_fence_after();
	if (warp == role::MULTIPLY_WARP)
		tcgen05_dealloc<CTAS>(tensor_memory, NIB_SM100_COLUMNS);
}

#define KERNEL(name, dual, ctas, params)                                               \
	extern "C" __global__ void __launch_bounds__(NIB_SM100_THREADS(dual), 1)       \
	    name(const __grid_constant__ struct params p)                              \
	{                                                                              \
		gemm<dual, ctas>(&p.args, p.problems);                                 \
	}

#endif
