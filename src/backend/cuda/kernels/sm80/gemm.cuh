/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemm.cuh - C = alpha * A * B^T for any number of rows by mma.sync, and C = silu(alpha
 * * A * B^T) * (alpha2 * A * B2^T).  A is fp16 or bf16; gemm_convert.cuh converts A of
 * NVFP4 to fp16 before.  For sm_80 and newer.
 *
 * gemm_load.cuh has the order of tiles and the loads, gemm_decode.cuh the weights'
 * values, gemm_store.cuh what becomes of sums, sm80/gemm.c the host side.
 *
 *   8 warps, each of which loads, multiplies and stores
 *
 *   A      --cp.async--> stage --lds-----------------------+
 *   codes  --cp.async--> stage --lds--+                     |
 *   scales --cp.async--> stage --lds--+--> values in A's type --mma.m16n8k16--> sums
 *   sums --> C, or partial sums of a split-k slice
 *
 * A tile is 256 rows of B (dual: 128 of B and 128 of B2) by up to 128 rows of A.  A warp
 * multiplies 32 rows of B by all rows of A of the tile, so each weight is dequantised
 * once in a CTA.  CTAs are persistent.  The stages of all tiles of a CTA are one stream:
 * while it multiplies the last stages of a tile it loads the first of the next.
 *
 *   stage i of a CTA, half a stage at a time
 *   wait for the thread's own copies of stage i + 1; __syncthreads
 *   request                                          stage i + STAGES - 1
 *   multiply k 0 to 7 of each lane's 16              i
 *     meanwhile dequantise k 8 to 15                 i
 *   multiply k 8 to 15                               i
 *     meanwhile load and dequantise k 0 to 7         i + 1
 *
 * The barrier makes stages i and i + 1 visible and the space of stage i - 1 free.
 *
 *   shared memory      bytes of a stage, of k64 (M: rows of A of the largest tile)
 *   codes of B         8192     warp, place, lane: 8 bytes, k 16 t to 16 t + 15
 *   scales of B        1024     128 rows, then 128; as in tiles of 128 x 4, rows permuted
 *   A                  128 M    a row: piece p of 8 k is at slot p ^ (row % 8)
 *   after the stages: a tag for each, then for MoE the first tile of each expert
 *
 * Arithmetic: lane 4 g + t of a warp supplies the same k of A and B, 16 t to 16 t + 15
 * of a stage, 4 of them to each mma, so both are used in the order of memory.  A code
 * times its scale is exact in A's type.  An mma adds 16 products to a sum in fp32.
 * Bound: docs/numerics.md.  The order of a sum depends only on k and the split-k
 * slices.
 *
 * Roofline: mma.sync.  For 128 rows of A a warp issues 128 mma for a stage, and 230 other
 * instructions, 134 of them in the ALU, which takes 2 cycles for each.  On an A100 an mma
 * takes 8 cycles of a scheduler's tensor core and a stage of its two warps 2048 cycles, of
 * which the ALU is busy for 540.  Shared memory delivers 128 bytes a cycle: A of a
 * stage takes 1024 cycles of it, the rest 260.
 */
#ifndef NIB_SM80_GEMM_CUH
#define NIB_SM80_GEMM_CUH

#include "backend/cuda/kernels/common/kernel_name.h"
#include "backend/cuda/kernels/common/ptx_mma16.cuh"
#include "gemm_store.cuh"

/* What a warp has of a stage before it multiplies it. */
template <class TRAITS>
struct operands {
	uint32_t values[B_PLACES][4]; /* of B, k 0 to 7 of each lane */
	uint32_t codes[B_PLACES];     /* k 8 to 15 */
	uint32_t scales[2];	      /* places 0 and 1, 2 and 3 */
	uint4 a[2];		      /* the first two n8 tiles */
};

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

template <class TRAITS>
DEVICE uint32_t scale_of(const struct operands<TRAITS> &x, int i)
{
	return i % 2 ? high_halves(x.scales[i / 2]) : low_halves(x.scales[i / 2]);
}

/* Codes and scales of a stage as they are loaded. */
struct raw_weights {
	uint32_t first[B_PLACES], second[B_PLACES]; /* codes of k 0 to 7, 8 to 15 */
	uint32_t scales[B_PLACES];
};

template <class TRAITS>
DEVICE struct raw_weights load_weights(const struct lane_view &v, uint32_t at)
{
	struct raw_weights w;

#pragma unroll
	for (int i = 0; i < B_PLACES; i++) {
		lds_64(v.codes + at + i * 256, &w.first[i], &w.second[i]);
		w.scales[i] = lds_u8(v.scales + at + scales_offset<TRAITS>(i));
	}
	return w;
}

