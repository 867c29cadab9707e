/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ptx_cluster.cuh - stores into another CTA's shared memory and stmatrix, one
 * wrapper an instruction.  Beside ptx_async.cuh.
 */
#ifndef NIB_PTX_CLUSTER_CUH
#define NIB_PTX_CLUSTER_CUH

#include "backend/cuda/kernels/common/ptx_async.cuh"

/* Orders what the thread stored before in the cluster's shared memory. */
PTX_FN void cluster_arrive_release(void)
{
	asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}

/* addr: a shared::cluster address (mapa()). */
PTX_FN void st_cluster_f32x4(uint32_t addr, float4 x)
{
	asm volatile("st.shared::cluster.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(addr),
		     "f"(x.x), "f"(x.y), "f"(x.z), "f"(x.w)
		     : "memory");
}

/* Four 8x8 matrices of 16-bit values: lane i gives the address of row i % 8 of
 * matrix i / 8, and two values of row i / 4 of each. */
PTX_FN void stmatrix_x4(uint32_t addr, uint32_t a, uint32_t b, uint32_t c, uint32_t d)
{
	asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], "
		     "{%1, %2, %3, %4};" ::"r"(addr),
		     "r"(a), "r"(b), "r"(c), "r"(d)
		     : "memory");
}

/*
 * Loads if it is there, and else zeros: predicated, so that a row of them asks for
 * all before it waits for one.
 */
PTX_FN uint32_t ldg_u8_if(const uint8_t *from, bool is_there)
{
	uint32_t x;
	asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.u32 p, %2, 0;\n\t"
		     "mov.u32 %0, 0;\n\t@p ld.global.u8 %0, [%1];\n\t}"
		     : "=&r"(x)
		     : "l"(from), "r"((uint32_t)is_there));
	return x;
}

PTX_FN uint2 ldg_64_if(const uint8_t *from, bool is_there)
{
	uint2 x;
	asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.u32 p, %3, 0;\n\t"
		     "mov.u32 %0, 0;\n\tmov.u32 %1, 0;\n\t"
		     "@p ld.global.v2.u32 {%0, %1}, [%2];\n\t}"
		     : "=&r"(x.x), "=&r"(x.y)
		     : "l"(from), "r"((uint32_t)is_there));
	return x;
}

PTX_FN uint4 ldg_128_if(const uint8_t *from, bool is_there)
{
	uint4 x;
	asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.u32 p, %5, 0;\n\t"
		     "mov.u32 %0, 0;\n\tmov.u32 %1, 0;\n\t"
		     "mov.u32 %2, 0;\n\tmov.u32 %3, 0;\n\t"
		     "@p ld.global.v4.u32 {%0, %1, %2, %3}, [%4];\n\t}"
		     : "=&r"(x.x), "=&r"(x.y), "=&r"(x.z), "=&r"(x.w)
		     : "l"(from), "r"((uint32_t)is_there));
	return x;
}

/* fence_proxy_async() for shared memory alone: other stores are not waited for. */
PTX_FN void fence_proxy_async_shared(void)
{
	asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

#endif
