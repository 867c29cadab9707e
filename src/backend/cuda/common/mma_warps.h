/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mma_warps.h - the host side of the mma.sync kernels for one matrix and few rows of A
 * (kernels/common/mma_warps.cuh).  Architectures share the source; each has its images.
 */
#ifndef NIB_CUDA_MMA_WARPS_H
#define NIB_CUDA_MMA_WARPS_H

#include "arch.h"
#include "cuda.h"

/* One matrix, or a batch, of at most NIB_MMA_WARPS_ROWS rows of A. */
extern const struct cuda_product cuda_mma_warps;

/*
 * Whether the kernels support these sizes.  The layout of operands does not matter:
 * where it is unusual, another variant computes the same bits.
 */
bool cuda_mma_warps_fits(const struct nib_problem *p);

/* How a product is divided. */
struct mma_warps_cut {
	bool is_dense; /* A, and ... */
	int rows;      /* its most rows, 8 or 16, and ... */
	int b_rows;    /* the rows of B of a tile: the variant */
	int warps;     /* of a CTA, which divide k */
	int64_t tiles;
};

/*
 * m, n, k: sizes of one matrix, because the warps must not depend on the batch: they
 * decide the order of sums.
 */
struct mma_warps_cut mma_warps_cut(const struct cuda_device *device, bool is_dense,
				   int64_t m, int64_t n, int64_t k);
/* Rows of B of a tile, of which the choice of a product depends, too. */
int mma_warps_b_rows(int multiprocessors, bool is_dense, int64_t m, int64_t n);

#endif
