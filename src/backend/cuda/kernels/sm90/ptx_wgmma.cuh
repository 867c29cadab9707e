/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ptx_wgmma.cuh - what Hopper's tensor cores need, one wrapper for each instruction:
 * wgmma, setmaxnreg, stmatrix (PTX ISA 8.0, sm_90a).  Wait loops are in ring.cuh.
 */
#ifndef NIB_PTX_WGMMA_CUH
#define NIB_PTX_WGMMA_CUH

#include "backend/cuda/kernels/common/ptx_async.cuh"

/* ---- stmatrix (PTX ISA 7.8) ---------------------------------------------- */

/* Four 8x8 matrices of 16-bit values: lane i gives the address of row i % 8 of
 * matrix i / 8, and two values of row i / 4 of each. */
DEVICE void stmatrix_x4(uint32_t addr, uint32_t a, uint32_t b, uint32_t c, uint32_t d)
{
	asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], "
		     "{%1, %2, %3, %4};" ::"r"(addr),
		     "r"(a), "r"(b), "r"(c), "r"(d)
		     : "memory");
}

/* Four 8x8 matrices of 16-bit values, each stored transposed; lane i gives the
 * address of row i % 8 of matrix i / 8. */
DEVICE void stmatrix_x4_trans(uint32_t addr, uint32_t a, uint32_t b, uint32_t c,
			      uint32_t d)
{
	asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], "
		     "{%1, %2, %3, %4};" ::"r"(addr),
		     "r"(a), "r"(b), "r"(c), "r"(d)
		     : "memory");
}

/* ---- registers of a warpgroup -------------------------------------------- */

template <int REGISTERS>
DEVICE void setmaxnreg_inc(void)
{
	asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}

template <int REGISTERS>
DEVICE void setmaxnreg_dec(void)
{
	asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}

/* ---- wgmma (PTX ISA 8.0, sm_90a) ----------------------------------------- */

