/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemv_dense.cuh - C[m, n] = alpha * A[m, k] * B[n, k]^T for at most 4 rows of
 * A in fp16 or bf16: reads B once, as fast as memory gives it.
 *
 * Tiles, warps, steps and the ring of B are those of gemv.cuh; what a CTA keeps
 * of A are its elements as they are:
 *
 *   global --cp.async--> ring[stage] --lds--> codes --> fp16, bf16 --mma-->
 *     sums of a block --fma by its scale--> accumulators
 *
 * Arithmetic.  A code becomes 2^-6 times its value in A's type, exact.  A lane
 * holds whole blocks of 16 k of two rows of B and their scales.  The columns of
 * mma.m16n8k16 separate the blocks of the four lanes of a quad, and two rows of
 * A, because A is zero wherever lane and column do not belong together.  Four
 * mma sum a block; an fma adds the sum times the scale.  The scale stays out of
 * the codes, so that no product of a subnormal has a larger exponent than those
 * of normal numbers beside it: the tensor core cuts off nothing that the bound
 * does not allow for.
 *
 * Bound (docs/numerics.md, section 4, in its terms): four steps with four
 * values each lose at most 4 * (4 + 3) / 2 = 14 u A of a block.  A block goes
 * through at most B additions in its lane, 2 in the quad, 3 of warps, and alpha:
 * 20 + B <= 9.5 B + 9 for two blocks and more.  One block has one addition and
 * alpha: 16 <= 18.5.  All numbers are 2^-6 times their values.  So products of
 * bf16 are multiples of 2^-149, the smallest fp32, and sums overflow only if
 * the sum of |products| is 2^134.
 *
 * Order of the sum of a row, by k alone: a lane's steps one after the other,
 * the lanes of a quad, then the four warps.
 *
 * Instructions of a lane for 8 weights, of the 32 that 4.65 TB/s leave (half of
 * them ALU): fp16 11 to decode (4 F2FP, 4 LOP3, 3 shifts), bf16 19 (8 LOP3, 7
 * shifts, 4 HMUL2); for each two rows of A 1 mma, 1 fma, 0.5 LDS; and 1 for
 * codes and scales.  In machine code the loop of a step, with its loads, has
 * docs/kernels.md's numbers.
 *
 * Variants: M = 2 and 4 for rows of 16-byte pieces (alignments 16, k a multiple
 * of 32), 4_any for the others; one row is the first of two.  M = 2 also of
 * experts and of their dual products.
 *
 * Shared memory: ring 3 x 4 x 2304 bytes; zeros; partial sums; rows of A, at
 * most 32 KiB for NIB_GEMV_DENSE_PHASE of k.  Longer k goes in phases.
 */
#ifndef NIB_GEMV_DENSE_CUH
#define NIB_GEMV_DENSE_CUH

#include "backend/cuda/kernels/common/kernel_name.h"

#include "backend/cuda/kernels/common/ptx_mma16.cuh"
#include "decode.cuh"
#include "gemv_experts.cuh"

/* Bytes of A of a step. */
#define DENSE_STEP (NIB_GEMV_STEP * 2)
/* 2^120 twice in bf16: codes in place are 2^-126 times their values. */
#define BF16_CODES 0x7B807B80u

/* ---- A in shared memory -------------------------------------------------- */

/* The rows of A that a CTA keeps, and the k of each. */
struct dense_rows {
	uint32_t begin;
	int rows, kept;
	uint32_t pitch; /* from a row to the next, whose banks are others */
};

/* Loads a phase, which begins with element `first`; zeros behind k. */
template <bool ALIGNED>
DEVICE void load_dense(const struct nib_gemv_params &p,
		       const struct nib_gemv_operand &a, const struct dense_rows &to,
		       int first)
{
#pragma unroll 1
	for (int row = 0; row < to.rows; row++) {
		const uint8_t *from = a.codes + row * a.row_stride + (int64_t)first * 2;
		const int left = row < p.m ? p.k - first : 0;

#pragma unroll 1
		for (int i = threadIdx.x; i < to.kept / 8; i += NIB_GEMV_THREADS) {
			const bool is_there = i * 8 < left;

			load_16(to.begin + row * to.pitch + i * 16,
				is_there ? from + i * 16 : a.codes, is_there ? 16 : 0,
				ALIGNED ? 16 : a.codes_align);
		}
	}
}

