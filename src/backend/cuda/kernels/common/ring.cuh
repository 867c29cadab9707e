/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ring.cuh - positions in a ring of stages whose barriers tell warps with
 * different roles that a stage is full or empty, and waiting on a barrier.
 */
#ifndef NIB_RING_CUH
#define NIB_RING_CUH

#include "ptx_async.cuh"

/* A position in a ring: the stage, and the parity of its barriers' phase. */
struct ring {
	uint32_t stage, parity;
};

DEVICE void advance(struct ring *r, uint32_t stages)
{
	if (++r->stage == stages) {
		r->stage = 0;
		r->parity ^= 1;
	}
}

DEVICE void wait(uint32_t bar, uint32_t parity)
{
	while (!mbarrier_try_wait_parity(bar, parity))
		;
}

#endif