/* x gets all but the values.  tag: of the stage. */
template <class TRAITS>
DEVICE void begin_weights(const struct raw_weights &w, uint32_t tag,
			  struct operands<TRAITS> *x)
{
	const uint32_t mask =
	    threadIdx.x % 4 < (tag & TAG_GROUPS) ? SCALE_MASK(TRAITS::IS_BF16) : 0;

#pragma unroll
	for (int i = 0; i < B_PLACES; i++)
		x->codes[i] = w.second[i];
#pragma unroll
	for (int i = 0; i < 2; i++)
		x->scales[i] = widen_two_scales<TRAITS::IS_BF16>(
		    w.scales[2 * i], w.scales[2 * i + 1], mask);
}

/* Dequantises eighths `begin` to `end` - 1 of half of each lane's k of a stage. */
template <class TRAITS>
DEVICE void decode_eighths(const uint32_t (&codes)[B_PLACES],
			   const struct operands<TRAITS> &x, int begin, int end,
			   uint32_t (&values)[B_PLACES][4])
{
#pragma unroll
	for (int i = begin; i < end; i++)
		decode_half<TRAITS::IS_BF16>(codes[i / 2], i % 2,
					     scale_of<TRAITS>(x, i / 2),
					     values[i / 2] + i % 2 * 2);
}

/* sums += two n8 tiles of A, half of each lane's k of a stage, times the warp's B. */
template <class TRAITS>
DEVICE void multiply_two(float (*sums)[M16_TILES][4], const uint4 (&a)[2],
			 const uint32_t (&values)[B_PLACES][4])
{
#pragma unroll
	for (int n = 0; n < 2; n++)
#pragma unroll
		for (int i = 0; i < M16_TILES; i++)
			mma16<TRAITS::IS_BF16>(sums[n][i], values[2 * i],
					       values[2 * i + 1], a[n].x, a[n].y);
#pragma unroll
	for (int n = 0; n < 2; n++)
#pragma unroll
		for (int i = 0; i < M16_TILES; i++)
			mma16<TRAITS::IS_BF16>(sums[n][i], values[2 * i] + 2,
					       values[2 * i + 1] + 2, a[n].z, a[n].w);
}

DEVICE void load_two(uint32_t from, uint4 (&a)[2])
{
	a[0] = lds_128(from);
	a[1] = lds_128(from + 1024);
}

/* The compiler moves no instruction across it, so that dequantisation and loads stay
 * between the mma. */
DEVICE void keep_order(void)
{
	__syncwarp();
}

/* A stage that is multiplied, the next one, and the one to request. */
struct step {
	uint32_t at, next_at, next_tag; /* offsets of stages */
	uint32_t load_at;
	bool is_inside;
};

/*
 * Multiplies the first NT n8 tiles of a stage.  x has the operands of this stage and
 * gets those of the next.
 */
template <class TRAITS, int NT>
DEVICE void multiply(float (&sums)[N8_TILES][M16_TILES][4], const struct lane_view &v,
		     const struct step &step, struct operands<TRAITS> *x,
		     struct stream<TRAITS> *s)
{
	constexpr int PAIRS = NT / 2;
	uint32_t second[B_PLACES][4];
	struct raw_weights w;

#pragma unroll
	for (int n = 0; n < PAIRS; n++) {
		const uint4 a[2] = {x->a[0], x->a[1]};

		load_two(n + 1 < PAIRS ? v.a[0] + step.at + (n + 1) * 2048
				       : v.a[1] + step.at,
			 x->a);
		if (n == PAIRS - 1)
			w = load_weights<TRAITS>(v, step.next_at);
#pragma unroll
		for (int i = n * 4 / PAIRS; i < (n + 1) * 4 / PAIRS; i++)
			load_piece<TRAITS>(i, step.is_inside, step.load_at, s);
		decode_eighths<TRAITS>(x->codes, *x, n * 8 / PAIRS, (n + 1) * 8 / PAIRS,
				       second);
		multiply_two<TRAITS>(sums + 2 * n, a, x->values);
		keep_order();
	}
	begin_weights<TRAITS>(w, step.next_tag, x);
#pragma unroll
	for (int n = 0; n < PAIRS; n++) {
		const uint4 a[2] = {x->a[0], x->a[1]};

		load_two(n + 1 < PAIRS ? v.a[1] + step.at + (n + 1) * 2048
				       : v.a[0] + step.next_at,
			 x->a);
		decode_eighths<TRAITS>(w.first, *x, n * 8 / PAIRS, (n + 1) * 8 / PAIRS,
				       x->values);
		multiply_two<TRAITS>(sums + 2 * n, a, second);
		keep_order();
	}
}

/* The operands of a tile's first stage, at `at`. */
template <class TRAITS>
DEVICE void first_operands(const struct lane_view &v, uint32_t at, uint32_t tag,
			   struct operands<TRAITS> *x)
{
	const struct raw_weights w = load_weights<TRAITS>(v, at);

