/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wide.h - products of 17 to 64 rows of A by one matrix of few weights, by the wide
 * kernels (kernels/sm90/skinny_wide.cuh).
 */
#ifndef NIB_SM90_WIDE_H
#define NIB_SM90_WIDE_H

#include "backend/cuda/common/few_rows.h"
#include "backend/cuda/kernels/sm90/skinny_params.h"

extern const struct cuda_product sm90_wide;

/* How a matrix is divided.  The functions only compute, and are tested without a
 * GPU. */
struct wide_cut {
	int eights;    /* times 8 rows of A: the variant */
	int32_t tiles; /* of the matrix */
	int64_t ctas;
	int32_t tiles_at_once, k_groups; /* of a cluster */
	int32_t k_slices;		 /* CTAs of a cluster, which divide k */
};

/* m, n at least 1, m up to NIB_WIDE_MAX_ROWS. */
struct wide_cut wide_cut(int64_t m, int64_t n, int64_t k, bool b_is_tiled,
			 int multiprocessors);

/*
 * Whether no CTA of an H100 has more work than with 4096 x 4096.  For larger products
 * tiles are faster.
 */
bool wide_is_short(int64_t m, int64_t n, int64_t k);

#endif
