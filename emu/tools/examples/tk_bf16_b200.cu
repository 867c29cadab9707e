// SPDX-License-Identifier: Apache-2.0
// ThunderKittens' bf16 product for the B200, launched as its benchmark does: 512 x 128
// x 512. Its main() instantiates five kernels; as a template that nobody calls it makes
// none.
#include <cuda_runtime.h>
#define main                                                                           \
	unused();                                                                      \
	template <typename>                                                            \
	int upstream_main
#include "bf16_b200_gemm.cu"
#undef main

#include "product.cuh"

int main()
{
	using C = config<256, 64, 128, 4, true, 5, 2>;
	using G = globals<C>;
	const size_t m = 512, n = 128, k = 512;
	const matrix a = random_matrix<__nv_bfloat16>(m, k),
		     b = random_matrix<__nv_bfloat16>(n, k);
	auto *d = zeros<__nv_bfloat16>(m * n);
	typename G::a_gl ag{(__nv_bfloat16 *)a.on_device(), nullptr, nullptr, m, k};
	typename G::b_gl bg{(__nv_bfloat16 *)b.on_device(), nullptr, nullptr, n, k};
	typename G::d_gl dg{d, nullptr, nullptr, m, n};
	G g{ag, bg, dg};
	must(cudaFuncSetAttribute(kernel<C>,
				  cudaFuncAttributeMaxDynamicSharedMemorySize,
				  g.dynamic_shared_memory()),
	     "cudaFuncSetAttribute");
	LaunchConfig<true, true> launch(g.grid(), g.block(), g.dynamic_shared_memory(),
					0, C::CLUSTER_SIZE);
	must(cudaLaunchKernelEx(launch, kernel<C>, g), "launch");
	return compare(
	    d, m, n, k, [&](size_t i, size_t l) { return a.at(i, l); },
	    [&](size_t j, size_t l) { return b.at(j, l); });
}
