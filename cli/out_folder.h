/* SPDX-License-Identifier: Apache-2.0 */
/*
 * out_folder.h - a folder that a command writes: made next to its place, and
 * renamed when everything is in it.  Functions return CLI_OK, or an exit code
 * after a message.
 */
#ifndef NIB_OUT_FOLDER_H
#define NIB_OUT_FOLDER_H

struct out_folder {
	const char *path; /* where it will be; the caller's */
	char *work;	  /* where it is made; NULL: nothing was begun */
	int lock;	  /* on work, for as long as the run lives; or -1 */
};

/* Whether path is free: nothing exists there, or an empty folder that another one
 * can replace. */
int out_folder_check(const char *path);
/* Makes a folder with a new name in the folder of path.  Warns about those that
 * killed runs left there. */
int out_folder_begin(struct out_folder *out, const char *path);
int out_folder_commit(struct out_folder *out);
/* Removes what was written.  Does nothing after a commit. */
void out_folder_discard(struct out_folder *out);

/* The certificate of a folder's weights: certificate.h. */
#define CERTIFICATE_FILE "nibblas_certificate.json"

/*
 * Copies the files of folder that are no weights, no indices, no configuration of
 * the model and no certificate: tokenizers, templates, licences.  Folders in it are
 * left out.
 */
int out_folder_copy_rest(const struct out_folder *out, const char *folder);
/* Whether the files to copy exist and may be read: a link to nothing is an
 * error. */
int out_folder_check_rest(const char *folder);

/* The path of a file of a folder, to be freed; NULL after a message. */
char *out_folder_path(const char *folder, const char *name);

#endif
