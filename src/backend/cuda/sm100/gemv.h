/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemv.h - products of up to 8 rows, and of experts of few rows, by the kernels of
 * kernels/sm100/gemv.cu: which problems they can compute, and how these are divided.
 * sm100.c has the rule for those that tiles compute faster.
 */
#ifndef NIB_CUDA_GEMV100_H
#define NIB_CUDA_GEMV100_H

#include "backend/cuda/common/cuda.h"
#include "backend/cuda/kernels/sm100/gemv_params.h"

struct gemv100_sizes {
	int64_t n, k;
	int64_t items; /* matrices of a batch; MoE: rows of A */
	bool b_is_tiled;
};

struct gemv100_cut {
	int m; /* rows of A that the kernel computes at a time */
	int32_t tiles;
	/* Not MoE: units of a CTA; how many CTAs have one more. */
	int32_t share, rest;
	int32_t unit_warps_log2;
	int32_t slots; /* items of A in shared memory */
	int64_t ctas, shared_bytes;
};

/* Rows of A that the kernel for a problem of `rows` rows (of MoE: in all) computes. */
int gemv100_kernel_m(int64_t rows, bool is_moe);
struct gemv100_cut gemv100_cut_of(int kernel_m, const struct gemv100_sizes *sizes,
				  int multiprocessors);

/* Whether these kernels can compute a problem, which is resolved and has weights as a
 * view. */
bool gemv100_takes(enum nib_op op, const struct nib_problem *p);
/*
 * MoE: at most 4 rows, or at most as many rows as experts, up to 1,024.  The weights of
 * an expert of r rows are read ceil(r / 4) times.  That is at most as much as if each
 * row had an expert of its own; for evenly spread rows it is 0.6 % more than reading
 * them once (docs/notes/0054).
 */
bool gemv100_takes_moe(enum nib_op op, const struct nib_moe_problem *moe);

/* The same for a plan: it has one problem, or is an MoE problem. */
bool gemv100_takes_plan(const struct nib_plan *plan);
extern const struct cuda_product sm100_vector;

#endif
