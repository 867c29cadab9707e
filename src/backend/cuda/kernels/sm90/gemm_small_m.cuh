/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemm_small_m.cuh - the consumers of small_m.cu, for tiles of up to NIB_SMALL_M_MAX
 * rows of A, which are bound by memory latency, not by wgmma.
 *
 *   threads     role                                            registers
 *   0 .. 127    producers and scheduler as in gemm.cuh          64
 *   128 .. 383  first pair: weight stages 0, 2, 4, ...          104
 *   384 .. 639  second pair: weight stages 1, 3, 5, ..., then   104
 *               adds the first pair's accumulators and stores
 *
 * Two pairs of consumer warpgroups alternate weight stages, so that sixteen
 * warps hide the latency that eight would wait for.  An activation stage has
 * all four steps of a weight stage, so that one wait covers both.
 *
 *   barrier         arrivals of a phase    first wait
 *   exchange_full   256: first pair        second pair, phase 0
 *   exchange_empty  256: second pair       first pair, passes at once
 */
#ifndef NIB_GEMM_SMALL_M_CUH
#define NIB_GEMM_SMALL_M_CUH

#include "gemm_epilogue.cuh"

/* The pairs of consumer warpgroups.  The first begins with a tile's stage 0, the second
 * with stage 1; the second finishes the tile. */
#define FIRST_PAIR  0
#define SECOND_PAIR 1

/* A condition that is equal in all lanes, as a vote, so that the compiler treats it as
 * uniform and keeps ring positions in uniform registers. */
DEVICE bool of_warp(bool x)
{
	return __all_sync(~0u, x);
}

DEVICE void pass(struct ring *r, uint32_t n, uint32_t stages)
{
	r->stage += n;
	if (r->stage >= stages) {
		r->stage -= stages;
		r->parity ^= 1;
	}
}

/* Past n stages of both rings. */
DEVICE void pass_stages(struct consumer *c, uint32_t n)
{
	pass(&c->weights, n, (uint32_t)c->args->weight_stages);
	pass(&c->activations, n, (uint32_t)c->args->a_stages);
}

/* Waits for the pair's weights of the stage.  A stage may belong to the other pair in
 * the next round of the ring, so that c->phases counts the phases of each stage. */
template <int PAIR>
DEVICE uint32_t await_weights_of_pair(struct consumer *c)
{
	const uint32_t stage = c->weights.stage;

	wait(smem_addr(c->shared->weights_full + PAIR * (STAGES_MAX / 2) + stage),
	     c->phases >> stage & 1);
	c->phases ^= 1u << stage;
	return c->weight_ring + stage * WEIGHT_STAGE;
}

DEVICE bool is_a_stage_full(const struct consumer *c)
{
	return mbarrier_try_wait_parity(
	    smem_addr(c->shared->a_full + c->activations.stage), c->activations.parity);
}

/*
 * As multiply_stage() in gemm_mainloop.cuh, but the pair's next stage follows a stage
 * of the other pair.  before: the activation stage that is still read on entry.
 * is_full: whether this stage's a_full phase is known to be complete.
 */
template <int N, bool DUAL, int A, int PAIR, bool FIRST>
DEVICE void multiply_stage_of_pair(struct consumer *c, const struct weight_reader *r,
				   bool is_last, uint32_t (*a)[4][4], uint32_t *before,
				   bool *is_full, float *d)
{
	uint32_t base = c->weight_ring + c->weights.stage * WEIGHT_STAGE;
	uint32_t desc = c->a_desc + c->activations.stage * c->stage_desc;

	while (!*is_full)
		*is_full = is_a_stage_full(c);
#pragma unroll
	for (uint32_t j = 0; j < STEPS; j++) {
		if (FIRST && j == 0)
			issue_steps<N, A, 1, true>(desc, a, d);
		else
			issue_steps<N, A, 1, false>(desc, a + j % 2, d);
		desc += N * 128 >> 4;
		/* The previous step has completed: its operands are free. */
		wgmma_wait<1>();
		if (!FIRST && j == 0)
			release_activations(c, *before);
		if (j == STEPS - 1) {
			release_stage(c);
			*before = c->activations.stage;
			pass_stages(c, 1);
			if (is_last)
				break;
			pass_stages(c, 1);
			base = await_weights_of_pair<PAIR>(c);
			/*
			 * Polls the barrier before it is needed, to hide the
			 * latency of try_wait.
			 */
			*is_full = is_a_stage_full(c);
		}
		load_weights<DUAL, A>(r, base, (j + 1) % STEPS, a[(j + 1) % 2]);
	}
}

/*
 * d = the accumulators over every second one of the tile's weight stages.  Neither pair
 * can mistake one barrier phase for another.  Each has at least one stage, so that none
 * is ahead by a whole ring.  Each has separate barriers for weights, because copies may
 * complete in any order.  And when a pair has the weights of a stage, all activations
 * of the previous round of the ring have been read (gemm.c).
 */
