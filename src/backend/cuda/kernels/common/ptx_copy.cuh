/* SPDX-License-Identifier: Apache-2.0 */
/* ptx_copy.cuh - copies to shared memory that only kernels whose warps have no roles
 * use; the others are in ptx.cuh and ptx_async.cuh. */
#ifndef NIB_PTX_COPY_CUH
#define NIB_PTX_COPY_CUH

#include "ptx.cuh"

/* 16 bytes through the L1; src_bytes of them are read, the rest becomes zero. */
DEVICE void cp_async_16_l1_zfill(uint32_t to, const void *from, uint32_t src_bytes)
{
	asm volatile("cp.async.ca.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to),
		     "l"(from), "r"(src_bytes)
		     : "memory");
}

#endif
