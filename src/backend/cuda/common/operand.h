/* SPDX-License-Identifier: Apache-2.0 */
/* operand.h - views as the kernels for few rows of A have them (gemv_operand.h). */
#ifndef NIB_CUDA_OPERAND_H
#define NIB_CUDA_OPERAND_H

#include "backend/cuda/kernels/common/gemv_operand.h"
#include "core/view.h"

/*
 * v with its alignment, which counts the strides from one of `batches` matrices to
 * the next.  NULL pointers are multiples of everything.
 */
struct nib_gemv_operand cuda_operand(const struct nib_fp4 *v, int64_t batches);
/* The same of a dense A. */
struct nib_gemv_operand cuda_dense_operand(const struct nib_dense *x, int64_t batches);

#endif
