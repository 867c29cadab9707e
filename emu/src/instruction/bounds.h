/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bounds.h - finds the shared variable to which the address of a load, store or atomic
 * belongs: the registers that hold the variable's address plus an integer.  Such an
 * access must stay in the variable.
 */
#ifndef EMU_BOUNDS_H
#define EMU_BOUNDS_H

#include "ptx/ptx.h"

/* Sets `variable` of the kernel's instructions.  Without memory it sets none. */
void emu_find_bounds(struct emu_kernel *k);

#endif
