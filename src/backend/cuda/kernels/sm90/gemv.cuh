/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemv.cuh - C[m, n] = alpha * A[m, k] * B[n, k]^T for at most 4 rows of A:
 * reads B once, as fast as memory gives it.
 *
 * A CTA has four warps and no roles: each warp takes every fourth step of 256 k
 * of a tile of 16 rows of B, through a ring of its own, which no other warp
 * waits for.  The CTA's tiles are one stream of steps, so that the ring never
 * drains:
 *
 *   global --cp.async--> ring[stage] --lds--> codes --prmt--> int8 --mma-->
 *     accumulators
 *
 * Arithmetic.  Twice an e2m1 is an integer of at most 12.  PRMT looks up four
 * codes at once, and gives 0 for those whose sign bit is set; with the sign
 * bits flipped it gives the others.  So b = positive - negative, and each
 * product is two of signed bytes, exact.  A lane holds whole blocks of 16 k of
 * two rows and their scales.  With one row of A, dp4a adds up a block.  With
 * more, mma.m16n8k32 does: its columns are not rows of A, but separate the
 * blocks of the four lanes of a quad, and a second row of A, because A is zero
 * wherever lane and column do not belong together.  Block sums start from 3 *
 * 2^22, so that their bits are a float, and the difference of two such floats
 * is the block's sum in fp32, exact (numerics.md): sum * (scale of a * scale of
 * b) is added with one rounding, an fma.
 *
 * Order of the sum of a row, by k alone: a lane's steps one after the other,
 * the lanes of a quad, then the four warps.
 *
 * Instructions of a lane for 8 weights and one row of A: 7 to look up (4 PRMT,
 * 3 shifts and logic), 4 dp4a, 6 for all else.  4.65 TB/s are 32 weights a
 * clock and SM, which leaves 32 instructions, half of them ALU.
 *
 * Variants: M = 1, 2, 4 for rows of 16-byte pieces (alignments 16, k a
 * multiple of 32), and 1_any, 4_any for the others; M = 1 also of experts and of
 * their dual products.
 *
 * Roofline: the rate of memory.  Registers: 99 to 163 (docs/kernels.md), so
 * that NIB_GEMV_CTAS CTAs are resident on an SM (3 of 4_any).  There are no
 * mbarriers: a warp waits for its own cp.async groups; __syncthreads() lies
 * around the conversion of A and before the warps' accumulators are added.
 *
 * Shared memory: ring 3 x 4 x 2304 bytes; zeros; partial sums; codes of A as
 * int8 and its scales as fp32, at most 40 KiB for NIB_GEMV_PHASE(M) of k.
 * Longer k goes in phases.
 */
#ifndef NIB_GEMV_CUH
#define NIB_GEMV_CUH

#include "backend/cuda/kernels/common/kernel_name.h"

#include "gemv_activations.cuh"
#include "gemv_experts.cuh"

/* 3 * 2^22 as a float: integers of either sign added to it stay its bits. */
#define MAGIC 0x4B400000u

/*
 * Eight codes of rows g and g + 8, for the columns of a, as positive and
 * negative.
 */
struct weights {
	uint32_t positive[4], negative[4];
};

DEVICE struct weights decode(uint32_t row_g, uint32_t row_g8, uint32_t low)
{
	struct weights w;

	look_up(row_g, low, &w.positive[0], &w.positive[2]);
	look_up(row_g8, low, &w.positive[1], &w.positive[3]);
	look_up(row_g ^ SIGNS, low, &w.negative[0], &w.negative[2]);
	look_up(row_g8 ^ SIGNS, low, &w.negative[1], &w.negative[3]);
	return w;
}

struct block_sums {
	uint32_t positive[4], negative[4];
};

DEVICE struct block_sums zero_sums(void)
{
	return {{MAGIC, MAGIC, MAGIC, MAGIC}, {MAGIC, MAGIC, MAGIC, MAGIC}};
}

DEVICE void multiply(struct block_sums *d, const struct weights &w, uint32_t x0,
		     uint32_t x1)
{
	const uint32_t x[2] = {x0, x1};

	mma_m16n8k32_s8(d->positive, w.positive, x);
	mma_m16n8k32_s8(d->negative, w.negative, x);
}

DEVICE float block_sum(const struct block_sums &d, int i)
{
	return __uint_as_float(d.positive[i]) - __uint_as_float(d.negative[i]);
}

/* What a lane knows all along. */
struct lane_view {
	struct stage_view b;
	uint32_t columns;	 /* codes of a for its column, or zeros; for itself */
	int stride, pair_stride; /* of columns by step and pair; 0: zeros */
	uint32_t a_scales;
	uint32_t low; /* of the table of codes */
};

