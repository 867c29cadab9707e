/* SPDX-License-Identifier: Apache-2.0 */
/* common/data.c - guarded memory, random data and devices for tests. */
#include "data.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "format/view.h"

static void die(const char *what)
{
	fprintf(stderr, "test helper: %s\n", what);
	abort();
}

/* ---- random numbers ------------------------------------------------------ */

uint64_t test_seed(void)
{
	static uint64_t seed;
	const char *text = getenv("NIB_TEST_SEED");

	if (seed)
		return seed;
	seed = text ? strtoull(text, NULL, 0) : 0;
	if (!seed)
		seed = UINT64_C(0x6E6962626C6173);
	printf("NIB_TEST_SEED=%#" PRIx64 "\n", seed);
	return seed;
}

struct rng rng_new(uint64_t seed)
{
	return (struct rng){seed};
}

/* splitmix64 */
uint64_t rng_next(struct rng *rng)
{
	uint64_t z = rng->state += UINT64_C(0x9E3779B97F4A7C15);

	z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
	return z ^ (z >> 31);
}

int64_t rng_below(struct rng *rng, int64_t n)
{
	return (int64_t)(rng_next(rng) % (uint64_t)n);
}

double rng_uniform(struct rng *rng)
{
	return (double)(rng_next(rng) >> 11) * 0x1p-53;
}

double rng_normal(struct rng *rng)
{
	const double radius = sqrt(-2 * log(1 - rng_uniform(rng)));

	return radius * cos(6.283185307179586 * rng_uniform(rng));
}

void rng_fill(struct rng *rng, void *to, size_t bytes)
{
	uint8_t *at = to;

	while (bytes > 0) {
		const uint64_t word = rng_next(rng);
		const size_t n = bytes < 8 ? bytes : 8;

		memcpy(at, &word, n);
		at += n;
		bytes -= n;
	}
}

/* ---- memory: [guard page][slack, data][guard page] ---------------------- */

static size_t page_bytes(void)
{
	return (size_t)sysconf(_SC_PAGESIZE);
}

static size_t inner_bytes(size_t bytes)
{
	const size_t page = page_bytes();

	return bytes ? (bytes + page - 1) / page * page : page;
}

