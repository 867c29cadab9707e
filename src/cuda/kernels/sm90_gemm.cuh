/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sm90_gemm.cuh - C = alpha * A * B^T on Hopper, one problem or many: the
 * skeleton of every multiplication with more than a few tokens.
 *
 *   weights B (fp4, global) --cp.async--> ring of 128 x k256 --registers:
 *     dequantise to fp16--> wgmma A operand (m64, rows of B)
 *   tokens A (fp16, prepared in L2) --bulk copy, multicast to the pair-->
 *     ring of N x k64, 128-byte swizzle --> wgmma B operand (nN)
 *   accumulators: fp32, D[row of B, token] --> alpha, SiLU --> C
 *
 * A cluster is a pair of CTAs with neighbouring rows of B and the same tokens
 * (times `splits` pairs that share k).  A CTA has two consumer warpgroups, 64
 * rows of the tile each (dual: the same 64 rows of B and of B2), and one more
 * for the copies: two warps copy weights, a thread asks for tokens.
 *
 * A step of k64 takes max(4 N, 2 N + 340) cycles: the tensor cores', or what the
 * instructions of two groups and of the copies take to issue.  The latter could
 * be less (docs/notes/0031-hopper-three-groups.md).
 *
 * Barriers: weights_full (64 producer threads, by cp.async), weights_empty (8
 * consumer warps); tokens_full (one arrival + bytes), tokens_empty (16: the
 * consumer warps of both CTAs of the pair, since either writes into both).
 *
 * Shared memory (dynamic): token ring token_stages * token_stage_bytes, weight
 * ring weight_stages * 18432 bytes, then the epilogue's and the schedule's.
 * Registers: 72 for a producer thread, 216 for a consumer: 128 accumulators at
 * N = 256, twice 16 of weights.
 *
 * In the order of the data: gemm_schedule.cuh (which tile), gemm_copies.cuh
 * (producers), gemm_sums.cuh and gemm_epilogue.cuh (consumers), this file.
 *
 * One k16 step of wgmma needs of lane t (0..3 of a quad) four values of a row.
 * It takes them from the 16 of scale group t of this k64, so that a lane loads
 * 8 bytes and one scale for four steps; the tokens are prepared in the same
 * order (token_chunk()).
 *
 * Aims at the rate of wgmma with register operands, 850 TFLOP/s on an H200.
 */
#ifndef NIB_SM90_GEMM_CUH
#define NIB_SM90_GEMM_CUH

#include "gemm_copies.cuh"
#include "gemm_epilogue.cuh"

/*
 * One tile.  What the epilogue needs is found out again after the loop: kept
 * over it, it would cost registers that the accumulators take.
 */
template <int N, bool DUAL>
DEVICE void consume_tile(struct consumer *c, const struct work *w,
			 const struct nib_gemm_pointers *problems,
			 int32_t round)
{
	const int32_t tiled =
		DUAL && group_of_thread() ? NIB_B2_TILED : NIB_B_TILED;
	float d[N / 2];
	struct output o;
	struct work again;

	sum_tile<N>(c, w, w->shape->flags & tiled, d);
	asm volatile("" : "+r"(round)::"memory");
	next_work(c->args, c->shared, round, CTA_ROWS(DUAL), &again);
	o = output_of<DUAL>(c, problems + again.problem, &again);
	if (c->args->splits > 1) {
		finish_split<N, DUAL>(c, &o, d);
		return;
	}
	finish_tile<N, DUAL>(c, &o, d);
}

template <bool DUAL>
DEVICE void consume(struct consumer *c,
		    const struct nib_gemm_pointers *problems)
{
	struct work w;

	for (int32_t round = 0;
	     next_work(c->args, c->shared, round, CTA_ROWS(DUAL), &w);
	     round++) {
#define CASE(n)                                                                \
	case n:                                                                \
		consume_tile<n, DUAL>(c, &w, problems, round);                 \
		break;
		switch (w.tokens) {
			CASE(16) CASE(32) CASE(48) CASE(64)
			CASE(80) CASE(96) CASE(112) CASE(128)
			CASE(160) CASE(192) CASE(224) CASE(256)
		}
#undef CASE
	}
}

/* ---- the kernel ---------------------------------------------------------- */

DEVICE void init_barriers(const struct nib_gemm_args *args,
			  struct gemm_shared *shared)
{
	for (int32_t i = 0; i < args->weight_stages; i++) {
		mbarrier_init(smem_addr(shared->weights_full + i),
			      WEIGHT_PRODUCERS);
		mbarrier_init(smem_addr(shared->weights_empty + i),
			      WARPS);
	}
	for (int32_t i = 0; i < args->token_stages; i++) {
		mbarrier_init(smem_addr(shared->tokens_full + i), 1);
		mbarrier_init(smem_addr(shared->tokens_empty + i),
			      2 * WARPS);
	}
	fence_mbarrier_init();
}

template <bool DUAL>
DEVICE void gemm(const struct nib_gemm_args *args,
		 const struct nib_gemm_pointers *problems)
{
	extern __shared__ __align__(1024) uint8_t smem[];
	const uint32_t token_ring = smem_addr(smem);
	const uint32_t token_bytes =
		(uint32_t)(args->token_stages * args->token_stage_bytes);
	const uint32_t weight_ring = token_ring + token_bytes;
	struct gemm_shared *shared =
		(struct gemm_shared *)(smem + token_bytes +
				       args->weight_stages *
					       WEIGHT_STAGE);

	if (threadIdx.x == 32)
		init_barriers(args, shared);
	if (args->experts && threadIdx.x < 32)
		count_tiles(args, shared, CTA_ROWS(DUAL));
	__syncthreads();
	cluster_arrive();
	cluster_wait();

	if (threadIdx.x < 128) {
		setmaxnreg_dec<PRODUCER_REGISTERS>();
		if (threadIdx.x < WEIGHT_PRODUCERS)
			produce_weights<DUAL>(args, problems, shared,
					      weight_ring);
		else if (threadIdx.x == WEIGHT_PRODUCERS)
			produce_tokens<DUAL>(args, shared, token_ring);
		__syncwarp();
		if (args->splits > 1) {
			cluster_arrive();
			cluster_wait();
		}
	} else {
		struct consumer c = {args, shared, weight_ring, token_ring};

		setmaxnreg_inc<CONSUMER_REGISTERS>();
		c.tokens_empty = mapa(smem_addr(shared->tokens_empty),
				      (cluster_ctarank() & ~1u) +
					      lane_of_thread() % 2);
		consume<DUAL>(&c, problems);
	}
	/* Nobody leaves while others may write here or read from here. */
	cluster_arrive();
	cluster_wait();
}

#endif
