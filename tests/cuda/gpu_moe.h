/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_moe.h - MoE problems with random tokens on the CPU and the GPU.  Scales without a
 * token are NaN, as is c, and guard bands surround every buffer.
 */
#ifndef NIB_TESTS_GPU_MOE_H
#define NIB_TESTS_GPU_MOE_H

#include "gpu_problem.h"

struct gpu_moe {
	enum nib_op op;
	int64_t experts, rows;	      /* rows of a: at least what experts have */
	int64_t most;		      /* tokens of an expert */
	int64_t empty;		      /* of 8 experts, about */
	int64_t spare;		      /* rows of no expert, at most */
	struct gpu_sizes a, b, b2, c; /* a: its scale tensor's rows */
	bool has_scale_rows, packed;
};

struct gpu_moe_memory {
	struct gpu_memory base;
	struct gpu_twin offsets, scale_rows;
};

/* All but the sizes is random. */
struct gpu_moe gpu_any_moe(enum nib_op op, int64_t experts, int64_t most, int64_t empty,
			   int64_t n, int64_t k);
/* Deals tokens to the experts, which sets x->rows. */
struct gpu_moe_memory gpu_moe_new(struct gpu_moe *x);
/* The sizes are those of like, which x was dealt to; tokens are dealt anew. */
struct gpu_moe_memory gpu_moe_new_like(const struct gpu_moe *x,
				       const struct gpu_moe_memory *like);
/*
 * Gives every input other contents, and deals the same shares to other experts.
 * Packed weights stay.
 */
void gpu_moe_fill(const struct gpu_moe *x, const struct gpu_moe_memory *m);
void gpu_moe_free(struct gpu_moe_memory *m);
/* side: gpu_host_of or gpu_device_of. */
struct nib_moe_problem gpu_moe_problem(const struct gpu_moe *x,
				       const struct gpu_moe_memory *m,
				       void *(*side)(const struct gpu_twin *));
/* Experts that share rows of c race, which the software GPU reports. */
bool gpu_moe_shares_rows(const struct gpu_moe *x, const int32_t *offsets);
bool gpu_moe_unchanged(const struct gpu_moe_memory *m);
/* NULL if all rows of experts are written in the host's c, and nothing else. */
const char *gpu_moe_places(const struct gpu_moe *x, const struct gpu_moe_memory *m);

#endif
