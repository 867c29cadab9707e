/* SPDX-License-Identifier: Apache-2.0 */
/* outputs.h - checks that the outputs of a group do not overlap. */
#ifndef NIB_OUTPUTS_H
#define NIB_OUTPUTS_H

#include "nibblas.h"

/* Bytes of scratch that nib_valid_outputs() needs for each problem. */
size_t nib_outputs_bytes(void);

/*
 * No output has a byte in common with another one, or with an input of any
 * problem.  problems are resolved, and each is valid on its own; scratch is
 * aligned to 8 bytes.
 */
enum nib_status nib_valid_outputs(enum nib_op op, const struct nib_problem *problems,
				  int64_t count, void *scratch, struct nib_error *err);

#endif
