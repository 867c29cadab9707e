/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemv.cuh - C[m, n] = alpha * A[m, k] * B[n, k]^T for at most 4 rows of A in NVFP4:
 * reads B once, at the rate of memory.
 *
 *   B   global --cp.async--> ring of the warp --lds--> codes --prmt--> int8
 *         --dp4a or mma.m16n8k32--> block sums --fma by scales--> sums of a lane
 *   A   global --cp.async--> shared --prmt--> int8 and fp32 scales in shared memory
 *   sums of the lanes --shfl--> quad --sts--> partial sums --all warps--> C
 *
 *   threads    role                                     registers    waits for
 *   0 .. 127   four warps, all alike: load B, multiply;  99 .. 163   own cp.async,
 *              together: load and convert A, store                   __syncthreads()
 *
 * A tile is 16 rows of B.  Each warp multiplies every fourth step of k256 of a tile,
 * from a ring of its own, so that no warp waits for another in the loop.  The tiles of
 * a CTA are one stream of steps, so that the ring never drains between tiles.  There
 * are no mbarriers: __syncthreads() surrounds the conversion of A and precedes the
 * addition of the warps' sums.
 *
 *   dynamic shared memory   bytes
 *   rings of B              4 * 3 * 2304 = 27648 (gemv_load.cuh has the layout)
 *   zeros, alphas           96 + 32
 *   partial sums            tiles * 4 warps * 16 rows of B * M * 4
 *   A                       at most 40 KiB: int8 codes and fp32 scales of a phase,
 *                           NIB_GEMV_PHASE(M) of k; a longer k takes several phases
 *
 * Arithmetic.  Twice an e2m1 value is an integer of at most 12.  PRMT looks up four
 * codes at once and gives 0 for those whose sign bit is set; with the sign bits flipped
 * it gives the others.  So b = positive - negative, and each product is two products of
 * signed bytes, exact.  A lane holds whole blocks of 16 k of two rows and their scales.
 * With one row of A, dp4a adds up a block.  With more, mma.m16n8k32 does.  Its eight
 * columns are not eight rows of A.  They keep the blocks of the four lanes of a quad
 * apart, for two rows of A: column 2t + r has the block of lane t times row r, because
 * A is zero wherever lane and column do not belong together:
 *
 *   k of lane   column 0  1  2  3  4  5  6  7
 *   t = 0              a0 a1 0  0  0  0  0  0      ar: row r of A, the block of lane t
 *   t = 1              0  0  a0 a1 0  0  0  0
 *   t = 2              0  0  0  0  a0 a1 0  0
 *   t = 3              0  0  0  0  0  0  a0 a1
 *
 * Block sums start from 3 * 2^22 (MAGIC), so that their bits are a float.  The
 * difference of two such floats is the block's sum in fp32, exact (docs/numerics.md).
 * An fma adds the sum times (scale of a * scale of b) with one rounding.
 *
 * Order of the sum of an element, by k only: a lane's steps in order, the lanes of a
 * quad, then the four warps.
 *
 * Roofline: the rate of memory.  4.65 TB/s are 32 weights a clock and SM, which leaves
 * 32 instructions of a lane for 8 weights, half of them on the ALU.  With one row of A
 * they take 7 for the look-up (4 PRMT, 3 shifts and logic), 4 dp4a and 6 others.
 * NIB_GEMV_CTAS CTAs are resident on an SM (3 of 4_any).
 *
 * Variants: M = 1, 2, 4 for rows of 16-byte pieces (alignments 16, k a multiple of 32);
 * 1_any and 4_any for all others; M = 1 also for experts and their dual products.
 */
#ifndef NIB_GEMV_CUH
#define NIB_GEMV_CUH

#include "kernel_name.h"

#include "gemv_activations.cuh"
#include "gemv_experts.cuh"

/*
 * The bits of the float 3 * 2^22.  For any integer |i| < 2^22, MAGIC + i as an integer
 * is the bits of the float 3 * 2^22 + i:
 *
 *   sign, exponent 9 bits   0 10010110
 *   fraction 23 bits        1 00 0000 0000 0000 0000 0000 + i
 */
#define MAGIC 0x4B400000u

/* Eight codes of rows g and g + 8 as int8: the positive values, and the absolute values
 * of the negative ones; the registers are in the order of the A operand of mma. */
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

/* What a lane reads of B and A; constant for the whole kernel. */
struct lane_view {
	struct stage_view b;
	uint32_t columns;	 /* codes of A for the lane's column, or zeros */
	int stride, pair_stride; /* from a step and a pair of rows to the next */
	uint32_t a_scales;
	uint32_t low; /* table_low() */
};

DEVICE float4 lds_f32x4(uint32_t addr)
{
	const uint4 x = lds_128(addr);

	return make_float4(__uint_as_float(x.x), __uint_as_float(x.y),
			   __uint_as_float(x.z), __uint_as_float(x.w));
}

