/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemm.cuh - C = alpha * A * B^T on Hopper, one problem or many: the kernel of every
 * multiplication with more rows of A than the kernels of common/vector.h support.
 *
 *   weights B (fp4, global) --cp.async--> ring of 128 rows x k256
 *     --registers: dequantise to fp16--> wgmma A operand (m64 = rows of B)
 *   activations A --multicast to the pair--> ring of tile_m rows x k64, 128-byte
 *     swizzle --> wgmma B operand (n = rows of A)
 *       16-bit values that the activation conversion kernel has converted and
 *       permuted, from L2 by bulk copy; with bf16 the weights become bf16, too
 *   accumulators: fp32, D[row of B, row of A] --> alpha, SiLU --> C
 *
 * A cluster is a pair of CTAs with neighbouring rows of B and the same rows of
 * A. With split-k, several pairs compute slices of one tile and reduce them
 * through global memory (gemm_epilogue.cuh).
 *
 *   threads           role                       registers   waits for
 *   0 .. 63           load weights               72          weights_empty
 *   64                load activations           72          a_empty
 *   96                schedule tiles             72          tiles_empty
 *   128 .. 383        2 consumer warpgroups:     216         weights_full,
 *                     dequantise, wgmma, store               a_full
 *
 * A consumer warpgroup has 64 rows of the tile (dual: 32 rows of B and the same
 * 32 of B2, so that a thread has both accumulators of a result).  A thread
 * holds 128 accumulators at tile_m = 256, and twice 16 registers of weights.
 * Up to NIB_MEDIUM_M_MAX rows of A two steps are one group of wgmma, which
 * hides the latency of the next two; up to NIB_SMALL_M_MAX there are two pairs
 * of consumer warpgroups, which alternate k stages (gemm_small_m.cuh, with its
 * numbers).
 *
 *   barrier        arrivals of a phase                 first wait
 *   weights_full   64 producer threads (cp.async)      consumer, phase 0
 *   weights_empty  8 consumer warps                    producer, passes at once
 *   a_full         1, and the bytes of the stage       consumer, phase 0
 *   a_empty        16: consumer warps of both CTAs,    producer, passes at once
 *                  since either CTA writes into both
 *   tiles_full     1: the scheduler                    all roles, phase 0
 *   tiles_empty    consumer warps, 2 warps and 1       scheduler, passes at once
 *                  thread of the producers
 *
 * "Passes at once": a wait for parity 1 of a barrier that never completed a
 * phase, so that an empty ring can be filled.
 *
 *   dynamic shared memory      bytes
 *   activation ring            a_stages * a_stage_bytes
 *   weight ring                weight_stages * 18432 (128 rows: codes, scales)
 *   exchange (small-m only)    tile_m * 512
 *   struct gemm_shared         at most 27648: barriers, tile descriptors, the
 *                              epilogue's staging, MoE tile counts
 *
 * Roofline: the rate of wgmma with register operands, 850 TFLOP/s on an H200.
 * A step of k64 takes max(4.1 m + 20, 2.2 m + 330) cycles at m rows of A: the
 * time of the tensor cores, or the time to issue the instructions of both
 * warpgroups, 96 a warp and step, and of the producers
 * (docs/performance-hopper.md).
 *
 * One k16 of wgmma has four values of a row from lane t (0 to 3 of a quad).  Here
 * these are values of scale group t of the k64, so that a lane loads 8 bytes and one
 * scale for four k16.  The activations are converted into the same order
 * (activations.cuh):
 *
 *   k of group t     16 t .. 16 t + 15 of the k64
 *   k16 number 0     values 0, 2, 4, 6 of each of the groups 0 to 3 (bf16: 0, 4, 2, 6)
 *   k16 number 1     values 1, 3, 5, 7 of each                      (bf16: 1, 5, 3, 7)
 *   k16 number 2, 3  the same values of the groups' second halves, plus 8
 *
 * Read in this order: gemm_schedule.cuh (which tile), gemm_producers.cuh,
 * gemm_mainloop.cuh, gemm_epilogue.cuh, gemm_small_m.cuh, this file.
 */
