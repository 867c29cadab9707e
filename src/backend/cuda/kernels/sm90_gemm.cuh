/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sm90_gemm.cuh - C = alpha * A * B^T on Hopper, one problem or many: the
 * skeleton of every multiplication with more than a few tokens.
 *
 *   weights B (fp4, global) --cp.async--> ring of 128 x k256 --registers:
 *     dequantise to fp16--> wgmma A operand (m64, rows of B)
 *   tokens A (fp16, prepared in L2) --bulk copy, multicast to the pair-->
 *     ring of N x k64 (up to NIB_SHORT_TOKENS tokens: k128), 128-byte
 *     swizzle --> wgmma B operand (nN)
 *   accumulators: fp32, D[row of B, token] --> alpha, SiLU --> C
 *
 * A cluster is a pair of CTAs with neighbouring rows of B and the same tokens.
 * Pairs may share a tile's k: their sums meet in memory.  A CTA has two consumer
 * warpgroups, 64 rows of the tile each (dual: 32 rows of B and the same of B2, so
 * that a thread has both sums of a result), and one more for the copies: two warps
 * copy weights, a thread asks for tokens, another finds out about the tiles to
 * come.
 *
 * Up to NIB_SHORT_TOKENS tokens two steps are one group of wgmma, which hides
 * what the next two wait for.  Where tokens are few there are two pairs of
 * consumer warpgroups, which take weight stages in turns (gemm_few.cuh).
 *
 * A step of k64, one at a time, takes max(4.1 N + 20, 2.2 N + 330) cycles: the
 * tensor cores', or
 * what the instructions of two groups, 96 a warp and step, and of the copies take
 * to issue (docs/notes/0032-hopper-fixed-costs.md).
 *
 * Barriers: weights_full (64 producer threads, by cp.async), weights_empty (8
 * consumer warps); tokens_full (one arrival + bytes), tokens_empty (16: the
 * consumer warps of both CTAs of the pair, since either writes into both);
 * works_full, works_empty (one each; 8 consumer and 2 producer warps, and the
 * token producer): what the scheduler says of a tile.  With two pairs of groups:
 * 16 consumer warps look at works; sums_full, sums_empty (every lane of a pair,
 * 256) hand one pair's sums to the other.
 *
 * Shared memory (dynamic): token ring token_stages * token_stage_bytes, weight
 * ring weight_stages * 18432 bytes, then the sums' between two pairs, the
 * epilogue's and the schedule's.
 * Registers: 72 for a producer thread, 216 for a consumer: 128 accumulators at
 * N = 256, twice 16 of weights; 32 and twice 32 where two steps go at once.
 *
 * In the order of the data: gemm_schedule.cuh (which tile), gemm_copies.cuh
 * (producers), gemm_sums.cuh, gemm_epilogue.cuh and gemm_few.cuh (consumers),
 * this file.
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
#include "gemm_few.cuh"

/*
 * One tile.  What the epilogue needs is read again after the loop: kept over it,
 * it would cost registers that the accumulators take.
 */
template <int N, bool DUAL, int TOKEN_STEPS>
DEVICE void consume_tile(struct consumer *c)
{
	const struct work *w = c->shared->works + c->works.stage;
	/* Asked for now: nobody is to wait for memory after the loop. */
	const float alpha[2] = {w->alpha ? __ldg(w->alpha) : 1.0f,
				w->alpha2 ? __ldg(w->alpha2) : 1.0f};
	float d[N / 2];

	sum_tile<N, DUAL, TOKEN_STEPS>(c, w->stages, w->flags, d);
	finish_sums<N, DUAL>(c, w, alpha, d);
}

template <bool DUAL, int TOKEN_STEPS>
DEVICE void consume(struct consumer *c)
{
	constexpr int most =
		TOKEN_STEPS == NIB_MANY_STEPS ? NIB_TILE_TOKENS_MAX : NIB_SHORT_TOKENS;

	for (;; advance(&c->works, WORKS)) {
		const int32_t tokens =
			await_work(c->shared, &c->works)->tokens;

		if (!tokens)
			return;
/* The host gives this kernel no larger tile than most. */
#define CASE(n)                                                                \
	case n:                                                                \
		if constexpr (n <= most)                                       \
			consume_tile<n, DUAL, TOKEN_STEPS>(c);                 \
		break;
		switch (tokens) {
			CASE(16) CASE(32) CASE(48) CASE(64)
			CASE(80) CASE(96) CASE(112) CASE(128)
			CASE(160) CASE(192) CASE(224) CASE(256)
		}
#undef CASE
		__syncwarp();
		if (lane_of_thread() == 0)
			release_work(c->shared, &c->works);
	}
}

