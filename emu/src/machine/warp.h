/* SPDX-License-Identifier: Apache-2.0 */
/*
 * warp.h - how a warp proceeds from instruction to instruction: its paths, and how
 * an instruction makes it wait.
 */
#ifndef EMU_WARP_H
#define EMU_WARP_H

#include "machine/machine.h"
#include "machine/report.h"

/*
 * Makes the warp sleep at this instruction until it is woken; the instruction
 * then runs again.
 */
void emu_wait_for(struct emu_warp *w, const struct emu_instr *i, enum emu_wait wait,
		  uint64_t address);
/*
 * For a poll that failed.  If none of its other paths can run, the warp sleeps until
 * the barrier's next phase or a spurious wake-up.
 */
void emu_sleep_at(struct emu_warp *w, uint64_t barrier, uint32_t parity);
/* For an instruction that may poll memory: yields to other paths and warps. */
void emu_yield(struct emu_warp *w);
/*
 * True if the running path has all of these lanes that still live; otherwise
 * the path waits for them here, or the launch fails because they cannot come.
 */
bool emu_converge(struct emu_warp *w, const struct emu_instr *i, uint32_t lanes);
/* The lanes continue at target, the others of the path at the next instruction. */
void emu_branch(struct emu_warp *w, uint32_t target, uint32_t lanes);
void emu_exit_lanes(struct emu_warp *w, uint32_t lanes);

/* Runs at most `most` instructions; ends early where it must wait. */
void emu_warp_run(struct emu_warp *w, uint32_t most);

#endif
