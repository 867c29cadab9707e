// SPDX-License-Identifier: Apache-2.0
// FlashInfer's SamplingFromProb on a row of NaN. The fix gave the launcher one argument
// more.
#include <flashinfer/sampling.cuh>

#include "driver.cuh"

template <typename... More>
cudaError_t sample(float *probs, int *output, unsigned words, More... valid)
{
	return flashinfer::sampling::SamplingFromProb<float, int>(
	    probs, output, valid..., (int *)nullptr, 1u, words, true,
	    (uint64_t *)nullptr, uint64_t(7), (uint64_t *)nullptr, uint64_t(0));
}

// Takes the launcher that this tree has.
template <typename T>
auto sample_any(T *probs, int *output, unsigned words, bool *valid, int)
    -> decltype(flashinfer::sampling::SamplingFromProb<T, int>(
	probs, output, valid, (int *)nullptr, 1u, words, true, (uint64_t *)nullptr,
	uint64_t(7), (uint64_t *)nullptr, uint64_t(0)))
{
	return sample(probs, output, words, valid);
}
template <typename T>
cudaError_t sample_any(T *probs, int *output, unsigned words, bool *, long)
{
	return sample(probs, output, words);
}

int main(void)
{
	const unsigned words = 2048;
	float *probs = filled<float>(words, [](size_t) { return NAN; });
	must(sample_any(probs, zeros<int>(1), words, zeros<bool>(1), 0),
	     "SamplingFromProb");
	return finish();
}
