/* SPDX-License-Identifier: Apache-2.0 */
/* mma.cu - mma.cuh on Hopper, A of NVFP4. */
#define NIB_ARCH sm90
#include "backend/cuda/kernels/common/mma.cuh"

MMA_KERNEL(experts_8_3, 1, 3, 5, A_NVFP4, false)
MMA_KERNEL(experts_8_4, 1, 4, 4, A_NVFP4, false)
MMA_KERNEL(experts_16_3, 2, 3, 4, A_NVFP4, false)
MMA_KERNEL(experts_32_3, 4, 3, 4, A_NVFP4, false)
MMA_KERNEL(dual_8_4, 1, 4, 4, A_NVFP4, true)
MMA_KERNEL(dual_16_3, 2, 3, 4, A_NVFP4, true)
MMA_KERNEL(dual_32_3, 4, 3, 4, A_NVFP4, true)
