/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_check_few_rows.c - products of up to 8 rows on the GPU: within their
 * bound on all codes and scales, with NaN in the padding and guard bands around
 * every buffer, and the same bits without neighbours in the batch.
 */
#include "gpu_problem.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- products of few rows --------------------------------------------------
 */

struct product {
	struct gpu_sizes a, b, c; /* c: rows m, k holds n */
	float alpha;
	bool nan; /* one scale of b is NaN */
};

/* The bytes of c before a run: no NaN, and far from any sum. */
#define POISON 0xEE

/* The same problem on both sides. */
struct product_memory {
	struct gpu_twin a_codes, a_scales, b_codes, b_scales, c, alpha;
};

static struct nib_problem problem(const struct product *p,
				  const struct product_memory *m,
				  void *(*side)(const struct gpu_twin *))
{
	struct nib_problem problem;

	memset(&problem, 0, sizeof(problem));
	problem.a = gpu_nvfp4(&p->a, side(&m->a_codes), side(&m->a_scales));
	problem.b = gpu_nvfp4(&p->b, side(&m->b_codes), side(&m->b_scales));
	problem.c = gpu_dense(&p->c, side(&m->c));
	problem.alpha = side(&m->alpha);
	return problem;
}

static struct product_memory product_new(const struct product *p)
{
	struct product_memory m = {gpu_twin_new(gpu_codes_bytes(&p->a)),
				   gpu_twin_new(gpu_scale_bytes(&p->a)),
				   gpu_twin_new(gpu_codes_bytes(&p->b)),
				   gpu_twin_new(gpu_scale_bytes(&p->b)),
				   gpu_twin_new(gpu_dense_bytes(&p->c)),
				   gpu_twin_new(sizeof(float))};

	gpu_fill_nvfp4(&p->a, gpu_host_of(&m.a_codes),
		       gpu_host_of(&m.a_scales));
	gpu_fill_nvfp4(&p->b, gpu_host_of(&m.b_codes),
		       gpu_host_of(&m.b_scales));
	if (p->nan && p->b.k)
		((uint8_t *)gpu_host_of(&m.b_scales))[gpu_scale_at(
		    &p->b, p->b.batch - 1, p->b.rows - 1, p->b.k / 16 - 1)] =
		    NAN_SCALE;
	memcpy(gpu_host_of(&m.alpha), &p->alpha, sizeof(float));
	memset(gpu_host_of(&m.c), POISON, m.c.bytes);
	gpu_upload(&m.a_codes);
	gpu_upload(&m.a_scales);
	gpu_upload(&m.b_codes);
	gpu_upload(&m.b_scales);
	gpu_upload(&m.c);
	gpu_upload(&m.alpha);
	return m;
}

static void product_free(struct product_memory *m)
{
	gpu_twin_free(&m->a_codes);
	gpu_twin_free(&m->a_scales);
	gpu_twin_free(&m->b_codes);
	gpu_twin_free(&m->b_scales);
	gpu_twin_free(&m->c);
	gpu_twin_free(&m->alpha);
}

static bool inputs_unchanged(const struct product_memory *m)
{
	return gpu_is_unchanged(&m->a_codes) &&
	       gpu_is_unchanged(&m->a_scales) &&
	       gpu_is_unchanged(&m->b_codes) &&
	       gpu_is_unchanged(&m->b_scales) && gpu_is_unchanged(&m->alpha);
}

/* The last of count matrices. */
static void *last_of(void *first, const struct gpu_twin *t, int64_t count)
{
	const size_t each = t->bytes / (size_t)count;

	return (uint8_t *)first + each * (size_t)(count - 1);
}

/* True if only the rows first .. end - 1 of c, counted through its batch, have
 * changed, and not the gaps behind their columns. */
static bool rest_unchanged(const struct product *p, const uint8_t *c,
			   int64_t first, int64_t end)
{
	const int64_t size = (int64_t)nib_dtype_bytes(p->c.dtype);
	const int64_t pitch = (p->c.k + p->c.gap) * size;
	const int64_t rows = p->c.batch * p->c.rows;

	for (int64_t i = 0; i < rows * pitch; i++)
		if (c[i] != POISON && (i / pitch < first || i / pitch >= end ||
				       i % pitch >= p->c.k * size))
			return false;
	return true;
}

/* Runs twice, the second time over the last matrix of the batch alone; again:
 * space for a copy of c. */