void *guard_new(size_t bytes)
{
	const size_t page = page_bytes(), inner = inner_bytes(bytes);
	uint8_t *base =
	    mmap(NULL, inner + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (base == MAP_FAILED)
		die("mmap failed");
	if (mprotect(base + page, inner, PROT_READ | PROT_WRITE) != 0)
		die("mprotect failed");
	memset(base + page, GUARD_POISON, inner);
	return base + page + inner - bytes;
}

void guard_free(void *data, size_t bytes)
{
	const size_t page = page_bytes(), inner = inner_bytes(bytes);
	uint8_t *base;

	if (!data)
		return;
	base = (uint8_t *)data + bytes - inner - page;
	for (size_t i = page; i < page + inner - bytes; i++)
		if (base[i] != GUARD_POISON)
			die("bytes before the start were written");
	munmap(base, inner + 2 * page);
}

void *guard_copy(const void *from, size_t bytes)
{
	void *data = guard_new(bytes);

	if (bytes)
		memcpy(data, from, bytes);
	return data;
}

/* ---- matrices ------------------------------------------------------------ */

static uint8_t random_scale(struct rng *rng, enum test_scales scales)
{
	switch (scales) {
	case TEST_SCALES_ANY:
		return (uint8_t)rng_below(rng, 127);
	case TEST_SCALES_MIDDLE:
		return (uint8_t)(0x20 + rng_below(rng, 0x31));
	case TEST_SCALES_ONE:
		break;
	}
	return 0x38;
}

/* Bytes of a stack of rows with gaps, without the gap after the last row. */
static size_t stack_bytes(int64_t batch, int64_t rows, int64_t stride, int64_t width)
{
	const int64_t lines = batch * rows;

	return lines && width ? (size_t)((lines - 1) * stride + width) : 0;
}

struct test_nvfp4 test_nvfp4_new(struct rng *rng, int64_t rows, int64_t k,
				 int64_t batch, enum nib_scale_layout layout,
				 enum test_scales scales, int64_t row_gap_bytes,
				 int64_t scale_gap_bytes)
{
	const int64_t groups = k / NIB_NVFP4_BLOCK;
	const int64_t row_stride = k / 2 + row_gap_bytes;
	const int64_t scale_stride = groups + scale_gap_bytes;
	const size_t tiled = nib_scales_bytes(NIB_SCALE_LAYOUT_TILED_128X4, rows, k);
	const bool linear = layout == NIB_SCALE_LAYOUT_LINEAR;
	struct test_nvfp4 matrix = {0};

	matrix.codes_bytes = stack_bytes(batch, rows, row_stride, k / 2);
	matrix.scales_bytes = linear ? stack_bytes(batch, rows, scale_stride, groups)
				     : (size_t)batch * tiled;
	matrix.view = (struct nib_fp4){
	    .codes = guard_new(matrix.codes_bytes),
	    .scales = guard_new(matrix.scales_bytes),
	    .rows = rows,
	    .k = k,
	    .batch = batch,
	    .row_stride_bytes = row_gap_bytes ? row_stride : 0,
	    .scale_layout = layout,
	    .scale_row_stride_bytes = linear && scale_gap_bytes ? scale_stride : 0,
	};
	if (!linear)
		memset(matrix.view.scales, 0x7F, matrix.scales_bytes);
	for (int64_t line = 0; line < batch * rows; line++) {
		const int64_t b = line / rows, r = line % rows;

		rng_fill(rng, nib_fp4_row(&matrix.view, b, r), (size_t)(k / 2));
		for (int64_t g = 0; g < groups; g++)
			*nib_fp4_scale(&matrix.view, b, r, g) =
			    random_scale(rng, scales);
	}
	return matrix;
}

void test_nvfp4_free(struct test_nvfp4 *matrix)
{
	guard_free(matrix->view.codes, matrix->codes_bytes);
	guard_free(matrix->view.scales, matrix->scales_bytes);
	memset(matrix, 0, sizeof(*matrix));
}

struct test_dense test_dense_new(enum nib_dtype dtype, int64_t rows, int64_t cols,
				 int64_t batch, int64_t row_gap)
{
	const int64_t elem_bytes = dtype == NIB_DTYPE_FP32 ? 4 : 2;
	struct test_dense matrix;

	matrix.bytes =
	    stack_bytes(batch, rows, (cols + row_gap) * elem_bytes, cols * elem_bytes);
	matrix.view = (struct nib_dense){
	    .data = guard_new(matrix.bytes),
	    .dtype = dtype,
	    .rows = rows,
	    .cols = cols,
	    .batch = batch,
	    .row_stride_elems = row_gap ? cols + row_gap : 0,
	};
	return matrix;
}

void test_dense_free(struct test_dense *matrix)
{
	guard_free(matrix->view.data, matrix->bytes);
	memset(matrix, 0, sizeof(*matrix));
}

void test_nvfp4_between(struct nib_fp4 *v)
{
	v->batch_stride_bytes = nib_fp4_row_stride_bytes(v);
	v->row_stride_bytes = v->batch * v->batch_stride_bytes;
	if (v->scale_layout != NIB_SCALE_LAYOUT_LINEAR)
		return;
	v->scale_batch_stride_bytes = nib_fp4_scale_row_stride_bytes(v);
	v->scale_row_stride_bytes = v->batch * v->scale_batch_stride_bytes;
}

void test_dense_between(struct nib_dense *v)
{
	v->batch_stride_elems = nib_dense_row_stride_elems(v);
	v->row_stride_elems = v->batch * v->batch_stride_elems;
}

/* ---- devices ------------------------------------------------------------- */

const char *const test_isas[TEST_ISAS] = {
    "scalar", "avx2", "avxvnni", "avx512bw", "avx512vnni",
    "amx",    "neon", "neondot", "neoni8mm", "neonbf16"};

bool test_has_own_order(const char *isa)
{
	return strcmp(isa, "amx") == 0;
}

struct nib_device *test_device(const char *isa, int threads)
{
	static bool told[TEST_ISAS];
	const struct nib_device_options options = {
	    .struct_bytes = sizeof(options), .threads = threads, .isa = isa};
	struct nib_device *device = NULL;
	struct nib_error err;
	enum nib_status status = nib_device_open("cpu", &options, &device, &err);

	if (status == NIB_STATUS_OK)
		return device;
	if (status != NIB_STATUS_NO_DEVICE)
		die(err.message);
	for (int i = 0; i < TEST_ISAS; i++) {
		if (strcmp(test_isas[i], isa) != 0 || told[i])
			continue;
		told[i] = true;
		printf("skipped: %s\n", err.message);
	}
	return NULL;
}
