/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemm_mainloop.cuh - the loop of the consumer warpgroups over k: weights from their
 * ring, dequantised in registers, times activations in the other ring, added to
 * accumulators.
 *
 *   a weight stage, 18432 bytes     offset
 *   codes of warpgroup 0, 1         0, 8192: 64 rows of 128 bytes (k256); 16-byte piece
 *                                   c of row r is at slot swizzled(r, c)
 *                                   (gemm_shared.cuh)
 *   scales of warpgroup 0, 1        16384, 17408: 64 rows of 16 scales
 *     linear                        row r at 16 r
 *     tiled                         k64 i at 256 i: row r at 8 (r % 32) + 4 (r / 32)
 *
 * In a dual product, half 0 has 64 rows of B and half 1 the same rows of B2, and both
 * warpgroups read both halves.
 */
#ifndef NIB_GEMM_MAINLOOP_CUH
#define NIB_GEMM_MAINLOOP_CUH

#include "gemm_dequantize.cuh"
#include "gemm_schedule.cuh"

/* ---- consumers ----------------------------------------------------------- */

/* What a consumer thread keeps for all tiles. */
struct consumer {
	const struct nib_gemm_args *args;
	struct gemm_shared *shared;
	uint32_t weight_ring;
	uint32_t a_desc;     /* low half of the descriptor of the activation ring */
	uint32_t stage_desc; /* from a stage to the next, in units of 16 bytes */
	struct ring weights, activations, tiles;
	/* Lanes 0 and 1: a_empty[0] of CTA 0 and 1 of the pair. */
	uint32_t a_empty;
	uint32_t phases; /* bit i: parity of the pair's barrier of stage i */
};

/*
 * Indices of a consumer thread, computed again at each use: registers are few.
 */
DEVICE uint32_t group_of_thread(void)
{
	return (threadIdx.x / 128 - 1) % GROUPS;
}

DEVICE uint32_t lane_of_thread(void)
{
	return threadIdx.x % 32;
}

/* The first row of the CTA that this lane holds.  A warp has 16 rows of B; in a dual
 * product 8 of B and the same 8 of B2, so that a lane has both factors of a result. */
template <bool DUAL>
DEVICE uint32_t row_of_thread(void)
{
	return (threadIdx.x / 32 - 4) % WARPS * (DUAL ? 8 : 16) + lane_of_thread() / 4;
}

/*
 * What a consumer lane reads of a weight stage: the codes and scales of two rows, as
 * offsets in the stage for step 0.  The second row is 8 rows after the first; in a dual
 * product it is the same row of B2, whose scales may have another layout.
 */
struct weight_reader {
	uint32_t codes, scales;
	uint32_t scale_step;	       /* to the scales of the next step */
	uint32_t scale_row8;	       /* to the scales of the second row */
	uint32_t scales2, scale_step2; /* dual: scales of the second row */
};

/* The offset of a row's scales in those of 64 rows. */
DEVICE uint32_t stage_scale(uint32_t row, bool is_tiled)
{
	return is_tiled ? row % 32 * 8 + row / 32 * 4 : row * 16;
}

template <bool DUAL>
DEVICE struct weight_reader reader_of(int32_t flags)
{
	const uint32_t t = lane_of_thread() % 4;
	const uint32_t half = DUAL ? 0 : group_of_thread();
	const uint32_t row = row_of_thread<DUAL>() % 64;
	const uint32_t scales = GROUPS * HALF_CODES + half * HALF_SCALES + t;
	const bool tiled = flags & NIB_B_TILED;
	const bool tiled2 = DUAL ? flags & NIB_B2_TILED : tiled;
	struct weight_reader r;

	r.codes = half * HALF_CODES + row * 128 + swizzled(row, t / 2) * 16 + t % 2 * 8;
	r.scales = scales + stage_scale(row, tiled);
	r.scale_step = tiled ? 256 : 4;
	r.scale_row8 = tiled ? 64 : 128;
	r.scales2 = scales + HALF_SCALES + stage_scale(row, tiled2);
	r.scale_step2 = tiled2 ? 256 : 4;
	return r;
}

/* a[i]: the A operand of k16 number i of step `step` of the stage at base, from group t
 * of the lane's two rows.  Codes and scales beyond k are zero. */
