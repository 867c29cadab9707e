// SPDX-License-Identifier: Apache-2.0
// ThunderKittens' NVFP4 product for the B200, launched as its benchmark does: 256 x 512
// x 512. Its main() instantiates five kernels; as a template that nobody calls it makes
// none.
#include <cuda_runtime.h>
#define main                                                                           \
	unused();                                                                      \
	template <typename>                                                            \
	int upstream_main
#include "nvfp4_b200_gemm.cu"
#undef main

#include "driver.cuh"

int main()
{
	using C = nvfp4_gemm::config<128, 5, 4, 12, 2, true>;
	using G = nvfp4_gemm::globals<C>;
	const size_t m = 256, n = 512, k = 512;
	auto some = [](size_t i) { return (unsigned char)(i * 2654435761u >> 20); };
	auto *a = filled<unsigned char>(m * k / 2, some),
	     *b = filled<unsigned char>(n * k / 2, some);
	auto scale = [](size_t i) { return 1.0f + i % 3; };
	auto *as = filled<__nv_fp8_e4m3>(m * k / 16, scale),
	     *bs = filled<__nv_fp8_e4m3>(n * k / 16, scale);
	auto *ag = filled<float>(1, scale), *bg = filled<float>(1, scale);
	auto *d = zeros<__nv_bfloat16>(m * n);
	typename G::A_fp4x2_gl a_gl{(__nv_fp4x2_e2m1 *)a, nullptr, nullptr, m, k / 2};
	typename G::A_sc_gl as_gl{(half *)as, nullptr, m / 128, k / 64, nullptr};
	typename G::A_sc_global_gl ag_gl{ag, nullptr, nullptr, nullptr, nullptr};
	typename G::B_fp4x2_gl b_gl{(__nv_fp4x2_e2m1 *)b, nullptr, nullptr, n, k / 2};
	typename G::B_sc_gl bs_gl{(half *)bs, nullptr, n / 128, k / 64, nullptr};
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
	return finish();
}
