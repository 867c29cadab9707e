/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemm.cuh - C = alpha * A * B^T for any number of rows by mma.sync, and C = silu(alpha
 * * A * B^T) * (alpha2 * A * B2^T).  A is fp16 or bf16; gemm_convert.cuh converts A of
 * NVFP4 to fp16 before.  For sm_80 and newer.
 *
 * gemm_load.cuh has the order of tiles and the loads, gemm_decode.cuh the weights'
 * values, gemm_store.cuh what becomes of sums, sm80/gemm.c the host side.
 *
 *   8 warps, each of which loads, dequantises, multiplies and stores
 *
 *   A      --cp.async--> stage --lds------------------------+
 *   codes  --cp.async--> stage --lds--+                     |
 *   scales --cp.async--> stage --lds--+--> values of B --mma.m16n8k16--> sums
 *   sums --> C, or partial sums of a split-k slice
 *
 * A tile is 256 rows of B (dual: 128 of B and 128 of B2) by up to 128 rows of A.  A
 * warp multiplies 32 rows of B by all rows of A of the tile, so a CTA dequantises each
 * weight once.  CTAs are persistent.  The stages of all tiles of a CTA are one stream:
 * while it multiplies the last stages of a tile it loads the first of the next.
 *
 * A warp works on two halves of k32 of stage i:
 *
 *   half   mma with          meanwhile
 *   0      values of half 0  dequantise half 1, request stage i + STAGES - 2
 *   1      values of half 1  dequantise half 0 of stage i + 1, load its first A
 *
 * Warps meet at two barriers of each stage only, so that the two of a scheduler can be
 * half a stage apart, and one multiplies while the other waits or computes:
 *
 *   full   32 x 8 copies have landed, and 8 warps wrote what is not copied
 *   empty  8 warps have read the stage
 *
 *   shared memory      bytes of a stage, of k64 (M: rows of A of the largest tile)
 *   codes of B         8192     warp, place, lane: 8 bytes, k 16 t to 16 t + 15
 *   scales of B        1024     128 rows twice; tiles of 128 x 4 with permuted rows
 *   A                  128 M    a row: piece p of 8 k is at slot p ^ (row % 8)
 *   after the stages: full, empty and a tag for each, then for MoE the first tile of
 *   each expert
 *
 * Arithmetic: lane 4 g + t of a warp supplies the same k of A and B, 16 t to 16 t + 15
 * of a stage, 4 of them to each mma, so both are used in the order of memory.  A code
 * times its scale (fp16: times 2^-6) is exact in A's type.  An mma adds 16 products to
 * a sum in fp32.  Bound: docs/numerics.md, section 10.  The order of a sum depends only
 * on k and the split-k slices.
 *
 * Registers: 251 to 255.  Roofline: mma.sync.  For 128 rows of A a stage takes a
 * scheduler 256 mma of 8 cycles on an A100 and 6.0 on an H100: 2050 and 1540 cycles.
 * Shared memory moves 170 KB for it in 1330 cycles.  A warp issues 128 mma, 48 loads
 * and about 300 other instructions, 150 of which are conversions.  An H100 takes 2600
 * cycles (docs/performance-ampere.md).
 */
#ifndef NIB_SM80_GEMM_CUH
#define NIB_SM80_GEMM_CUH

#include "backend/cuda/kernels/common/kernel_name.h"
#include "backend/cuda/kernels/common/ptx_mma16.cuh"
#include "gemm_store.cuh"

/* What a lane reads of a stage: addresses in the first. */
struct lane_view {
	uint32_t codes, scales, a[2];
};

template <class TRAITS>
DEVICE struct lane_view view_of(uint32_t shared)
{
	const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
	const uint32_t g = lane / 4, t = lane % 4;
	const uint32_t a = shared + NIB_GEMM_B_BYTES + g * 128;
	struct lane_view v;

	v.codes = opaque(shared + warp * 1024 + lane * 8);
	v.scales = opaque(shared + SCALES_AT + g * 16 + t +
			  (TRAITS::IS_DUAL ? warp / 2 * 4 + warp % 2 * 256
					   : warp / 4 * 512 + warp % 4 * 4));
	v.a[0] = opaque(a + (2 * t ^ g) * 16);
	v.a[1] = opaque(a + ((2 * t + 1) ^ g) * 16);
	return v;
}

/* Bytes from the lane's scales of place 0 to those of place i. */
template <class TRAITS>
DEVICE constexpr uint32_t scales_offset(int i)
{
	return TRAITS::IS_DUAL ? i / 2 * 512 + i % 2 * 128 : i * 128;
}

/* What a lane has of B: codes and scales of a stage, and the values of a half of it. */
struct lane_weights {
	uint32_t codes[B_PLACES][2];
	uint32_t scales[B_PLACES / 2]; /* of two places each */
	uint32_t values[2][B_PLACES][4];
};

