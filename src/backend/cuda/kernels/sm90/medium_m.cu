/* SPDX-License-Identifier: Apache-2.0 */
/* medium_m.cu - gemm.cuh for tiles of at most NIB_MEDIUM_M_MAX rows of A; the same bits
 * as gemm.cu and dual.cu. */
#include "gemm.cuh"

GEMM_KERNEL(nib_gemm_medium_m_sm90, NIB_GEMM_THREADS, false, NIB_A_FP16,
	    NIB_MEDIUM_M_STEPS)
GEMM_KERNEL(nib_dual_medium_m_sm90, NIB_GEMM_THREADS, true, NIB_A_FP16,
	    NIB_MEDIUM_M_STEPS)
