// SPDX-License-Identifier: Apache-2.0
// DeepGEMM's fp8 product for Hopper, scales of A by 1 x 128 and of B by 128 x 128,
// launched as csrc/jit_kernels does: 256 x 256 x 512 in blocks of 128.
#include <deep_gemm/impls/sm90_fp8_gemm_1d2d.cuh>

#include "dg_tensor_map.cuh"
#include "product.cuh"

int main(void)
{
	using namespace deep_gemm;
	const unsigned m = 256, n = 256, k = 512, sms = 4;
	const matrix a = random_matrix<__nv_fp8_e4m3>(m, k),
		     b = random_matrix<__nv_fp8_e4m3>(n, k);
	// A's scales [k / 128][m], B's [n / 128][k / 128].
	const matrix sa = random_matrix<float>(k / 128, m),
		     sb = random_matrix<float>(n / 128, k / 128);
	auto *d = zeros<__nv_bfloat16>(m * n);
	const auto type = CU_TENSOR_MAP_DATA_TYPE_UINT8;
	const int stages = 4, shared = 128 * 128 * 2 + stages * (2 * 128 * 128 + 512) +
				       16 * 8 * 2 + int(k / 128) * 4;
	launch(sm90_fp8_gemm_1d2d_impl<cute::UMMA::Major::K, 0, 0, 0, 1, 128, 128, 128,
				       128, 128, 128, stages, 128, 256, 2, false, sms,
				       GemmType::Normal, cutlass::bfloat16_t,
				       epilogue::transform::EpilogueIdentity>,
	       sms, 384, shared, 2, (float *)sb.on_device(), (int *)nullptr, m, n, k,
	       matrix_map(type, 1, a.on_device(), k, m, 128, 128, 128),
	       matrix_map(type, 1, b.on_device(), k, n, 128, 128, 128),
	       matrix_map(CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, d, n, m, 64, 128, 128),
	       matrix_map(CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 4, sa.on_device(), m,
			  k / 128, 128, 1, 0));
	return compare(
	    d, m, n, k,
	    [&](size_t i, size_t l) { return a.at(i, l) * sa.at(l / 128, i); },
	    [&](size_t j, size_t l) { return b.at(j, l) * sb.at(j / 128, l / 128); },
	    // Hopper truncates the 33 terms of each of four sums to 13 bits after the
	    // largest.
	    4 * 33 * std::ldexp(1.0, -13));
}