/* d[r] += the products of half a block of row g + 8r. */
DEVICE void add_products(uint32_t (&d)[2], const uint32_t (&w)[4], uint32_t x0,
			 uint32_t x1)
{
#pragma unroll
	for (int r = 0; r < 2; r++)
		d[r] = dp4a(w[2 + r], x1, dp4a(w[r], x0, d[r]));
}

/* M = 1: the 16 mma of a step, in which seven of eight columns would be zeros, take
 * longer than 64 dp4a (docs/performance-hopper.md). */
DEVICE void multiply_step_one(accumulators<1> *acc, const struct lane_view &view,
			      uint32_t stage, int step, const float (&s)[2][4])
{
	const uint32_t codes = view.columns + step * NIB_GEMV_STEP;
	const float4 sa = lds_f32x4(view.a_scales + step * (STEP_BLOCKS * 4));
	const float a[4] = {sa.x, sa.y, sa.z, sa.w};

#pragma unroll
	for (int h = 0; h < 2; h++) {
		const uint32_t from = stage + (view.b.pieces ^ h * 16);
		const uint4 codes_g = lds_128(from);
		const uint4 codes_g8 = lds_128(from + 8 * ROW_BYTES);

#pragma unroll
		for (int b = 0; b < 2; b++) {
			const int block = 2 * h + b;
			const uint4 x = lds_128(codes + block * 64);
			const struct weights w0 =
			    decode(b ? codes_g.z : codes_g.x,
				   b ? codes_g8.z : codes_g8.x, view.low);
			const struct weights w1 =
			    decode(b ? codes_g.w : codes_g.y,
				   b ? codes_g8.w : codes_g8.y, view.low);
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

/* M > 1: pairs of rows of A. */
template <int M>
DEVICE void multiply_step_pairs(accumulators<M> *acc, const struct lane_view &view,
				uint32_t stage, int step, const float (&s)[2][4],
				const struct layout &at)
{
#pragma unroll
	for (int h = 0; h < 2; h++) {
		const uint32_t from = stage + (view.b.pieces ^ h * 16);
		const uint4 codes_g = lds_128(from);
		const uint4 codes_g8 = lds_128(from + 8 * ROW_BYTES);

#pragma unroll
		for (int b = 0; b < 2; b++) {
			const struct weights w0 =
			    decode(b ? codes_g.z : codes_g.x,
				   b ? codes_g8.z : codes_g8.x, view.low);
			const struct weights w1 =
			    decode(b ? codes_g.w : codes_g.y,
				   b ? codes_g8.w : codes_g8.y, view.low);
			const int block = 2 * h + b;

#pragma unroll
			for (int pair = 0; pair < M / 2; pair++) {
				const uint4 x =
				    lds_128(view.columns + step * view.stride +
					    pair * view.pair_stride + block * 16);
				const uint32_t sa =
				    view.a_scales + 2 * pair * (at.kept / 4) +
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

/* step: counted from the beginning of the phase. */
template <int M>
DEVICE void multiply_step(accumulators<M> *acc, const struct lane_view &view,
			  uint32_t stage, int step, bool is_last,
			  const struct layout &at)
{
	const uint32_t mask = is_last ? view.b.tail : ~0u;
	float s[2][4];

	widen_scales(lds_32(stage + view.b.scales) & mask, s[0]);
	widen_scales(lds_32(stage + view.b.scales + 8 * 16) & mask, s[1]);
	if constexpr (M == 1)
		multiply_step_one(acc, view, stage, step, s);
	else
		multiply_step_pairs<M>(acc, view, stage, step, s, at);
}

/*
 * TWICE_LOW, loaded from shared memory.  A constant, or a value that is uniform in the
 * warp, would be moved to a register before every use by ptxas: 45 of the 365
 * instructions of a step.
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
	const bool has_column = g / 2 == t;
	struct lane_view view;

	view.b = view_of_stage(p, b);
	view.a_scales = at.scales + t * 16;
	view.low = table_low(at);
	if (M == 1) {
		view.columns = at.codes + t * 16;
		view.stride = view.pair_stride = 0;
	} else {
		view.columns = has_column ? at.codes + g % 2 * at.kept + t * 64
					  : at.zeros + ZEROS_AWAY;
		view.stride = has_column ? NIB_GEMV_STEP : 0;
		view.pair_stride = has_column ? 2 * at.kept : 0;
	}
	return view;
}

/*
 * The SIDE (gemv_run.cuh) for A in NVFP4.  A_IS_ALIGNED: IS_ALIGNED, except for rows of
 * experts, whose scales may begin anywhere.  QUANTIZES: A is a row_operand.
 */
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

	__device__ void multiply(accumulators<M> *acc, uint32_t stage, int step,
				 bool is_last) const
	{
		multiply_step<M>(acc, v, stage, step, is_last, at);
	}

	/* Both factors of each product were doubled. */
	DEVICE float result(float sum, float alpha)
	{
		return sum * 0.25f * alpha;
	}
};

#define GEMV(m, aligned, name, ctas) NIB_GEMV_KERNEL(name, ctas, nvfp4_side<m, aligned>)

#endif
