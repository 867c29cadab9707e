// SPDX-License-Identifier: Apache-2.0
// DeepGEMM's sum of bf16 products for the B200, launched as csrc/jit_kernels does: two
// products of 256 x 128 x 128.
#include <deep_gemm/impls/sm100_bmk_bnk_mn.cuh>

#include "dg_tensor_map.cuh"

int main(void)
{
	using namespace deep_gemm;
	const unsigned s = 2, m = 256, n = 128, k = 128, split = 2, stages = 4;
	auto *a = filled<__nv_bfloat16>(s * m * k, number),
	     *b = filled<__nv_bfloat16>(s * n * k, number);
	float *d = zeros<float>(m * n);
	const auto bf16 = CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
		   f32 = CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
	const int shared =
	    128 * 128 * 2 + (128 + 128) * 64 * 2 * stages + (stages * 3 + 4) * 8 + 8;
	launch(sm100_bmn_bnk_mn_gemm_impl<m, n, k, 128, 128, 64, split, 128, 128,
					  stages, 128>,
	       m / 128 * (s * k / 64 / split), 128, shared, 1, s,
	       matrix_map(bf16, 2, a, k, s * m, 64, 128, 128),
	       matrix_map(bf16, 2, b, k, s * n, 64, 128, 128),
	       matrix_map(f32, 4, d, n, m, 128, 128, 128));
	return finish();
}
