/* SPDX-License-Identifier: Apache-2.0 */
/* mma_warps_f16.cu - mma_warps.cuh on Hopper, A of fp16. */
#define NIB_ARCH sm90
#include "backend/cuda/kernels/common/mma_warps.cuh"

MMA_WARPS_KERNEL(8_32_f16, 1, 4, A_F16, false)
MMA_WARPS_KERNEL(8_64_f16, 1, 8, A_F16, false)
MMA_WARPS_KERNEL(8_any_f16, 1, 4, A_F16, true)
MMA_WARPS_KERNEL(16_32_f16, 2, 4, A_F16, false)
MMA_WARPS_KERNEL(16_64_f16, 2, 8, A_F16, false)
MMA_WARPS_KERNEL(16_any_f16, 2, 4, A_F16, true)
