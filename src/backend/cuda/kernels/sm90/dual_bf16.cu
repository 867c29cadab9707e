/* SPDX-License-Identifier: Apache-2.0 */
/* dual_bf16.cu - the dual operation of gemm.cuh for A of bf16. */
#include "gemm.cuh"

GEMM_KERNEL(nib_dual_bf16_sm90, NIB_GEMM_THREADS, true, NIB_A_BF16, NIB_LARGE_M_STEPS)
