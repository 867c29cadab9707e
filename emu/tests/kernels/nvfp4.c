/* SPDX-License-Identifier: Apache-2.0 */
/* nvfp4.c - see nvfp4.h. */
#include "kernels/nvfp4.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/run.h"
#include "common/unit.h"
#include "hardware/memory.h"
#include "hardware/power.h"
#include "hardware/tensor_map.h"
#include "instruction/decode.h"
#include "machine/grid.h"

#define MEMORY_BYTES (UINT64_C(64) << 20)
#define STEP	     64 /* elements of k of an instruction */
#define ATOM	     512

const char *nvfp4_text(void)
{
	static char *text;
#ifdef NIBEMU_NVFP4_PTX
	FILE *file = text ? NULL : fopen(NIBEMU_NVFP4_PTX, "r");

	if (file) {
		const size_t capacity = 4 << 20;

		text = malloc(capacity);
		if (text)
			text[fread(text, 1, capacity - 1, file)] = '\0';
		fclose(file);
	}
#endif
	return text;
}

char *nvfp4_kernel_text(const char *kernel)
{
	const char *all = nvfp4_text(), *body, *begin, *end;
	char name[80], *text;

	if (!all)
		return NULL;
	body = strstr(all, ".visible .entry ");
	snprintf(name, sizeof(name), ".visible .entry %s(", kernel);
	begin = strstr(all, name);
	end = begin ? strstr(begin, "\n}") : NULL;
	assert_non_null(end);
	text = malloc((size_t)(body - all) + (size_t)(end - begin) + 8);
	assert_non_null(text);
	sprintf(text, "%.*s%.*s\n}\n", (int)(body - all), all, (int)(end - begin),
		begin);
	return text;
}

/* ---- operands ------------------------------------------------------------ */

/* Codes, two in each byte, and scales in blocks of 128 rows and 4 scales of k. */
struct operand {
	int rows, k, atoms; /* of scales, along k */
	uint8_t *codes, *scales;
	size_t code_bytes, scale_bytes;
	int16_t *twice; /* the elements, times 2 */
};

static uint8_t *scale_at(const struct operand *o, int row, int block)
{
	return &o->scales[(row / 128 * o->atoms + block / 4) * ATOM + row % 32 * 16 +
			  row / 32 % 4 * 4 + block % 4];
}

static struct operand operand_new(int rows, int k, enum nvfp4_data data)
{
	static const uint8_t small[] = {0x30, 0x38, 0x40};
	static const int8_t twice[16] = {0, 1,	2,  3,	4,  6,	8,  12,
					 0, -1, -2, -3, -4, -6, -8, -12};
	struct operand o = {.rows = rows, .k = k, .atoms = (k + 63) / 64};

	o.code_bytes = (size_t)rows * (size_t)k / 2;
	o.scale_bytes = (size_t)((rows + 127) / 128 * o.atoms) * ATOM;
	o.codes = malloc(o.code_bytes);
	o.scales = malloc(o.scale_bytes);
	o.twice = malloc(2 * sizeof(*o.twice) * o.code_bytes);
	assert_non_null(o.twice);
	assert_non_null(o.codes);
	assert_non_null(o.scales);
	for (size_t i = 0; i < o.code_bytes; i++) {
		o.codes[i] = (uint8_t)emu_test_random();
		o.twice[2 * i] = twice[o.codes[i] & 15];
		o.twice[2 * i + 1] = twice[o.codes[i] >> 4];
	}
	for (size_t i = 0; i < o.scale_bytes; i++) {
		uint8_t code = (uint8_t)emu_test_random();

		if (data == NVFP4_EXACT)
			code = small[emu_test_random() % 3];
		else if ((code & 0x7F) == 0x7F)
			code ^= 1;
		o.scales[i] = code;
	}
	return o;
}

static void operand_free(const struct operand *o)
{
	free(o->codes);
	free(o->scales);
	free(o->twice);
}

/* 16 elements of a row. */
static const int16_t *elements(const struct operand *o, int row, int k)
{
	return &o->twice[(size_t)row * (size_t)o->k + (size_t)k];
}

