/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ptx_loads.cuh - loads from global memory of the kernels for few rows of A, one
 * wrapper for each instruction.
 */
#ifndef NIB_PTX_LOADS_CUH
#define NIB_PTX_LOADS_CUH

#include "backend/cuda/kernels/common/ptx.cuh"

/* 32 bytes, which are read once.  PTX ISA 8.8, sm_100+. */
DEVICE void ld_once_32(uint32_t x[8], const void *from)
{
	asm volatile("ld.global.L1::no_allocate.L2::evict_first.v8.b32 "
		     "{%0, %1, %2, %3, %4, %5, %6, %7}, [%8];"
		     : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3]), "=r"(x[4]),
		       "=r"(x[5]), "=r"(x[6]), "=r"(x[7])
		     : "l"(from));
}

DEVICE uint32_t ld_once_4(const void *from)
{
	uint32_t x;
	asm volatile("ld.global.L1::no_allocate.b32 %0, [%1];" : "=r"(x) : "l"(from));
	return x;
}

DEVICE uint4 ld_global_16(const void *from)
{
	uint4 x;
	asm volatile("ld.global.v4.b32 {%0, %1, %2, %3}, [%4];"
		     : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
		     : "l"(from));
	return x;
}

DEVICE uint32_t ld_global_u8(const void *from)
{
	uint32_t x;
	asm volatile("ld.global.u8 %0, [%1];" : "=r"(x) : "l"(from));
	return x;
}

DEVICE uint32_t ld_global_u16(const void *from)
{
	uint32_t x;
	asm volatile("ld.global.u16 %0, [%1];" : "=r"(x) : "l"(from));
	return x;
}

DEVICE float ld_global_f32(const void *from)
{
	float x;
	asm volatile("ld.global.f32 %0, [%1];" : "=f"(x) : "l"(from));
	return x;
}

#endif
