/* SPDX-License-Identifier: Apache-2.0 */
/*
 * few_rows.h - what the products of few rows of A share.  They read the weights once:
 * the vector kernels (vector.c), and Hopper's skinny and wide kernels (sm90/skinny.c,
 * sm90/wide.c).  Each architecture's choose.c decides which of them multiplies.
 */
#ifndef NIB_CUDA_FEW_ROWS_H
#define NIB_CUDA_FEW_ROWS_H

#include "arch.h"
#include "backend/cuda/kernels/common/gemv_experts_params.h"
#include "cuda.h"

/* The limit of gridDim.y: a larger batch is several launches. */
#define FEW_ROWS_MAX_BATCH 65535

/* The state of a plan, which the parameters of its kernel follow in memory. */
struct few_rows {
	/* The kernels for rows of 16-byte pieces (NULL if the rows are not), and for
	 * any alignment (NULL for experts). */
	CUfunction aligned, any;
	/* Without pointers.  The parameters of every kernel begin with these. */
	struct nib_gemv_params *params;
	int64_t batch;
	int64_t ctas; /* of one matrix */
	int threads;
	int cluster; /* CTAs of a cluster; 0: none */
	int64_t shared_bytes, any_shared_bytes;
};

/* A problem, or an MoE problem as one problem of stacks: A, weights as views, alpha and
 * C. */
struct nib_problem few_rows_problem(const struct nib_problem *problems,
				    const struct nib_moe_problem *moe);

/* Sets all parameters but pointers and those that the kernel's own file sets. */
void few_rows_set_sizes(struct nib_gemv_params *params, const struct nib_problem *p,
			bool is_moe);
void few_rows_set_pointers(struct nib_gemv_params *params, const struct nib_problem *p,
			   bool is_moe);
struct nib_gemv_experts few_rows_experts(const struct nib_moe_problem *moe);

/* "", "_f16" or "_bf16": the suffix of the kernels for this A. */
const char *few_rows_type(enum nib_activations activations, enum nib_dtype x);

/*
 * Allocates the plan's state with so many bytes of parameters and sets its sizes.  This
 * and the following functions need the context entered.
 */
enum nib_status few_rows_new(const struct nib_plan *plan, const char *kernel,
			     size_t params_bytes, struct cuda_product_plan *product,
			     struct few_rows **few, struct nib_error *err);
/* Finds a kernel and gives it the largest share of the L1 as shared memory. */
enum nib_status few_rows_find(struct cuda_device *device, const char *name,
			      int64_t shared_bytes, CUfunction *function,
			      struct nib_error *err);
/*
 * Finds the kernels nib_KERNEL_VARIANT, if rows are of 16-byte pieces, and
 * nib_KERNEL_ANY_any, for this type of A.
 */
enum nib_status few_rows_find_both(struct cuda_device *device, const char *kernel,
				   int variant, int any, const char *type,
				   struct few_rows *few, struct nib_error *err);
/* Launches a plan's kernel with params, a copy of the plan's whose pointers are set. */
enum nib_status few_rows_launch(const struct cuda_device *device,
				const struct few_rows *few,
				struct nib_gemv_params *params,
				const struct nib_run *run, struct nib_error *err);

#endif
