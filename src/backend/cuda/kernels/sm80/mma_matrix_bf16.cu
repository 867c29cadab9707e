/* SPDX-License-Identifier: Apache-2.0 */
/* mma_matrix_bf16.cu - mma_matrix.cuh on Ampere and Ada, A of bf16. */
#define NIB_ARCH sm80
#include "backend/cuda/kernels/common/mma_matrix.cuh"

MMA_MATRIX_KERNEL(16_bf16, 2, 3, 4, A_BF16, false)
MMA_MATRIX_KERNEL(32_bf16, 4, 3, 3, A_BF16, false)
MMA_MATRIX_KERNEL(48_bf16, 6, 3, 3, A_BF16, false)
MMA_MATRIX_KERNEL(64_bf16, 8, 3, 2, A_BF16, false)
MMA_MATRIX_KERNEL(any_32_bf16, 4, 2, 1, A_BF16, true)
MMA_MATRIX_KERNEL(any_64_bf16, 8, 2, 1, A_BF16, true)