	begin_weights<TRAITS>(w, tag, x);
	decode_eighths<TRAITS>(w.first, *x, 0, 8, x->values);
	load_two(v.a[0] + at, x->a);
}

/* Waits until the stages up to the next one are complete: all but stages - 3, or fewer,
 * of the thread's groups. */
DEVICE void wait_for_next(int stages)
{
	cp_async_wait_group<3>();
	cp_async_wait_group_if<1>(stages < 6);
	cp_async_wait_group_if<0>(stages < 4);
	__syncthreads();
}

template <class TRAITS>
DEVICE void run_stream(const struct nib_gemm_args &p, const struct gemm_shared &shared)
{
	const struct lane_view view = view_of<TRAITS>(shared.stages);
	const uint32_t end = p.stages * p.stage_bytes;
	struct stream<TRAITS> s = begin_stream<TRAITS>(shared);
	struct operands<TRAITS> x;
	float sums[N8_TILES][M16_TILES][4] = {};
	struct step step = {};
	int round = 0;
	uint32_t tag, tag_at = shared.tags, load_tag_at = shared.tags;

#pragma unroll 1
	for (; step.load_at < end - p.stage_bytes; step.load_at += p.stage_bytes) {
		step.is_inside =
		    begin_stage<TRAITS>(p, shared, step.load_at, load_tag_at, &s);
#pragma unroll
		for (int i = 0; i < 4; i++)
			load_piece<TRAITS>(i, step.is_inside, step.load_at, &s);
		load_tag_at += 4;
	}
	wait_for_next(p.stages);
	tag = lds_32(shared.tags);
	if (tag & TAG_END)
		return;
	first_operands<TRAITS>(view, 0, tag, &x);
#pragma unroll 1
	for (;;) {
		step.next_at = step.at + p.stage_bytes;
		tag_at += 4;
		if (step.next_at == end) {
			step.next_at = 0;
			tag_at = shared.tags;
		}
		wait_for_next(p.stages);
		step.next_tag = lds_32(tag_at);
		step.is_inside =
		    begin_stage<TRAITS>(p, shared, step.load_at, load_tag_at, &s);
		{
			struct step now = step;

			/* The operands of the next tile are loaded after the sums are
			 * stored. */
			if (tag & TAG_LAST)
				now.next_at = now.at;
			if (tag >> TAG_ROWS > 96)
				multiply<TRAITS, 16>(sums, view, now, &x, &s);
			else if (tag >> TAG_ROWS > 64)
				multiply<TRAITS, 12>(sums, view, now, &x, &s);
			else if (tag >> TAG_ROWS > 32)
				multiply<TRAITS, 8>(sums, view, now, &x, &s);
			else
				multiply<TRAITS, 4>(sums, view, now, &x, &s);
		}
		if (tag & TAG_LAST) {
			struct tile tile;

			find_tile<TRAITS>(p, shared, round++, &tile);
			store_tile<TRAITS>(p, tile, sums);
			if (step.next_tag & TAG_END)
				break;
			first_operands<TRAITS>(view, step.next_at, step.next_tag, &x);
#pragma unroll
			for (int i = 0; i < N8_TILES * M16_TILES * 4; i++)
				sums[i / 8][i / 4 % 2][i % 4] = 0;
		}
		tag = step.next_tag;
		/* The stage that was multiplied is the next to be requested. */
		load_tag_at = step.at == 0 ? shared.tags : load_tag_at + 4;
		step.load_at = step.at;
		step.at = step.next_at;
	}
}

template <class TRAITS>
DEVICE void multiply_tiles(const struct nib_gemm_args &p)
{
	extern __shared__ __align__(128) uint8_t bytes[];
	struct gemm_shared shared;

	shared.stages = smem_addr(bytes);
	shared.tags = shared.stages + p.stages * p.stage_bytes;
	shared.first_tile =
	    (int32_t *)(bytes + p.stages * p.stage_bytes + NIB_GEMM_TAG_BYTES);
	if (p.experts) {
		if (threadIdx.x < 32)
			count_tiles<share_m>(&p, units_of<TRAITS>(p.matrices->n),
					     (int)threadIdx.x, shared.first_tile);
		__syncthreads();
	}
	run_stream<TRAITS>(p, shared);
}

#define GEMM_KERNEL(name, ...)                                                         \
	extern "C" __global__ void __launch_bounds__(NIB_GEMM_THREADS, 1)              \
	    NIB_KERNEL(name)(const __grid_constant__ struct nib_gemm_args p)           \
	{                                                                              \
		multiply_tiles<gemm_traits<__VA_ARGS__>>(p);                           \
	}

#endif
