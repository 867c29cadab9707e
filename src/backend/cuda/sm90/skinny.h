/* SPDX-License-Identifier: Apache-2.0 */
/*
 * skinny.h - products of 3 to 16 rows of A, and experts of few rows, by the skinny
 * kernels (kernels/sm90/skinny.cuh).
 */
#ifndef NIB_SM90_SKINNY_H
#define NIB_SM90_SKINNY_H

#include "backend/cuda/common/few_rows.h"
#include "backend/cuda/kernels/sm90/skinny_params.h"

extern const struct cuda_product sm90_skinny;

/*
 * How a matrix of a batch, or all experts together, are divided.  The functions only
 * compute, and are tested without a GPU.
 */
struct skinny_cut {
	int eights;    /* times 8 rows of A: the variant */
	int32_t tiles; /* of a matrix */
	int64_t ctas;  /* of one matrix, or all experts; at most one per SM */
	int32_t tiles_at_once, k_groups, half_tiles;
};

/* m, n at least 1. */
struct skinny_cut skinny_cut(int64_t m, int64_t n, int64_t k, int64_t batch,
			     bool b_is_tiled, int multiprocessors);
/* The same for `rows` rows of A of all experts; b's scales are tiled. */
struct skinny_cut skinny_cut_experts(int64_t rows, int64_t experts, int64_t n,
				     int64_t k, int multiprocessors);

#endif
