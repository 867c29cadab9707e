/* SPDX-License-Identifier: Apache-2.0 */
/*
 * atomic_file.h - a new file that appears under its name all at once.
 *
 * The bytes go to a temporary file in the same folder, which is renamed over
 * the path at the end and locked (flock()) until then.  A temporary file without
 * a lock was left by a process that was killed.  The path is resolved once, at
 * the beginning, so later changes of the working directory have no effect.
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
 * Reserves n_bytes on the disk, so that a full disk is an error before the work
 * is done.  File systems that cannot reserve are not an error.
 */
enum nib_status nib_atomic_file_reserve(struct nib_atomic_file *file, uint64_t n_bytes,
					struct nib_error *err);
/*
 * Writes at an offset, through a buffer.  A failure removes the temporary file,
 * and every later call except discard returns the same failure.
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
