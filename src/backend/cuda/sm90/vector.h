/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vector.h - products of one to four rows of A by the vector kernels (gemv.cuh,
 * gemv_dense.cuh), and experts of few rows by those of gemv_experts.cuh, which read
 * an expert's weights once for each of its rows.
 */
#ifndef NIB_SM90_VECTOR_H
#define NIB_SM90_VECTOR_H

#include "few_rows.h"

extern const struct cuda_product sm90_vector, sm90_vector_experts;

/* How a product is cut: only arithmetic, tested without a GPU. */
struct vector_cut {
	int m; /* of A that the variant takes */
	int32_t tiles, tiles_per_cta;
	int64_t ctas; /* of one matrix */
	/* The variant has the first, the one for any alignment the second. */
	int64_t shared_bytes, any_shared_bytes;
};

/*
 * The fewest tiles a CTA with which all CTAs are on the GPU at once: then each
 * takes its share of the memory's rate and none is left over.  shared_bytes: of
 * an SM, for one CTA.
 */
struct vector_cut vector_cut(int64_t m, int64_t n, int64_t k, int64_t batch,
			     bool a_is_dense, bool b_is_tiled, int multiprocessors,
			     int64_t shared_bytes);
/*
 * The same for experts, for each of so many rows of A: of a dual product's two
 * matrices (matrices 2), or of one matrix (1).
 */
struct vector_cut vector_cut_experts(int64_t rows, int matrices, int64_t n, int64_t k,
				     bool a_is_dense, bool b_is_tiled,
				     int multiprocessors, int64_t shared_bytes);

/* The kernel for experts, of the cut's shared memory.  With the context entered. */
enum nib_status vector_find_experts(struct cuda_device *device, int matrices,
				    const char *type, const struct vector_cut *cut,
				    CUfunction *function, struct nib_error *err);
/* The parameters of experts but for the cut and the layer. */
struct nib_gemv_experts_params vector_experts_params(const struct nib_moe_problem *moe);

#endif
