/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run.h - how a backend takes the problems of a run: resolved as the plan's were,
 * held against them, their pointers and the overlap of their own views checked.
 * The backend adds what asks for all problems together (nib_valid_outputs) or for
 * a look at their data (nib_valid_moe_offsets, ..._signs).
 */
#ifndef NIB_RUN_H
#define NIB_RUN_H

#include "backend/backend.h"

/* Problem `index` of the caller into *out, which the backend keeps. */
enum nib_status nib_take_problem(const struct nib_plan *plan,
				 const struct nib_problem *given, int64_t index,
				 struct nib_problem *out,
				 struct nib_error *err);
enum nib_status nib_take_moe(const struct nib_plan *plan,
			     const struct nib_moe_problem *given,
			     struct nib_moe_problem *out,
			     struct nib_error *err);

/* NIB_BAD_ARGUMENT if a backend without streams is given one. */
enum nib_status nib_check_stream(const struct nib_device *device,
				 const void *stream, const char *name,
				 struct nib_error *err);

#endif
