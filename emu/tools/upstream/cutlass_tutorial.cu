// SPDX-License-Identifier: Apache-2.0
// CUTLASS's Hopper tutorial wgmma_tma_sm90.cu, its product of 256 x 256 x 256.
#define main upstream_main
#include "wgmma_tma_sm90.cu"
#undef main

#include "driver.cuh"

int main(void)
{
	using half = cute::half_t;
	const int size = 256;
	auto *a = filled<half>(size * size, number),
	     *b = filled<half>(size * size, number);
	half *c = zeros<half>(size * size);
	gemm('T', 'N', size, size, size, half(1.0f), a, size, b, size, half(0.0f), c,
	     size);
	return finish();
}
