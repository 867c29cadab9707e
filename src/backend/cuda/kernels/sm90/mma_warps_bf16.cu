/* SPDX-License-Identifier: Apache-2.0 */
/* mma_warps_bf16.cu - mma_warps.cuh on Hopper, A of bf16. */
#define NIB_ARCH sm90
#include "backend/cuda/kernels/common/mma_warps.cuh"

MMA_WARPS_KERNEL(8_32_bf16, 1, 4, A_BF16, false)
MMA_WARPS_KERNEL(8_64_bf16, 1, 8, A_BF16, false)
MMA_WARPS_KERNEL(8_any_bf16, 1, 4, A_BF16, true)
MMA_WARPS_KERNEL(16_32_bf16, 2, 4, A_BF16, false)
MMA_WARPS_KERNEL(16_64_bf16, 2, 8, A_BF16, false)
MMA_WARPS_KERNEL(16_any_bf16, 2, 4, A_BF16, true)
