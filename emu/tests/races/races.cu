/* SPDX-License-Identifier: Apache-2.0 */
/*
 * races.cu - 25 races on global memory as they occur in programs, each with a version
 * without it.  test_races.sh runs all of them; each race must be reported on the first
 * schedule, and nothing else.
 *
 * races                lists the names
 * races NAME wrong     runs the kernel with the race
 * races NAME right     runs the one without it
 */
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <stdio.h>
#include <string.h>

#define N	1024 /* elements of every buffer */
#define THREADS 128
#define BLOCKS	4

#define INDEX (int)(blockIdx.x * blockDim.x + threadIdx.x)

/* ---- one word, many threads ---------------------------------------------- */

template <bool is_right>
__global__ void count_threads(int *out, int *in)
{
	if (is_right)
		atomicAdd(out, 1);
	else
		out[0] += 1;
}

template <bool is_right>
__global__ void count_warps(int *out, int *in)
{
	if (threadIdx.x % 32)
		return;
	if (is_right)
		atomicAdd(out, 1);
	else
		out[0] += 1;
}

template <bool is_right>
__global__ void count_blocks(int *out, int *in)
{
	if (threadIdx.x == 0)
		out[is_right ? blockIdx.x : 0] += 1;
}

template <bool is_right>
__global__ void histogram(int *out, int *in)
{
	if (is_right)
		atomicAdd(&out[in[INDEX] % 64], 1);
	else
		out[in[INDEX] % 64]++;
}

template <bool is_right>
__global__ void last_index(int *out, int *in)
{
	if (is_right)
		atomicMax(out, INDEX);
	else
		out[0] = INDEX;
}

/* All threads store one value. */
template <bool is_right>
__global__ void found_it(int *out, int *in)
{
	if (in[INDEX] < 0)
		return;
	if (is_right)
		atomicExch(out, 1);
	else
		out[0] = 1;
}

template <bool is_right>
__global__ void set_bits(unsigned *out, int *in)
{
	const unsigned bit = 1u << (INDEX % 32);

	if (is_right)
		atomicOr(&out[INDEX / 32 % 8], bit);
	else
		out[INDEX / 32 % 8] |= bit;
}

template <bool is_right>
__global__ void push(int *out, int *in)
{
	const int at = is_right ? atomicAdd(out, 1) : out[0]++;

	out[1 + at] = in[INDEX];
}

template <bool is_right>
__global__ void largest(int *out, int *in)
{
	if (is_right)
		atomicMax(out, in[INDEX]);
	else if (out[0] < in[INDEX])
		out[0] = in[INDEX];
}

/* ---- sums of blocks ------------------------------------------------------ */

template <bool is_right>
__global__ void sum(float *out, float *in)
{
	__shared__ float part[THREADS];

	part[threadIdx.x] = in[INDEX];
	__syncthreads();
	for (int k = THREADS / 2; k; k /= 2) {
		if (threadIdx.x < k)
			part[threadIdx.x] += part[threadIdx.x + k];
		__syncthreads();
	}
	if (threadIdx.x)
		return;
	if (is_right)
		atomicAdd(out, part[0]);
	else
		out[0] += part[0];
}

/* A block reads the sums of the blocks before it. */
template <bool is_right>
__global__ void scan(int *out, int *in)
{
	int before = 0;

	if (threadIdx.x == 0)
		out[blockIdx.x] = in[blockIdx.x];
	for (unsigned b = 0; b < blockIdx.x; b++)
		before += is_right ? in[b] : out[b];
	out[64 + INDEX] = before;
}

/* Two warps of different blocks add to one row. */
template <bool is_right>
__global__ void rows(float *out, float *in)
{
	const int warp = INDEX / 32;
	const int row = is_right ? warp : warp % 8;
	float x = in[INDEX];

	for (int k = 16; k; k /= 2)
		x += __shfl_down_sync(~0u, x, k);
	if (threadIdx.x % 32 == 0)
		out[row] += x;
}

/* ---- in place ------------------------------------------------------------ */

template <bool is_right>
__global__ void stencil(float *out, float *in)
{
	const int i = INDEX + 1;
	float *to = is_right ? out : in;

	to[i] = (in[i - 1] + in[i + 1]) / 2;
}

/* Inside a block it is right; at its borders it reads what others store. */
template <bool is_right>
__global__ void stencil_of_tiles(float *out, float *in)
{
	const int i = INDEX + 1;
	float *to = is_right ? out : in;
	float x;

	x = (in[i - 1] + in[i + 1]) / 2;
	__syncthreads();
	to[i] = x;
}

template <bool is_right>
__global__ void transpose(float *out, float *in)
{
	const int x = INDEX % 16, y = INDEX / 16;
	float a, b;

	if (y >= 16 || (is_right && x >= y))
		return;
	a = in[16 * y + x];
	b = in[16 * x + y];
	in[16 * y + x] = b;
	in[16 * x + y] = a;
}