/* Each thread the pieces that it has loaded. */
template <bool IS_BF16>
DEVICE void reorder_dense(const struct dense_rows &at)
{
#pragma unroll 1
	for (int row = 0; row < at.rows; row++)
#pragma unroll 1
		for (int i = threadIdx.x; i < at.kept / 8; i += NIB_GEMV_THREADS) {
			const uint32_t piece = at.begin + row * at.pitch + i * 16;

			sts_128(piece, permute_as_decoded<IS_BF16>(lds_128(piece)));
		}
	__syncthreads();
}

/* ---- codes --------------------------------------------------------------- */

/* Eight codes in A's type, 2^-6 times their values. */
template <bool IS_BF16>
DEVICE void decode_dense(uint32_t codes, uint32_t w[4])
{
	if constexpr (IS_BF16) {
		w[0] = bf16_pair(codes << 12, codes << 6);
		w[1] = bf16_pair(codes << 8, codes << 2);
		w[2] = bf16_pair(codes << 4, codes >> 2);
		w[3] = bf16_pair(codes, codes >> 6);
#pragma unroll
		for (int i = 0; i < 4; i++)
			w[i] = mul_bf16x2(w[i], BF16_CODES);
	} else {
		const uint32_t even = even_as_e4m3(codes);
		const uint32_t odd = odd_as_e4m3(codes);

		w[0] = cvt_f16x2_e4m3x2(even);
		w[1] = cvt_f16x2_e4m3x2_high(even);
		w[2] = cvt_f16x2_e4m3x2(odd);
		w[3] = cvt_f16x2_e4m3x2_high(odd);
	}
}

/* d += 4 codes of each lane, of rows g and g + 8, times A. */
template <bool IS_BF16>
DEVICE void mma_dense(float (&d)[4], const uint32_t *row_g, const uint32_t *row_g8,
		      uint32_t x0, uint32_t x1)
{
	if (IS_BF16)
		mma_m16n8k16_bf16(d, row_g[0], row_g8[0], row_g[1], row_g8[1], x0, x1);
	else
		mma_m16n8k16_f16(d, row_g[0], row_g8[0], row_g[1], row_g8[1], x0, x1);
}

/* ---- the multiplication -------------------------------------------------- */

/* A as fp16 or bf16 (gemv_run.cuh). */
template <int ROWS, bool IS_ALIGNED, bool IS_BF16>
struct dense_side {
	/* The last piece of a block of zeros ends behind 160 bytes. */
	static const int M = ROWS, ZEROS = NIB_GEMV_DENSE_ZEROS;
	static const bool ALIGNED = IS_ALIGNED;
	const struct nib_gemv_params &p;
	const struct nib_gemv_operand &a;
	struct dense_rows at;
	uint32_t zeros;
	struct stage_view b;
	uint32_t columns; /* A for the lane's column, or zeros */
	/* From a step to the next, and to the next two rows. */
	uint32_t stride, pair_stride;

	__device__ dense_side(const struct nib_gemv_params &params,
			      const struct nib_gemv_operand &operand, uint32_t zeros_at,
			      uint32_t kept)
	    : p(params), a(operand), zeros(zeros_at)
	{
		at.begin = kept;
		at.rows = nib_gemv_dense_rows(p.m);
		at.kept = (int)nib_gemv_dense_kept(p.k, at.rows);
		at.pitch = nib_gemv_dense_pitch(at.kept);
	}

	__device__ int phase() const
	{
		return NIB_GEMV_DENSE_PHASE(at.rows) / NIB_GEMV_STEP;
	}

	__device__ void load(int step) const
	{
		load_dense<ALIGNED>(p, a, at, step * NIB_GEMV_STEP);
	}

	__device__ void convert() const
	{
		reorder_dense<IS_BF16>(at);
	}

