/* SPDX-License-Identifier: Apache-2.0 */
/*
 * quantize.cu - quantize.cuh and moe_steps.cuh on Blackwell, which converts
 * e2m1 itself.
 */
#define NIB_ARCH sm100
#define NIB_HAS_E2M1
#include "backend/cuda/kernels/common/moe_steps.cuh"
#include "backend/cuda/kernels/common/quantize.cuh"
