/* SPDX-License-Identifier: Apache-2.0 */
/* gemm_bf16.cu - gemm.cuh for A of bf16. */
#include "gemm.cuh"

GEMM_KERNEL(nib_gemm_bf16_sm90, NIB_GEMM_THREADS, false, NIB_A_BF16, NIB_LARGE_M_STEPS)
