/* SPDX-License-Identifier: Apache-2.0 */
/*
 * atomic_file.h - a new file that appears under its name all at once.
 *
 * The bytes go to a temporary file in the same folder, which is renamed over
 * the path at the end and locked (flock()) until then.  One without a lock was
 * left by a process that was killed.  The path is looked at once, at the
 * beginning: later changes of the working directory do not matter.
 */
#ifndef NIB_FILE_ATOMIC_FILE_H
#define NIB_FILE_ATOMIC_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "nibblas.h"

struct nib_atomic_file;

/*
 * Makes the temporary file.  path must be free or a regular file (or a link to
 * one: the link is replaced).  The new file has the permissions of the one that
 * it replaces, else those that the umask leaves.
 */
enum nib_status nib_atomic_file_open(struct nib_atomic_file **file, const char *path,
				     struct nib_error *err);
/*
 * Asks the disk for n_bytes, so that a full disk is known before the work is
 * done.  Disks that cannot say are fine.
 */
enum nib_status nib_atomic_file_reserve(struct nib_atomic_file *file, uint64_t n_bytes,
					struct nib_error *err);
/*
 * Writes at an offset, through a buffer.  After a failure the temporary file is
 * gone, and everything but discard fails the same way.
 */
enum nib_status nib_atomic_file_write(struct nib_atomic_file *file, uint64_t offset,
				      const void *bytes, size_t n_bytes,
				      struct nib_error *err);
/* NIB_STATUS_OK, or the failure that ended file. */
enum nib_status nib_atomic_file_check(struct nib_atomic_file *file,
				      struct nib_error *err);
/* Frees file whether it succeeds or not. */
enum nib_status nib_atomic_file_commit(struct nib_atomic_file *file,
				       struct nib_error *err);
void nib_atomic_file_discard(struct nib_atomic_file *file); /* NULL is fine */

#endif
