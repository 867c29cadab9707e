/* SPDX-License-Identifier: Apache-2.0 */
/*
 * warp.h - how a warp goes from instruction to instruction: its paths, and how
 * an instruction makes it wait.
 */
#ifndef EMU_WARP_H
#define EMU_WARP_H

#include "machine/machine.h"
#include "machine/report.h"

/* Stops at this instruction until woken; it will be run again. */
void emu_wait_for(struct emu_warp *w, const struct emu_instr *i,
		  enum emu_wait wait, uint64_t address);
/* Polled in vain: sleeps until the barrier's next phase or a false alarm, if no
 * other path of the warp can go on. */
void emu_sleep_at(struct emu_warp *w, uint64_t barrier, uint32_t parity);
/* May have polled memory: others have a turn. */
void emu_rest(struct emu_warp *w);
/*
 * True if the running path has all of these lanes that still live; otherwise
 * the path waits for them here, or the launch fails because they cannot come.
 */
bool emu_converge(struct emu_warp *w, const struct emu_instr *i,
		  uint32_t lanes);
/* The lanes go on at target, the others of the path at the next instruction. */
void emu_branch(struct emu_warp *w, uint32_t target, uint32_t lanes);
void emu_exit_lanes(struct emu_warp *w, uint32_t lanes);

/* Runs at most `most` instructions; ends early where it must wait. */
void emu_warp_run(struct emu_warp *w, uint32_t most);

#endif
