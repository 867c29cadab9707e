// SPDX-License-Identifier: Apache-2.0
// DeepGEMM's bf16 product for Hopper, launched as csrc/jit_kernels does: clusters of
// two CTAs that share B, 256 x 256 x 512 in blocks of 128 x 128 x 64.
#include <deep_gemm/impls/sm90_bf16_gemm.cuh>

#include "dg_tensor_map.cuh"
#include "product.cuh"

int main(void)
{
	using namespace deep_gemm;
	const unsigned m = 256, n = 256, k = 512, sms = 4;
	const matrix a = random_matrix<__nv_bfloat16>(m, k),
		     b = random_matrix<__nv_bfloat16>(n, k);
	auto *d = zeros<__nv_bfloat16>(m * n);
	const auto type = CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
	const int stages = 4, shared = 128 * 128 * 2 +
				       stages * (128 * 64 + 128 * 64) * 2 + 16 * 8 * 2;
	launch(
	    sm90_bf16_gemm_impl<cute::UMMA::Major::K, cute::UMMA::Major::K, 0, 0, 0, 1,
				128, 128, 64, 128, 128, 128, stages, 128, 256, 2, false,
				sms, GemmType::Normal, false, cutlass::bfloat16_t>,
	    sms, 384, shared, 2, (int *)nullptr, m, n, k,
	    matrix_map(type, 2, a.on_device(), k, m, 64, 128, 128),
	    matrix_map(type, 2, b.on_device(), k, n, 64, 128, 128),
	    matrix_map(type, 2, d, n, m, 64, 128, 128));
	return compare(
	    d, m, n, k, [&](size_t i, size_t l) { return a.at(i, l); },
	    [&](size_t j, size_t l) { return b.at(j, l); });
}