/* 512 times the scale; its exponent. */
static int64_t scale(const struct operand *o, int row, int block, int *exponent)
{
	const uint8_t code = *scale_at(o, row, block);
	const int biased = code >> 3 & 15, fraction = code & 7;

	*exponent = biased ? biased - 7 : fraction ? -6 : -126;
	return biased ? (int64_t)(8 + fraction) << (biased - 1) : fraction;
}

/* ---- what the results are ------------------------------------------------ */

static float cut(double x)
{
	int e;

	if (x == 0)
		return 0;
	e = ilogb(x) < -126 ? -126 : ilogb(x);
	return (float)(trunc(x * emu_power_of_2(23 - e)) * emu_power_of_2(e - 23));
}

/* Adds 64 elements of k to c, as in hardware/block_sums.h; *exact is in units of
 * 2^-20. */
static float one_step(const struct operand *a, const struct operand *b, int m, int n,
		      int k, float c, int64_t *exact)
{
	double terms[5] = {c}, sum = 0;
	int e = -126;

	if (c != 0)
		e = ilogb(c) < -126 ? -126 : ilogb(c);
	for (int g = 0; g < STEP / 16; g++) {
		const int16_t *x = elements(a, m, k + 16 * g);
		const int16_t *y = elements(b, n, k + 16 * g);
		int product = 0, ea, eb;
		int64_t sa, sb;
		bool is_used = false;

		for (int i = 0; i < 16; i++) {
			product += x[i] * y[i];
			is_used |= x[i] * y[i] != 0;
		}
		sa = scale(a, m, k / 16 + g, &ea);
		sb = scale(b, n, k / 16 + g, &eb);
		*exact += product * sa * sb;
		terms[1 + g] = (double)(product * sa * sb) * 0x1p-20;
		e = is_used && sa && sb && ea + eb > e ? ea + eb : e;
	}
	for (int i = 0; i < 5; i++)
		sum += trunc(terms[i] * emu_power_of_2(35 - e));
	return cut(sum * emu_power_of_2(e - 35));
}

static bool check_one(const struct nvfp4_job *job, const struct operand *a,
		      const struct operand *b, int m, int n, float got,
		      struct emu_error *err)
{
	float want = 0, largest = 0;
	int64_t exact = 0;
	double error, bound;

	for (int k = 0; k < job->k; k += STEP) {
		want = one_step(a, b, m, n, k, want, &exact);
		largest = fabsf(want) > largest ? fabsf(want) : largest;
	}
	if (memcmp(&got, &want, sizeof(got)) != 0)
		return emu_fail(err, "row %d, column %d: %a, not %a", m, n, (double)got,
				(double)want);
	/* A step cuts its result to 24 bits and five terms to 35 below the
	 * largest scales' exponent, 2^17. */
	error = fabs(got - ldexp((double)exact, -20));
	bound = job->data == NVFP4_EXACT
		    ? 0
		    : job->k / STEP * (ldexp(largest, -23) + ldexp(5, 17 - 35));
	if (error <= bound)
		return true;
	return emu_fail(err,
			"row %d, column %d: %a, %g from the exact sum, at "
			"most %g",
			m, n, (double)got, error, bound);
}

static bool check(const struct nvfp4_job *job, const struct operand *a,
		  const struct operand *b, const float *out, struct emu_error *err)
{
	for (int m = 0; m < job->m; m++)
		for (int n = 0; n < job->n; n++)
			if (!check_one(job, a, b, m, n, out[m * job->n + n], err))
				return false;
	return true;
}

/* ---- running ------------------------------------------------------------- */

/* The parameters of the kernel. */
struct parameters {
	_Alignas(64) uint8_t maps[4][EMU_TENSOR_MAP_BYTES];
	uint64_t out;
	int32_t sizes[3];
};

static uint64_t put(struct emu_machine *m, const void *bytes, size_t size)
{
	const uint64_t at = emu_memory_alloc(m->memory, size, NULL);

	assert_true(at != 0);
	if (bytes) {
		memcpy((void *)(uintptr_t)at, bytes, size);
		memset(m->global.shadow + (at - m->global.base),
		       EMU_MAPPED | EMU_WRITTEN, size);
	}
	return at;
}

static void encode(struct emu_tensor_map *map, void *to)
{
	struct emu_error err;

	for (int i = 0; i < EMU_TENSOR_RANK; i++)
		map->element_strides[i] = 1;
	if (!emu_tensor_map_check(map, &err))
		fail_msg("%s", err.text);
	emu_tensor_map_encode(map, to);
}

