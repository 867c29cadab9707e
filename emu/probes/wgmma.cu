/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wgmma.cu - runs the cases of wgmma_cases.h on a Hopper GPU, records the results,
 * and compares them with the software GPU's.  Prints a line for each variant and kind
 * of data, and the differences; exit code 1 if there are any. run.sh builds it.
 */
#include <cuda_fp16.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern "C" {
#include "wgmma_cases.h"
}

#define ROW_BYTES 32 /* of k */

/*
 * The input and output of a block: rows of 32 bytes, fp32 or (two in a word) fp16.
 */
struct question {
	uint32_t a[WGMMA_M * ROW_BYTES / 4], b[WGMMA_N * ROW_BYTES / 4];
	uint32_t c[WGMMA_SUMS];
};

struct answer {
	uint32_t d[WGMMA_SUMS];
};

static __device__ uint32_t smem_addr(const void *shared)
{
	return (uint32_t)__cvta_generic_to_shared(shared);
}

static __device__ void wgmma_fence(void)
{
	asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

static __device__ void wgmma_commit(void)
{
	asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

static __device__ void wgmma_wait_all(void)
{
	asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
}

/* ---- sums ---------------------------------------------------------------- */

#define WGMMA_F32(types, k, tail)                                                      \
	asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, 1, 0;\n\t"                  \
		     "wgmma.mma_async.sync.aligned.m64n8" k "." types                  \
		     " {%0, %1, %2, %3}, {%4, %5, %6, %7}, %8, p, 1, 1" tail ";\n\t}"  \
		     : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])                  \
		     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(desc)           \
		     : "memory")

#define WGMMA_F16(types, k, tail)                                                      \
	asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, 1, 0;\n\t"                  \
		     "wgmma.mma_async.sync.aligned.m64n8" k "." types                  \
		     " {%0, %1}, {%2, %3, %4, %5}, %6, p, 1, 1" tail ";\n\t}"          \
		     : "+r"(d[0]), "+r"(d[1])                                          \
		     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(desc)           \
		     : "memory")

#define MMA_F32(types)                                                                 \
	asm volatile("mma.sync.aligned.m16n8k16.row.col." types                        \
		     " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "                 \
		     "{%0, %1, %2, %3};"                                               \
		     : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])                  \
		     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]),          \
		       "r"(b[1]))

/* VARIANT: the index of wgmma_variant_name().  Two words of d for fp16. */
template <int VARIANT>
static __device__ void multiply(uint32_t *d, const uint32_t *a, const uint32_t *b,
				uint64_t desc)
{
	if (VARIANT == 0)
		WGMMA_F32("f32.f16.f16", "k16", ", 0");
	if (VARIANT == 1)
		WGMMA_F32("f32.bf16.bf16", "k16", ", 0");
	if (VARIANT == 2)
		WGMMA_F32("f32.tf32.tf32", "k8", "");
	if (VARIANT == 3)
		WGMMA_F32("f32.e4m3.e4m3", "k32", "");
	if (VARIANT == 4)
		WGMMA_F32("f32.e5m2.e5m2", "k32", "");
	if (VARIANT == 5)
		WGMMA_F32("f32.e4m3.e5m2", "k32", "");
	if (VARIANT == 6)
		WGMMA_F16("f16.f16.f16", "k16", ", 0");
	if (VARIANT == 7)
		WGMMA_F16("f16.e4m3.e4m3", "k32", "");
	if (VARIANT == 8)
		WGMMA_F16("f16.e5m2.e5m2", "k32", "");
	if (VARIANT == 9)
		MMA_F32("f32.f16.f16.f32");
	if (VARIANT == 10)
		MMA_F32("f32.bf16.bf16.f32");
}

