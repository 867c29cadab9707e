/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sync.cu - what looks like an order of threads or of work and is none: barriers in
 * conditions, volatile, streams; and indices that leave a shared array.  Each with a
 * version without the bug, run as races.cu is.
 */
#include <cuda_runtime.h>
#include <stdio.h>
#include <string.h>

#define N 1024

/* ---- barriers ------------------------------------------------------------ */

template <bool is_right>
__global__ void barrier_in_condition(float *out, const float *in, int n)
{
	__shared__ float tile[64];
	const int t = threadIdx.x;

	if (is_right) {
		tile[t] = t < n ? in[t] : 0;
		__syncthreads();
		if (t < n)
			out[t] = tile[63 - t];
	} else if (t < n) {
		tile[t] = in[t];
		__syncthreads();
		out[t] = tile[n - 1 - t];
	}
}

template <bool is_right>
__global__ void barrier_in_loop(float *out, const float *in)
{
	__shared__ float part[64];
	const int t = threadIdx.x;

	part[t] = in[t];
	__syncthreads();
	for (int k = 32; k; k /= 2) {
		if (t < k) {
			part[t] += part[t + k];
			if (!is_right)
				__syncthreads();
		}
		if (is_right)
			__syncthreads();
	}
	if (t == 0)
		*out = part[0];
}

template <bool is_right>
__global__ void early_return(float *out, const float *in, int n)
{
	__shared__ float tile[64];
	const int t = threadIdx.x;

	if (!is_right && t >= n)
		return;
	tile[t] = in[t];
	__syncthreads();
	if (t < n)
		out[t] = tile[t ^ 1];
}

/* ---- volatile ------------------------------------------------------------ */

template <bool is_right>
__global__ void volatile_warp(float *out, const float *in)
{
	__shared__ float part[64];
	volatile float *v = part;
	const int t = threadIdx.x;

	v[t] = in[t];
	__syncthreads();
	for (int k = 32; k && t < 32; k /= 2) {
		const float x = v[t] + v[t + k];

		if (is_right)
			__syncwarp();
		v[t] = x;
		if (is_right)
			__syncwarp();
	}
	if (t == 0)
		*out = v[0];
}

template <bool is_right>
__global__ void last_block(float *out, const float *in, volatile float *part,
			   unsigned *count)
{
	float sum = 0;

	if (threadIdx.x)
		return;
	for (int k = 0; k < 16; k++)
		sum += in[16 * blockIdx.x + k];
	part[blockIdx.x] = sum;
	if (is_right)
		__threadfence();
	if (atomicAdd(count, 1) != gridDim.x - 1)
		return;
	if (is_right)
		__threadfence();
	sum = 0;
	for (unsigned b = 0; b < gridDim.x; b++)
		sum += part[b];
	*out = sum;
}

/* ---- one value ----------------------------------------------------------- */

/* All threads store the same to a shared word, by one instruction. */
template <bool is_right>
__global__ void shared_flag_strict(int *out, const int *in)
{
	__shared__ int found;

	if (threadIdx.x == 0)
		found = 0;
	__syncthreads();
	if (in[threadIdx.x] == 0 && (!is_right || threadIdx.x == 0))
		found = 1;
	__syncthreads();
	out[threadIdx.x] = found;
}

/* ---- arrays -------------------------------------------------------------- */

template <bool is_right>
__global__ void past_the_end(float *out, const float *in)
{
	__shared__ float first[64], second[64];
	const int t = threadIdx.x;

	second[t] = in[t];
	__syncthreads();
	first[is_right ? t : t + (t == 63)] = in[t];
	__syncthreads();
	out[t] = first[t / 2] + second[t];
}

template <bool is_right>
__global__ void before_the_begin(int *out, const int *in)
{
	__shared__ int counts[32], sums[32];
	const int t = threadIdx.x, bin = in[t] % 32;

	counts[t] = sums[t] = 0;
	__syncthreads();
	atomicAdd(&counts[bin], 1);
	atomicAdd(&sums[is_right ? bin : bin - 1], in[t]);
	__syncthreads();
	out[t] = counts[t] + sums[t];
}

/* ---- streams ------------------------------------------------------------- */

__global__ void scale(float *out, const float *in)
{
	out[threadIdx.x] = 2 * in[threadIdx.x];
}

static void event_between_kernels(bool is_right, float *a, float *b, float *c)
{
	cudaStream_t one, two;
	cudaEvent_t done;

	cudaStreamCreate(&one);
	cudaStreamCreate(&two);
	cudaEventCreate(&done);
	scale<<<1, 64, 0, one>>>(b, a);
	cudaEventRecord(done, one);
	if (is_right)
		cudaStreamWaitEvent(two, done, 0);
	scale<<<1, 64, 0, two>>>(c, b);
}

