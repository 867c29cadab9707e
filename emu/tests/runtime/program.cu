/* SPDX-License-Identifier: Apache-2.0 */
/*
 * program.cu - an ordinary program of CUDA's runtime library, built by nvcc.  It
 * runs on the software GPU when LD_LIBRARY_PATH names its folder.  Prints "right",
 * or what was wrong.
 *
 * program [race]: the same with a __syncthreads() missing.
 */
#include <cooperative_groups.h>
#include <cuda_runtime.h>
#include <stdio.h>
#include <string.h>

#define N 1000

__constant__ float factor;
__device__ int calls;
__managed__ int managed;

template <bool is_right>
__global__ void reverse(const float *in, float *out)
{
	__shared__ float tile[256];

	tile[threadIdx.x] = factor * in[blockIdx.x * 256 + threadIdx.x];
	if (is_right)
		__syncthreads();
	out[blockIdx.x * 256 + threadIdx.x] = tile[255 - threadIdx.x];
	if (threadIdx.x == 0)
		atomicAdd(&calls, 1);
	if (threadIdx.x + blockIdx.x == 0)
		managed = 7;
}

/* All blocks add 1, synchronise, and see what all have added. */
__global__ void meet(int *sum, int *seen)
{
	if (threadIdx.x == 0)
		atomicAdd(sum, 1);
	cooperative_groups::this_grid().sync();
	if (threadIdx.x == 0)
		seen[blockIdx.x] = *(volatile int *)sum;
}

__global__ void fill(int *to, int value)
{
	to[threadIdx.x] = value;
}

static int fail(const char *what, cudaError_t error)
{
	printf("wrong: %s: %s\n", what, cudaGetErrorString(error));
	return 1;
}

#define MUST(call)                                                                     \
	do {                                                                           \
		const cudaError_t error_ = (call);                                     \
		if (error_ != cudaSuccess)                                             \
			return fail(#call, error_);                                    \
	} while (0)
#define EXPECT(condition)                                                              \
	do {                                                                           \
		if (!(condition))                                                      \
			return fail(#condition, cudaGetLastError());                   \
	} while (0)

static int run_reverse(bool is_right)
{
	float host[4 * 256], *in, *out;
	const float two = 2;
	int count = 0;

	for (int i = 0; i < 4 * 256; i++)
		host[i] = (float)i;
	MUST(cudaMalloc(&in, sizeof(host)));
	MUST(cudaMalloc(&out, sizeof(host)));
	MUST(cudaMemcpy(in, host, sizeof(host), cudaMemcpyHostToDevice));
	MUST(cudaMemcpyToSymbol(factor, &two, sizeof(two)));
	if (is_right)
		reverse<true><<<4, 256>>>(in, out);
	else
		reverse<false><<<4, 256>>>(in, out);
	MUST(cudaGetLastError());
	MUST(cudaDeviceSynchronize());
	MUST(cudaMemcpy(host, out, sizeof(host), cudaMemcpyDeviceToHost));
	for (int i = 0; i < 4 * 256; i++)
		EXPECT(host[i] == 2 * (float)(i / 256 * 256 + 255 - i % 256));
	MUST(cudaMemcpyFromSymbol(&count, calls, sizeof(count)));
	EXPECT(count == 4);
	EXPECT(managed == 7);
	MUST(cudaFree(in));
	MUST(cudaFree(out));
	return 0;
}

static int run_cooperative(void)
{
	int *sum, *seen, host[8];
	void *arguments[] = {&sum, &seen};

	MUST(cudaMalloc(&sum, sizeof(*sum)));
	MUST(cudaMallocManaged(&seen, sizeof(host)));
	MUST(cudaMemset(sum, 0, sizeof(*sum)));
	MUST(cudaLaunchCooperativeKernel((const void *)meet, dim3(8), dim3(64),
					 arguments, 0, 0));
	MUST(cudaDeviceSynchronize());
	memcpy(host, seen, sizeof(host));
	for (int i = 0; i < 8; i++)
		EXPECT(host[i] == 8);
	MUST(cudaFree(sum));
	MUST(cudaFree(seen));
	return 0;
}

static int run_stream(void)
{
	cudaStream_t stream;
	cudaEvent_t begin, end;
	cudaGraph_t graph;
	cudaGraphExec_t exec;
	float ms = -1;
	int *data, host[2][32];

	MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	MUST(cudaEventCreate(&begin));
	MUST(cudaEventCreate(&end));
	MUST(cudaMallocAsync(&data, sizeof(host), stream));
	MUST(cudaEventRecord(begin, stream));
	MUST(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
	fill<<<1, 32, 0, stream>>>(data, 3);
	fill<<<1, 32, 0, stream>>>(data + 32, 4);
	MUST(cudaStreamEndCapture(stream, &graph));
	MUST(cudaGraphInstantiate(&exec, graph, 0));
	MUST(cudaGraphLaunch(exec, stream));
	MUST(cudaMemcpyAsync(host, data, sizeof(host), cudaMemcpyDeviceToHost, stream));
	MUST(cudaEventRecord(end, stream));
	MUST(cudaStreamSynchronize(stream));
	MUST(cudaEventElapsedTime(&ms, begin, end));
	EXPECT(ms >= 0);
	for (int i = 0; i < 32; i++)
		EXPECT(host[0][i] == 3 && host[1][i] == 4);
	MUST(cudaGraphExecDestroy(exec));
	MUST(cudaGraphDestroy(graph));
	MUST(cudaFreeAsync(data, stream));
	MUST(cudaStreamDestroy(stream));
	return 0;
}

static int run_questions(void)
{
	cudaDeviceProp device;
	cudaFuncAttributes function;
	int blocks = 0, major = 0, count = 0;

	MUST(cudaGetDeviceCount(&count));
	EXPECT(count == 1);
	MUST(cudaGetDeviceProperties(&device, 0));
	MUST(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0));
	EXPECT(device.major == major && device.warpSize == 32);
	EXPECT(device.multiProcessorCount > 0);
	EXPECT(device.sharedMemPerBlockOptin > device.sharedMemPerBlock);
	EXPECT(device.clusterLaunch == 1 && device.cooperativeLaunch == 1);
	MUST(cudaFuncGetAttributes(&function, reverse<true>));
	EXPECT(function.sharedSizeBytes == 1024);
	MUST(cudaFuncSetAttribute(reverse<true>,
				  cudaFuncAttributeMaxDynamicSharedMemorySize, 65536));
	MUST(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, reverse<true>, 256,
							   65536));
	EXPECT(blocks >= 1 && blocks <= 3);
	/* An error is kept once. */
	EXPECT(cudaSetDevice(1) == cudaErrorInvalidDevice);
	EXPECT(cudaGetLastError() == cudaErrorInvalidDevice);
	EXPECT(cudaGetLastError() == cudaSuccess);
	return 0;
}

int main(int argc, char **argv)
{
	const bool races = argc > 1 && strcmp(argv[1], "race") == 0;

	if (run_reverse(!races) || run_cooperative() || run_stream() || run_questions())
		return 1;
	puts("right");
	return 0;
}
