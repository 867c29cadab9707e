/* SPDX-License-Identifier: Apache-2.0 */
/* leftovers.h - unfinished output of runs of nib that were killed. */
#ifndef NIB_LEFTOVERS_H
#define NIB_LEFTOVERS_H

#include <stddef.h>

/* Between the name of an output folder and the number of the one that is made. */
#define LEFTOVERS_INFIX ".nib-"

/*
 * Warns about unfinished files in the folder of out, whose name has n bytes, and
 * about unfinished folders that would have become out.  A run that still writes
 * holds a lock on its own, which is left out.
 */
void leftovers_name(const char *out, size_t n);

#endif
