/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mma.h - the host side of the mma.sync kernels (kernels/common/mma.cuh), which
 * multiply experts with few rows.  Architectures share the source; each has its images.
 */
#ifndef NIB_CUDA_MMA_H
#define NIB_CUDA_MMA_H

#include "arch.h"
#include "cuda.h"

extern const struct cuda_product cuda_mma;

/* Whether the kernels can load these experts. */
bool cuda_mma_can_load(enum nib_op op, const struct nib_moe_problem *moe);

/*
 * Above this k bytes in flight matter more than resident CTAs: variants of 8 rows then
 * have four stages and four CTAs on an SM, not three and five.
 */
#define MMA_LONG_K 4096

/* A variant of the kernel; its name has rows and stages. */
struct mma_variant {
	int rows;   /* most rows of A of a tile */
	int stages; /* of the ring in shared memory */
	int ctas;   /* that the registers of an SM suffice for */
};

/* The fastest variant on an H100; rows: of A, of all experts together. */
struct mma_variant mma_variant(int64_t rows, int64_t experts, int64_t k, bool is_dual,
			       bool has_four);

#endif
