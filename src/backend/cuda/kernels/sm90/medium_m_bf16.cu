/* SPDX-License-Identifier: Apache-2.0 */
/* medium_m_bf16.cu - gemm.cuh for A of bf16 and tiles of at most NIB_MEDIUM_M_MAX rows
 * of A. */
#include "gemm.cuh"

GEMM_KERNEL(nib_gemm_medium_m_bf16_sm90, NIB_GEMM_THREADS, false, NIB_A_BF16,
	    NIB_MEDIUM_M_STEPS)
GEMM_KERNEL(nib_dual_medium_m_bf16_sm90, NIB_GEMM_THREADS, true, NIB_A_BF16,
	    NIB_MEDIUM_M_STEPS)