/* ---- the kernel ---------------------------------------------------------- */

/* Loops that stay loops: code that runs once is waited for, line by line. */
DEVICE void init_barriers(const struct nib_gemm_args *args,
			  struct gemm_shared *shared, uint32_t pairs)
{
#pragma unroll 1
	for (int32_t i = 0; i < args->weight_stages; i++) {
		mbarrier_init(smem_addr(shared->weights_full + i),
			      WEIGHT_PRODUCERS);
		mbarrier_init(smem_addr(shared->weights_empty + i),
			      WARPS);
	}
#pragma unroll 1
	for (int32_t i = 0; i < args->token_stages; i++) {
		mbarrier_init(smem_addr(shared->tokens_full + i), 1);
		mbarrier_init(smem_addr(shared->tokens_empty + i),
			      2 * WARPS);
	}
#pragma unroll 1
	for (int32_t i = 0; i < WORKS; i++) {
		mbarrier_init(smem_addr(shared->works_full + i), 1);
		mbarrier_init(smem_addr(shared->works_empty + i),
			      pairs * WARPS + WEIGHT_PRODUCERS / 32 + 1);
	}
	mbarrier_init(smem_addr(&shared->sums_full), 32 * WARPS);
	mbarrier_init(smem_addr(&shared->sums_empty), 32 * WARPS);
	fence_mbarrier_init();
}

template <bool DUAL, int TOKEN_STEPS>
DEVICE void gemm(const struct nib_gemm_args *args,
		 const struct nib_gemm_pointers *problems)
{
	extern __shared__ __align__(1024) uint8_t smem[];
	constexpr int PAIRS = TOKEN_STEPS == NIB_FEW_STEPS ? 2 : 1;
	const uint32_t token_ring = smem_addr(smem);
	const uint32_t token_bytes =
		(uint32_t)(args->token_stages * args->token_stage_bytes);
	const uint32_t weight_ring = token_ring + token_bytes;
	const uint32_t rings_bytes =
		token_bytes + (uint32_t)args->weight_stages * WEIGHT_STAGE;
	const uint32_t exchange_bytes =
		PAIRS == 2 ? NIB_FEW_EXCHANGE_BYTES((uint32_t)args->tile_tokens)
			   : 0;
	struct gemm_shared *shared =
		(struct gemm_shared *)(smem + rings_bytes + exchange_bytes);

	/* The kernel behind this one may take its places as they become free. */
	griddepcontrol_launch_dependents();
	if (threadIdx.x == 32)
		init_barriers(args, shared, PAIRS);
	if (args->experts && threadIdx.x < 32)
		count_tiles(args, shared, CTA_ROWS(DUAL));
	if (!args->experts && threadIdx.x == SCHEDULER)
		next_work(args, problems, shared, 0, CTA_ROWS(DUAL),
			  shared->works);
	__syncthreads();
	/* Who touches the other CTA waits for its barriers. */
	cluster_arrive_relaxed();
	if (threadIdx.x < 128) {
		setmaxnreg_dec<PRODUCER_REGISTERS(PAIRS)>();
		if (threadIdx.x < WEIGHT_PRODUCERS)
			produce_weights<DUAL>(args, problems, shared,
					      weight_ring);
		if (threadIdx.x == SCHEDULER)
			schedule<DUAL>(args, problems, shared);
		__syncwarp();
		cluster_wait();
		if (threadIdx.x == WEIGHT_PRODUCERS)
			produce_tokens<TOKEN_STEPS>(args, shared, token_ring);
		__syncwarp();
	} else {
		struct consumer c = {args, shared, weight_ring,
				     token_descriptor(token_ring),
				     (uint32_t)args->token_stage_bytes >> 4};

		cluster_wait();
		setmaxnreg_inc<CONSUMER_REGISTERS(PAIRS)>();
		c.tokens_empty = mapa(smem_addr(shared->tokens_empty),
				      lane_of_thread() % 2);
		/* The kernel before this one clears the arrivals. */
		griddepcontrol_wait();
		if constexpr (PAIRS == 1)
			consume<DUAL, TOKEN_STEPS>(&c);
		else if (of_warp(threadIdx.x < 128 * (1 + GROUPS)))
			consume_few<DUAL, FINISHES>(&c,
						    token_ring + rings_bytes);
		else
			consume_few<DUAL, BEGINS>(&c, token_ring + rings_bytes);
	}
}

#endif
