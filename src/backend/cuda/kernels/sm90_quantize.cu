/* SPDX-License-Identifier: Apache-2.0 */
/* sm90_quantize.cu - quantize.cuh and moe_steps.cuh on Hopper. */
#define NIB_ARCH sm90
#include "moe_steps.cuh"
#include "quantize.cuh"