/* Loads the lane's codes and scales of the stage at `at`.  tag: of the stage. */
template <class TRAITS>
DEVICE void load_weights(const struct lane_view &v, uint32_t at, uint32_t tag,
			 struct lane_weights *w)
{
	const uint32_t mask = opaque(threadIdx.x) % 4 < (tag & TAG_GROUPS)
				  ? SCALE_MASK(TRAITS::IS_BF16)
				  : 0;
	uint32_t scales[B_PLACES];

#pragma unroll
	for (int i = 0; i < B_PLACES; i++) {
		scales[i] = lds_u8(v.scales + at + scales_offset<TRAITS>(i));
		lds_64(v.codes + at + i * 256, &w->codes[i][0], &w->codes[i][1]);
	}
#pragma unroll
	for (int i = 0; i < B_PLACES; i += 2)
		w->scales[i / 2] =
		    widen_two_scales<TRAITS::IS_BF16>(scales[i], scales[i + 1], mask);
}

/* Dequantises place i of half `half` of a stage. */
template <class TRAITS>
DEVICE void dequantise(struct lane_weights *w, int half, int i)
{
	const uint32_t both = w->scales[i / 2];

	decode_in_order<TRAITS::IS_BF16>(w->codes[i][half],
					 i % 2 ? high_halves(both) : low_halves(both),
					 w->values[half][i]);
}

/* sums += four n8 tiles of A times the warp's rows of B, a k16 step of a half.  Eight
 * mma have different sums. */
template <class TRAITS>
DEVICE void multiply_four(float (*sums)[M16_TILES][4], const uint4 (&a)[4], int k,
			  const uint32_t (&values)[B_PLACES][4])
{
#pragma unroll
	for (int n = 0; n < 4; n++)
#pragma unroll
		for (int i = 0; i < M16_TILES; i++)
			mma16<TRAITS::IS_BF16>(
			    sums[n][i], values[2 * i] + k, values[2 * i + 1] + k,
			    k ? a[n].z : a[n].x, k ? a[n].w : a[n].y);
}

DEVICE void load_four(uint32_t from, uint4 (&a)[4])
{
#pragma unroll
	for (int n = 0; n < 4; n++)
		a[n] = lds_128(from + n * 1024);
}

/* A stage that is requested meanwhile, in parts. */
template <class TRAITS>
struct request {
	const struct stream<TRAITS> &s;
	uint32_t at;
	bool is_inside;
};

/*
 * Multiplies half HALF of the stage at `at`, of 4 FOURS n8 tiles, whose first four are
 * in a[HALF * FOURS % 2].  Meanwhile dequantises the other half, loads the first four
 * tiles of the half that follows, at `next`, and in half 0 requests a stage.
 */
template <class TRAITS, int FOURS, int HALF>
DEVICE void multiply_half(float (&sums)[N8_TILES][M16_TILES][4],
			  const struct lane_view &v, uint32_t at, uint32_t next,
			  const struct request<TRAITS> &r, uint4 (&a)[2][4],
			  struct lane_weights *w)
{
#pragma unroll
	for (int n = 0; n < FOURS; n++) {
		const int now = (HALF * FOURS + n) % 2;

		load_four(n + 1 < FOURS ? v.a[HALF] + at + (n + 1) * 4096
					: v.a[!HALF] + next,
			  a[!now]);
		multiply_four<TRAITS>(sums + 4 * n, a[now], 0, w->values[HALF]);
#pragma unroll
		for (int i = n * B_PLACES / FOURS; i < (n + 1) * B_PLACES / FOURS; i++)
			dequantise<TRAITS>(w, !HALF, i);
#pragma unroll
		for (int i = n * PARTS / FOURS; i < (n + 1) * PARTS / FOURS; i++)
			if (HALF == 0)
				load_part<TRAITS>(r.s, r.at, i, r.is_inside);
		multiply_four<TRAITS>(sums + 4 * n, a[now], 2, w->values[HALF]);
		__syncwarp();
	}
}

/* The position of a warp in the stream of stages. */
template <class TRAITS>
struct position {
	struct stream<TRAITS> s;
	struct ring now, to; /* to multiply, to request */
	uint32_t tag;	     /* of the stage to multiply */
};

/* Waits until the stage at x->now is loaded. */
template <class TRAITS>
DEVICE void wait_for_stage(const struct gemm_shared &shared, struct position<TRAITS> *x)
{
	wait_phase(shared.full + x->now.stage * 8, x->now.parity);
	x->tag = lds_32(shared.tags + x->now.stage * 4);
}

/* The stages of a tile of up to 32 FOURS rows of A. */
template <class TRAITS, int FOURS>
DEVICE void
multiply_stages(const struct nib_gemm_args &p, const struct gemm_shared &shared,
		const struct lane_view &view, struct position<TRAITS> *x,
		struct lane_weights *w, float (&sums)[N8_TILES][M16_TILES][4])
{
	uint4 a[2][4];
	uint32_t tag;

