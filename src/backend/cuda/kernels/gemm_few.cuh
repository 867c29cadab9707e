/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemm_few.cuh - the consumers of sm90_few.cu, for tiles of up to
 * NIB_FEW_TOKENS tokens: two pairs of warpgroups take the weight stages in
 * turns, so that sixteen warps hide what eight would wait for, and a token stage
 * has all steps of a weight stage, so that both are waited for once.
 */
#ifndef NIB_GEMM_FEW_CUH
#define NIB_GEMM_FEW_CUH

#include "gemm_epilogue.cuh"

/* The pairs of consumer warpgroups: who begins with a tile's first stage, and
 * who begins with its second and finishes the tile. */
#define BEGINS	 0
#define FINISHES 1

/*
 * A truth that all lanes share, by a vote: the compiler then knows that they do,
 * and keeps ring positions in uniform registers.
 */
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
	pass(&c->tokens, n, (uint32_t)c->args->token_stages);
}

DEVICE bool are_tokens_there(const struct consumer *c)
{
	return mbarrier_try_wait_parity(
		smem_addr(c->shared->tokens_full + c->tokens.stage),
		c->tokens.parity);
}

/*
 * As sum_stage() in gemm_sums.cuh, with the pair's next stage behind one of the
 * other pair's.  before: the token stage that is still being read on entry.
 * there: whether this stage's tokens are known to be there.
 */
template <int N, bool DUAL, bool FIRST>
DEVICE void sum_stage_of_pair(struct consumer *c, const struct weight_reader *r,
			      bool is_last, uint32_t (*a)[4][4],
			      uint32_t *before, bool *there, float *d)
{
	uint32_t base = c->weight_ring + c->weights.stage * WEIGHT_STAGE;
	uint32_t desc = c->token_desc + c->tokens.stage * c->stage_desc;

	while (!*there)
		*there = are_tokens_there(c);
#pragma unroll
	for (uint32_t j = 0; j < STEPS; j++) {
		if (FIRST && j == 0)
			issue_steps<N, 1, true>(desc, a, d);
		else
			issue_steps<N, 1, false>(desc, a + j % 2, d);
		desc += N * 128 >> 4;
		/* The step before is done: its operands are free. */
		wgmma_wait<1>();
		if (!FIRST && j == 0)
			release_tokens(c, *before);
		if (j == STEPS - 1) {
			release_stage(c);
			*before = c->tokens.stage;
			pass_stages(c, 1);
			if (is_last)
				break;
			pass_stages(c, 1);
			base = await_weights(c);
			/* Asked early: the answer is there when needed. */
			*there = are_tokens_there(c);
		}
		load_weights<DUAL>(r, base, (j + 1) % STEPS, a[(j + 1) % 2]);
	}
}

/*
 * d = the sums over every second one of the tile's weight stages, of which each
 * pair has at least one: so it never runs ahead by a whole ring, where it would
 * take one turn of a barrier for another.  Nor does it come too early: weights
 * are filled in order, and tokens are asked for behind weights (gemm_rings.c).
 */
template <int N, bool DUAL, int PAIR>
DEVICE void sum_stages_of_pair(struct consumer *c, int32_t stages,
			       int32_t flags, float *d)
{
	const struct weight_reader r = reader_of<DUAL>(flags);
	/* The pair's last stage is not before this one. */
	const int32_t end = stages - 2;
	uint32_t a[2][4][4], before;
	bool there = false, is_last = of_warp(PAIR >= end);

	if (PAIR == FINISHES)
		pass_stages(c, 1);
	load_weights<DUAL>(&r, await_weights(c), 0, a[0]);
	sum_stage_of_pair<N, DUAL, true>(c, &r, is_last, a, &before, &there, d);
	for (int32_t s = PAIR + 2; !is_last; s += 2) {
		is_last = of_warp(s >= end);
		sum_stage_of_pair<N, DUAL, false>(c, &r, is_last, a, &before,
						  &there, d);
	}
	wgmma_wait<0>();
	release_tokens(c, before);
	/* To where the next tile begins: one further, or a stage of the other's. */
	pass_stages(c, of_warp((stages & 1) == PAIR));
}

/* Where a thread's sums lie on their way from one pair to the other. */
DEVICE uint32_t exchange_place(uint32_t exchange)
{
	return exchange + threadIdx.x % (WARPS * 32) * 16;
}

/* The sums of who began, once those before are read. */
template <int N>
DEVICE void give_sums(const struct consumer *c, struct ring *turns,
		      uint32_t exchange, const float *d)
{
	const uint32_t to = exchange_place(exchange);

	wait(smem_addr(&c->shared->sums_empty), turns->parity ^ 1);
#pragma unroll
	for (uint32_t i = 0; i < N / 8; i++)
		sts_128(to + i * WARPS * 512,
			make_uint4(__float_as_uint(d[4 * i]),
				   __float_as_uint(d[4 * i + 1]),
				   __float_as_uint(d[4 * i + 2]),
				   __float_as_uint(d[4 * i + 3])));
	mbarrier_arrive(smem_addr(&c->shared->sums_full));
	advance(turns, 1);
}

/* Added to the sums of who finishes the tile. */
template <int N>
DEVICE void add_sums(const struct consumer *c, struct ring *turns,
		     uint32_t exchange, float *d)
{
	const uint32_t from = exchange_place(exchange);

	wait(smem_addr(&c->shared->sums_full), turns->parity);
#pragma unroll
	for (uint32_t i = 0; i < N / 8; i++) {
		const uint4 x = lds_128(from + i * WARPS * 512);
		const uint32_t word[4] = {x.x, x.y, x.z, x.w};

#pragma unroll
		for (uint32_t l = 0; l < 4; l++)
			d[4 * i + l] += __uint_as_float(word[l]);
	}
	mbarrier_arrive(smem_addr(&c->shared->sums_empty));
	advance(turns, 1);
}

template <int N, bool DUAL, int PAIR>
DEVICE void consume_tile_of_pair(struct consumer *c, uint32_t exchange,
				 struct ring *turns)
{
	const struct work *w = c->shared->works + c->works.stage;
	float alpha[2], d[N / 2];

	sum_stages_of_pair<N, DUAL, PAIR>(c, w->stages, w->flags, d);
	if (PAIR == BEGINS) {
		give_sums<N>(c, turns, exchange, d);
		return;
	}
	alpha[0] = w->alpha ? __ldg(w->alpha) : 1.0f;
	alpha[1] = w->alpha2 ? __ldg(w->alpha2) : 1.0f;
	add_sums<N>(c, turns, exchange, d);
	finish_sums<N, DUAL>(c, w, alpha, d);
}

template <bool DUAL, int PAIR>
DEVICE void consume_few(struct consumer *c, uint32_t exchange)
{
	struct ring turns = {0, 0};

	for (;; advance(&c->works, WORKS)) {
		const int32_t tokens =
			await_work(c->shared, &c->works)->tokens;

		if (!tokens)
			return;
#define CASE(n)                                                                \
	case n:                                                                \
		consume_tile_of_pair<n, DUAL, PAIR>(c, exchange, &turns);      \
		break;
		switch (tokens) {
			CASE(16) CASE(32)
		}
#undef CASE
		__syncwarp();
		if (lane_of_thread() == 0)
			release_work(c->shared, &c->works);
	}
}

#endif
