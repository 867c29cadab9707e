/* SPDX-License-Identifier: Apache-2.0 */
/* mma_matrix_f16.cu - mma_matrix.cuh on Ampere and Ada, A of fp16. */
#define NIB_ARCH sm80
#include "backend/cuda/kernels/common/mma_matrix.cuh"

MMA_MATRIX_KERNEL(16_f16, 2, 3, 4, A_F16, false)
MMA_MATRIX_KERNEL(32_f16, 4, 3, 3, A_F16, false)
MMA_MATRIX_KERNEL(48_f16, 6, 3, 3, A_F16, false)
MMA_MATRIX_KERNEL(64_f16, 8, 3, 2, A_F16, false)
MMA_MATRIX_KERNEL(any_32_f16, 4, 2, 1, A_F16, true)
MMA_MATRIX_KERNEL(any_64_f16, 8, 2, 1, A_F16, true)
