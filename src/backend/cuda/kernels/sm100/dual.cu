// SPDX-License-Identifier: Apache-2.0
// sm100_dual.cu - silu(A B^T) * (A B2^T): see sm100_gemm.cuh.
#include "gemm.cuh"

KERNEL(nib_dual_pair_few_sm100, true, 2, nib_sm100_few)
KERNEL(nib_dual_pair_many_sm100, true, 2, nib_sm100_many)
KERNEL(nib_dual_single_few_sm100, true, 1, nib_sm100_few)
KERNEL(nib_dual_single_many_sm100, true, 1, nib_sm100_many)
