/* SPDX-License-Identifier: Apache-2.0 */
/* operand.h - views as the parameters of the kernels for few rows of A
 * (gemv_operand.h). */
#ifndef NIB_CUDA_OPERAND_H
#define NIB_CUDA_OPERAND_H

#include "backend/cuda/kernels/common/gemv_operand.h"
#include "core/view.h"

/*
 * v and its alignment, which includes the stride between its `batches` matrices.  A
 * NULL pointer has every alignment.
 */
struct nib_gemv_operand cuda_operand(const struct nib_fp4 *v, int64_t batches);
/* The same of a dense A. */
struct nib_gemv_operand cuda_dense_operand(const struct nib_dense *x, int64_t batches);
/* A of a problem whose weights are views, dense or not. */
struct nib_gemv_operand cuda_a_operand(const struct nib_problem *p, int64_t batches);
/* Advances the pointers by this number of matrices. */
void cuda_skip_matrices(struct nib_gemv_operand *o, int64_t count);
/* Whether the mma kernels for one matrix can load A and B by cp.async: rows in pieces
 * of 16 bytes, scales of A of 4, and B's scales in tiles. */
bool cuda_are_pieces(const struct nib_gemv_operand *a,
		     const struct nib_gemv_operand *b);

#endif
