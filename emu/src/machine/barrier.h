/* SPDX-License-Identifier: Apache-2.0 */
/*
 * barrier.h - warps that sleep at a barrier of their CTA or cluster, and calls that
 * wake them.
 */
#ifndef EMU_BARRIER_H
#define EMU_BARRIER_H

#include "machine/machine.h"

/* Wakes the warps in this state. */
void emu_wake(struct emu_cluster *c, enum emu_wait wait);
/* Wakes the warps that sleep at an mbarrier. */
void emu_wake_at(struct emu_cluster *c, uint64_t barrier);
/*
 * Called when a warp has ended: barriers no longer expect it, and its registers
 * are free.
 */
void emu_warp_has_ended(struct emu_warp *w);

/* The count of a barrier whose instruction has none: all threads that live. */
#define EMU_ALL_LIVE UINT32_MAX

/* True if as many threads have arrived as are expected. */
bool emu_barrier_is_full(const struct emu_cta *c, const struct emu_named_barrier *b);
/* Wakes the warps that wait and makes the barrier idle. */
void emu_barrier_complete(struct emu_cta *c, struct emu_named_barrier *b);
/*
 * Begins the next phase of the cluster's barrier, if all live warps have
 * arrived.
 */
void emu_cluster_advance(struct emu_cluster *c);

#endif