/* One block of 128 threads for each question. */
template <int VARIANT>
static __global__ void sums(const question *questions, answer *answers)
{
	const bool is_half = VARIANT >= 6 && VARIANT <= 8;
	const question *q = questions + blockIdx.x;
	answer *out = answers + blockIdx.x;
	const uint32_t t = threadIdx.x, lane = t % 32;
	const uint32_t row = t / 32 * 16 + lane / 4, column = lane % 4 * 2;
	__shared__ __align__(128) uint32_t b_tile[WGMMA_N * ROW_BYTES / 4];
	uint32_t a[4], b[2], d[4];
	uint64_t desc;

	/* Without swizzle: eight rows of 16 bytes, then their second halves. */
	if (t < WGMMA_N * ROW_BYTES / 4)
		b_tile[t % 8 / 4 * 32 + t / 8 * 4 + t % 4] = q->b[t];
	for (uint32_t i = 0; i < 4; i++) {
		const uint32_t place = (row + i / 2 * 8) * WGMMA_N + column + i % 2;

		a[i] = q->a[(row + i % 2 * 8) * 8 + lane % 4 + i / 2 * 4];
		d[i] = q->c[place];
	}
	for (uint32_t i = 0; i < 2; i++)
		b[i] = q->b[lane / 4 * 8 + lane % 4 + i * 4];
	if (is_half) {
		d[0] |= d[1] << 16;
		d[1] = d[2] | d[3] << 16;
	}
	desc = (uint64_t)(128 >> 4) << 32 | (uint64_t)(128 >> 4) << 16 |
	       smem_addr(b_tile) >> 4;
	asm volatile("fence.proxy.async;" ::: "memory");
	__syncthreads();
	wgmma_fence();
	multiply<VARIANT>(d, a, b, desc);
	wgmma_commit();
	wgmma_wait_all();
	if (is_half) {
		d[2] = d[1] & 0xFFFF, d[3] = d[1] >> 16;
		d[1] = d[0] >> 16, d[0] &= 0xFFFF;
	}
	for (uint32_t i = 0; i < 4; i++)
		out->d[(row + i / 2 * 8) * WGMMA_N + column + i % 2] = d[i];
}

/* ---- places -------------------------------------------------------------- */

/* The 64 accumulators of a thread. */
#define REGISTERS                                                                      \
	"%0, %1, %2, %3, %4, %5, %6, %7, "                                             \
	"%8, %9, %10, %11, %12, %13, %14, %15, "                                       \
	"%16, %17, %18, %19, %20, %21, %22, %23, "                                     \
	"%24, %25, %26, %27, %28, %29, %30, %31, "                                     \
	"%32, %33, %34, %35, %36, %37, %38, %39, "                                     \
	"%40, %41, %42, %43, %44, %45, %46, %47, "                                     \
	"%48, %49, %50, %51, %52, %53, %54, %55, "                                     \
	"%56, %57, %58, %59, %60, %61, %62, %63"
#define D8(i)                                                                          \
	"+f"(d[8 * (i)]), "+f"(d[8 * (i) + 1]), "+f"(d[8 * (i) + 2]),                  \
	    "+f"(d[8 * (i) + 3]), "+f"(d[8 * (i) + 4]), "+f"(d[8 * (i) + 5]),          \
	    "+f"(d[8 * (i) + 6]), "+f"(d[8 * (i) + 7])
#define ACCUMULATORS D8(0), D8(1), D8(2), D8(3), D8(4), D8(5), D8(6), D8(7)

#define WGMMA_128(trans)                                                               \
	asm volatile("wgmma.fence.sync.aligned;\n\t"                                   \
		     "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 "            \
		     "{" REGISTERS "}, {%64, %65, %66, %67}, %68, 1, 1, 1, " trans ";" \
		     : ACCUMULATORS                                                    \
		     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(desc)           \
		     : "memory")

/*
 * Half i of shared memory holds the fp16 whose bits are i, and a is 1 where its
 * row (modulo 16) is its k: d[k][n] is b[k][n], that is, its place.
 */
