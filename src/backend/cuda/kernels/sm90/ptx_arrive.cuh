/* SPDX-License-Identifier: Apache-2.0 */
/* ptx_arrive.cuh - CTAs that count themselves, of which the last goes on. */
#ifndef NIB_PTX_ARRIVE_CUH
#define NIB_PTX_ARRIVE_CUH

#include "backend/cuda/kernels/common/ptx.cuh"

/*
 * Adds x and returns what was there.  Releases what this CTA wrote before, up to
 * a barrier, and acquires what those before it released.
 */
PTX_FN uint32_t atom_add_acq_rel(uint32_t *to, uint32_t x)
{
	uint32_t before;
	asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], %2;"
		     : "=r"(before)
		     : "l"(to), "r"(x)
		     : "memory");
	return before;
}

#endif