#ifndef NIB_SM90_GEMM_CUH
#define NIB_SM90_GEMM_CUH

#include "gemm_producers.cuh"
#include "gemm_small_m.cuh"

/* One tile.  What the epilogue needs is read again after the loop, because the
 * accumulators need all registers in it. */
template <int N, bool DUAL, int A, int A_STEPS>
DEVICE void consume_tile(struct consumer *c)
{
	const struct tile_desc *tile = c->shared->tiles + c->tiles.stage;
	/* Loaded here, so that no warp waits for memory after the loop. */
	const float alpha[2] = {tile->alpha ? __ldg(tile->alpha) : 1.0f,
				tile->alpha2 ? __ldg(tile->alpha2) : 1.0f};
	float d[N / 2];

	multiply_tile<N, DUAL, A, A_STEPS>(c, tile->stages, tile->flags, d);
	finish_accumulators<N, DUAL, A>(c, tile, alpha, d);
}

template <bool DUAL, int A, int A_STEPS>
DEVICE void consume(struct consumer *c)
{
	constexpr int most =
	    A_STEPS == NIB_LARGE_M_STEPS ? NIB_TILE_M_MAX : NIB_MEDIUM_M_MAX;

	for (;; advance(&c->tiles, TILE_SLOTS)) {
		const int32_t rows = await_tile(c->shared, &c->tiles)->rows;

		if (!rows)
			return;
/* The host launches this kernel with no tile larger than most. */
#define CASE(n)                                                                        \
	case n:                                                                        \
		if constexpr (n <= most)                                               \
			consume_tile<n, DUAL, A, A_STEPS>(c);                          \
		break
		switch (rows) {
			CASE(16);
			CASE(32);
			CASE(48);
			CASE(64);
			CASE(80);
			CASE(96);
			CASE(112);
			CASE(128);
			CASE(160);
			CASE(192);
			CASE(224);
			CASE(256);
		}
#undef CASE
		__syncwarp();
		if (lane_of_thread() == 0)
			release_tile(c->shared, &c->tiles);
	}
}

/* ---- the kernel ---------------------------------------------------------- */

/*
 * The loops are not unrolled, because code that runs once has to be fetched from memory
 * while the CTA waits.
 */
DEVICE void init_barriers(const struct nib_gemm_args *args, struct gemm_shared *shared,
			  uint32_t pairs)
{
#pragma unroll 1
	for (int32_t i = 0; i < args->weight_stages; i++) {
		mbarrier_init(smem_addr(shared->weights_full + i), WEIGHT_PRODUCERS);
		if (pairs == 2)
			mbarrier_init(
			    smem_addr(shared->weights_full + STAGES_MAX / 2 + i),
			    WEIGHT_PRODUCERS);
		mbarrier_init(smem_addr(shared->weights_empty + i), WARPS);
	}
#pragma unroll 1
	for (int32_t i = 0; i < args->a_stages; i++) {
		mbarrier_init(smem_addr(shared->a_full + i), 1);
		mbarrier_init(smem_addr(shared->a_empty + i), 2 * WARPS);
	}
#pragma unroll 1
	for (int32_t i = 0; i < TILE_SLOTS; i++) {
		mbarrier_init(smem_addr(shared->tiles_full + i), 1);
		mbarrier_init(smem_addr(shared->tiles_empty + i),
			      pairs * WARPS + WEIGHT_PRODUCERS / 32 + 1);
	}
	mbarrier_init(smem_addr(&shared->exchange_full), 32 * WARPS);
	mbarrier_init(smem_addr(&shared->exchange_empty), 32 * WARPS);
	fence_mbarrier_init();
}