static __global__ void where(wgmma_place place, uint32_t *halves)
{
	extern __shared__ uint16_t raw[];
	const uint32_t begin = (smem_addr(raw) + 1023) & ~1023u;
	uint16_t *memory = raw + (begin - smem_addr(raw)) / 2;
	const uint32_t t = threadIdx.x, row = t / 4, column = t % 4 * 2;
	const uint64_t desc = place.descriptor + (begin >> 4);
	uint32_t a[4];
	float d[64];

	for (uint32_t i = t; i < WGMMA_PLACE_BYTES / 2; i += blockDim.x)
		memory[i] = (uint16_t)i;
	for (uint32_t i = 0; i < 64; i++)
		d[i] = 0;
	for (uint32_t i = 0; i < 4; i++) {
		const uint32_t r = t % 32 / 4 + i % 2 * 8;
		const uint32_t k = column + i / 2 * 8;

		a[i] = r == k ? 0x3C00 : r == k + 1 ? 0x3C000000 : 0;
	}
	asm volatile("fence.proxy.async;" ::: "memory");
	__syncthreads();
	if (place.is_transposed)
		WGMMA_128("1");
	else
		WGMMA_128("0");
	wgmma_commit();
	wgmma_wait_all();
	if (row >= 8)
		return; /* the other warps have the same */
	for (uint32_t i = 0; i < 64; i++) {
		const uint32_t k = row + i / 2 % 2 * 8;
		const uint32_t n = i / 4 * 8 + column + i % 2;

		halves[k * WGMMA_PLACE_N + n] = __half_as_ushort(__float2half(d[i]));
	}
}

/* ---- host ---------------------------------------------------------------- */

static int differences;

static void must(cudaError_t status, const char *what)
{
	if (status == cudaSuccess)
		return;
	fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(status));
	exit(2);
}

/* Words of one element each to rows of 32 bytes. */
static void pack(uint32_t *to, const uint32_t *from, int rows, int k)
{
	const int bits = ROW_BYTES * 8 / k;

	memset(to, 0, (size_t)rows * ROW_BYTES);
	for (int i = 0; i < rows * k; i++)
		to[i * bits / 32] |= from[i] << i * bits % 32;
}

static void report(const char *name, const wgmma_case *c, int index, int i,
		   uint32_t gpu, uint32_t model)
{
	const int m = i / WGMMA_N, n = i % WGMMA_N, k = c->shape.k;

	if (differences++ >= 40)
		return;
	printf("  %s case %d sum %d: GPU 0x%08x, model 0x%08x, c 0x%08x\n   ", name,
	       index, i, gpu, model, c->c[i]);
	for (int j = 0; j < k; j++)
		printf(" %x*%x", c->a[m * k + j], c->b[n * k + j]);
	printf("\n");
}

static question questions[WGMMA_REPEATS];
static answer answers[WGMMA_REPEATS];
static wgmma_case made;

static void record_sums(FILE *file, int variant, int data,
			void (*kernel)(const question *, answer *))
{
	question *device_questions;
	answer *device_answers;
	const int before = differences;

	for (int i = 0; i < WGMMA_REPEATS; i++) {
		wgmma_case_make(&made, variant, data, i);
		pack(questions[i].a, made.a, WGMMA_M, made.shape.k);
		pack(questions[i].b, made.b, WGMMA_N, made.shape.k);
		memcpy(questions[i].c, made.c, sizeof(made.c));
	}
	must(cudaMalloc(&device_questions, sizeof(questions)), "malloc");
	must(cudaMalloc(&device_answers, sizeof(answers)), "malloc");
	must(cudaMemcpy(device_questions, questions, sizeof(questions),
			cudaMemcpyHostToDevice),
	     "copy");
	kernel<<<WGMMA_REPEATS, 128>>>(device_questions, device_answers);
	must(cudaGetLastError(), "launch");
	must(cudaMemcpy(answers, device_answers, sizeof(answers),
			cudaMemcpyDeviceToHost),
	     "run");
	cudaFree(device_questions);
	cudaFree(device_answers);
	fprintf(file, "sums %s %s\n", wgmma_variant_name(variant),
		wgmma_data_name(data));
	for (int i = 0; i < WGMMA_REPEATS; i++) {
		uint32_t model[WGMMA_SUMS];

		wgmma_case_make(&made, variant, data, i);
		wgmma_case_model(&made, model);
		for (int j = 0; j < WGMMA_SUMS; j++)
			if (answers[i].d[j] != model[j])
				report(wgmma_variant_name(variant), &made, i, j,
				       answers[i].d[j], model[j]);
		fprintf(file, "%016llx%c",
			(unsigned long long)wgmma_hash(answers[i].d, WGMMA_SUMS),
			i % 4 == 3 ? '\n' : ' ');
	}
	printf("%s %s: %d of %d sums differ\n", wgmma_variant_name(variant),
	       wgmma_data_name(data), differences - before, WGMMA_REPEATS * WGMMA_SUMS);
}

