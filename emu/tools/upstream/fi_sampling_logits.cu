// SPDX-License-Identifier: Apache-2.0
// FlashInfer's SamplingFromLogits on two rows that take more than one pass of a block.
#include <flashinfer/sampling.cuh>

#include "driver.cuh"

int main(void)
{
	const unsigned rows = 2, words = 10000;
	float *logits = filled<float>(rows * words, number);
	int *output = zeros<int>(rows);
	must(flashinfer::sampling::SamplingFromLogits<float, int>(
		 logits, output, nullptr, rows, words, true, nullptr, 7, nullptr, 0),
	     "SamplingFromLogits");
	return finish();
}