template <bool DUAL, int A>
DEVICE void load_weights(const struct weight_reader *r, uint32_t base, uint32_t step,
			 uint32_t (*a)[4])
{
	/* Two pieces of 16 bytes a step: the swizzle is an exclusive or. */
	const uint32_t codes = base + (r->codes ^ step * 32);
	const uint32_t scales = base + r->scales + step * r->scale_step;
	uint32_t low0, low1, high0, high1, out[4], s;

	lds_64(codes, &low0, &low1);
	lds_64(codes + (DUAL ? HALF_CODES : 8 * 128), &high0, &high1);
	s = lds_u8(scales) + lds_u8(DUAL ? base + r->scales2 + step * r->scale_step2
					 : scales + r->scale_row8) *
				 256;
	s = scale_pair<A>(s);
	dequantize<A>(low0, low_halves(s), out);
	a[0][0] = out[0], a[0][2] = out[1], a[1][0] = out[2], a[1][2] = out[3];
	dequantize<A>(low1, low_halves(s), out);
	a[2][0] = out[0], a[2][2] = out[1], a[3][0] = out[2], a[3][2] = out[3];
	dequantize<A>(high0, high_halves(s), out);
	a[0][1] = out[0], a[0][3] = out[1], a[1][1] = out[2], a[1][3] = out[3];
	dequantize<A>(high1, high_halves(s), out);
	a[2][1] = out[0], a[2][3] = out[1], a[3][1] = out[2], a[3][3] = out[3];
}

/* The wgmma descriptor of activations: 128-byte swizzle, k contiguous, 1024 bytes from
 * 8 rows to the next 8.  The low half has the address in units of 16 bytes. */
#define DESCRIPTOR_HIGH (1u << 30 | 1024 >> 4)

DEVICE uint32_t a_descriptor(uint32_t addr)
{
	return 1u << 16 | addr >> 4;
}

/* Waits for the next weight stage and returns its address. */
DEVICE uint32_t await_weights(const struct consumer *c)
{
	wait(smem_addr(c->shared->weights_full + c->weights.stage), c->weights.parity);
	return c->weight_ring + c->weights.stage * WEIGHT_STAGE;
}

DEVICE void release_stage(const struct consumer *c)
{
	__syncwarp();
	if (lane_of_thread() == 0)
		mbarrier_arrive(smem_addr(c->shared->weights_empty + c->weights.stage));
}

DEVICE void release_weights(struct consumer *c)
{
	release_stage(c);
	advance(&c->weights, (uint32_t)c->args->weight_stages);
}

/* Releases an activation stage to the producers of both CTAs of the pair. */
DEVICE void release_activations(const struct consumer *c, uint32_t stage)
{
	__syncwarp();
	if (lane_of_thread() < 2)
		mbarrier_arrive_cluster(c->a_empty + stage * 8);
}

/* The activation stage before the first one of the next weight stage. */
DEVICE uint32_t last_a_stage(const struct consumer *c)
{
	return (c->activations.stage ? c->activations.stage
				     : (uint32_t)c->args->a_stages) -
	       1;
}

/*
 * The four wgmma of a step.  FIRST clears the accumulators.  It is a template argument,
 * so that the compiler sees that d is not read; otherwise the accumulators of every
 * tile size would be live through the loop over tiles.
 */
template <int N, int A, bool FIRST>
DEVICE void issue_step(uint32_t desc, const uint32_t (*a)[4], float *d)
{
	if constexpr (A == NIB_A_BF16) {
		wgmma_bf16<N>(d, a[0], pack_64(desc, DESCRIPTOR_HIGH), !FIRST);
		wgmma_bf16<N>(d, a[1], pack_64(desc + 2, DESCRIPTOR_HIGH), 1);
		wgmma_bf16<N>(d, a[2], pack_64(desc + 4, DESCRIPTOR_HIGH), 1);
		wgmma_bf16<N>(d, a[3], pack_64(desc + 6, DESCRIPTOR_HIGH), 1);
	} else {
		wgmma_f16<N>(d, a[0], pack_64(desc, DESCRIPTOR_HIGH), !FIRST);
		wgmma_f16<N>(d, a[1], pack_64(desc + 2, DESCRIPTOR_HIGH), 1);
		wgmma_f16<N>(d, a[2], pack_64(desc + 4, DESCRIPTOR_HIGH), 1);
		wgmma_f16<N>(d, a[3], pack_64(desc + 6, DESCRIPTOR_HIGH), 1);
	}
}

