/* SPDX-License-Identifier: Apache-2.0 */
/* open.h - opens files with descriptors other than those of the standard streams. */
#ifndef NIB_FILE_OPEN_H
#define NIB_FILE_OPEN_H

/*
 * openat() with O_CLOEXEC, repeated after EINTR.  The descriptor is at least 3,
 * because a program that has closed a standard stream would otherwise print into
 * the file.  -1 and errno on failure.
 */
int nib_open_file(int folder, const char *name, int flags, unsigned mode);

#endif
