/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemv.h - products of up to 4 rows by the kernels of gemv.cuh: how they
 * are cut (arithmetic alone), what a plan keeps, and a launch.
 */
#ifndef NIB_CUDA_GEMV_H
#define NIB_CUDA_GEMV_H

#include "backend/cuda/kernels/gemv_params.h"
#include "cuda.h"

/* From five rows on the tensor cores are faster (docs/notes/0030). */
#define CUDA_GEMV_MAX_ROWS 4

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

/*
 * A problem that these kernels take: resolved, its weights as a view, A NVFP4 or
 * dense fp16 or bf16.
 */
bool gemv_takes(enum nib_op op, const struct nib_problem *p);

struct cuda_gemv {
	/* For rows of 16-byte pieces (NULL if these are not), for any. */
	CUfunction aligned, any;
	struct nib_gemv_params params; /* without pointers */
	struct gemv_cut cut;
	int64_t batch;
};

/*
 * As the kernels take it; its alignment also from one of `batches` matrices to
 * the next.  NULL pointers are multiples of everything.
 */
struct nib_gemv_operand cuda_gemv_operand(const struct nib_nvfp4 *v,
					  int64_t batches);
/* The same of a dense A. */
struct nib_gemv_operand cuda_gemv_dense(const struct nib_dense *x,
					int64_t batches);

/* p: resolved, gemv_takes().  With the context entered, as the launch. */
enum nib_status cuda_gemv_plan(struct cuda_device *device,
			       const struct nib_problem *p,
			       struct cuda_gemv *gemv, struct nib_error *err);
/* p: resolved, its pointers checked. */
enum nib_status cuda_gemv_launch(const struct cuda_device *device,
				 const struct cuda_gemv *gemv,
				 const struct nib_problem *p, CUstream stream,
				 struct nib_error *err);

#endif
