/* SPDX-License-Identifier: Apache-2.0 */
/* mma_warps.cu - mma_warps.cuh on Hopper, A of NVFP4. */
#define NIB_ARCH sm90
#include "backend/cuda/kernels/common/mma_warps.cuh"

MMA_WARPS_KERNEL(8_32, 1, 4, A_NVFP4, false)
MMA_WARPS_KERNEL(8_64, 1, 8, A_NVFP4, false)
MMA_WARPS_KERNEL(8_any, 1, 4, A_NVFP4, true)
MMA_WARPS_KERNEL(16_32, 2, 4, A_NVFP4, false)
MMA_WARPS_KERNEL(16_64, 2, 8, A_NVFP4, false)
MMA_WARPS_KERNEL(16_any, 2, 4, A_NVFP4, true)
