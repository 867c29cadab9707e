/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_mixture.h - mixtures of experts with random tokens on both sides: scales
 * of no token are NaN, as is c, and guard bands lie around every buffer.
 */
#ifndef NIB_TESTS_GPU_MIXTURE_H
#define NIB_TESTS_GPU_MIXTURE_H

#include "gpu_problem.h"

struct gpu_mixture {
	enum nib_op op;
	int64_t experts, rows; /* rows of a: at least what experts have */
	int64_t most;	       /* tokens of an expert */
	int64_t empty;	       /* of 8 experts, about */
	struct gpu_sizes a, b, b2, c; /* a: its scale tensor's rows */
	bool has_scale_rows, packed;
};

struct gpu_mixture_memory {
	struct gpu_memory base;
	struct gpu_twin offsets, scale_rows;
};

/* Everything but sizes is any. */
struct gpu_mixture gpu_any_mixture(enum nib_op op, int64_t experts,
				   int64_t most, int64_t empty, int64_t n,
				   int64_t k);
/* Deals out the tokens: x's rows are written. */
struct gpu_mixture_memory gpu_mixture_new(struct gpu_mixture *x);
/* Of the sizes of like, which x was dealt to; tokens dealt anew. */
struct gpu_mixture_memory
gpu_mixture_new_like(const struct gpu_mixture *x,
		     const struct gpu_mixture_memory *like);
/*
 * Other contents of every input, the same shares dealt to other experts; packed
 * weights stay.
 */
void gpu_mixture_fill(const struct gpu_mixture *x,
		      const struct gpu_mixture_memory *m);
void gpu_mixture_free(struct gpu_mixture_memory *m);
/* side: gpu_host_of or gpu_device_of. */
struct nib_moe_problem
gpu_mixture_problem(const struct gpu_mixture *x,
		    const struct gpu_mixture_memory *m,
		    void *(*side)(const struct gpu_twin *));
/* Experts that share rows of c race, which the software GPU reports. */
bool gpu_mixture_shares_rows(const struct gpu_mixture *x,
			     const int32_t *offsets);
bool gpu_mixture_unchanged(const struct gpu_mixture_memory *m);
/* NULL if all rows of experts are written, and nothing else of C's host. */
const char *gpu_mixture_places(const struct gpu_mixture *x,
			       const struct gpu_mixture_memory *m);

#endif
