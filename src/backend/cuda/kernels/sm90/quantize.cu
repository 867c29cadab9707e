/* SPDX-License-Identifier: Apache-2.0 */
/* quantize.cu - quantize.cuh and moe_steps.cuh on Hopper. */
#define NIB_ARCH sm90
#include "backend/cuda/kernels/common/moe_steps.cuh"
#include "backend/cuda/kernels/common/quantize.cuh"
