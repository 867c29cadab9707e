/* SPDX-License-Identifier: Apache-2.0 */
/* activations.cu - the conversion of activations of fp16 and bf16. */
#include "activations.cuh"

extern "C" __global__ void __launch_bounds__(NIB_CONVERT_THREADS)
    nib_activations_f16_sm90(const __grid_constant__ struct nib_gemm_launch p)
{
	convert_activations<NIB_A_FP16>(&p.args, p.problems);
}

extern "C" __global__ void __launch_bounds__(NIB_CONVERT_THREADS)
    nib_activations_bf16_sm90(const __grid_constant__ struct nib_gemm_launch p)
{
	convert_activations<NIB_A_BF16>(&p.args, p.problems);
}
