/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemv.h - products of up to 8 rows, and of experts of few rows, by the
 * kernels of kernels/sm100/gemv.cu: which, and how they are cut (only arithmetic).
 */
#ifndef NIB_CUDA_GEMV100_H
#define NIB_CUDA_GEMV100_H

#include "backend/cuda/common/cuda.h"
#include "backend/cuda/kernels/sm100/gemv_params.h"

struct gemv100_cut {
	int m; /* rows of A at a time: of the kernel */
	int32_t tiles;
	int tile_warps_log2;
	int64_t ctas, shared_bytes;
};

/* matrices: batches, or experts; of MoE, m is 0 and rows those of A. */
struct gemv100_cut gemv100_cut(int64_t m, int64_t n, int64_t k, int64_t matrices,
			       int64_t rows, bool b_is_tiled, int multiprocessors);

/* Problems that these kernels take: resolved, weights as a view. */
bool gemv100_takes(enum nib_op op, const struct nib_problem *p);
/*
 * MoE: at most 4 rows, or one an expert and 1,024.  The weights of an expert of r rows
 * are read ceil(r / 4) times: however the rows are spread, no more than if each
 * had an expert of its own, and of rows that are spread evenly 0.6 % more than
 * once (docs/notes/0054).
 */
bool gemv100_takes_moe(enum nib_op op, const struct nib_moe_problem *moe);

/* The same of a plan: one problem, or an MoE problem. */
bool gemv100_takes_plan(const struct nib_plan *plan);
extern const struct cuda_product sm100_vector;

#endif
