// SPDX-License-Identifier: Apache-2.0
// ThunderKittens' NVFP4 product for the B200, launched as its benchmark does: 512 x 512
// x 1024. Its main() instantiates five kernels; as a template that nobody calls it
// makes none.
#include <cuda_runtime.h>
#define main                                                                           \
	unused();                                                                      \
	template <typename>                                                            \
	int upstream_main
#include "nvfp4_b200_gemm.cu"
#undef main

#include "product.cuh"

// A scale for each 16 of k, in tiles of 128 rows by four of them.
static matrix random_scales(size_t rows, size_t k)
{
	matrix m = random_matrix<__nv_fp8_e4m3>(rows, k / 16);
	std::vector<unsigned char> tiles(m.bytes.size());
	for (size_t row = 0; row < rows; row++)
		for (size_t s = 0; s < k / 16; s++) {
			const size_t i = row * (k / 16) + s;
			m.value[i] = std::fabs(m.value[i]);
			tiles[(row / 128 * (k / 64) + s / 4) * 512 + row % 32 * 16 +
			      row % 128 / 32 * 4 + s % 4] = m.bytes[i] & 0x7F;
		}
	m.bytes = tiles;
	return m;
}

int main()
{
	using C = nvfp4_gemm::config<128, 5, 4, 12, 2, true>;
	using G = nvfp4_gemm::globals<C>;
	const size_t m = 512, n = 512, k = 1024;
	const matrix a = random_fp4(m, k), b = random_fp4(n, k),
		     as = random_scales(m, k), bs = random_scales(n, k);
	const float global[] = {0.75f, 0.0625f};
	auto *ag = filled<float>(1, [&](size_t) { return global[0]; });
	auto *bg = filled<float>(1, [&](size_t) { return global[1]; });
	auto *d = zeros<__nv_bfloat16>(m * n);
	typename G::A_fp4x2_gl a_gl{(__nv_fp4x2_e2m1 *)a.on_device(), nullptr, nullptr,
				    m, k / 2};
	typename G::A_sc_gl as_gl{(half *)as.on_device(), nullptr, m / 128, k / 64,
				  nullptr};
	typename G::A_sc_global_gl ag_gl{ag, nullptr, nullptr, nullptr, nullptr};
	typename G::B_fp4x2_gl b_gl{(__nv_fp4x2_e2m1 *)b.on_device(), nullptr, nullptr,
				    n, k / 2};
	typename G::B_sc_gl bs_gl{(half *)bs.on_device(), nullptr, n / 128, k / 64,
				  nullptr};
	typename G::B_sc_global_gl bg_gl{bg, nullptr, nullptr, nullptr, nullptr};
	typename G::D_gl d_gl{d, nullptr, nullptr, m, n};
	G g{a_gl, as_gl, ag_gl, b_gl, bs_gl, bg_gl, d_gl};
	must(cudaFuncSetAttribute(kernel_entrypoint<C>,
				  cudaFuncAttributeMaxDynamicSharedMemorySize,
				  g.dynamic_shared_memory()),
	     "cudaFuncSetAttribute");
	LaunchConfig<true, true> launch(g.grid(), g.block(), g.dynamic_shared_memory(),
					0, C::CLUSTER_SIZE);
	must(cudaLaunchKernelEx(launch, kernel_entrypoint<C>, g), "launch");
	return compare(
	    d, m, n, k,
	    [&](size_t i, size_t l) {
		    return a.at(i, l) * as.at(i, l / 16) * global[0];
	    },
	    [&](size_t j, size_t l) {
		    return b.at(j, l) * bs.at(j, l / 16) * global[1];
	    });
}