static void copy_after_kernel(bool is_right, float *a, float *b, float *c)
{
	cudaStream_t one, two;

	cudaStreamCreate(&one);
	cudaStreamCreate(&two);
	scale<<<1, 64, 0, one>>>(b, a);
	if (is_right)
		cudaStreamSynchronize(one);
	cudaMemcpyAsync(c, b, 256, cudaMemcpyDeviceToDevice, two);
}

/* A stream that does not wait for the default one. */
static void result_of_a_stream(bool is_right, float *a, float *b, float *c)
{
	cudaStream_t one;
	float result[64];

	cudaStreamCreateWithFlags(&one, cudaStreamNonBlocking);
	scale<<<1, 64, 0, one>>>(b, a);
	if (is_right)
		cudaStreamSynchronize(one);
	cudaMemcpy(result, b, sizeof(result), cudaMemcpyDeviceToHost);
}

/* The event is recorded before the work that it should follow. */
static void event_too_early(bool is_right, float *a, float *b, float *c)
{
	cudaStream_t one, two;
	cudaEvent_t done;

	cudaStreamCreate(&one);
	cudaStreamCreate(&two);
	cudaEventCreate(&done);
	if (!is_right)
		cudaEventRecord(done, one);
	scale<<<1, 64, 0, one>>>(b, a);
	if (is_right)
		cudaEventRecord(done, one);
	cudaStreamWaitEvent(two, done, 0);
	scale<<<1, 64, 0, two>>>(b, c);
}

/* The default stream waits for others, and they wait for it; reads need no order. */
static void default_stream(bool is_right, float *a, float *b, float *c)
{
	cudaStream_t one, two;

	cudaStreamCreateWithFlags(&one,
				  is_right ? cudaStreamDefault : cudaStreamNonBlocking);
	cudaStreamCreate(&two);
	scale<<<1, 64, 0, one>>>(b, a);
	scale<<<1, 64, 0, two>>>(c, a);
	scale<<<1, 64>>>(a, b);
	scale<<<1, 64, 0, two>>>(c, a);
	cudaDeviceSynchronize();
	scale<<<1, 64, 0, one>>>(c, b);
}

/* ---- the program --------------------------------------------------------- */

static float *a, *b, *c;

#define KERNEL(name, blocks, threads, ...)                                             \
	static void run_##name(bool is_right)                                          \
	{                                                                              \
		if (is_right)                                                          \
			name<true><<<blocks, threads>>>(__VA_ARGS__);                  \
		else                                                                   \
			name<false><<<blocks, threads>>>(__VA_ARGS__);                 \
	}
#define STREAMS(name)                                                                  \
	static void run_##name(bool is_right)                                          \
	{                                                                              \
		name(is_right, a, b, c);                                               \
	}

KERNEL(barrier_in_condition, 1, 64, b, a, 40)
KERNEL(barrier_in_loop, 1, 64, b, a)
KERNEL(early_return, 1, 64, b, a, 50)
KERNEL(volatile_warp, 1, 64, b, a)
KERNEL(last_block, 8, 32, b, a, c, (unsigned *)c + 100)
KERNEL(shared_flag_strict, 1, 64, (int *)b, (int *)a)
KERNEL(past_the_end, 1, 64, b, a)
KERNEL(before_the_begin, 1, 32, (int *)b, (int *)a)
STREAMS(event_between_kernels)
STREAMS(copy_after_kernel)
STREAMS(result_of_a_stream)
STREAMS(event_too_early)
STREAMS(default_stream)

#define CASE(name)                                                                     \
	{                                                                              \
#name, run_##name                                                      \
	}

static const struct {
	const char *name;
	void (*run)(bool is_right);
} cases[] = {
    CASE(barrier_in_condition), CASE(barrier_in_loop),	  CASE(early_return),
    CASE(volatile_warp),	CASE(last_block),	  CASE(shared_flag_strict),
    CASE(past_the_end),		CASE(before_the_begin),	  CASE(event_between_kernels),
    CASE(copy_after_kernel),	CASE(result_of_a_stream), CASE(event_too_early),
    CASE(default_stream),
};

int main(int count, char **words)
{
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
		if (count == 1) {
			puts(cases[i].name);
		} else if (strcmp(words[1], cases[i].name) == 0) {
			cudaMalloc(&a, 4 * N);
			cudaMalloc(&b, 4 * N);
			cudaMalloc(&c, 4 * N);
			cudaMemset(a, 0, 4 * N);
			cudaMemset(b, 0, 4 * N);
			cudaMemset(c, 0, 4 * N);
			cases[i].run(strcmp(words[2], "right") == 0);
			return cudaDeviceSynchronize() != cudaSuccess;
		}
	return count != 1;
}
