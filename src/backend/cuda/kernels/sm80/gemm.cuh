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
 * The two halves of the warps alternate, so that the tensor cores have work while the
 * other half dequantises.  A scheduler has one warp of each.  __syncthreads() ends each
 * period:
 *
 *   period     first half: request, dequantise    second half: request, dequantise
 *   2 i        i + STAGES - 2, i                  multiply i - 1
 *   2 i + 1    multiply i                         i + STAGES - 1, i
 *
 * A thread waits for its own copies of stage i before period 2 i begins.  Stage i - 2
 * is free in period 2 i, and stage i - 1 in period 2 i + 1.
 *
 *   shared memory      bytes of a stage, of k64 (M: rows of A of the largest tile)
 *   codes of B         8192     warp, place, lane: 8 bytes, k 16 t to 16 t + 15
 *   scales of B        1024     128 rows twice; tiles of 128 x 4 with permuted rows
 *   A                  128 M    a row: piece p of 8 k is at slot p ^ (row % 8)
 *   after the stages: a tag for each, then for MoE the first tile of each expert
 *
 * Arithmetic: lane 4 g + t of a warp supplies the same k of A and B, 16 t to 16 t + 15
 * of a stage, 4 of them to each mma, so both are used in the order of memory.  A code
 * times its scale (fp16: times 2^-6) is exact in A's type.  An mma adds 16 products to
 * a sum in fp32.  Bound: docs/numerics.md, section 10.  The order of a sum depends only
 * on k and the split-k slices.
 *
 * Registers: 246 to 253.  Roofline: mma.sync.  For 128 rows of A a warp issues 128 mma
 * and 32 loads of A for a stage in one period, and 250 other instructions, 110 of them
 * in the ALU, which takes 2 cycles for each, in the other.  An mma takes 8 cycles of a
 * scheduler's tensor core on an A100 and 5.7 on an H100, whose rate of mma.sync was
 * measured as 652 TFLOP/s.  There the periods are 1240 and 800 cycles, and products of
 * 1024 rows reach 360 TFLOP/s: a single warp issues an mma only every 6.5 cycles, and
 * waits for loads of A.
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

/*
 * Loads the lane's codes and scales of the stage at `at` and dequantises them.
 * values[i][k]: of place i, k 0 to 15 in pairs.  tag: of the stage.
 */
template <class TRAITS>
DEVICE void dequantise(const struct lane_view &v, uint32_t at, uint32_t tag,
		       uint32_t (&values)[B_PLACES][8])
{
	const uint32_t mask = opaque(threadIdx.x) % 4 < (tag & TAG_GROUPS)
				  ? SCALE_MASK(TRAITS::IS_BF16)
				  : 0;
	uint32_t codes[B_PLACES][2], scales[B_PLACES];

#pragma unroll
	for (int i = 0; i < B_PLACES; i++) {
		scales[i] = lds_u8(v.scales + at + scales_offset<TRAITS>(i));
		lds_64(v.codes + at + i * 256, &codes[i][0], &codes[i][1]);
	}
#pragma unroll
	for (int i = 0; i < B_PLACES; i++) {
		const uint32_t both = widen_two_scales<TRAITS::IS_BF16>(
		    scales[i & ~1], scales[i | 1], mask);
		const uint32_t scale = i % 2 ? high_halves(both) : low_halves(both);

		decode_in_order<TRAITS::IS_BF16>(codes[i][0], scale, values[i]);
		decode_in_order<TRAITS::IS_BF16>(codes[i][1], scale, values[i] + 4);
	}
}

/* sums += four n8 tiles of A, half of each lane's k of a stage, times the warp's B.
 * Eight mma in a row have different sums. */
template <class TRAITS>
DEVICE void multiply_four(float (*sums)[M16_TILES][4], const uint4 (&a)[4], int half,
			  const uint32_t (&values)[B_PLACES][8])
{
#pragma unroll
	for (int k = 0; k < 4; k += 2)
#pragma unroll
		for (int n = 0; n < 4; n++)
#pragma unroll
			for (int i = 0; i < M16_TILES; i++)
				mma16<TRAITS::IS_BF16>(
				    sums[n][i], values[2 * i] + half * 4 + k,
				    values[2 * i + 1] + half * 4 + k,
				    k ? a[n].z : a[n].x, k ? a[n].w : a[n].y);
}