static const char *run_product(const struct product *p, enum nib_op op,
			       const struct product_memory *m, uint8_t *again)
{
	struct nib_problem on_gpu = problem(p, m, gpu_device_of);
	const struct nib_problem on_host = problem(p, m, gpu_host_of);
	struct nib_check_result result = {.struct_bytes = sizeof(result)};
	const int64_t rows = p->c.batch * p->c.rows;

	if (nib_multiply(gpu_test.gpu, op, &on_gpu, 1, &gpu_test.err) ||
	    nib_device_wait(gpu_test.gpu, NULL, &gpu_test.err))
		return gpu_test.err.message;
	if (!gpu_download(&m->c, gpu_host_of(&m->c)))
		return "guard band";
	if (!rest_unchanged(p, gpu_host_of(&m->c), 0, rows))
		return "wrote between rows of c";
	gpu_must(nib_check(op, &on_host, 1, NULL, &result, &gpu_test.err),
		 "check");
	if (result.failed)
		return "outside its bound";
	memcpy(again, gpu_host_of(&m->c), m->c.bytes);
	gpu_poison(&m->c, POISON);
	on_gpu.a.codes = last_of(on_gpu.a.codes, &m->a_codes, p->a.batch);
	on_gpu.a.scales = last_of(on_gpu.a.scales, &m->a_scales, p->a.batch);
	on_gpu.b.codes = last_of(on_gpu.b.codes, &m->b_codes, p->b.batch);
	on_gpu.b.scales = last_of(on_gpu.b.scales, &m->b_scales, p->b.batch);
	on_gpu.c.data = last_of(on_gpu.c.data, &m->c, p->c.batch);
	on_gpu.a.batch = on_gpu.b.batch = on_gpu.c.batch = 1;
	if (nib_multiply(gpu_test.gpu, op, &on_gpu, 1, &gpu_test.err) ||
	    nib_device_wait(gpu_test.gpu, NULL, &gpu_test.err))
		return gpu_test.err.message;
	if (!gpu_download(&m->c, gpu_host_of(&m->c)))
		return "guard band, alone";
	if (!rest_unchanged(p, gpu_host_of(&m->c), rows - p->c.rows, rows))
		return "wrote outside c, alone";
	if (memcmp(last_of(again, &m->c, p->c.batch),
		   last_of(gpu_host_of(&m->c), &m->c, p->c.batch),
		   m->c.bytes / (size_t)p->c.batch) != 0)
		return "other bits without neighbours";
	return inputs_unchanged(m) ? NULL : "an input changed";
}

static void check_product(const struct product *p)
{
	const enum nib_op op = p->c.rows == 1 ? NIB_GEMV : NIB_GEMM;
	struct product_memory m = product_new(p);
	uint8_t *again = gpu_take(m.c.bytes);
	const char *why;
	char name[160];

	snprintf(name, sizeof(name),
		 "product %s m %" PRId64 " n %" PRId64 " k %" PRId64
		 " batch %" PRId64 " a %s b %s gap %" PRId64 " alpha %g%s",
		 gpu_dtype_name(p->c.dtype), p->c.rows, p->b.rows, p->b.k,
		 p->b.batch, gpu_layout_name(p->a.layout),
		 gpu_layout_name(p->b.layout), p->b.gap, (double)p->alpha,
		 p->nan ? " nan" : "");
	why = run_product(p, op, &m, again);
	gpu_verdict(!why, name, why);
	free(again);
	product_free(&m);
}

static struct product product(int64_t m, int64_t n, int64_t k, int64_t batch,
			      int64_t gap, int choice)
{
	const enum nib_scale_layout a =
	    choice & 1 ? NIB_TILED_128X4 : NIB_LINEAR;
	const enum nib_scale_layout b =
	    choice & 2 ? NIB_TILED_128X4 : NIB_LINEAR;
	/* Multiples of 16 bytes keep batches of c where the device wants. */
	const int64_t c_gap = (8 - n % 8) % 8 + 8 * (choice >> 2 & 1);

	return (struct product){
	    .a = {m, k, batch, gap, a, NIB_FP32, false},
	    .b = {n, k, batch, gap, b, NIB_FP32, false},
	    .c = {m, n, batch, c_gap, NIB_LINEAR, (enum nib_dtype)(choice % 3),
		  false},
	    .alpha = choice % 5 ? -0.75f : 0x1p-20f,
	    .nan = choice % 4 == 3,
	};
}

static void check_all_products(void)
{
	static const int64_t n[] = {1, 15, 16, 17, 127, 128, 129, 300};
	static const int64_t k[] = {16, 48, 240, 256, 272, 1024, 1040, 7168};
	/* More go to Hopper's tensor cores. */
	const int64_t most =
	    gpu_test.arithmetic == NIB_ARITHMETIC_FP4_TENSOR ? 8 : 4;
	struct product p;

	for (int i = 0; i < gpu_cases(160); i++) {
		const int64_t gap = i % 3 ? 0 : 16 * gpu_rnd_below(3);

		p = product(1 + (i % 2 ? 0 : gpu_rnd_below(most)),
			    n[gpu_rnd_below(8)], k[gpu_rnd_below(8)],
			    i % 3 ? 1 : 2 + gpu_rnd_below(2), gap, i);
		/* The last matrix must begin where the device wants it. */
		if (p.b.k % 32)
			p.a.batch = p.b.batch = p.c.batch = 1;
		check_product(&p);
	}
	p = product(1, 33, 0, 1, 0, 1);
	check_product(&p);
	p = product(most, 33, 17408, 1, 0, 1);
	check_product(&p);
	if (gpu_is_small())
		return;
	p = product(1, 64, 65536 + 48, 1, 0, 2);
	check_product(&p);
	p = product(3, 64, 65536 + 32, 1, 0, 8);
	check_product(&p);
	p = product(1, 7168, 16384, 1, 0, 1);
	check_product(&p);
	p = product(1, 4096, 7168, 8, 0, 6);
	check_product(&p);
	p = product(1, 7168, 2048, 4, 0, 9);
	check_product(&p);
	p = product(4, 4096, 4096, 1, 0, 2);
	check_product(&p);
}

int main(void)
{
	int code;

	if (!gpu_begin(&code))
		return code;
	check_all_products();
	return gpu_end();
}
