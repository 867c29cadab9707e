// SPDX-License-Identifier: Apache-2.0
// DeepGEMM's bf16 product for the B200, launched as csrc/jit_kernels does: pairs of
// CTAs, 512 x 256 x 512 in blocks of 128 x 128 x 64.
#include <deep_gemm/impls/sm100_bf16_gemm.cuh>

#include "dg_tensor_map.cuh"

int main(void)
{
	using namespace deep_gemm;
	const unsigned m = 512, n = 256, k = 512, sms = 4;
	auto *a = filled<__nv_bfloat16>(m * k, number),
	     *b = filled<__nv_bfloat16>(n * k, number);
	auto *d = zeros<__nv_bfloat16>(m * n);
	const auto type = CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
	const int stages = 4, shared = 2 * 128 * 128 +
				       stages * (128 * 64 + 64 * 64) * 2 +
				       (stages * 3 + 5) * 8 + 8;
	launch(sm100_bf16_gemm_impl<cute::UMMA::Major::K, cute::UMMA::Major::K, 0, 0, 0,
				    128, 128, 64, 1, 128, 128, 128, stages, 128, 128, 2,
				    false, sms, GemmType::Normal, false,
				    cutlass::bfloat16_t, 100>,
	       sms, 256, shared, 2, (int *)nullptr, m, n, k,
	       matrix_map(type, 2, a, k, m, 64, 128, 128),
	       matrix_map(type, 2, b, k, n, 64, 64, 128),
	       matrix_map(type, 2, d, n, m, 64, 128, 128));
	return finish();
}