template <int N, bool DUAL, int A, int PAIR>
DEVICE void multiply_stages_of_pair(struct consumer *c, int32_t stages, int32_t flags,
				    float *d)
{
	const struct weight_reader r = reader_of<DUAL>(flags);
	/* The pair's last stage is this one or later. */
	const int32_t end = stages - 2;
	uint32_t a[2][4][4], before;
	bool is_full = false, is_last = of_warp(PAIR >= end);

	if (PAIR == SECOND_PAIR)
		pass_stages(c, 1);
	load_weights<DUAL, A>(&r, await_weights_of_pair<PAIR>(c), 0, a[0]);
	multiply_stage_of_pair<N, DUAL, A, PAIR, true>(c, &r, is_last, a, &before,
						       &is_full, d);
	for (int32_t s = PAIR + 2; !is_last; s += 2) {
		is_last = of_warp(s >= end);
		multiply_stage_of_pair<N, DUAL, A, PAIR, false>(c, &r, is_last, a,
								&before, &is_full, d);
	}
	wgmma_wait<0>();
	release_activations(c, before);
	/* Moves to the first stage of the next tile: past the other pair's last stage
	 * if that was the tile's last one. */
	pass_stages(c, of_warp((stages & 1) == PAIR));
}

/* The address of a thread's accumulators in the exchange buffer. */
DEVICE uint32_t exchange_address(uint32_t exchange)
{
	return exchange + threadIdx.x % (WARPS * 32) * 16;
}

/* The first pair stores its accumulators when the previous ones have been read. */
template <int N>
DEVICE void send_accumulators(const struct consumer *c, struct ring *exchanges,
			      uint32_t exchange, const float *d)
{
	const uint32_t to = exchange_address(exchange);

	wait(smem_addr(&c->shared->exchange_empty), exchanges->parity ^ 1);
#pragma unroll
	for (uint32_t i = 0; i < N / 8; i++)
		sts_128(to + i * WARPS * 512,
			make_uint4(__float_as_uint(d[4 * i]),
				   __float_as_uint(d[4 * i + 1]),
				   __float_as_uint(d[4 * i + 2]),
				   __float_as_uint(d[4 * i + 3])));
	mbarrier_arrive(smem_addr(&c->shared->exchange_full));
	advance(exchanges, 1);
}

/* The second pair adds them to its accumulators. */
template <int N>
DEVICE void add_accumulators(const struct consumer *c, struct ring *exchanges,
			     uint32_t exchange, float *d)
{
	const uint32_t from = exchange_address(exchange);

	wait(smem_addr(&c->shared->exchange_full), exchanges->parity);
#pragma unroll
	for (uint32_t i = 0; i < N / 8; i++) {
		const uint4 x = lds_128(from + i * WARPS * 512);
		const uint32_t word[4] = {x.x, x.y, x.z, x.w};

#pragma unroll
		for (uint32_t l = 0; l < 4; l++)
			d[4 * i + l] += __uint_as_float(word[l]);
	}
	mbarrier_arrive(smem_addr(&c->shared->exchange_empty));
	advance(exchanges, 1);
}

template <int N, bool DUAL, int A, int PAIR>
DEVICE void consume_tile_of_pair(struct consumer *c, uint32_t exchange,
				 struct ring *exchanges)
{
	const struct tile_desc *tile = c->shared->tiles + c->tiles.stage;
	float alpha[2], d[N / 2];

	multiply_stages_of_pair<N, DUAL, A, PAIR>(c, tile->stages, tile->flags, d);
	if (PAIR == FIRST_PAIR) {
		send_accumulators<N>(c, exchanges, exchange, d);
		return;
	}
	alpha[0] = tile->alpha ? __ldg(tile->alpha) : 1.0f;
	alpha[1] = tile->alpha2 ? __ldg(tile->alpha2) : 1.0f;
	add_accumulators<N>(c, exchanges, exchange, d);
	finish_accumulators<N, DUAL, A>(c, tile, alpha, d);
}

template <bool DUAL, int A, int PAIR>
DEVICE void consume_small_m(struct consumer *c, uint32_t exchange)
{
	struct ring exchanges = {0, 0};

	for (;; advance(&c->tiles, TILE_SLOTS)) {
		const int32_t rows = await_tile(c->shared, &c->tiles)->rows;

		if (!rows)
			return;
#define CASE(n)                                                                        \
	case n:                                                                        \
		consume_tile_of_pair<n, DUAL, A, PAIR>(c, exchange, &exchanges);       \
		break
		switch (rows) {
			CASE(16);
			CASE(32);
		}
#undef CASE
		__syncwarp();
		if (lane_of_thread() == 0)
			release_tile(c->shared, &c->tiles);
	}
}

#endif
