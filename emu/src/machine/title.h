/* SPDX-License-Identifier: Apache-2.0 */
/* title.h - names of kernels as in their source, for people. */
#ifndef EMU_TITLE_H
#define EMU_TITLE_H

#include <stddef.h>

/*
 * "sum<4>" for "_Z3sumILi4EEvPf": without the types of parameters and of the result.
 * Cut with "..." if it does not fit.  Other names, and all if libstdc++ cannot be
 * loaded, stay as they are.
 */
void emu_kernel_title(const char *name, char *text, size_t size);
/* The same, for a message: valid until this thread's next call. */
const char *emu_title_of(const char *name);

#endif
