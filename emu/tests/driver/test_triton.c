/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_triton.c - kernels of examples/triton_kernels.py as Triton compiled them
 * (triton/record.py), launched as Triton launches them.  Their PTX has what nvcc's has
 * not: wgmma with a number as scale-d, tensor maps made from zeros, brx.idx, redux of
 * floats, parameters' addresses in 32 bits, equal stores of several warps.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/data.h"
#include "common/unit.h"
#include "driver/cuda_api.h"
#include "hardware/floats.h"
#include "hardware/tensor_map.h"

static struct rng rng;

/* ---- kernels and memory -------------------------------------------------- */

static CUfunction load(const char *file, const char *kernel, int shared_bytes)
{
	char path[512], *text = calloc(1, 1 << 17);
	CUmodule module;
	CUfunction function;
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s.ptx", NIBEMU_TRITON_PTX, file);
	f = fopen(path, "r");
	assert_non_null(f);
	assert_non_null(text);
	assert_in_range(fread(text, 1, (1 << 17) - 1, f), 1000, (1 << 17) - 2);
	fclose(f);
	assert_int_equal(cuModuleLoadDataEx(&module, text, 0, NULL, NULL), 0);
	assert_int_equal(cuModuleGetFunction(&function, module, kernel), 0);
	assert_int_equal(cuFuncSetAttribute(
			     function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
			     shared_bytes),
			 0);
	free(text);
	return function;
}

static CUdeviceptr take(const void *data, size_t bytes)
{
	CUdeviceptr p = 0;

	assert_int_equal(cuMemAlloc_v2(&p, bytes), 0);
	if (data)
		assert_int_equal(cuMemcpyHtoD_v2(p, data, bytes), 0);
	return p;
}

static void launch(CUfunction f, unsigned x, unsigned y, unsigned threads,
		   unsigned shared_bytes, void **arguments)
{
	const char *why = "";

	assert_int_equal(cuLaunchKernel(f, x, y, 1, threads, 1, 1, shared_bytes, NULL,
					arguments, NULL),
			 0);
	if (cuCtxSynchronize() == 0)
		return;
	(void)cuGetErrorString(CUDA_ERROR_LAUNCH_FAILED, &why);
	fail_msg("%s", why);
}

static float value_of(uint16_t half)
{
	return (float)emu_widen(&emu_format_f16, half);
}

static uint16_t half_of(float x)
{
	return (uint16_t)emu_narrow(&emu_format_f16, x, EMU_RN, false);
}

/* ---- the kernels --------------------------------------------------------- */

#define K 192

static uint16_t a[256][K], b[256][K], c[256][256];

/* Small integers, so that all sums are exact. */
static void fill_matrices(void)
{
	for (int i = 0; i < 256; i++)
		for (int k = 0; k < K; k++) {
			a[i][k] = half_of((float)rng_below(&rng, 5) - 2);
			b[i][k] = half_of((float)rng_below(&rng, 5) - 2);
		}
}

/* c has rows of n columns. */
static void check_product(CUdeviceptr at, int n)
{
	assert_int_equal(cuMemcpyDtoH_v2(c, at, 2 * 256 * (size_t)n), 0);
	for (int i = 0; i < 256; i++)
		for (int j = 0; j < n; j++) {
			float sum = 0;

			for (int k = 0; k < K; k++)
				sum += value_of(a[i][k]) * value_of(b[j][k]);
			assert_int_equal((&c[0][0])[i * n + j], half_of(sum));
		}
}

static void run_specialised(const char *file, unsigned threads, int shared_bytes,
			    size_t scratch_bytes)
{
	const CUfunction f = load(file, "matmul_device_tma_kernel", shared_bytes);
	CUdeviceptr to_a, to_b, to_c, scratch, none = 0;
	int m = 256, n = 256, k = K;
	void *arguments[] = {&to_a, &to_b, &to_c, &m, &n, &k, &scratch, &none};

	fill_matrices();
	to_a = take(a, sizeof(a));
	to_b = take(b, sizeof(b));
	to_c = take(NULL, sizeof(c));
	scratch = take(NULL, 2 * scratch_bytes);
	launch(f, 2, 1, threads, (unsigned)shared_bytes, arguments);
	check_product(to_c, 256);
}

static void h200_specialised(void)
{
	run_specialised("h200_matmul_specialised", 384, 98744, 512);
}

static void b200_specialised(void)
{
	run_specialised("b200_matmul_specialised", 256, 98372, 384);
}

struct map {
	_Alignas(64) uint8_t bytes[EMU_TENSOR_MAP_BYTES];
};

/* Rows of `columns` halves, as Triton describes them: boxes of 64 columns. */
static void describe(struct map *map, CUdeviceptr at, uint64_t rows, uint64_t columns,
		     uint32_t box_rows)
{
	const uint64_t sizes[] = {columns, rows}, stride = 2 * columns;
	const uint32_t box[] = {64, box_rows}, ones[] = {1, 1};

	assert_int_equal(cuTensorMapEncodeTiled((CUtensorMap *)map, EMU_TENSOR_F16, 2,
						(void *)(uintptr_t)at, sizes, &stride,
						box, ones, 0, EMU_TENSOR_SWIZZLE_128B,
						2, 0),
			 0);
}

