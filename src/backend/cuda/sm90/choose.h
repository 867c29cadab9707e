/* SPDX-License-Identifier: Apache-2.0 */
/*
 * choose.h - which of Hopper's products computes a plan: the vector, skinny, wide
 * or mma kernels, or tiles.  The table is in choose.c.
 */
#ifndef NIB_SM90_CHOOSE_H
#define NIB_SM90_CHOOSE_H

#include "backend/cuda/common/arch.h"
#include "backend/cuda/common/cuda.h"

/* What the choice depends on.  The choice affects bits, so nothing else may. */
struct sm90_size {
	bool is_dual;
	bool is_dense;	     /* A */
	int64_t rows, n, k;  /* rows of A (of all experts) */
	int64_t batch;	     /* of A */
	int64_t experts;     /* 0: one matrix */
	bool no_mma;	     /* also where the mma kernels are the fastest */
	int multiprocessors; /* not for experts */
};

/* The first rule of the table that fits. */
struct cuda_choice sm90_choose_size(const struct sm90_size *size);

/* The choice for a plan: tiles if the other kernels cannot load its operands. */
struct cuda_choice sm90_choose(const struct nib_plan *plan);

/* Whether the vector kernels multiply these experts of a layer of few slots; b may be
 * packed. */
bool sm90_chooses_vector(enum nib_op op, const struct nib_moe_problem *moe);

#endif
