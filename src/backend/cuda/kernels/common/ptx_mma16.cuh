/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ptx_mma16.cuh - mma.sync of fp16 and bf16: one wrapper for each instruction, named
 * after it.
 */
#ifndef NIB_PTX_MMA16_CUH
#define NIB_PTX_MMA16_CUH

#include "ptx.cuh"

/*
 * d[m16, n8] += a[m16, k16] * b[k16, n8] of fp16.  With g = lane / 4 and t =
 * lane % 4: a0 = (row g, k 2t, 2t+1), a1 = (g+8, 2t), a2 = (g, 2t+8), a3 =
 * (g+8, 2t+8); b0 = (k 2t, 2t+1, column g), b1 = (2t+8, g); d = (row g, columns
 * 2t, 2t+1), (g+8, ...).  PTX ISA 7.0, sm_80+.
 */
DEVICE void mma_m16n8k16_f16(float d[4], uint32_t a0, uint32_t a1, uint32_t a2,
			     uint32_t a3, uint32_t b0, uint32_t b1)
{
	asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
	    "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
	    : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
	    : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

/* The same for bf16. */
DEVICE void mma_m16n8k16_bf16(float d[4], uint32_t a0, uint32_t a1, uint32_t a2,
			      uint32_t a3, uint32_t b0, uint32_t b1)
{
	asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
	    "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
	    : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
	    : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

/* An 8 x 8 matrix of 16-bit elements, transposed: lane 4g + t has columns 2t and 2t + 1
 * of row g.  PTX ISA 7.8, sm_75+. */
DEVICE uint32_t movmatrix_trans(uint32_t x)
{
	uint32_t y;

	asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;"
		     : "=r"(y)
		     : "r"(x));
	return y;
}

/* One of both.  row_g: a0 and a2; row_g8: a1 and a3. */
template <bool IS_BF16>
DEVICE void mma16(float (&d)[4], const uint32_t *row_g, const uint32_t *row_g8,
		  uint32_t x0, uint32_t x1)
{
	if constexpr (IS_BF16)
		mma_m16n8k16_bf16(d, row_g[0], row_g8[0], row_g[1], row_g8[1], x0, x1);
	else
		mma_m16n8k16_f16(d, row_g[0], row_g8[0], row_g[1], row_g8[1], x0, x1);
}

#endif
