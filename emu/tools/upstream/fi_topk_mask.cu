// SPDX-License-Identifier: Apache-2.0
// FlashInfer's TopKMaskLogits on a row that has an infinite logit.
#include <cub/cub.cuh>
// CUB no longer has these functors in CUDA 13.
namespace cub
{
struct Max {
	template <typename T>
	__device__ T operator()(T a, T b) const
	{
		return a < b ? b : a;
	}
};
struct Min {
	template <typename T>
	__device__ T operator()(T a, T b) const
	{
		return b < a ? b : a;
	}
};
struct Sum {
	template <typename T>
	__device__ T operator()(T a, T b) const
	{
		return a + b;
	}
};
} // namespace cub
#include <flashinfer/sampling.cuh>

#include "driver.cuh"

int main(void)
{
	const unsigned words = 2048;
	float *logits = filled<float>(
	    words, [](size_t i) { return i % 5 == 0 ? -INFINITY : number(i); });
	float *masked = zeros<float>(words);
	must(flashinfer::sampling::TopKMaskLogits<float, int>(logits, masked, nullptr,
							      1, 4, words),
	     "TopKMaskLogits");
	return finish();
}
