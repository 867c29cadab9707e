/* SPDX-License-Identifier: Apache-2.0 */
/* gemm.cu - single products and groups by gemm.cuh. */
#include "gemm.cuh"

KERNEL(nib_gemm_pair_few_sm100, false, 2, nib_sm100_few)
KERNEL(nib_gemm_pair_many_sm100, false, 2, nib_sm100_many)
KERNEL(nib_gemm_single_few_sm100, false, 1, nib_sm100_few)
KERNEL(nib_gemm_single_many_sm100, false, 1, nib_sm100_many)
