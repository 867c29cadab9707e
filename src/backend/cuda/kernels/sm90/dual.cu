/* SPDX-License-Identifier: Apache-2.0 */
/* dual.cu - C = silu(alpha * A * B^T) * (alpha2 * A * B2^T) by gemm.cuh. */
#include "gemm.cuh"

GEMM_KERNEL(nib_dual_sm90, NIB_GEMM_THREADS, true, NIB_A_FP16, NIB_LARGE_M_STEPS)
