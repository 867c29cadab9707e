/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ring.cuh - a position in a ring of stages, and waiting on a barrier.
 *
 * Each stage has two barriers: full, at which producers arrive, and empty, at which
 * consumers arrive.  A role counts stages and, at the end of the ring, flips the parity
 * of the phase that it waits for.  A producer waits for parity ^ 1, which passes at
 * once in the first round.
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