DEVICE void load_four(uint32_t from, uint4 (&a)[4])
{
#pragma unroll
	for (int n = 0; n < 4; n++)
		a[n] = lds_128(from + n * 1024);
}

/* Multiplies the first 4 FOURS n8 tiles of the stage at `at`. */
template <class TRAITS, int FOURS>
DEVICE void multiply(float (&sums)[N8_TILES][M16_TILES][4], const struct lane_view &v,
		     uint32_t at, const uint32_t (&values)[B_PLACES][8])
{
	uint4 a[2][4];

	load_four(v.a[0] + at, a[0]);
#pragma unroll
	for (int n = 0; n < FOURS; n++) {
		load_four(v.a[1] + at + n * 4096, a[1]);
		multiply_four<TRAITS>(sums + 4 * n, a[0], 0, values);
		__syncwarp();
		if (n + 1 < FOURS)
			load_four(v.a[0] + at + (n + 1) * 4096, a[0]);
		multiply_four<TRAITS>(sums + 4 * n, a[1], 1, values);
		__syncwarp();
	}
}

/* Waits until at most `groups` of the thread's groups, 0 to 4, are incomplete. */
DEVICE void wait_group_at_most(int groups)
{
	if (groups >= 4)
		cp_async_wait_group<4>();
	else if (groups == 3)
		cp_async_wait_group<3>();
	else if (groups == 2)
		cp_async_wait_group<2>();
	else if (groups == 1)
		cp_async_wait_group<1>();
	else
		cp_async_wait_group<0>();
}

/* A warp's position in the stream of stages. */
template <class TRAITS>
struct position {
	struct stream<TRAITS> s;
	int stage, to; /* of the ring: to multiply, to request */
};

/* The stages of a tile of up to 32 FOURS rows of A, the first with this tag. */
template <class TRAITS, int FOURS>
DEVICE void
multiply_stages(const struct nib_gemm_args &p, const struct gemm_shared &shared,
		const struct lane_view &view, uint32_t tag, struct position<TRAITS> *x,
		float (&sums)[N8_TILES][M16_TILES][4])
{
	uint32_t values[B_PLACES][8];

#pragma unroll 1
	for (;;) {
		const uint32_t at = x->stage * p.stage_bytes;

		load_next<TRAITS>(p, shared, x->to, &x->s);
		x->to = x->to + 1 == p.stages ? 0 : x->to + 1;
		dequantise<TRAITS>(view, at, tag, values);
		wait_group_at_most(p.stages - 2);
		__syncthreads();
		multiply<TRAITS, FOURS>(sums, view, at, values);
		x->stage = x->stage + 1 == p.stages ? 0 : x->stage + 1;
		wait_group_at_most(p.stages - 3);
		__syncthreads();
		if (tag & TAG_LAST)
			break;
		tag = lds_32(shared.tags + x->stage * 4);
	}
}

template <class TRAITS>
DEVICE void run_stream(const struct nib_gemm_args &p, const struct gemm_shared &shared)
{
	const struct lane_view view = view_of<TRAITS>(shared.stages);
	const bool is_second = threadIdx.x >= NIB_GEMM_THREADS / 2;
	struct position<TRAITS> x = {
		begin_stream<TRAITS>(shared)
	};
	int round = 0;

#pragma unroll 1
	for (; x.to < p.stages - 2 + is_second; x.to++)
		load_next<TRAITS>(p, shared, x.to, &x.s);
	wait_group_at_most(p.stages - 3);
	__syncthreads();
	if (is_second)
		__syncthreads();
#pragma unroll 1
	for (;; round++) {
		const uint32_t tag = lds_32(shared.tags + x.stage * 4);
		float sums[N8_TILES][M16_TILES][4] = {};
		struct tile tile;

		if (tag & TAG_END)
			break;
		if (tag >> TAG_ROWS > 96)
			multiply_stages<TRAITS, 4>(p, shared, view, tag, &x, sums);
		else if (tag >> TAG_ROWS > 64)
			multiply_stages<TRAITS, 3>(p, shared, view, tag, &x, sums);
		else if (tag >> TAG_ROWS > 32)
			multiply_stages<TRAITS, 2>(p, shared, view, tag, &x, sums);
		else
			multiply_stages<TRAITS, 1>(p, shared, view, tag, &x, sums);
		find_tile<TRAITS>(p, shared, round, &tile);
		store_tile<TRAITS>(p, tile, sums);
	}
	if (!is_second)
		__syncthreads();
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