	load_four(view.a[0] + x->now.stage * p.stage_bytes, a[0]);
#pragma unroll 1
	do {
		const uint32_t at = x->now.stage * p.stage_bytes;
		const uint32_t empty = shared.empty + x->now.stage * 8;
		const struct request<TRAITS> r = {
			x->s, x->to.stage *p.stage_bytes, is_inside<TRAITS>(x->s)
		};
		uint32_t next;

		wait_phase(shared.empty + x->to.stage * 8, x->to.parity ^ 1);
		multiply_half<TRAITS, FOURS, 0>(sums, view, at, at, r, a, w);
		load_rest<TRAITS>(p, shared, r.is_inside, &x->to, &x->s);
		tag = x->tag;
		advance(&x->now, p.stages);
		wait_for_stage(shared, x);
		/* After the last stage of all: the one that is multiplied. */
		next = x->tag & TAG_END ? at : x->now.stage * p.stage_bytes;
		load_weights<TRAITS>(view, next, x->tag, w);
		multiply_half<TRAITS, FOURS, 1>(sums, view, at, next, r, a, w);
		/* The arrival is for the reads of all lanes. */
		__syncwarp();
		if (opaque(threadIdx.x) % 32 == 0)
			mbarrier_arrive(empty);
	} while (!(tag & TAG_LAST));
}

/* Requests the first stages and dequantises the first half of the first. */
template <class TRAITS>
DEVICE void begin(const struct nib_gemm_args &p, const struct gemm_shared &shared,
		  const struct lane_view &view, struct position<TRAITS> *x,
		  struct lane_weights *w)
{
#pragma unroll 1
	for (int i = 0; i < p.stages - 2; i++)
		load_rest<TRAITS>(p, shared, false, &x->to, &x->s);
	wait_for_stage(shared, x);
	if (x->tag & TAG_END)
		return;
	load_weights<TRAITS>(view, 0, x->tag, w);
#pragma unroll
	for (int i = 0; i < B_PLACES; i++)
		dequantise<TRAITS>(w, 0, i);
}

template <class TRAITS>
DEVICE void run_stream(const struct nib_gemm_args &p, const struct gemm_shared &shared)
{
	const struct lane_view view = view_of<TRAITS>(shared.stages);
	struct position<TRAITS> x = {
		begin_stream<TRAITS>(shared)
	};
	struct lane_weights w;

	begin<TRAITS>(p, shared, view, &x, &w);
#pragma unroll 1
	for (int round = 0; !(x.tag & TAG_END); round++) {
		const uint32_t rows = x.tag >> TAG_ROWS;
		float sums[N8_TILES][M16_TILES][4] = {};
		struct tile tile;

		if (rows > 96)
			multiply_stages<TRAITS, 4>(p, shared, view, &x, &w, sums);
		else if (rows > 64)
			multiply_stages<TRAITS, 3>(p, shared, view, &x, &w, sums);
		else if (rows > 32)
			multiply_stages<TRAITS, 2>(p, shared, view, &x, &w, sums);
		else
			multiply_stages<TRAITS, 1>(p, shared, view, &x, &w, sums);
		find_tile<TRAITS>(p, shared, round, &tile);
		store_tile<TRAITS>(p, tile, sums);
	}
	/* A CTA must not end with cp.async in flight. */
	cp_async_wait_all();
}

template <class TRAITS>
DEVICE void multiply_tiles(const struct nib_gemm_args &p)
{
	extern __shared__ __align__(128) uint8_t bytes[];
	const uint32_t thread = threadIdx.x;
	struct gemm_shared shared;

	shared.stages = smem_addr(bytes);
	shared.full = shared.stages + p.stages * p.stage_bytes;
	shared.empty = shared.full + 8 * NIB_GEMM_STAGES_MAX;
	shared.tags = shared.empty + 8 * NIB_GEMM_STAGES_MAX;
	shared.first_tile =
	    (int32_t *)(bytes + p.stages * p.stage_bytes + NIB_GEMM_TAIL_BYTES);
	if (thread < NIB_GEMM_STAGES_MAX) {
		/* A copy of each thread, and what warps write otherwise. */
		mbarrier_init(shared.full + thread * 8,
			      NIB_GEMM_THREADS + NIB_GEMM_WARPS);
		mbarrier_init(shared.empty + thread * 8, NIB_GEMM_WARPS);
	}
	if (p.experts && thread < 32)
		count_tiles<share_m>(&p, units_of<TRAITS>(p.matrices->n), (int)thread,
				     shared.first_tile);
	__syncthreads();
	run_stream<TRAITS>(p, shared);
}

#define GEMM_KERNEL(name, ...)                                                         \
	extern "C" __global__ void __launch_bounds__(NIB_GEMM_THREADS, 1)              \
	    NIB_KERNEL(name)(const __grid_constant__ struct nib_gemm_args p)           \
	{                                                                              \
		multiply_tiles<gemm_traits<__VA_ARGS__>>(p);                           \
	}

#endif