static void h200_tma(void)
{
	const CUfunction f = load("h200_matmul_tma", "matmul_tma_kernel", 73752);
	struct map map_a, map_b, map_c;
	CUdeviceptr to_c, none = 0;
	int rows = 256, columns = 128, k = K;
	uint64_t stride_k = K, stride_c = 128, one = 1;
	void *arguments[] = {&map_a,   &rows,	  &k,	     &stride_k, &one,	&map_b,
			     &columns, &k,	  &stride_k, &one,	&map_c, &rows,
			     &columns, &stride_c, &one,	     &k,	&none,	&none};

	fill_matrices();
	describe(&map_a, take(a, sizeof(a)), 256, K, 64);
	describe(&map_b, take(b, sizeof(b) / 2), 128, K, 128);
	to_c = take(NULL, sizeof(c) / 2);
	describe(&map_c, to_c, 256, 128, 64);
	launch(f, 4, 1, 128, 73752, arguments);
	check_product(to_c, 128);
}

#define ROWS 7
#define SIZE 781

static void b200_softmax(void)
{
	const CUfunction f = load("b200_softmax", "softmax_kernel", 16);
	static float x[ROWS][SIZE], out[ROWS][SIZE];
	CUdeviceptr from, to, none = 0;
	int n = SIZE;
	void *arguments[] = {&from, &to, &n, &n, &none, &none};

	for (int i = 0; i < ROWS * SIZE; i++)
		(&x[0][0])[i] = (float)rng_below(&rng, 2001) / 200 - 5;
	from = take(x, sizeof(x));
	to = take(NULL, sizeof(out));
	launch(f, ROWS, 1, 128, 16, arguments);
	assert_int_equal(cuMemcpyDtoH_v2(out, to, sizeof(out)), 0);
	for (int i = 0; i < ROWS; i++) {
		double sum = 0;

		for (int j = 0; j < SIZE; j++)
			sum += exp(x[i][j]);
		for (int j = 0; j < SIZE; j++)
			assert_true(fabs(out[i][j] - exp(x[i][j]) / sum) < 1e-6);
	}
}

#define HEADS 2
#define STEPS 128
#define DEPTH 64

static uint16_t qkv[3][HEADS][STEPS][DEPTH], attended[HEADS][STEPS][DEPTH];

static void check_attended(int head, int row)
{
	double weights[STEPS], total = 0;

	for (int i = 0; i <= row; i++) {
		double score = 0;

		for (int d = 0; d < DEPTH; d++)
			score += value_of(qkv[0][head][row][d]) *
				 value_of(qkv[1][head][i][d]);
		weights[i] = exp(score / 8);
		total += weights[i];
	}
	for (int d = 0; d < DEPTH; d++) {
		double sum = 0;

		for (int i = 0; i <= row; i++)
			sum += weights[i] / total * value_of(qkv[2][head][i][d]);
		assert_true(fabs(value_of(attended[head][row][d]) - sum) < 2e-3);
	}
}

static void h200_attention(void)
{
	const CUfunction f = load("h200_attention", "attention_kernel", 40960);
	CUdeviceptr at[3], out, none = 0;
	float scale = 0.125f * 1.4426950408889634f;
	int n = STEPS;
	void *arguments[] = {&at[0], &at[1], &at[2], &out, &n, &scale, &none, &none};

	for (size_t i = 0; i < sizeof(qkv) / 2; i++)
		(&qkv[0][0][0][0])[i] = half_of((float)rng_below(&rng, 201) / 100 - 1);
	for (int i = 0; i < 3; i++)
		at[i] = take(qkv[i], sizeof(qkv[i]));
	out = take(NULL, sizeof(attended));
	launch(f, STEPS / 64, HEADS, 128, 40960, arguments);
	assert_int_equal(cuMemcpyDtoH_v2(attended, out, sizeof(attended)), 0);
	for (int row = 0; row < STEPS; row++)
		for (int head = 0; head < HEADS; head++)
			check_attended(head, row);
}

/* ---- devices ------------------------------------------------------------- */

/* A process has one device: this one opens it, runs one kernel, and ends. */
static void run_in_child(const char *device, const char *seed, void (*run)(void))
{
	const pid_t child = fork();
	int status = 0;

	assert_true(child >= 0);
	if (child == 0) {
		CUcontext context;

		setenv("NIBEMU_DEVICE", device, 1);
		setenv("NIBEMU_SEED", seed, 1);
		assert_int_equal(cuInit(0), 0);
		assert_int_equal(cuDevicePrimaryCtxRetain(&context, 0), 0);
		assert_int_equal(cuCtxSetCurrent(context), 0);
		rng = rng_new(test_seed());
		run();
		_exit(0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

static void test_h200(void **state)
{
	run_in_child("h200", "0", h200_specialised);
	run_in_child("h200", "2", h200_specialised);
	run_in_child("h200", "0", h200_tma);
	run_in_child("h200", "0", h200_attention);
}

static void test_b200(void **state)
{
	run_in_child("b200", "0", b200_specialised);
	run_in_child("b200", "2", b200_specialised);
	run_in_child("b200", "0", b200_softmax);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_h200),
	    cmocka_unit_test(test_b200),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
