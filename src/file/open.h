/* SPDX-License-Identifier: Apache-2.0 */
/* open.h - opens files out of the way of the standard streams. */
#ifndef NIB_FILE_OPEN_H
#define NIB_FILE_OPEN_H

/*
 * openat() with O_CLOEXEC, again after EINTR.  The descriptor is at least 3: in
 * a program that has closed its standard streams a file that took the place of
 * one would receive what is printed there.  -1 and errno on failure.
 */
int nib_open_file(int folder, const char *name, int flags, unsigned mode);

#endif
