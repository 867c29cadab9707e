/* SPDX-License-Identifier: Apache-2.0 */
/* gemm_bf16.cu - gemm.cuh with A of bf16. */
#define NIB_ARCH sm80
#include "gemm.cuh"

GEMM_KERNEL(gemm_bf16, true, false)
GEMM_KERNEL(dual_bf16, true, true)
