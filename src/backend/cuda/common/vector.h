/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vector.h - products of one to four rows of A by the vector kernels (gemv.cuh,
 * gemv_dense.cuh), and experts of few rows by those of gemv_experts.cuh, which read
 * an expert's weights once for each of its rows.
 */
#ifndef NIB_CUDA_VECTOR_H
#define NIB_CUDA_VECTOR_H

#include "few_rows.h"

extern const struct cuda_product cuda_vector, cuda_vector_experts;

/* How a product is divided.  The functions only compute, and are tested without a
 * GPU. */
struct vector_cut {
	int m; /* rows of A: the variant */
	int32_t tiles, tiles_per_cta;
	int64_t ctas; /* of one matrix */
	/* For the variant, and for the one for any alignment. */
	int64_t shared_bytes, any_shared_bytes;
};

/*
 * Gives each CTA the fewest tiles with which all CTAs are resident at once.  Each then
 * has the same share of the memory bandwidth, and there is no second wave.
 * shared_bytes: the most of an SM for one CTA.
 */
struct vector_cut vector_cut(int64_t m, int64_t n, int64_t k, int64_t batch,
			     bool a_is_dense, bool b_is_tiled, int multiprocessors,
			     int64_t shared_bytes);
/*
 * The same for experts, with one product for each of `rows` rows of A.  matrices: 2 for
 * a dual product, otherwise 1.
 */
struct vector_cut vector_cut_experts(int64_t rows, int matrices, int64_t n, int64_t k,
				     bool a_is_dense, bool b_is_tiled,
				     int multiprocessors, int64_t shared_bytes);

/* Finds the kernel for experts, with the cut's shared memory.  With the context
 * entered. */
enum nib_status vector_find_experts(struct cuda_device *device, int matrices,
				    const char *type, const struct vector_cut *cut,
				    CUfunction *function, struct nib_error *err);
/* The parameters of experts without those of the cut and the layer. */
struct nib_gemv_experts_params vector_experts_params(const struct nib_moe_problem *moe);

#endif
