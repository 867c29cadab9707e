/* SPDX-License-Identifier: Apache-2.0 */
/* random.h - the random numbers of a schedule. */
#ifndef EMU_RANDOM_H
#define EMU_RANDOM_H

#include "machine/machine.h"

/* Numbers that depend only on the seed and the stream. */
void emu_random_begin(struct emu_machine *m, uint64_t stream);
uint32_t emu_random(struct emu_machine *m);
/* 0 .. n - 1 */
uint32_t emu_random_below(struct emu_machine *m, uint32_t n);

#endif
