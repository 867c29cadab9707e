/* SPDX-License-Identifier: Apache-2.0 */
/*
 * unused.h - exchanges whose old value no instruction reads: they only write, so that
 * atomicExch() may give a variable its first value.
 */
#ifndef EMU_UNUSED_H
#define EMU_UNUSED_H

#include "ptx/ptx.h"

/* False: no memory. */
bool emu_find_unused(struct emu_kernel *k);

#endif
