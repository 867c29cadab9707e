// SPDX-License-Identifier: Apache-2.0
// FlashInfer's VariableLengthMergeStates: each of two SMs' blocks merges several
// positions.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <flashinfer/attention/cascade.cuh>

#include "driver.cuh"

int main(void)
{
	const unsigned positions = 40, heads = 2, dim = 64, sets = 16;
	half *v = filled<half>(positions * sets * heads * dim, number);
	float *s = filled<float>(positions * sets * heads, number);
	int *indptr = filled<int>(positions + 1, [](size_t i) { return i * sets; });
	half *merged = zeros<half>(positions * heads * dim);
	float *lse = zeros<float>(positions * heads);
	must(flashinfer::VariableLengthMergeStates<half, half, int>(
		 v, s, indptr, merged, lse, positions, nullptr, heads, dim, false),
	     "VariableLengthMergeStates");
	return finish();
}