/* The producer warps: weights, activations, and the scheduler. */
template <bool DUAL, int A_STEPS>
DEVICE void run_producers(const struct nib_gemm_args *args,
			  const struct nib_gemm_pointers *problems,
			  struct gemm_shared *shared, uint32_t a_ring,
			  uint32_t weight_ring)
{
	constexpr int PAIRS = A_STEPS == NIB_SMALL_M_STEPS ? 2 : 1;

	setmaxnreg_dec<PRODUCER_REGISTERS(PAIRS)>();
	if (threadIdx.x < WEIGHT_PRODUCERS)
		produce_weights<DUAL, PAIRS>(args, problems, shared, weight_ring);
	if (threadIdx.x == SCHEDULER)
		schedule<DUAL>(args, problems, shared);
	__syncwarp();
	cluster_wait();
	if (threadIdx.x == WEIGHT_PRODUCERS)
		produce_activations<A_STEPS>(args, shared, a_ring);
	__syncwarp();
}

/* A: the type of the products, NIB_A_FP16 or NIB_A_BF16. */
template <bool DUAL, int A, int A_STEPS>
DEVICE void gemm(const struct nib_gemm_args *args,
		 const struct nib_gemm_pointers *problems)
{
	extern __shared__ __align__(1024) uint8_t smem[];
	constexpr int PAIRS = A_STEPS == NIB_SMALL_M_STEPS ? 2 : 1;
	const uint32_t a_ring = smem_addr(smem);
	const uint32_t activation_bytes =
	    (uint32_t)(args->a_stages * args->a_stage_bytes);
	const uint32_t weight_ring = a_ring + activation_bytes;
	const uint32_t rings_bytes =
	    activation_bytes + (uint32_t)args->weight_stages * WEIGHT_STAGE;
	const uint32_t exchange_bytes =
	    PAIRS == 2 ? NIB_SMALL_M_EXCHANGE_BYTES((uint32_t)args->tile_m) : 0;
	struct gemm_shared *shared =
	    (struct gemm_shared *)(smem + rings_bytes + exchange_bytes);

	/* CTAs of the next kernel may become resident as CTAs of this one end. */
	griddepcontrol_launch_dependents();
	if (threadIdx.x == 32)
		init_barriers(args, shared, PAIRS);
	if (args->experts && threadIdx.x < 32)
		count_tiles<share_m>(args, row_units(args->shapes->n, CTA_ROWS(DUAL)),
				     threadIdx.x, shared->first_tile);
	if (!args->experts && threadIdx.x == SCHEDULER)
		next_tile(args, problems, shared, 0, CTA_ROWS(DUAL), shared->tiles);
	__syncthreads();
	/*
	 * A thread that uses the other CTA's shared memory waits below until
	 * that CTA has initialised its barriers.
	 */
	cluster_arrive_relaxed();
	if (threadIdx.x < 128) {
		run_producers<DUAL, A_STEPS>(args, problems, shared, a_ring,
					     weight_ring);
	} else {
		struct consumer c = {args, shared, weight_ring, a_descriptor(a_ring),
				     (uint32_t)args->a_stage_bytes >> 4};

		cluster_wait();
		setmaxnreg_inc<CONSUMER_REGISTERS(PAIRS)>();
		c.a_empty = mapa(smem_addr(shared->a_empty), lane_of_thread() % 2);
		/* The activation conversion kernel clears the arrivals. */
		griddepcontrol_wait();
		if constexpr (PAIRS == 1)
			consume<DUAL, A, A_STEPS>(&c);
		else if (of_warp(threadIdx.x < 128 * (1 + GROUPS)))
			consume_small_m<DUAL, A, SECOND_PAIR>(&c, a_ring + rings_bytes);
		else
			consume_small_m<DUAL, A, FIRST_PAIR>(&c, a_ring + rings_bytes);
	}
}

#define GEMM_KERNEL(name, threads, ...)                                                \
	extern "C" __global__ void __launch_bounds__(threads, 1)                       \
	    name(const __grid_constant__ struct nib_gemm_launch p)                     \
	{                                                                              \
		gemm<__VA_ARGS__>(&p.args, p.problems);                                \
	}

#endif
