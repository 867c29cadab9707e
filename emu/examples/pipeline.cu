/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pipeline.cu - a program of CUDA's runtime library with a Hopper kernel that has a
 * bug which a GPU hides.  The kernel sums the rows of a matrix: one warp copies tiles
 * of a row to a ring of stages, and four warps add them:
 *
 *	copy warp   wait empty[s] --> bulk copy of a tile --> full[s]
 *	four warps  wait full[s] --> add the tile --> arrive at empty[s]
 *
 * The four warps arrive at empty[s] before they have added the tile, so that the
 * next copy may overwrite it.  `pipeline fixed` runs the kernel without the bug.
 *
 *	nvcc -cudart shared -lineinfo -gencode arch=compute_90a,code=compute_90a \
 *		pipeline.cu -o pipeline
 *	nibemu run --seeds 1..20 ./pipeline
 */
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>

constexpr int rows = 8, tiles = 12, tile = 512; /* floats of a tile */
constexpr int stages = 3, adders = 4;		/* warps that add */

static __device__ uint32_t address_of(const void *shared)
{
	return (uint32_t)__cvta_generic_to_shared(shared);
}

static __device__ void barrier_init(uint64_t *barrier, int arrivals)
{
	asm volatile(
	    "mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(address_of(barrier)),
	    "r"(arrivals)
	    : "memory");
}

static __device__ void barrier_arrive(uint64_t *barrier)
{
	asm volatile(
	    "mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(address_of(barrier))
	    : "memory");
}

static __device__ void barrier_wait(uint64_t *barrier, int parity)
{
	uint32_t is_done = 0;

	while (!is_done)
		asm volatile("{\n\t.reg .pred p;\n\t"
			     "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n\t"
			     "selp.u32 %0, 1, 0, p;\n\t}"
			     : "=r"(is_done)
			     : "r"(address_of(barrier)), "r"(parity)
			     : "memory");
}

/* Copies a tile; its bytes arrive at the barrier. */
static __device__ void copy_tile(float *to, const float *from, uint64_t *barrier)
{
	const uint32_t bytes = tile * sizeof(float);

	asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(
			 address_of(barrier)),
		     "r"(bytes)
		     : "memory");
	asm volatile("cp.async.bulk.shared::cluster.global.mbarrier"
		     "::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(address_of(to)),
		     "l"(from), "r"(bytes), "r"(address_of(barrier))
		     : "memory");
}

template <bool is_fixed>
__global__ void row_sums(const float *matrix, float *sums)
{
	__shared__ alignas(128) float ring[stages][tile];
	__shared__ uint64_t full[stages], empty[stages];
	__shared__ float parts[adders];
	const float *row = matrix + (size_t)blockIdx.x * tiles * tile;
	const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
	float sum = 0;

	if (threadIdx.x == 0) {
		for (int s = 0; s < stages; s++) {
			barrier_init(&full[s], 1);
			barrier_init(&empty[s], adders);
		}
		asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
	}
	__syncthreads();

	if (warp == adders) {
		for (int t = 0; t < tiles && lane == 0; t++) {
			const int s = t % stages, round = t / stages;

			if (round > 0)
				barrier_wait(&empty[s], (round - 1) % 2);
			copy_tile(ring[s], row + t * tile, &full[s]);
		}
		return;
	}
	for (int t = 0; t < tiles; t++) {
		const int s = t % stages, round = t / stages;

		barrier_wait(&full[s], round % 2);
		if (!is_fixed && lane == 0)
			barrier_arrive(&empty[s]); /* too early */
		for (int i = threadIdx.x; i < tile; i += 32 * adders)
			sum += ring[s][i];
		__syncwarp();
		if (is_fixed && lane == 0)
			barrier_arrive(&empty[s]);
	}
	for (int lanes = 16; lanes > 0; lanes /= 2)
		sum += __shfl_down_sync(~0u, sum, lanes);
	if (lane == 0)
		parts[warp] = sum;
	asm volatile("bar.sync 1, %0;" ::"n"(32 * adders) : "memory");
	if (threadIdx.x == 0)
		sums[blockIdx.x] = parts[0] + parts[1] + parts[2] + parts[3];
}

static int must(cudaError_t error, const char *what)
{
	if (error != cudaSuccess)
		fprintf(stderr, "%s: %s\n", what, cudaGetErrorName(error));
	return error != cudaSuccess;
}

int main(int count, char **words)
{
	const bool is_fixed = count > 1 && !strcmp(words[1], "fixed");
	std::vector<float> matrix((size_t)rows * tiles * tile), sums(rows);
	float *in, *out;

	for (size_t i = 0; i < matrix.size(); i++)
		matrix[i] = (float)(i % 7);
	if (must(cudaMalloc(&in, matrix.size() * sizeof(float)), "memory") ||
	    must(cudaMalloc(&out, sums.size() * sizeof(float)), "memory") ||
	    must(cudaMemcpy(in, matrix.data(), matrix.size() * sizeof(float),
			    cudaMemcpyHostToDevice),
		 "matrix"))
		return 1;
	if (is_fixed)
		row_sums<true><<<rows, 32 * (adders + 1)>>>(in, out);
	else
		row_sums<false><<<rows, 32 * (adders + 1)>>>(in, out);
	if (must(cudaGetLastError(), "launch") ||
	    must(cudaMemcpy(sums.data(), out, sums.size() * sizeof(float),
			    cudaMemcpyDeviceToHost),
		 "sums"))
		return 1;
	for (int r = 0; r < rows; r++) {
		float want = 0;

		for (int i = 0; i < tiles * tile; i++)
			want += matrix[(size_t)r * tiles * tile + i];
		if (sums[r] != want) {
			printf("wrong: row %d: %g, not %g\n", r, sums[r], want);
			return 1;
		}
	}
	puts("right");
	return 0;
}
