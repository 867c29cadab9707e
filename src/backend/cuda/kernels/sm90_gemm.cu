/* SPDX-License-Identifier: Apache-2.0 */
/* sm90_gemm.cu - C = alpha * A * B^T, and what prepares its tokens. */
#include "sm90_gemm.cuh"
#include "sm90_tokens.cuh"

extern "C" __global__ void __launch_bounds__(NIB_GEMM_THREADS, 1)
nib_gemm_sm90(const __grid_constant__ struct nib_gemm_launch p)
{
	gemm<false, NIB_MANY_STEPS>(&p.args, p.problems);
}

extern "C" __global__ void __launch_bounds__(NIB_TOKENS_THREADS)
nib_tokens_sm90(const __grid_constant__ struct nib_gemm_launch p)
{
	prepare_tokens(&p.args, p.problems);
}
