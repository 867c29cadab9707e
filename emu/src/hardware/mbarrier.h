/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mbarrier.h - the state machine of an mbarrier.  Its 64 bits in shared memory
 * have the phase, the expected and the pending arrivals, and the transaction bytes
 * to come (negative while bytes land before they are expected).
 */
#ifndef EMU_MBARRIER_H
#define EMU_MBARRIER_H

#include "hardware/emu.h"

#define EMU_MBARRIER_MAX ((1 << 20) - 1)

/* What PTX forbids.  A call that returns a fault does not change the barrier. */
enum emu_mbarrier_fault {
	EMU_MBARRIER_OK,
	EMU_MBARRIER_NOT_LIVE,	/* no mbarrier.init, or after inval */
	EMU_MBARRIER_BAD_COUNT, /* outside 1 .. EMU_MBARRIER_MAX */
	EMU_MBARRIER_OVER,	/* more arrivals than the phase expects */
	EMU_MBARRIER_TX_RANGE,	/* beyond +-EMU_MBARRIER_MAX */
	EMU_MBARRIER_TX_BYTES,	/* more than EMU_MBARRIER_MAX at once */
};

/* A sentence about a fault. */
const char *emu_mbarrier_fault_text(enum emu_mbarrier_fault fault);

/* *flipped, unless NULL: this call ended the phase. */
enum emu_mbarrier_fault emu_mbarrier_init(uint64_t *bar, uint32_t arrivals);
enum emu_mbarrier_fault emu_mbarrier_invalidate(uint64_t *bar);
enum emu_mbarrier_fault emu_mbarrier_arrive(uint64_t *bar, uint32_t count,
					    bool *flipped);
/* The same; all later phases also expect count arrivals fewer. */
enum emu_mbarrier_fault emu_mbarrier_arrive_drop(uint64_t *bar, uint32_t count,
						 bool *flipped);
/* Ends the phase if the bytes have already landed and no arrival is pending. */
enum emu_mbarrier_fault emu_mbarrier_expect_tx(uint64_t *bar, uint32_t bytes);
enum emu_mbarrier_fault emu_mbarrier_complete_tx(uint64_t *bar, uint32_t bytes,
						 bool *flipped);
/* One more pending arrival (cp.async.mbarrier.arrive without .noinc). */
enum emu_mbarrier_fault emu_mbarrier_add_pending(uint64_t *bar);

bool emu_mbarrier_is_live(uint64_t bar);
/*
 * True if the phase of this parity has ended, as try_wait.parity tests.  The phase
 * before the first has parity 1.  A phase two phases back cannot be distinguished
 * from the current one.
 */
bool emu_mbarrier_test_parity(uint64_t bar, uint32_t parity);
/*
 * Bytes that this phase still expects; negative: more have landed than are
 * expected.
 */
int32_t emu_mbarrier_bytes(uint64_t bar);
/* "phase parity 1, 3 of 64 arrivals and 8192 bytes to come" */
void emu_mbarrier_describe(uint64_t bar, char *text, size_t size);

#endif