/* Elements in bytes of two: rows of a tile by 128 bytes, swizzled. */
static void map_codes(struct emu_machine *m, const struct operand *o, int rows,
		      void *to)
{
	struct emu_tensor_map map = {
	    .address = put(m, o->codes, o->code_bytes),
	    .type = EMU_TENSOR_U8,
	    .rank = 2,
	    .swizzle = EMU_TENSOR_SWIZZLE_128B,
	    .sizes = {(uint64_t)o->k / 2, (uint64_t)o->rows},
	    .strides_bytes = {(uint64_t)o->k / 2},
	    .box = {128, (uint32_t)rows},
	};

	encode(&map, to);
}

/* Four blocks of 512 bytes, as 64-bit words. */
static void map_scales(struct emu_machine *m, const struct operand *o, void *to)
{
	struct emu_tensor_map map = {
	    .address = put(m, o->scales, o->scale_bytes),
	    .type = EMU_TENSOR_S64,
	    .rank = 1,
	    .sizes = {o->scale_bytes / 8},
	    .box = {4 * ATOM / 8},
	};

	encode(&map, to);
}

/* Three stages of a tile of A, a CTA's share of B, and both scales. */
static uint32_t shared_bytes(const struct nvfp4_job *job)
{
	return 3u * (128 * 128 + (uint32_t)(job->width / job->ctas) * 128 + 8 * ATOM);
}

static double processor_seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static bool launch(struct nvfp4_job *job, struct emu_machine *m,
		   const struct emu_kernel *kernel, uint64_t parameters,
		   struct emu_error *err)
{
	const uint32_t ctas = (uint32_t)job->ctas;
	struct emu_grid g = {.machine = m,
			     .kernel = kernel,
			     .grid = {job->clusters * ctas, 1, 1},
			     .block = {192, 1, 1},
			     .cluster = {ctas, 1, 1},
			     .dynamic_bytes = shared_bytes(job),
			     .parameters = parameters,
			     .id = 1};
	struct emu_grid *all[] = {&g};
	const double begin = processor_seconds();
	const bool ok = emu_grid_check(&g, err) && emu_grids_run(m, all, 1);

	job->seconds = processor_seconds() - begin;
	job->instructions = m->instructions;
	if (!ok && m->has_failed)
		*err = m->report;
	return ok;
}

static bool run_on(struct nvfp4_job *job, struct emu_machine *m,
		   const struct emu_kernel *kernel, struct emu_error *err)
{
	const struct operand a = operand_new(job->m, job->k, job->data);
	const struct operand b = operand_new(job->n, job->k, job->data);
	const size_t bytes = 4 * (size_t)job->m * (size_t)job->n;
	struct parameters p = {.sizes = {job->m, job->n, job->k}};
	uint64_t at;
	bool ok;

	map_codes(m, &a, 128, p.maps[0]);
	map_codes(m, &b, job->width / job->ctas, p.maps[1]);
	map_scales(m, &a, p.maps[2]);
	map_scales(m, &b, p.maps[3]);
	p.out = put(m, NULL, bytes);
	at = put(m, &p, sizeof(p));
	ok = launch(job, m, kernel, at, err) &&
	     check(job, &a, &b, (const float *)(uintptr_t)p.out, err);
	operand_free(&a);
	operand_free(&b);
	return ok;
}

bool nvfp4_run(struct nvfp4_job *job, struct emu_error *err)
{
	struct emu_machine m = {.device = emu_device_find("b200"),
				.options = {.seed = job->seed,
					    .is_strict = job->is_strict,
					    .is_anywhere = job->is_strict,
					    .is_unchecked = job->is_unchecked,
					    .budget = 400000000}};
	struct emu_module *module;
	bool ok = false;

	m.memory = emu_memory_open(MEMORY_BYTES, err);
	assert_non_null(m.memory);
	m.global = *emu_memory_space(m.memory);
	module = emu_module_read(job->text ? job->text : nvfp4_text(), NULL, NULL, err);
	if (module)
		ok = run_on(job, &m, emu_module_find(module, job->kernel), err);
	emu_module_free(module);
	emu_memory_close(m.memory);
	return ok;
}
