// SPDX-License-Identifier: Apache-2.0
// FlashInfer's RadixTopKMultiCTA on two rows that take two CTAs each, twice.
#include <flashinfer/math.cuh>
#include <flashinfer/topk.cuh>

#include "driver.cuh"

int main(void)
{
	const unsigned rows = 2, words = 80000, k = 32;
	float *input = filled<float>(rows * words, number),
	      *values = zeros<float>(rows * k);
	int *indices = zeros<int>(rows * k);
	auto *state = (flashinfer::sampling::RadixRowState *)zeros<char>(1 << 20);
	for (int i = 0; i < 2; i++)
		must(flashinfer::sampling::RadixTopKMultiCTA<float, int>(
			 input, indices, values, nullptr, rows, k, words, state, false),
		     "RadixTopKMultiCTA");
	return finish();
}
