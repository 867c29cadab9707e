/* SPDX-License-Identifier: Apache-2.0 */
/* small_m_bf16.cu - gemm.cuh for A of bf16 and tiles of at most NIB_SMALL_M_MAX rows of
 * A. */
#include "gemm.cuh"

GEMM_KERNEL(nib_gemm_small_m_bf16_sm90, NIB_SMALL_M_THREADS, false, NIB_A_BF16,
	    NIB_SMALL_M_STEPS)
GEMM_KERNEL(nib_dual_small_m_bf16_sm90, NIB_SMALL_M_THREADS, true, NIB_A_BF16,
	    NIB_SMALL_M_STEPS)
