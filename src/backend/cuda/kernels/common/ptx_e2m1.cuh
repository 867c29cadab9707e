/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ptx_e2m1.cuh - Blackwell's conversions of e2m1: one wrapper for each instruction,
 * named after it (PTX ISA 8.6, sm_100a and its family).  It is in common/ because
 * quantize.cuh uses it.
 */
#ifndef NIB_PTX_E2M1_CUH
#define NIB_PTX_E2M1_CUH

#include "ptx.cuh"

/* Eight values to codes, the first in the lowest four bits: to nearest even, beyond 6
 * to 6; -0 keeps its sign; NaN gives 6. */
DEVICE uint32_t cvt_satfinite_e2m1x8_f32(const float x[8])
{
	uint32_t codes;

	asm("{\n\t.reg .b8 a, b, c, d;\n\t"
	    "cvt.rn.satfinite.e2m1x2.f32 a, %2, %1;\n\t"
	    "cvt.rn.satfinite.e2m1x2.f32 b, %4, %3;\n\t"
	    "cvt.rn.satfinite.e2m1x2.f32 c, %6, %5;\n\t"
	    "cvt.rn.satfinite.e2m1x2.f32 d, %8, %7;\n\t"
	    "mov.b32 %0, {a, b, c, d};\n\t}"
	    : "=r"(codes)
	    : "f"(x[0]), "f"(x[1]), "f"(x[2]), "f"(x[3]), "f"(x[4]), "f"(x[5]),
	      "f"(x[6]), "f"(x[7]));
	return codes;
}

/* Eight codes to four pairs of halves, the first code in the low half; exact. */
DEVICE void cvt_f16x8_e2m1x8(uint32_t codes, uint32_t h[4])
{
	asm("{\n\t.reg .b8 a, b, c, d;\n\t"
	    "mov.b32 {a, b, c, d}, %4;\n\t"
	    "cvt.rn.f16x2.e2m1x2 %0, a;\n\t"
	    "cvt.rn.f16x2.e2m1x2 %1, b;\n\t"
	    "cvt.rn.f16x2.e2m1x2 %2, c;\n\t"
	    "cvt.rn.f16x2.e2m1x2 %3, d;\n\t}"
	    : "=r"(h[0]), "=r"(h[1]), "=r"(h[2]), "=r"(h[3])
	    : "r"(codes));
}

#endif