DEVICE float4 lds_f32x4(uint32_t addr)
{
	const uint4 x = lds_128(addr);

	return make_float4(__uint_as_float(x.x), __uint_as_float(x.y),
			   __uint_as_float(x.z), __uint_as_float(x.w));
}

/* d[r]: row g + 8r, by the products of half a block. */
DEVICE void add_products(uint32_t (&d)[2], const uint32_t (&w)[4], uint32_t x0,
			 uint32_t x1)
{
#pragma unroll
	for (int r = 0; r < 2; r++)
		d[r] = dp4a(w[2 + r], x1, dp4a(w[r], x0, d[r]));
}

/*
 * M = 1: seven of the eight columns of an mma would be zeros, and the 16 mma of
 * a step take longer than 64 dp4a (docs/performance-hopper.md).
 */
DEVICE void multiply_step_one(struct accumulators<1> *acc, const struct lane_view &v,
			      uint32_t stage, int step, const float (&s)[2][4])
{
	const uint32_t codes = v.columns + step * NIB_GEMV_STEP;
	const float4 sa = lds_f32x4(v.a_scales + step * (STEP_BLOCKS * 4));
	const float a[4] = {sa.x, sa.y, sa.z, sa.w};

#pragma unroll
	for (int h = 0; h < 2; h++) {
		const uint32_t from = stage + (v.b.pieces ^ h * 16);
		const uint4 q = lds_128(from);
		const uint4 q8 = lds_128(from + 8 * ROW_BYTES);

#pragma unroll
		for (int b = 0; b < 2; b++) {
			const int block = 2 * h + b;
			const uint4 x = lds_128(codes + block * 64);
			const struct weights w0 =
			    decode(b ? q.z : q.x, b ? q8.z : q8.x, v.low);
			const struct weights w1 =
			    decode(b ? q.w : q.y, b ? q8.w : q8.y, v.low);
			uint32_t plus[2] = {MAGIC, MAGIC};
			uint32_t minus[2] = {MAGIC, MAGIC};

			add_products(plus, w0.positive, x.x, x.y);
			add_products(minus, w0.negative, x.x, x.y);
			add_products(plus, w1.positive, x.z, x.w);
			add_products(minus, w1.negative, x.z, x.w);
#pragma unroll
			for (int r = 0; r < 2; r++)
				acc->x[0][r][b] =
				    fmaf(__uint_as_float(plus[r]) -
					     __uint_as_float(minus[r]),
					 s[r][block] * a[block], acc->x[0][r][b]);
		}
	}
}

/*
 * Pairs of rows of A: a column belongs to a row of the pair and a lane of the
 * quad.
 */
template <int M>
DEVICE void multiply_step_pairs(struct accumulators<M> *acc, const struct lane_view &v,
				uint32_t stage, int step, const float (&s)[2][4],
				const struct layout &at)
{
#pragma unroll
	for (int h = 0; h < 2; h++) {
		const uint32_t from = stage + (v.b.pieces ^ h * 16);
		const uint4 q = lds_128(from);
		const uint4 q8 = lds_128(from + 8 * ROW_BYTES);

#pragma unroll
		for (int b = 0; b < 2; b++) {
			const struct weights w0 =
			    decode(b ? q.z : q.x, b ? q8.z : q8.x, v.low);
			const struct weights w1 =
			    decode(b ? q.w : q.y, b ? q8.w : q8.y, v.low);
			const int block = 2 * h + b;

#pragma unroll
			for (int pair = 0; pair < M / 2; pair++) {
				const uint4 x =
				    lds_128(v.columns + step * v.stride +
					    pair * v.pair_stride + block * 16);
				const uint32_t sa =
				    v.a_scales + 2 * pair * (at.kept / 4) +
				    step * (STEP_BLOCKS * 4) + block * 4;
				const float a[2] = {
				    __uint_as_float(lds_32(sa)),
				    __uint_as_float(lds_32(sa + at.kept / 4))};
				struct block_sums d = zero_sums();

				multiply(&d, w0, x.x, x.y);
				multiply(&d, w1, x.z, x.w);
#pragma unroll
				for (int i = 0; i < 4; i++)
					acc->x[pair][i / 2][i % 2] = fmaf(
					    block_sum(d, i), s[i / 2][block] * a[i % 2],
					    acc->x[pair][i / 2][i % 2]);
			}
		}
	}
}

