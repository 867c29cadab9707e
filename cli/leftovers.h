/* SPDX-License-Identifier: Apache-2.0 */
/* leftovers.h - what runs of nib left behind that were killed while they wrote. */
#ifndef NIB_LEFTOVERS_H
#define NIB_LEFTOVERS_H

#include <stddef.h>

/* Between the name of an output folder and the number of the one that is made. */
#define LEFTOVERS_INFIX ".nib-"

/*
 * Warns about unfinished files beside out, which has n bytes, and about folders
 * that were to become out.  Those of runs that still write are locked.
 */
void leftovers_name(const char *out, size_t n);

#endif
