/* SPDX-License-Identifier: Apache-2.0 */
/* mma_f16.cu - mma.cuh on Hopper, A of fp16. */
#define NIB_ARCH sm90
#include "backend/cuda/kernels/common/mma.cuh"

MMA_KERNEL(experts_8_3_f16, 1, 3, 5, A_F16, false)
MMA_KERNEL(experts_8_4_f16, 1, 4, 4, A_F16, false)
MMA_KERNEL(experts_16_3_f16, 2, 3, 4, A_F16, false)
MMA_KERNEL(experts_32_3_f16, 4, 3, 4, A_F16, false)
MMA_KERNEL(dual_8_4_f16, 1, 4, 4, A_F16, true)
MMA_KERNEL(dual_16_3_f16, 2, 3, 4, A_F16, true)
MMA_KERNEL(dual_32_3_f16, 4, 3, 4, A_F16, true)