/* step counts from the phase's beginning. */
template <int M>
DEVICE void multiply_step(struct accumulators<M> *acc, const struct lane_view &v,
			  uint32_t stage, int step, bool is_last,
			  const struct layout &at)
{
	const uint32_t mask = is_last ? v.b.tail : ~0u;
	float s[2][4];

	widen_scales(lds_32(stage + v.b.scales) & mask, s[0]);
	widen_scales(lds_32(stage + v.b.scales + 8 * 16) & mask, s[1]);
	if constexpr (M == 1)
		multiply_step_one(acc, v, stage, step, s);
	else
		multiply_step_pairs<M>(acc, v, stage, step, s, at);
}

/*
 * TWICE_LOW, loaded from shared memory: ptxas would move a constant, or a value
 * that the whole warp shares, before every use, 45 of the 365 instructions of a
 * step.
 */
DEVICE uint32_t table_low(const struct layout &at)
{
	return lds_32(at.zeros + threadIdx.x % 16 * 4) + TWICE_LOW;
}

template <int M>
DEVICE struct lane_view view_of_lane(const struct nib_gemv_params &p,
				     const struct nib_gemv_operand &b,
				     const struct layout &at)
{
	const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
	const bool mine = g / 2 == t;
	struct lane_view v;

	v.b = view_of_stage(p, b);
	v.a_scales = at.scales + t * 16;
	v.low = table_low(at);
	if (M == 1) {
		v.columns = at.codes + t * 16;
		v.stride = v.pair_stride = 0;
	} else {
		v.columns =
		    mine ? at.codes + g % 2 * at.kept + t * 64 : at.zeros + ZEROS_AWAY;
		v.stride = mine ? NIB_GEMV_STEP : 0;
		v.pair_stride = mine ? 2 * at.kept : 0;
	}
	return v;
}

/* A as NVFP4 (gemv_run.cuh); A_IS_ALIGNED: IS_ALIGNED, but for rows of experts,
 * whose scales may begin anywhere.  QUANTIZES: A is a row_operand. */
template <int ROWS, bool IS_ALIGNED, bool A_IS_ALIGNED = IS_ALIGNED,
	  bool QUANTIZES = false>
struct nvfp4_side {
	static const int M = ROWS, ZEROS = 96;
	static const bool ALIGNED = IS_ALIGNED;
	const struct nib_gemv_params &p;
	const struct nib_gemv_operand &a;
	struct layout at;
	struct lane_view v;

	__device__ nvfp4_side(const struct nib_gemv_params &params,
			      const struct nib_gemv_operand &operand, uint32_t zeros,
			      uint32_t kept)
	    : p(params), a(operand)
	{
		at.kept = (int)nib_gemv_kept(p.k, M);
		at.zeros = zeros;
		at.codes = kept;
		at.scales = kept + M * at.kept;
	}

	__device__ int phase() const
	{
		return NIB_GEMV_PHASE(M) / NIB_GEMV_STEP;
	}

	__device__ void load(int step) const
	{
		if constexpr (QUANTIZES) {
			const struct row_operand &row =
			    static_cast<const struct row_operand &>(a);

			if (row.global) {
				quantize_row(p, row, at, step * STEP_BLOCKS);
				return;
			}
		}
		load_rows<M, A_IS_ALIGNED>(p, a, at, step * STEP_BLOCKS);
	}

	__device__ void convert() const
	{
		convert_rows<M>(at);
	}

	__device__ void view(const struct nib_gemv_operand &b)
	{
		v = view_of_lane<M>(p, b, at);
	}

	__device__ void multiply(struct accumulators<M> *acc, uint32_t stage, int step,
				 bool is_last) const
	{
		multiply_step<M>(acc, v, stage, step, is_last, at);
	}

	/* Four times too large: both factors of each product were doubled. */
	DEVICE float result(float sum, float alpha)
	{
		return sum * 0.25f * alpha;
	}
};

#define GEMV(m, aligned, name, ctas) NIB_GEMV_KERNEL(name, ctas, nvfp4_side<m, aligned>)

GEMV(1, true, 1, NIB_GEMV_CTAS)
GEMV(2, true, 2, NIB_GEMV_CTAS)
GEMV(4, true, 4, NIB_GEMV_CTAS)
GEMV(1, false, 1_any, NIB_GEMV_CTAS)
GEMV(4, false, 4_any, 3)
NIB_GEMV_EXPERTS_KERNEL(experts_1, 1, nvfp4_side<1, true, false, true>)
NIB_GEMV_EXPERTS_KERNEL(experts_dual_1, 2, nvfp4_side<1, true, false>)

#endif