template <bool is_right>
__global__ void rank_pages(float *out, const float *in, int *next)
{
	const float *from = is_right ? in : out;

	out[INDEX] = 0.15f + 0.85f * from[next[INDEX] % N];
}

template <bool is_right>
__global__ void reverse(int *out, int *in)
{
	const int x = in[INDEX];
	int *to = is_right ? out : in;

	to[THREADS * BLOCKS - 1 - INDEX] = x;
}

/* ---- inside a block ------------------------------------------------------ */

template <bool is_right>
__global__ void neighbour(int *out, int *in)
{
	const int first = blockIdx.x * THREADS;

	out[INDEX] = in[INDEX];
	if (is_right)
		__syncthreads();
	in[INDEX] = out[first + (threadIdx.x + 32) % THREADS];
}

template <bool is_right>
__global__ void neighbour_lane(int *out, int *in)
{
	const int first = INDEX / 32 * 32;

	out[INDEX] = in[INDEX];
	if (is_right)
		__syncwarp();
	in[INDEX] = out[first + (INDEX + 1) % 32];
}

/* One thread makes a table, the others read it. */
template <bool is_right>
__global__ void table(int *out, int *in)
{
	int *mine = out + 16 * blockIdx.x;

	if (threadIdx.x == 0)
		for (int k = 0; k < 16; k++)
			mine[k] = k * k;
	if (is_right)
		__syncthreads();
	in[INDEX] = mine[threadIdx.x % 16];
}

/* ---- wrong indices ------------------------------------------------------- */

template <bool is_right>
__global__ void overlapping_tiles(int *out, int *in)
{
	const int stride = is_right ? THREADS : THREADS - 1;

	out[blockIdx.x * stride + threadIdx.x] = in[INDEX];
}

template <bool is_right>
__global__ void scatter(int *out, int *in)
{
	out[is_right ? INDEX : in[INDEX] % 97] = INDEX;
}

/* Every block handles the tail. */
template <bool is_right>
__global__ void tail(int *out, int *in)
{
	out[INDEX] = in[INDEX];
	if (threadIdx.x < 3 && (!is_right || blockIdx.x == 0))
		out[THREADS * BLOCKS + threadIdx.x] = in[threadIdx.x] + blockIdx.x;
}

/* Rows of 33 halves: pairs cross the border of two blocks' rows. */
template <bool is_right>
__global__ void halves(half *out, half *in)
{
	half *row = out + 33 * blockIdx.x;

	if (threadIdx.x < (is_right ? 33 : 34))
		row[threadIdx.x] = __int2half_rn(threadIdx.x + blockIdx.x);
}

template <bool is_right>
__global__ void vectors(float4 *out, float *in)
{
	float *to = (float *)out;

	out[INDEX % 64 + 64 * (INDEX / 64)] = make_float4(1, 2, 3, 4);
	if (!is_right)
		to[(4 * INDEX + 4 * THREADS) % (4 * THREADS * BLOCKS)] = 5;
}

/* ---- the program --------------------------------------------------------- */

#define RACE(name)                                                                     \
	{                                                                              \
#name, (const void *)name < false>, (const void *)name < true>         \
	}

static const struct {
	const char *name;
	const void *wrong, *right;
} races[] = {
    RACE(count_threads),
    RACE(count_warps),
    RACE(count_blocks),
    RACE(histogram),
    RACE(last_index),
    RACE(found_it),
    RACE(set_bits),
    RACE(push),
    RACE(largest),
    RACE(sum),
    RACE(scan),
    RACE(rows),
    RACE(stencil),
    RACE(stencil_of_tiles),
    RACE(transpose),
    RACE(rank_pages),
    RACE(reverse),
    RACE(neighbour),
    RACE(neighbour_lane),
    RACE(table),
    RACE(overlapping_tiles),
    RACE(scatter),
    RACE(tail),
    RACE(halves),
    RACE(vectors),
};
#define RACES (sizeof(races) / sizeof(*races))

static int run(const void *function)
{
	static int host[3][4 * N];
	int *device[3];
	void *arguments[3] = {&device[0], &device[1], &device[2]};

	for (int i = 0; i < 3 * 4 * N; i++)
		host[i / (4 * N)][i % (4 * N)] = i / (4 * N) ? i * 37 % 1009 : 0;
	for (int k = 0; k < 3; k++)
		if (cudaMalloc(&device[k], sizeof(host[k])) ||
		    cudaMemcpy(device[k], host[k], sizeof(host[k]),
			       cudaMemcpyHostToDevice))
			return 2;
	if (cudaLaunchKernel(function, dim3(BLOCKS), dim3(THREADS), arguments, 0, NULL))
		return 2;
	return cudaDeviceSynchronize() != cudaSuccess;
}

int main(int count, char **words)
{
	for (size_t i = 0; i < RACES; i++)
		if (count == 1)
			puts(races[i].name);
		else if (count == 3 && strcmp(words[1], races[i].name) == 0)
			return run(strcmp(words[2], "right") ? races[i].wrong
							     : races[i].right);
	return count == 1 ? 0 : 2;
}
