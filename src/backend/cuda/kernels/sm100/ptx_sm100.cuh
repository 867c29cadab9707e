/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ptx_sm100.cuh - instructions that Blackwell brings and the kernels for few
 * rows use: loads of 32 bytes, and conversion of e2m1.
 */
#ifndef NIB_PTX_SM100_CUH
#define NIB_PTX_SM100_CUH

#include "backend/cuda/kernels/common/ptx_mma16.cuh"
#include "backend/cuda/kernels/common/ptx_sm90.cuh"

/* ---- global memory ------------------------------------------------------- */

/* 32 bytes, which are read once.  PTX ISA 8.8, sm_100+. */
PTX_FN void ld_once_32(uint32_t x[8], const void *from)
{
	asm volatile("ld.global.L1::no_allocate.L2::evict_first.v8.b32 "
		     "{%0, %1, %2, %3, %4, %5, %6, %7}, [%8];"
		     : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3]), "=r"(x[4]),
		       "=r"(x[5]), "=r"(x[6]), "=r"(x[7])
		     : "l"(from));
}

PTX_FN uint32_t ld_once_4(const void *from)
{
	uint32_t x;
	asm volatile("ld.global.L1::no_allocate.b32 %0, [%1];" : "=r"(x) : "l"(from));
	return x;
}

PTX_FN uint4 ld_global_16(const void *from)
{
	uint4 x;
	asm volatile("ld.global.v4.b32 {%0, %1, %2, %3}, [%4];"
		     : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
		     : "l"(from));
	return x;
}

PTX_FN uint32_t ld_global_u8(const void *from)
{
	uint32_t x;
	asm volatile("ld.global.u8 %0, [%1];" : "=r"(x) : "l"(from));
	return x;
}

PTX_FN float ld_global_f32(const void *from)
{
	float x;
	asm volatile("ld.global.f32 %0, [%1];" : "=f"(x) : "l"(from));
	return x;
}

/* ---- arithmetic ---------------------------------------------------------- */

/* Eight e2m1 codes, the lowest first, as halves.  PTX ISA 8.6, sm_100a. */
PTX_FN void cvt_f16x2_e2m1x8(uint32_t h[4], uint32_t codes)
{
	asm("{\n\t.reg .b8 b0, b1, b2, b3;\n\tmov.b32 {b0, b1, b2, b3}, %4;\n\t"
	    "cvt.rn.f16x2.e2m1x2 %0, b0;\n\tcvt.rn.f16x2.e2m1x2 %1, b1;\n\t"
	    "cvt.rn.f16x2.e2m1x2 %2, b2;\n\tcvt.rn.f16x2.e2m1x2 %3, b3;\n\t}"
	    : "=r"(h[0]), "=r"(h[1]), "=r"(h[2]), "=r"(h[3])
	    : "r"(codes));
}

#endif
