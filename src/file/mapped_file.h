/* SPDX-License-Identifier: Apache-2.0 */
/* mapped_file.h - a whole file, read-only, in memory. */
#ifndef NIB_FILE_MAPPED_FILE_H
#define NIB_FILE_MAPPED_FILE_H

#include "nibblas.h"

struct nib_mapped_file {
	const void *bytes; /* never NULL once mapped, also when empty */
	size_t n_bytes;
};

/*
 * Maps a regular file; anything else is NIB_STATUS_IO.  A file that another process
 * makes shorter while it is mapped raises SIGBUS where its pages are missing.
 */
enum nib_status nib_file_map(struct nib_mapped_file *map, const char *path,
			     struct nib_error *err);
/* A map of all zeros is fine. */
void nib_file_unmap(struct nib_mapped_file *map);

#endif