DEVICE void wgmma_fence(void)
{
	asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

DEVICE void wgmma_commit(void)
{
	asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

/* Waits until at most GROUPS committed groups are incomplete. */
template <int GROUPS>
DEVICE void wgmma_wait(void)
{
	asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(GROUPS) : "memory");
}

/*
 * d[m64, nN] (+)= a[m64, k16] * b[k16, nN] in fp32; a in registers, b in shared memory,
 * described by desc.  accumulate = 0 clears d first.  A thread has n / 2 accumulators,
 * so that the register list of n is number n / 16 - 1: eight registers for n = 16,
 * eight more for each further 16.
 */
#define REGS_0	"%0, %1, %2, %3, %4, %5, %6, %7"
#define REGS_1	REGS_0 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define REGS_2	REGS_1 ", %16, %17, %18, %19, %20, %21, %22, %23"
#define REGS_3	REGS_2 ", %24, %25, %26, %27, %28, %29, %30, %31"
#define REGS_4	REGS_3 ", %32, %33, %34, %35, %36, %37, %38, %39"
#define REGS_5	REGS_4 ", %40, %41, %42, %43, %44, %45, %46, %47"
#define REGS_6	REGS_5 ", %48, %49, %50, %51, %52, %53, %54, %55"
#define REGS_7	REGS_6 ", %56, %57, %58, %59, %60, %61, %62, %63"
#define REGS_8	REGS_7 ", %64, %65, %66, %67, %68, %69, %70, %71"
#define REGS_9	REGS_8 ", %72, %73, %74, %75, %76, %77, %78, %79"
#define REGS_10 REGS_9 ", %80, %81, %82, %83, %84, %85, %86, %87"
#define REGS_11 REGS_10 ", %88, %89, %90, %91, %92, %93, %94, %95"
#define REGS_12 REGS_11 ", %96, %97, %98, %99, %100, %101, %102, %103"
#define REGS_13 REGS_12 ", %104, %105, %106, %107, %108, %109, %110, %111"
#define REGS_14 REGS_13 ", %112, %113, %114, %115, %116, %117, %118, %119"
#define REGS_15 REGS_14 ", %120, %121, %122, %123, %124, %125, %126, %127"

#define D8(i)                                                                          \
	"+f"(d[8 * i]), "+f"(d[8 * i + 1]), "+f"(d[8 * i + 2]), "+f"(d[8 * i + 3]),    \
	    "+f"(d[8 * i + 4]), "+f"(d[8 * i + 5]), "+f"(d[8 * i + 6]),                \
	    "+f"(d[8 * i + 7])
#define OUTS_0	D8(0)
#define OUTS_1	OUTS_0, D8(1)
#define OUTS_2	OUTS_1, D8(2)
#define OUTS_3	OUTS_2, D8(3)
#define OUTS_4	OUTS_3, D8(4)
#define OUTS_5	OUTS_4, D8(5)
#define OUTS_6	OUTS_5, D8(6)
#define OUTS_7	OUTS_6, D8(7)
#define OUTS_8	OUTS_7, D8(8)
#define OUTS_9	OUTS_8, D8(9)
#define OUTS_10 OUTS_9, D8(10)
#define OUTS_11 OUTS_10, D8(11)
#define OUTS_12 OUTS_11, D8(12)
#define OUTS_13 OUTS_12, D8(13)
#define OUTS_14 OUTS_13, D8(14)
#define OUTS_15 OUTS_14, D8(15)

template <int N>
DEVICE void wgmma_f16(float *d, const uint32_t *a, uint64_t desc, uint32_t accumulate);
template <int N>
DEVICE void wgmma_bf16(float *d, const uint32_t *a, uint64_t desc, uint32_t accumulate);

/* n, its register list, and the numbers of the operands after the list. */
#define WGMMA(n, list, a0, a1, a2, a3, b, p)                                           \
	WGMMA_OF(f16, n, list, a0, a1, a2, a3, b, p)                                   \
	WGMMA_OF(bf16, n, list, a0, a1, a2, a3, b, p)
// clang-format off
#define WGMMA_OF(type, n, list, a0, a1, a2, a3, b, p)                          \
	template <>                                                            \
	__device__ __forceinline__ void wgmma_##type<n>(                       \
		float *d, const uint32_t *a, uint64_t desc,                    \
		uint32_t accumulate)                                           \
	{                                                                      \
		asm volatile("{\n\t.reg .pred p;\n\t"                          \
			     "setp.ne.b32 p, %" #p ", 0;\n\t"                  \
			     "wgmma.mma_async.sync.aligned.m64n" #n            \
			     "k16.f32." #type "." #type " {" REGS_##list       \
			     "}, {%" #a0                                       \
			     ", %" #a1 ", %" #a2 ", %" #a3 "}, %" #b           \
			     ", p, 1, 1, 0;\n\t}"                              \
			     : OUTS_##list                                     \
			     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]),     \
			       "l"(desc), "r"(accumulate)                      \
			     : "memory");                                      \
	}
// clang-format on

WGMMA(16, 0, 8, 9, 10, 11, 12, 13)
WGMMA(32, 1, 16, 17, 18, 19, 20, 21)
WGMMA(48, 2, 24, 25, 26, 27, 28, 29)
WGMMA(64, 3, 32, 33, 34, 35, 36, 37)
WGMMA(80, 4, 40, 41, 42, 43, 44, 45)
WGMMA(96, 5, 48, 49, 50, 51, 52, 53)
WGMMA(112, 6, 56, 57, 58, 59, 60, 61)
WGMMA(128, 7, 64, 65, 66, 67, 68, 69)
WGMMA(144, 8, 72, 73, 74, 75, 76, 77)
WGMMA(160, 9, 80, 81, 82, 83, 84, 85)
WGMMA(176, 10, 88, 89, 90, 91, 92, 93)
WGMMA(192, 11, 96, 97, 98, 99, 100, 101)
WGMMA(208, 12, 104, 105, 106, 107, 108, 109)
WGMMA(224, 13, 112, 113, 114, 115, 116, 117)
WGMMA(240, 14, 120, 121, 122, 123, 124, 125)
WGMMA(256, 15, 128, 129, 130, 131, 132, 133)

#endif
