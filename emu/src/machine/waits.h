/* SPDX-License-Identifier: Apache-2.0 */
/* waits.h - the lines of a deadlock's report: what each warp waits for. */
#ifndef EMU_WAITS_H
#define EMU_WAITS_H

#include "machine/machine.h"

/*
 * Adds a line for the warps of each CTA that wait for the same at the same place, and
 * for those that have ended:
 * "\n  cluster 0, CTA (0,0,0), warps 0-2, 4 wait at barrier 1 (...), PTX line 120".
 */
void emu_describe_waits(const struct emu_cluster *c, struct emu_error *to);
/* The same for one warp, which polls memory. */
void emu_describe_poll(const struct emu_warp *w, struct emu_error *to);
/* Adds the place of a cluster's first warp that has not ended. */
void emu_describe_running(const struct emu_cluster *c, struct emu_error *to);

#endif
