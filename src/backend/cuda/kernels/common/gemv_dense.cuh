/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemv_dense.cuh - C[m, n] = alpha * A[m, k] * B[n, k]^T for at most 4 rows of A in
 * fp16 or bf16: reads B once, at the rate of memory.
 *
 *   B   global --cp.async--> ring of the warp --lds--> codes --> fp16, bf16
 *         --mma.m16n8k16--> sums of a block --fma by its scale--> sums of a lane
 *   A   global --cp.async--> shared --permute as decoded codes are--> shared
 *   sums of the lanes --shfl--> quad --sts--> partial sums --all warps--> C
 *
 * Warps, tiles, steps, barriers and the ring of B are those of gemv.cuh (four warps
 * without roles; __syncthreads() around the conversion of A and before the sums are
 * added).  Registers: 102 to 134 (docs/kernels.md).
 *
 *   dynamic shared memory   bytes
 *   rings of B              4 * 3 * 2304 = 27648 (gemv_load.cuh has the layout)
 *   zeros, alphas           160 + 32
 *   partial sums            tiles * 4 warps * 16 rows of B * M * 4
 *   A                       at most 32 KiB: its rows for a phase, NIB_GEMV_DENSE_PHASE
 *                           of k; rows are padded by 64 bytes, half of the banks; a
 *                           longer k takes several phases
 *
 * Arithmetic.  A code becomes 2^-6 times its value in A's type, exact.  A lane holds
 * whole blocks of 16 k of two rows of B and their scales.  The columns of mma.m16n8k16
 * keep the blocks of the four lanes of a quad apart, and two rows of A, because A is
 * zero wherever lane and column do not belong together (drawn in gemv.cuh).  Four mma
 * sum a block; an fma adds the sum times the scale.  Codes are not multiplied by their
 * scale before the mma: then a product of a subnormal could have a larger exponent than
 * the products of normal numbers in the same mma, and the tensor core would cut off
 * more than the bound allows.
 *
 * Bound (docs/numerics.md, section 4, in its terms): four steps with four values each
 * lose at most 4 * (4 + 3) / 2 = 14 u A of a block.  A block goes through at most B
 * additions in its lane, 2 in the quad, 3 of warps, and alpha: 20 + B <= 9.5 B + 9 for
 * two blocks and more.  One block has one addition and alpha: 16 <= 18.5.  All numbers
 * are 2^-6 times their values, so that products of bf16 are multiples of 2^-149, the
 * smallest fp32, and sums overflow only if the sum of |products| is 2^134.
 *
 * Order of the sum of an element, by k only: a lane's steps in order, the lanes of a
 * quad, then the four warps.
 *
 * Roofline: the rate of memory.  4.65 TB/s leave 32 instructions of a lane for 8
 * weights, half of them on the ALU.  Decoding takes 11 with fp16 (4 F2FP, 4 LOP3, 3
 * shifts) and 19 with bf16 (8 LOP3, 7 shifts, 4 HMUL2), two rows of A take 1 mma, 1 fma
 * and 0.5 LDS, and loads of codes and scales 1.  docs/kernels.md has the instructions
 * of the whole loop.
 *
 * Variants: M = 2 and 4 for rows of 16-byte pieces (alignments 16, k a multiple of 32);
 * 4_any for all others; one row of A is the first of two.  M = 2 also for experts and
 * their dual products.
 */
#ifndef NIB_GEMV_DENSE_CUH
#define NIB_GEMV_DENSE_CUH

#include "decode.cuh"
#include "kernel_name.h"

#include "gemv_experts.cuh"
#include "ptx_mma16.cuh"

/* Bytes of A of a step. */
#define DENSE_STEP (NIB_GEMV_STEP * 2)
/* The bf16 pair (2^120, 2^120): bf16_pair() gives 2^-126 times the values. */
#define BF16_2_120 0x7B807B80u

/* ---- A in shared memory -------------------------------------------------- */

/* The rows of A that a CTA keeps, and the k of each. */
struct dense_rows {
	uint32_t begin;
	int rows, kept;
	uint32_t pitch; /* bytes from a row to the next */
};

/* Loads a phase, which begins with element `first`; zeros beyond k. */
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
			const bool is_inside = i * 8 < left;

			load_16(to.begin + row * to.pitch + i * 16,
				is_inside ? from + i * 16 : a.codes, is_inside ? 16 : 0,
				ALIGNED ? 16 : a.codes_align);
		}
	}
}

/* Permutes A in place; each thread has the pieces that it has loaded. */
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
			w[i] = mul_bf16x2(w[i], BF16_2_120);
	} else if constexpr (!HAS_CVT_E4M3) {
		f16_pairs(codes, w);
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

/* The SIDE (gemv_run.cuh) for A in fp16 or bf16. */
template <int ROWS, bool IS_ALIGNED, bool IS_BF16>
struct dense_side {
	/* Lanes read a block of zeros, up to 32 + 4 * 32 bytes. */
	static const int M = ROWS, ZEROS = NIB_GEMV_DENSE_ZEROS;
	static const bool ALIGNED = IS_ALIGNED;
	const struct nib_gemv_params &p;
	const struct nib_gemv_operand &a;
	struct dense_rows at;
	uint32_t zeros;
	struct stage_view b;
	uint32_t columns; /* A for the lane's column, or zeros */
	/* From a step and a pair of rows to the next. */
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
		const bool has_column = g / 2 == t && g % 2 < at.rows;

		b = view_of_stage(p, operand);
		columns = has_column
			      ? at.begin + g % 2 * at.pitch + t * (DENSE_STEP / 4)
			      : zeros + ZEROS_AWAY;
		stride = has_column ? DENSE_STEP : 0;
		/* The results of rows that are not kept are not stored. */
		pair_stride = has_column && at.rows > 2 ? 2 * at.pitch : 0;
	}

	/*
	 * Adds block `block` of the lane in a step.  low, high: the words of its codes
	 * for rows g and g + 8; x: the address of A at the step; s: the lane's scales.
	 */
	__device__ void add_block(accumulators<M> *acc, int block,
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

	__device__ void multiply(accumulators<M> *acc, uint32_t stage, int step,
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
			const uint4 codes_g = lds_128(from);
			const uint4 codes_g8 = lds_128(from + 8 * ROW_BYTES);

			add_block(acc, 2 * h, {codes_g.x, codes_g8.x},
				  {codes_g.y, codes_g8.y}, x, s);
			add_block(acc, 2 * h + 1, {codes_g.z, codes_g8.z},
				  {codes_g.w, codes_g8.w}, x, s);
		}
	}

	/*
	 * sum is 2^-6 times the value.  Multiplies in an order in which nothing
	 * overflows unless the result does.
	 */
	DEVICE float result(float sum, float alpha)
	{
		return fabsf(alpha) < 1 ? sum * (64 * alpha) : 64 * sum * alpha;
	}
};

#define GEMV_DENSE(m, aligned, name, ctas)                                             \
	NIB_GEMV_KERNEL(name##_f16, ctas, dense_side<m, aligned, false>)               \
	NIB_GEMV_KERNEL(name##_bf16, ctas, dense_side<m, aligned, true>)

#define GEMV_DENSE_EXPERTS(name, n)                                                    \
	NIB_GEMV_EXPERTS_KERNEL(name##_f16, n, dense_side<2, true, false>)             \
	NIB_GEMV_EXPERTS_KERNEL(name##_bf16, n, dense_side<2, true, true>)

#endif
