// SPDX-License-Identifier: Apache-2.0
// What the drivers of upstream kernels share: buffers of the device, and the end.
#pragma once
#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

// Ends the program with 2: the driver itself could not go on.
inline void give_up(const char *what, const char *why)
{
	fprintf(stderr, "driver: %s: %s\n", what, why);
	exit(2);
}

inline void must(cudaError_t error, const char *what)
{
	if (error != cudaSuccess)
		give_up(what, cudaGetErrorString(error));
}

// COUNT elements on the device with the values of VALUE(i). Never freed.
template <typename T, typename F>
T *filled(size_t count, F value)
{
	std::vector<T> host(count);
	for (size_t i = 0; i < count; i++)
		host[i] = T(value(i));
	T *device = nullptr;
	must(cudaMalloc(&device, count * sizeof(T)), "cudaMalloc");
	must(cudaMemcpy(device, host.data(), count * sizeof(T), cudaMemcpyHostToDevice),
	     "cudaMemcpy");
	return device;
}

// COUNT elements on the device with all bits 0. Never freed.
template <typename T>
T *zeros(size_t count)
{
	T *device = nullptr;
	must(cudaMalloc(&device, count * sizeof(T)), "cudaMalloc");
	must(cudaMemset(device, 0, count * sizeof(T)), "cudaMemset");
	return device;
}

// Small numbers of either sign that differ between neighbours.
inline float number(size_t i)
{
	return float(int(i * 2654435761u >> 20 & 255) - 128) / 64;
}

// 0 when the launches before it ran without a report, otherwise 1.
inline int finish(void)
{
	cudaError_t error = cudaDeviceSynchronize();
	if (error == cudaSuccess)
		return 0;
	fprintf(stderr, "driver: %s\n", cudaGetErrorString(error));
	return 1;
}
