/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemv.h - products of few rows of A that read the weights once, and experts
 * (MoE) of few rows: by the vector kernels (gemv.cuh, gemv_dense.cuh), which read
 * an expert's weights once for each row, the skinny kernels (skinny.cuh), once
 * for eight, or the wide ones (skinny_wide.cuh) for up to 64 rows of one matrix.
 * Which of them, how they are cut (arithmetic alone), what a plan keeps, and a
 * launch.
 */
#ifndef NIB_CUDA_GEMV_H
#define NIB_CUDA_GEMV_H

#include "backend/cuda/common/cuda.h"
#include "backend/cuda/kernels/sm90/gemv_experts_params.h"

/* Which kernel multiplies m rows of A by n rows of B, measured on an H200. */
enum gemv_way {
	GEMV_VECTOR, /* up to NIB_GEMV_MAX_ROWS rows of A, or of experts one */
	GEMV_SKINNY, /* up to NIB_SKINNY_MAX_ROWS */
	GEMV_WIDE,   /* up to NIB_WIDE_MAX_ROWS of one matrix */
	GEMV_TILES,  /* neither: gemm.h */
};

/*
 * m, n at least 1.  It decides bits, so nothing else about a problem counts, but
 * that the tiles take a batch in the place of the wide kernels.
 */
enum gemv_way gemv_way(int64_t m, int64_t n, int64_t k);

struct gemv_cut {
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
struct gemv_cut gemv_cut(int64_t m, int64_t n, int64_t k, int64_t batch,
			 bool a_is_dense, bool b_is_tiled, int multiprocessors,
			 int64_t shared_bytes);
/* The same of a dual product's two matrices for each of so many rows of A,
 * matrices 2, or of one for each, 1. */
struct gemv_cut gemv_cut_moe(int64_t rows, int matrices, int64_t n, int64_t k,
			     bool a_is_dense, bool b_is_tiled, int multiprocessors,
			     int64_t shared_bytes);

/* How the skinny kernels cut a matrix of each batch, or all experts. */
struct skinny_cut {
	int eights;    /* of rows of A that the variant takes */
	int32_t tiles; /* of a matrix */
	int64_t ctas;  /* of one matrix, or of all experts; at most one on a
			* multiprocessor */
	int32_t tiles_at_once, k_groups, halved_tiles;
	int32_t k_slices; /* of the wide kernels: CTAs of a cluster */
};

/* m, n at least 1. */
struct skinny_cut skinny_cut(int64_t m, int64_t n, int64_t k, int64_t batch,
			     bool b_is_tiled, int multiprocessors);
/* The same for the wide kernels: one matrix, m up to NIB_WIDE_MAX_ROWS. */
struct skinny_cut wide_cut(int64_t m, int64_t n, int64_t k, bool b_is_tiled,
			   int multiprocessors);
/* The same for so many rows of A of all experts; b's scales are tiled. */
struct skinny_cut skinny_cut_moe(int64_t rows, int64_t experts, int64_t n, int64_t k,
				 int multiprocessors);

/*
 * A problem that these kernels take: resolved, its weights as a view, A NVFP4 or
 * dense fp16 or bf16.
 */
bool gemv_takes(enum nib_op op, const struct nib_problem *p);
/*
 * Which of them multiplies an MoE problem, as far as sizes tell: the vector
 * kernels each row of A by itself, where experts have one at most as a rule; the
 * skinny kernels an expert's rows together, with tiled scales.  Both take weights
 * in rows of 16-byte pieces.
 */
enum gemv_way gemv_way_moe(enum nib_op op, const struct nib_moe_problem *moe);

struct cuda_gemv {
	/* For rows of 16-byte pieces (NULL if these are not), for any (NULL: of
	 * experts). */
	CUfunction aligned, any;
	/* Without pointers; the vector kernels take the first member alone. */
	struct nib_skinny_params params;
	int64_t batch;
	int64_t ctas; /* of one matrix */
	int threads;
	int64_t shared_bytes, any_shared_bytes;
};

/* One problem, or experts, that these kernels take: the above and alignment. */
bool cuda_gemv_takes(const struct nib_plan *plan);
/* plan: cuda_gemv_takes().  With the context entered, as the
 * launch. */
enum nib_status cuda_gemv_plan(struct cuda_device *device, const struct nib_plan *plan,
			       struct cuda_gemv *gemv, struct nib_error *err);
/* "", "_f16" or "_bf16": what the names of the kernels for such an A have. */
const char *cuda_gemv_type(bool is_dense, enum nib_dtype dtype);
/* The vector kernel for experts, of the cut's shared memory. */
enum nib_status cuda_gemv_find_experts(struct cuda_device *device, int matrices,
				       const char *type, const struct gemv_cut *cut,
				       CUfunction *function, struct nib_error *err);
/* Experts of which the vector kernels multiply each row of A by itself. */
bool cuda_gemv_takes_rows(enum nib_op op, const struct nib_moe_problem *moe);
/* The parameters of such experts but for the cut. */
struct nib_skinny_params cuda_gemv_experts_params(const struct nib_moe_problem *moe);
/* run: resolved, its pointers checked. */
enum nib_status cuda_gemv_launch(const struct cuda_device *device,
				 const struct cuda_gemv *gemv,
				 const struct nib_run *run, struct nib_error *err);

/* ---- gemv_layer.c --------------------------------------------------------- */

/*
 * A layer of experts in two or three launches (gemv_experts.cuh), or *taken false
 * and nothing done.  With the context entered.
 */
enum nib_status cuda_gemv_layer(struct cuda_device *device,
				const struct nib_moe_few *few, void *stream,
				bool *taken, struct nib_error *err);

#endif
