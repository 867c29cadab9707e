/* SPDX-License-Identifier: Apache-2.0 */
/* sm90_short.cu - the products of sm90_gemm.cu and sm90_dual.cu where no tile has
 * more than NIB_SHORT_TOKENS tokens; the same bits. */
#include "sm90_gemm.cuh"

extern "C" __global__ void __launch_bounds__(NIB_GEMM_THREADS, 1)
nib_gemm_short_sm90(const __grid_constant__ struct nib_gemm_launch p)
{
	gemm<false, NIB_SHORT_STEPS>(&p.args, p.problems);
}

extern "C" __global__ void __launch_bounds__(NIB_GEMM_THREADS, 1)
nib_dual_short_sm90(const __grid_constant__ struct nib_gemm_launch p)
{
	gemm<true, NIB_SHORT_STEPS>(&p.args, p.problems);
}