/* The wgmma of an activation stage, AT_ONCE steps, as one group. */
template <int N, int A, int AT_ONCE, bool FIRST>
DEVICE void issue_steps(uint32_t desc, const uint32_t (*a)[4][4], float *d)
{
	wgmma_fence();
	issue_step<N, A, FIRST>(desc, a[0], d);
#pragma unroll
	for (uint32_t i = 1; i < AT_ONCE; i++)
		issue_step<N, A, false>(desc + i * (N * 128 >> 4), a[i], d);
	wgmma_commit();
}

/* The weights of AT_ONCE steps, from step `step` of the stage at base on. */
template <bool DUAL, int A, int AT_ONCE>
DEVICE void load_steps(const struct weight_reader *r, uint32_t base, uint32_t step,
		       uint32_t (*a)[4][4])
{
#pragma unroll
	for (uint32_t i = 0; i < AT_ONCE; i++)
		load_weights<DUAL, A>(r, base, step + i, a[i]);
}

/* The position of a consumer in a weight stage. */
struct stage_walk {
	uint32_t base;	     /* of the weights that are dequantised next */
	uint32_t desc, full; /* of the stage's first activations, and their barrier */
	uint32_t stage, before; /* activation stages: the first, the last one's */
	bool is_last;
};

/* Groups J and up of a weight stage, by recursion: the compiler does not unroll a loop
 * of this size, and then a[] would be in local memory. */
template <int N, bool DUAL, int A, int AT_ONCE, bool FIRST, uint32_t J>
DEVICE void multiply_groups(struct consumer *c, const struct weight_reader *r,
			    struct stage_walk *w, uint32_t (*a)[AT_ONCE][4][4],
			    float *d)
{
	constexpr uint32_t groups = STEPS / AT_ONCE;

	wait(w->full + J * 8, c->activations.parity);
	issue_steps<N, A, AT_ONCE, FIRST && J == 0>(w->desc, a[J % 2], d);
	w->desc += c->stage_desc;
	/* The previous group has completed: its operands are free. */
	wgmma_wait<1>();
	if (!(FIRST && J == 0))
		release_activations(c, J ? w->stage + J - 1 : w->before);
	if (J == groups - 1) {
		release_weights(c);
		if (w->is_last)
			return;
		w->base = await_weights(c);
	}
	load_steps<DUAL, A, AT_ONCE>(r, w->base, (J + 1) % groups * AT_ONCE,
				     a[(J + 1) % 2]);
	if constexpr (J + 1 < groups)
		multiply_groups<N, DUAL, A, AT_ONCE, FIRST, J + 1>(c, r, w, a, d);
}

/*
 * Multiplies one weight stage, with AT_ONCE of its four steps as one group of wgmma.
 * a[0] has the weights of the first group on entry, and those of the next stage's first
 * group on exit (unless is_last).  While the tensor cores multiply a group, the weights
 * of the next group are dequantised into the other set of registers, so that one group
 * is always in flight.  On entry the last activation stage of the previous weight stage
 * is still read.
 */
template <int N, bool DUAL, int A, int AT_ONCE, bool FIRST>
DEVICE void multiply_stage(struct consumer *c, const struct weight_reader *r,
			   bool is_last, uint32_t (*a)[AT_ONCE][4][4], float *d)
{
	const uint32_t stage = c->activations.stage;
	struct stage_walk w = {c->weight_ring + c->weights.stage * WEIGHT_STAGE,
			       c->a_desc + stage * c->stage_desc,
			       smem_addr(c->shared->a_full + stage),
			       stage,
			       last_a_stage(c),
			       is_last};

	multiply_groups<N, DUAL, A, AT_ONCE, FIRST, 0>(c, r, &w, a, d);
	c->activations.stage += STEPS / AT_ONCE;
	if (c->activations.stage == (uint32_t)c->args->a_stages) {
		c->activations.stage = 0;
		c->activations.parity ^= 1;
	}
}

/* d = the accumulators of the tile over this split-k slice. */
template <int N, bool DUAL, int A, int AT_ONCE>
DEVICE void multiply_tile(struct consumer *c, int32_t stages, int32_t flags, float *d)
{
	const struct weight_reader r = reader_of<DUAL>(flags);
	uint32_t a[2][AT_ONCE][4][4];

	load_steps<DUAL, A, AT_ONCE>(&r, await_weights(c), 0, a[0]);
	multiply_stage<N, DUAL, A, AT_ONCE, true>(c, &r, stages == 1, a, d);
	for (int32_t s = 1; s < stages; s++)
		multiply_stage<N, DUAL, A, AT_ONCE, false>(c, &r, s + 1 == stages, a,
							   d);
	wgmma_wait<0>();
	release_activations(c, last_a_stage(c));
}

#endif
