/* SPDX-License-Identifier: Apache-2.0 */
/* mma_matrix.cu - mma_matrix.cuh on Ampere and Ada, A of NVFP4. */
#define NIB_ARCH sm80
#include "backend/cuda/kernels/common/mma_matrix.cuh"

MMA_MATRIX_KERNEL(16, 2, 3, 4, A_NVFP4, false)
MMA_MATRIX_KERNEL(32, 4, 3, 3, A_NVFP4, false)
MMA_MATRIX_KERNEL(48, 6, 3, 3, A_NVFP4, false)
MMA_MATRIX_KERNEL(64, 8, 3, 2, A_NVFP4, false)
MMA_MATRIX_KERNEL(any_32, 4, 2, 1, A_NVFP4, true)
MMA_MATRIX_KERNEL(any_64, 8, 2, 1, A_NVFP4, true)
