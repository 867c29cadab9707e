/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint.h - how checkpoint formats name the tensors of a layer. */
#ifndef NIB_FILE_CHECKPOINT_H
#define NIB_FILE_CHECKPOINT_H

#include <stdbool.h>

#include "nibblas.h"

#define NIB_CHECKPOINTS 2
/* At least the length of every suffix below. */
#define NIB_LONGEST_SUFFIX 24

struct nib_checkpoint_names {
	/* Behind the layer's name. */
	const char *weight, *scale, *global, *input_global;
	/* Global scales are stored as 1 / global. */
	bool reciprocal;
	/* Rank of a stored global scale: [] or [1]. */
	int global_rank;
};

/* By enum nib_checkpoint. */
extern const struct nib_checkpoint_names nib_checkpoint_names[NIB_CHECKPOINTS];

#endif