	__device__ void view(const struct nib_gemv_operand &operand)
	{
		const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
		const bool mine = g / 2 == t && g % 2 < at.rows;

		b = view_of_stage(p, operand);
		columns = mine ? at.begin + g % 2 * at.pitch + t * (DENSE_STEP / 4)
			       : zeros + ZEROS_AWAY;
		stride = mine ? DENSE_STEP : 0;
		/* Rows that are not kept are not stored: others do. */
		pair_stride = mine && at.rows > 2 ? 2 * at.pitch : 0;
	}

	/*
	 * Block `block` of the lane in a step: low, high: its codes of rows g
	 * and g + 8; x: A at the step; s: the lane's scales.
	 */
	__device__ void add_block(struct accumulators<M> *acc, int block,
				  const uint32_t (&low)[2], const uint32_t (&high)[2],
				  uint32_t x, const float (&s)[2][4]) const
	{
		uint32_t w[2][8];

#pragma unroll
		for (int r = 0; r < 2; r++) {
			decode_dense<IS_BF16>(low[r], w[r]);
			decode_dense<IS_BF16>(high[r], w[r] + 4);
		}
#pragma unroll
		for (int pair = 0; pair < M / 2; pair++) {
			const uint32_t from = x + pair * pair_stride + block * 32;
			const uint4 x0 = lds_128(from);
			const uint4 x1 = lds_128(from + 16);
			float d[4] = {0, 0, 0, 0};

			mma_dense<IS_BF16>(d, w[0], w[1], x0.x, x0.y);
			mma_dense<IS_BF16>(d, w[0] + 2, w[1] + 2, x0.z, x0.w);
			mma_dense<IS_BF16>(d, w[0] + 4, w[1] + 4, x1.x, x1.y);
			mma_dense<IS_BF16>(d, w[0] + 6, w[1] + 6, x1.z, x1.w);
#pragma unroll
			for (int i = 0; i < 4; i++)
				acc->x[pair][i / 2][i % 2] = fmaf(
				    d[i], s[i / 2][block], acc->x[pair][i / 2][i % 2]);
		}
	}

	__device__ void multiply(struct accumulators<M> *acc, uint32_t stage, int step,
				 bool is_last) const
	{
		const uint32_t mask = is_last ? b.tail : ~0u;
		const uint32_t x = columns + step * stride;
		float s[2][4];

		widen_scales(lds_32(stage + b.scales) & mask, s[0]);
		widen_scales(lds_32(stage + b.scales + 8 * 16) & mask, s[1]);
#pragma unroll
		for (int h = 0; h < 2; h++) {
			const uint32_t from = stage + (b.pieces ^ h * 16);
			const uint4 q = lds_128(from);
			const uint4 q8 = lds_128(from + 8 * ROW_BYTES);

			add_block(acc, 2 * h, {q.x, q8.x}, {q.y, q8.y}, x, s);
			add_block(acc, 2 * h + 1, {q.z, q8.z}, {q.w, q8.w}, x, s);
		}
	}

	/*
	 * sum is 2^-6 times the value.  Neither factor overflows where the
	 * result does not.
	 */
	DEVICE float result(float sum, float alpha)
	{
		return fabsf(alpha) < 1 ? sum * (64 * alpha) : 64 * sum * alpha;
	}
};

#define GEMV_DENSE(m, aligned, name, ctas)                                             \
	NIB_GEMV_KERNEL(name##_f16, ctas, dense_side<m, aligned, false>)               \
	NIB_GEMV_KERNEL(name##_bf16, ctas, dense_side<m, aligned, true>)

GEMV_DENSE(2, true, 2, NIB_GEMV_CTAS)
GEMV_DENSE(4, true, 4, NIB_GEMV_CTAS)
GEMV_DENSE(4, false, 4_any, 3)

#define GEMV_DENSE_EXPERTS(name, n)                                                    \
	NIB_GEMV_EXPERTS_KERNEL(name##_f16, n, dense_side<2, true, false>)             \
	NIB_GEMV_EXPERTS_KERNEL(name##_bf16, n, dense_side<2, true, true>)

GEMV_DENSE_EXPERTS(experts_2, 1)
GEMV_DENSE_EXPERTS(experts_dual_2, 2)

#endif
