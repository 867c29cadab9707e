/* SPDX-License-Identifier: Apache-2.0 */
/*
 * out_file.h - a text file that appears under its name whole or not at all.  It is
 * written under a new name in the same folder, which no link can lead elsewhere,
 * and renamed.  Functions say false with errno.  Files of tensors are written by
 * nib_writer_open() of the library, which does the same.
 */
#ifndef NIB_OUT_FILE_H
#define NIB_OUT_FILE_H

#include <stdbool.h>
#include <stdio.h>

struct out_file {
	FILE *stream; /* NULL: nothing was begun */
	char *temp;
	const char *path; /* the caller's */
};

/* A file that is replaced gives the new one its mode. */
bool out_file_open(struct out_file *out, const char *path);
/* Frees out whether it succeeds or not. */
bool out_file_commit(struct out_file *out);
/* Removes what was written and keeps errno.  Does nothing after a commit. */
void out_file_discard(struct out_file *out);

/* A number for names: in a container every run may have the same process id. */
unsigned out_file_number(void);

#endif
