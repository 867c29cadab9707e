// SPDX-License-Identifier: Apache-2.0
// FlashInfer's FilteredTopK on a row whose values agree in their first bits, so that
// the candidates overflow shared memory and are refined from global memory.
#include <flashinfer/math.cuh>
#include <flashinfer/topk.cuh>

#include "driver.cuh"

int main(void)
{
	const unsigned words = 20000, k = 64;
	float *input = filled<float>(words, [](size_t i) {
		return 1.0f + float(i * 2654435761u >> 12 & 0xfffff) * 1e-9f;
	});
	int *indices = zeros<int>(k),
	    *lengths = filled<int>(1, [](size_t) { return words; });
	float *values = zeros<float>(k);
	must(flashinfer::sampling::FilteredTopK<float, int>(input, indices, values,
							    lengths, 1, k, words),
	     "FilteredTopK");
	return finish();
}