static void record_place(FILE *file, int index)
{
	const wgmma_place place = wgmma_place_make(index);
	const int pieces = place.is_transposed ? WGMMA_PLACE_N / 8 : 2;
	static uint32_t halves[16 * WGMMA_PLACE_N];
	uint32_t model[WGMMA_PIECES], *device;
	struct emu_error err;
	int wrong = 0, torn = 0;

	if (!wgmma_place_model(place, model, &err)) {
		printf("place %d: %s\n", index, err.text);
		memset(model, 0xFF, sizeof(model));
	}
	must(cudaMalloc(&device, sizeof(halves)), "malloc");
	where<<<1, 128, WGMMA_PLACE_BYTES + 1024>>>(place, device);
	must(cudaGetLastError(), "launch");
	must(cudaMemcpy(halves, device, sizeof(halves), cudaMemcpyDeviceToHost), "run");
	cudaFree(device);
	fprintf(file, "place %d\n", index);
	for (int i = 0; i < WGMMA_PIECES; i++) {
		const int row = i / pieces, piece = i % pieces;
		/* Element e of a piece: along k, or along n. */
		const int at = place.is_transposed ? row * WGMMA_PLACE_N + piece * 8
						   : piece * 8 * WGMMA_PLACE_N + row;
		const int step = place.is_transposed ? 1 : WGMMA_PLACE_N;

		for (int e = 1; e < 8; e++)
			torn += halves[at + e * step] != halves[at] + (uint32_t)e;
		wrong += halves[at] * 2 != model[i];
		fprintf(file, "%04x%c", halves[at] * 2, i % 16 == 15 ? '\n' : ' ');
	}
	printf(
	    "place %d descriptor 0x%016llx transposed %d: %d of %d pieces differ, %d torn\n",
	    index, (unsigned long long)place.descriptor, place.is_transposed, wrong,
	    WGMMA_PIECES, torn);
	differences += wrong + torn;
}

int main(int argc, char **argv)
{
	static void (*const kernels[])(const question *, answer *) = {
	    sums<0>, sums<1>, sums<2>, sums<3>, sums<4>,  sums<5>,
	    sums<6>, sums<7>, sums<8>, sums<9>, sums<10>,
	};
	cudaDeviceProp device;
	FILE *file;

	if (argc != 2) {
		fprintf(stderr, "usage: %s RECORDING\n", argv[0]);
		return 2;
	}
	must(cudaGetDeviceProperties(&device, 0), "device");
	file = fopen(argv[1], "w");
	if (!file) {
		perror(argv[1]);
		return 2;
	}
	must(cudaFuncSetAttribute(where, cudaFuncAttributeMaxDynamicSharedMemorySize,
				  WGMMA_PLACE_BYTES + 1024),
	     "shared memory");
	fprintf(file, "# probes/wgmma.cu on %s\n", device.name);
	for (int variant = 0; variant < WGMMA_VARIANTS; variant++)
		for (int data = 0; data < WGMMA_DATA; data++)
			record_sums(file, variant, data, kernels[variant]);
	for (int i = 0; i < wgmma_places(); i++)
		record_place(file, i);
	if (fclose(file) != 0) {
		perror(argv[1]);
		return 2;
	}
	printf("%d differences\n", differences);
	return differences != 0;
}
