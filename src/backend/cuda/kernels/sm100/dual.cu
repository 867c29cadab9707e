/* SPDX-License-Identifier: Apache-2.0 */
/* dual.cu - C = silu(alpha * A * B^T) * (alpha2 * A * B2^T) by gemm.cuh. */
#include "gemm.cuh"

KERNEL(nib_dual_pair_few_sm100, true, 2, nib_sm100_few)
KERNEL(nib_dual_pair_many_sm100, true, 2, nib_sm100_many)
KERNEL(nib_dual_single_few_sm100, true, 1, nib_sm100_few)
KERNEL(nib_dual_single_many_sm100, true, 1, nib_sm100_many)
