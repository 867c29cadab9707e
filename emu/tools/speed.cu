/* SPDX-License-Identifier: Apache-2.0 */
/*
 * speed.cu - kernels whose speed on the software GPU speed.py measures.  The argument
 * is the name of one; it runs once, on arrays of 2^21 floats.
 */
#include <cstdio>
#include <cstdlib>
#include <cstring>

#define ELEMENTS (1 << 21)
#define TILE	 32

__global__ void alu(float *out, const float *, int n)
{
	const int t = blockIdx.x * blockDim.x + threadIdx.x;
	float a = t, b = 1;
	unsigned s = t;

#pragma unroll 4
	for (int k = 0; k < n / 512; k++) {
		a = fmaf(a, 0.5f, b);
		b = b + a * 0.25f;
		s = s * 1664525u + 1013904223u;
		s ^= s >> 7;
	}
	out[t] = a + b + s;
}

__global__ void copy(float *out, const float *in, int n)
{
	const int t = blockIdx.x * blockDim.x + threadIdx.x;

	if (t < n)
		out[t] = in[t];
}

__global__ void grid_copy(float *out, const float *in, int n)
{
	for (int t = blockIdx.x * blockDim.x + threadIdx.x; t < n;
	     t += gridDim.x * blockDim.x)
		out[t] = in[t];
}

__global__ void axpy(float *out, const float *in, int n)
{
	for (int t = blockIdx.x * blockDim.x + threadIdx.x; t < n;
	     t += gridDim.x * blockDim.x)
		out[t] += 2 * in[t];
}

/* A matrix of 1024 columns, by tiles with a column of padding. */
__global__ void transpose(float *out, const float *in, int n)
{
	__shared__ float tile[TILE][TILE + 1];
	const int column = blockIdx.x % 32 * TILE, row = blockIdx.x / 32 * TILE;
	const int x = threadIdx.x % TILE, y = threadIdx.x / TILE;

	for (int k = 0; k < TILE; k += 8)
		tile[y + k][x] = in[(row + y + k) * 1024 + column + x];
	__syncthreads();
	for (int k = 0; k < TILE; k += 8)
		out[(column + y + k) * (n / 1024) + row + x] = tile[x][y + k];
}

__global__ void tree_sum(float *out, const float *in, int n)
{
	__shared__ float part[256];
	float sum = 0;

	for (int t = blockIdx.x * 256 + threadIdx.x; t < n; t += gridDim.x * 256)
		sum += in[t];
	part[threadIdx.x] = sum;
	__syncthreads();
	for (unsigned k = 128; k; k >>= 1) {
		if (threadIdx.x < k)
			part[threadIdx.x] += part[threadIdx.x + k];
		__syncthreads();
	}
	if (threadIdx.x == 0)
		out[blockIdx.x] = part[0];
}

/* A product of 256 x 256 x 256 by tiles in shared memory. */
__global__ void product(float *out, const float *in, int)
{
	__shared__ float a[TILE][TILE], b[TILE][TILE];
	const int x = threadIdx.x % TILE, y = threadIdx.x / TILE;
	const int row = blockIdx.x / 8 * TILE + y, column = blockIdx.x % 8 * TILE + x;
	float sum = 0;

	for (int k = 0; k < 256; k += TILE) {
		a[y][x] = in[row * 256 + k + x];
		b[y][x] = in[65536 + (k + y) * 256 + column];
		__syncthreads();
#pragma unroll
		for (int j = 0; j < TILE; j++)
			sum += a[y][j] * b[j][x];
		__syncthreads();
	}
	out[row * 256 + column] = sum;
}

__global__ void histogram(float *out, const float *in, int n)
{
	__shared__ unsigned counts[256];

	counts[threadIdx.x] = 0;
	__syncthreads();
	for (int t = blockIdx.x * 256 + threadIdx.x; t < n; t += gridDim.x * 256)
		atomicAdd(&counts[(int)in[t] & 255], 1u);
	__syncthreads();
	atomicAdd((unsigned *)out + threadIdx.x, counts[threadIdx.x]);
}

static const struct kernel {
	const char *name;
	void (*run)(float *, const float *, int);
	int ctas, threads;
} kernels[] = {
    {"alu", alu, 64, 256},
    {"copy", copy, ELEMENTS / 256, 256},
    {"grid_copy", grid_copy, 64, 256},
    {"axpy", axpy, 64, 256},
    {"transpose", transpose, ELEMENTS / (TILE * TILE), 256},
    {"tree_sum", tree_sum, 64, 256},
    {"product", product, 64, 1024},
    {"histogram", histogram, 64, 256},
};

static int run(const struct kernel *k)
{
	const size_t bytes = ELEMENTS * sizeof(float);
	float *in, *out, *host = (float *)malloc(bytes);
	cudaError_t error;

	for (int i = 0; i < ELEMENTS; i++)
		host[i] = (float)(i * 7919ll % 1000);
	cudaMalloc(&in, bytes);
	cudaMalloc(&out, bytes);
	cudaMemcpy(in, host, bytes, cudaMemcpyHostToDevice);
	cudaMemcpy(out, host, bytes, cudaMemcpyHostToDevice);
	k->run<<<k->ctas, k->threads>>>(out, in, ELEMENTS);
	error = cudaDeviceSynchronize();
	if (error != cudaSuccess)
		fprintf(stderr, "%s: %s\n", k->name, cudaGetErrorString(error));
	free(host);
	return error != cudaSuccess;
}

int main(int argc, char **argv)
{
	for (const struct kernel &k : kernels)
		if (argc < 2)
			puts(k.name);
		else if (strcmp(k.name, argv[1]) == 0)
			return run(&k);
	return argc < 2 ? 0 : 2;
}
