/* SPDX-License-Identifier: Apache-2.0 */
/* quantize.cu - quantize.cuh and moe_steps.cuh on Ampere and Ada. */
#define NIB_ARCH sm80
#include "backend/cuda/kernels/common/moe_steps.cuh"
#include "backend/cuda/kernels/common/quantize.cuh"
