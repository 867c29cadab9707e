/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mma_matrix.h - the host side of the mma.sync kernels for one matrix and few rows of A
 * (kernels/common/mma_matrix.cuh).  Architectures share the source; each has its
 * images.
 */
#ifndef NIB_CUDA_MMA_MATRIX_H
#define NIB_CUDA_MMA_MATRIX_H

#include "arch.h"
#include "cuda.h"

/* One matrix, or a batch, of at most NIB_MMA_MATRIX_ROWS rows of A. */
extern const struct cuda_product cuda_mma_matrix;

/*
 * Whether the kernels support these sizes.  The layout of operands does not matter:
 * where it is unusual, another variant computes the same bits.
 */
bool cuda_mma_matrix_fits(const struct nib_problem *p);

/* How a product is divided. */
struct mma_matrix_cut {
	int rows;   /* most rows of A: the variant */
	int stages; /* of the ring of a group in shared memory */
	int groups; /* of warps of a CTA, which divide k of a slice */
	int64_t tiles;
	int slices; /* of k, for each tile */
};

/*
 * m, n, k: sizes of one matrix, because the slices must not depend on the batch: they
 * decide the order of sums.
 */
struct mma_matrix_cut mma_matrix_cut(const struct cuda_device *device, int64_t m,
				     int64_t n, int64_t k);

#endif
