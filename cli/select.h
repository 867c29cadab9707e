/* SPDX-License-Identifier: Apache-2.0 */
/*
 * select.h - which tensors of a checkpoint nib quantize turns into NVFP4, which
 * it copies and why, and which layers share one global scale.
 */
#ifndef NIB_SELECT_H
#define NIB_SELECT_H

#include "cli.h"

struct selected {
	const struct nib_file_tensor *tensor;
	char *layer; /* quantised: its name, without ".weight"; else NULL */
	/* Copied: why. */
	char reason[96];
	enum nib_dtype dtype;
	float amax, global;
};

struct selection {
	struct selected *items; /* in the order of the file */
	int64_t count, quantised;
};

struct select_options {
	struct cli_texts include, exclude; /* globs, commas allowed */
	int all; /* nothing is excluded unless asked for */
};

/* CLI_OK, or prints and returns.  select_free() in every case. */
int select_tensors(const struct nib_file *file,
		   const struct select_options *options,
		   struct selection *selection);
void select_free(struct selection *selection);

/*
 * Gives layers that engines fuse into one matrix (q k v, gate up) the largest
 * amax among them.
 */
void select_share_amax(struct selection *selection);

/* Excluded unless --all or --exclude is given, for --help. */
#define SELECT_DEFAULT_EXCLUDE                                                 \
	"*embed*,*lm_head*,*wte*,*wpe*,*router*,*.gate.weight"

#endif
