/* SPDX-License-Identifier: Apache-2.0 */
/*
 * volatile.h - which volatile accesses are data.  PTX makes volatile accesses relaxed
 * and strong, so two of them are no race, but they order nothing: values that are
 * passed through them need a barrier or fences.  Some are not data:
 *
 * - A load in a short loop, of an address that the loop does not change, polls.
 * - A kernel that has a fence of .gpu scope, or an ordered access, may use volatile
 *   accesses of global memory as flags.
 *
 * Those lose the trait EMU_VOLATILE.
 */
#ifndef EMU_VOLATILE_H
#define EMU_VOLATILE_H

#include "ptx/ptx.h"

void emu_find_volatile_data(struct emu_kernel *k);

#endif
