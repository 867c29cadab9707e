/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mma.h - experts of few rows by the mma.sync kernels (kernels/common/mma.cuh), which
 * are the same for all architectures that have images of them.
 */
#ifndef NIB_CUDA_MMA_H
#define NIB_CUDA_MMA_H

#include "arch.h"
#include "cuda.h"

extern const struct cuda_product cuda_mma;

/* Whether the kernels can load these experts. */
bool cuda_mma_can_load(enum nib_op op, const struct nib_moe_problem *moe);

/* Beyond this k a matrix needs more bytes in flight than tiles at once. */
#define MMA_LONG_K 4096

/* A variant of the kernel. */
struct mma_variant {
	int rows;   /* of A of a tile, at most */
	int stages; /* of the rings */
	int ctas;   /* resident on an SM, by its registers */
};

/* The fastest for so many rows of A of so many experts, on an H100. */
struct mma_variant mma_variant(int64_t rows, int64_t experts, int64_t k, bool is_dual,
			       bool is_f16);

#endif
