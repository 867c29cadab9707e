/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_check_few_rows.c - products of up to 64 rows on the GPU, on all codes and scales,
 * with NaN in the padding and guard bands around every buffer.  Results are within
 * their bound, and have the same bits without neighbours in the batch and without
 * packed weights.
 */
#include "gpu_problem.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- products of few rows ------------------------------------------------ */

/* The values of a dense A. */
enum values {
	MIDDLE,	   /* 2^-12 to 2^12 */
	ANY,	   /* every finite one */
	SUBNORMAL, /* and zeros */
	SPECIAL,   /* MIDDLE, with infinities in the first row, NaN in the last
		    */
	KINDS
};

struct product {
	struct gpu_sizes a, b, c; /* c: rows m, k holds n */
	struct gpu_sizes x;	  /* A, if is_dense: then a is not */
	bool is_dense, packed;
	enum values values;
	float alpha;
	bool nan; /* one scale of b is NaN */
};

/* The bytes of c before a run: no NaN, and far from any sum. */
#define POISON 0xEE

/* The same problem on both sides. */
struct product_memory {
	struct gpu_twin a_codes, a_scales, x, b_codes, b_scales, c, alpha;
};

static struct nib_problem problem(const struct product *p,
				  const struct product_memory *m,
				  void *(*side)(const struct gpu_twin *))
{
	struct nib_problem problem;

	memset(&problem, 0, sizeof(problem));
	if (p->is_dense) {
		problem.x = gpu_dense(&p->x, side(&m->x));
		problem.activations = NIB_ACTIVATIONS_DENSE;
	} else {
		problem.a = gpu_nvfp4(&p->a, side(&m->a_codes), side(&m->a_scales));
	}
	problem.b = gpu_nvfp4(&p->b, side(&m->b_codes), side(&m->b_scales));
	problem.c = gpu_dense(&p->c, side(&m->c));
	problem.alpha = side(&m->alpha);
	return problem;
}

/* The bits of one element of these values. */
static uint32_t value_bits(enum nib_dtype dtype, enum values values)
{
	const bool is_bf16 = dtype == NIB_DTYPE_BF16;
	const uint32_t sign = gpu_rnd() & 0x8000;
	const uint32_t fraction = gpu_rnd() & (is_bf16 ? 0x7F : 0x3FF);
	const uint32_t exponent =
	    (uint32_t)((is_bf16 ? 127 : 15) - 12 + gpu_rnd_below(25));

	if (values == SUBNORMAL)
		return sign | (gpu_rnd() & 1 ? fraction : fraction % 4);
	return sign | exponent << (is_bf16 ? 7 : 10) | fraction;
}

/* Gaps hold NaN. */
static void fill_x(const struct product *p, void *data)
{
	const struct gpu_sizes *s = &p->x;
	const uint32_t infinity = s->dtype == NIB_DTYPE_BF16 ? 0x7F80 : 0x7C00;
	const int64_t pitch = s->k + s->gap, last = s->batch * s->rows - 1;

	if (p->values == ANY) {
		gpu_fill_dense(s, data, false);
		return;
	}
	memset(data, 0xFF, gpu_dense_bytes(s));
	for (int64_t i = 0; i < s->batch * s->rows * pitch; i++)
		if (i % pitch < s->k)
			gpu_put(s, data, i, value_bits(s->dtype, p->values));
	if (p->values != SPECIAL || s->k == 0)
		return;
	for (int i = 0; i < 3; i++)
		gpu_put(s, data, gpu_rnd_below(s->k), infinity | (gpu_rnd() & 0x8000));
	gpu_put(s, data, last * pitch + gpu_rnd_below(s->k), infinity + 1);
}

static struct product_memory product_new(const struct product *p)
{
	struct product_memory m = {
	    gpu_twin_new(gpu_codes_bytes(&p->a)), gpu_twin_new(gpu_scale_bytes(&p->a)),
	    gpu_twin_new(gpu_dense_bytes(&p->x)), gpu_twin_new(gpu_codes_bytes(&p->b)),
	    gpu_twin_new(gpu_scale_bytes(&p->b)), gpu_twin_new(gpu_dense_bytes(&p->c)),
	    gpu_twin_new(sizeof(float))};

	if (p->is_dense)
		fill_x(p, gpu_host_of(&m.x));
	else
		gpu_fill_nvfp4(&p->a, gpu_host_of(&m.a_codes),
			       gpu_host_of(&m.a_scales));
	gpu_fill_nvfp4(&p->b, gpu_host_of(&m.b_codes), gpu_host_of(&m.b_scales));
	if (p->nan && p->b.k)
		((uint8_t *)gpu_host_of(&m.b_scales))[gpu_scale_at(
		    &p->b, p->b.batch - 1, p->b.rows - 1, p->b.k / 16 - 1)] = NAN_SCALE;
	memcpy(gpu_host_of(&m.alpha), &p->alpha, sizeof(float));
	memset(gpu_host_of(&m.c), POISON, m.c.bytes);
	gpu_upload(&m.a_codes);
	gpu_upload(&m.a_scales);
	gpu_upload(&m.x);
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
	gpu_twin_free(&m->x);
	gpu_twin_free(&m->b_codes);
	gpu_twin_free(&m->b_scales);
	gpu_twin_free(&m->c);
	gpu_twin_free(&m->alpha);
}

static bool inputs_unchanged(const struct product_memory *m)
{
	return gpu_is_unchanged(&m->a_codes) && gpu_is_unchanged(&m->a_scales) &&
	       gpu_is_unchanged(&m->x) && gpu_is_unchanged(&m->b_codes) &&
	       gpu_is_unchanged(&m->b_scales) && gpu_is_unchanged(&m->alpha);
}

/* The last of count matrices. */
static void *last_of(void *first, const struct gpu_twin *t, int64_t count)
{
	const size_t each = t->bytes / (size_t)count;

	return (uint8_t *)first + each * (size_t)(count - 1);
}

/* True if only the rows first .. end - 1 of c, counted through its batch, have
 * changed, and not the gaps after their columns. */
static bool rest_unchanged(const struct product *p, const uint8_t *c, int64_t first,
			   int64_t end)
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

/* Runs it, and fetches c. */
static const char *multiply(enum nib_op op, const struct nib_problem *problem,
			    const struct product_memory *m)
{
	if (nib_multiply(gpu_test.gpu, op, problem, 1, &gpu_test.err) ||
	    nib_device_wait(gpu_test.gpu, NULL, &gpu_test.err))
		return gpu_test.err.message;
	return gpu_download(&m->c, gpu_host_of(&m->c)) ? NULL
						       : "a guard band has changed";
}

/* The last matrix of the batch, as a problem of its own. */
static struct nib_problem last_problem(const struct product *p,
				       const struct product_memory *m)
{
	struct nib_problem last = problem(p, m, gpu_device_of);

	if (p->is_dense) {
		last.x.data = last_of(last.x.data, &m->x, p->x.batch);
		last.x.batch = 1;
	} else {
		last.a.codes = last_of(last.a.codes, &m->a_codes, p->a.batch);
		last.a.scales = last_of(last.a.scales, &m->a_scales, p->a.batch);
		last.a.batch = 1;
	}
	last.b.codes = last_of(last.b.codes, &m->b_codes, p->b.batch);
	last.b.scales = last_of(last.b.scales, &m->b_scales, p->b.batch);
	last.c.data = last_of(last.c.data, &m->c, p->c.batch);
	last.b.batch = last.c.batch = 1;
	return last;
}

/* The first word of a plan's explanation, which names its kernel. */
static void kernel_of(enum nib_op op, const struct nib_problem *problem, char name[16])
{
	struct nib_plan_info info = {.struct_bytes = sizeof(info)};
	struct nib_plan *plan = NULL;

	gpu_must(
	    nib_plan_create(gpu_test.gpu, op, problem, 1, NULL, &plan, &gpu_test.err),
	    "plan");
	gpu_must(nib_plan_get_info(plan, &info, &gpu_test.err), "info");
	snprintf(name, 16, "%.*s", (int)strcspn(info.explanation, " "),
		 info.explanation);
	nib_plan_free(plan);
}

/* NULL if c on the host is within its bound. */
static const char *judge(const struct product *p, enum nib_op op,
			 const struct product_memory *m)
{
	const struct nib_problem on_host = problem(p, m, gpu_host_of);
	struct nib_check_result result = {.struct_bytes = sizeof(result)};
	const struct nib_check_options options = {.struct_bytes = sizeof(options),
						  .arithmetic = gpu_test.arithmetic};

	/* The kernels for more than one row multiply NVFP4 by tensor cores. */
	const bool is_tensor =
	    gpu_test.arithmetic == NIB_ARITHMETIC_FP16_TENSOR && p->c.rows > 1;

	/* The others keep the bound of a CPU, too. */
	gpu_must(nib_check(op, &on_host, 1, p->is_dense || is_tensor ? &options : NULL,
			   &result, &gpu_test.err),
		 "check");
	return result.failed ? "outside its bound" : NULL;
}

/* Runs twice, the second time only over the last matrix of the batch, its
 * weights not packed; again: space for a copy of c.  One kernel gives the same bits
 * both times; another one may sum in another order. */
static const char *run_product(const struct product *p, enum nib_op op,
			       const struct product_memory *m, uint8_t *again)
{
	const struct nib_problem last = last_problem(p, m);
	const int64_t rows = p->c.batch * p->c.rows;
	struct nib_problem all = problem(p, m, gpu_device_of);
	struct nib_packed *packed = NULL;
	char kernels[2][16];
	const char *why;

	if (p->packed)
		gpu_must(nib_pack(gpu_test.gpu, &all.b, NULL, &packed, &gpu_test.err),
			 "pack");
	all.b_packed = packed;
	why = multiply(op, &all, m);
	if (!why)
		kernel_of(op, &all, kernels[0]);
	nib_packed_free(packed);
	if (why)
		return why;
	if (!rest_unchanged(p, gpu_host_of(&m->c), 0, rows))
		return "wrote between rows of c";
	why = judge(p, op, m);
	if (why)
		return why;
	memcpy(again, gpu_host_of(&m->c), m->c.bytes);
	gpu_poison(&m->c, POISON);
	why = multiply(op, &last, m);
	if (why)
		return why;
	if (!rest_unchanged(p, gpu_host_of(&m->c), rows - p->c.rows, rows))
		return "wrote outside c when computed without the other problems";
	kernel_of(op, &last, kernels[1]);
	if (strcmp(kernels[0], kernels[1]) == 0 &&
	    memcmp(last_of(again, &m->c, p->c.batch),
		   last_of(gpu_host_of(&m->c), &m->c, p->c.batch),
		   m->c.bytes / (size_t)p->c.batch) != 0)
		return "bits differ when computed without the other problems";
	return inputs_unchanged(m) ? NULL : "an input changed";
}

static void check_product(const struct product *p)
{
	const enum nib_op op = p->c.rows == 1 ? NIB_OP_GEMV : NIB_OP_GEMM;
	struct product_memory m = product_new(p);
	uint8_t *again = gpu_take(m.c.bytes);
	const char *why;
	static const char *const values[KINDS] = {"middle", "any", "subnormal",
						  "special"};
	char a[32], name[200];

	if (p->is_dense)
		snprintf(a, sizeof(a), "%s %s +%" PRId64, gpu_dtype_name(p->x.dtype),
			 values[p->values], p->x.gap);
	else
		snprintf(a, sizeof(a), "%s", gpu_layout_name(p->a.layout));
	snprintf(name, sizeof(name),
		 "product %s m %" PRId64 " n %" PRId64 " k %" PRId64 " batch %" PRId64
		 " a %s b %s gap %" PRId64 " alpha %g%s%s",
		 gpu_dtype_name(p->c.dtype), p->c.rows, p->b.rows, p->b.k, p->c.batch,
		 a, gpu_layout_name(p->b.layout), p->b.gap, (double)p->alpha,
		 p->nan ? " nan" : "", p->packed ? " packed" : "");
	why = run_product(p, op, &m, again);
	gpu_verdict(!why, name, why);
	free(again);
	product_free(&m);
}

static struct product product(int64_t m, int64_t n, int64_t k, int64_t batch,
			      int64_t gap, int choice)
{
	const enum nib_scale_layout a =
	    choice & 1 ? NIB_SCALE_LAYOUT_TILED_128X4 : NIB_SCALE_LAYOUT_LINEAR;
	const enum nib_scale_layout b =
	    choice & 2 ? NIB_SCALE_LAYOUT_TILED_128X4 : NIB_SCALE_LAYOUT_LINEAR;
	/* Multiples of 16 bytes keep batches of c where the device wants. */
	const int64_t c_gap = (8 - n % 8) % 8 + 8 * (choice >> 2 & 1);

	return (struct product){
	    .a = {m, k, batch, gap, a, NIB_DTYPE_FP32, false},
	    .b = {n, k, batch, gap, b, NIB_DTYPE_FP32, false},
	    .c = {m, n, batch, c_gap, NIB_SCALE_LAYOUT_LINEAR,
		  (enum nib_dtype)(choice % 3), false},
	    .alpha = choice % 5 ? -0.75f : 0x1p-20f,
	    .nan = choice % 4 == 3,
	};
}

static void check_sizes(int64_t m, int64_t n, int64_t k, int64_t batch, int choice)
{
	const struct product p = product(m, n, k, batch, 0, choice);

	check_product(&p);
}

static void check_all_products(void)
{
	static const int64_t n[] = {1, 15, 16, 17, 127, 128, 129, 300};
	static const int64_t k[] = {16, 48, 240, 256, 272, 1024, 1040, 7168};
	/* More go to the product in tiles. */
	const int64_t most = gpu_test.arithmetic == NIB_ARITHMETIC_FP4_TENSOR ? 8 : 16;
	struct product p;

	for (int i = 0; i < gpu_cases(160); i++) {
		const int64_t gap = i % 3 ? 0 : 16 * gpu_rnd_below(3);

		p = product(1 + (i % 2 ? 0 : gpu_rnd_below(most)), n[gpu_rnd_below(8)],
			    k[gpu_rnd_below(8)], i % 3 ? 1 : 2 + gpu_rnd_below(2), gap,
			    i);
		/* The last matrix must begin where the device wants it. */
		if (p.b.k % 32)
			p.a.batch = p.b.batch = p.c.batch = 1;
		check_product(&p);
	}
	check_sizes(1, 33, 0, 1, 1);
	check_sizes(most, 33, 17408, 1, 1);
	/* More tiles than the warps of 16 multiprocessors. */
	check_sizes(most - 1, 4500, 528, 1, 2);
	if (gpu_is_small())
		return;
	check_sizes(most / 2, 40000, 544, 1, 3);
	check_sizes(1, 64, 65536 + 48, 1, 2);
	check_sizes(3, 64, 65536 + 32, 1, 8);
	check_sizes(1, 7168, 16384, 1, 1);
	check_sizes(1, 4096, 7168, 8, 6);
	check_sizes(1, 7168, 2048, 4, 9);
	check_sizes(4, 4096, 4096, 1, 2);
	/* Large weights (gemv.h). */
	check_sizes(3, 4096, 8192, 1, 9);
	check_sizes(4, 8192 + 16, 4096 + 48, 1, 2);
}

/* ---- A of fp16 and bf16 -------------------------------------------------- */

static struct product dense_product(int64_t m, int64_t n, int64_t k, int64_t batch,
				    int64_t gap, int choice)
{
	struct product p = product(m, n, k, batch, 0, choice);

	p.is_dense = true;
	memset(&p.a, 0, sizeof(p.a));
	p.x = (struct gpu_sizes){m,
				 k,
				 batch,
				 gap,
				 NIB_SCALE_LAYOUT_LINEAR,
				 choice & 1 ? NIB_DTYPE_BF16 : NIB_DTYPE_FP16,
				 false};
	p.values = (enum values)(choice / 2 % KINDS);
	p.packed = choice % 7 == 0 && k > 0;
	/* The NaN of x appears among numbers. */
	p.nan = p.nan && p.values != SPECIAL;
	return p;
}

static void check_dense_products(void)
{
	static const int64_t n[] = {1, 15, 16, 17, 127, 128, 129, 300};
	static const int64_t k[] = {16, 32, 48, 240, 256, 272, 1024, 1040};
	struct product p;

	for (int i = 0; i < gpu_cases(320); i++) {
		/* Rows of 16 bytes, or not: then one matrix. */
		const int64_t gap = i % 3 ? 8 * gpu_rnd_below(3) : 1 + gpu_rnd_below(7);

		p = dense_product(1 + gpu_rnd_below(16), n[gpu_rnd_below(8)],
				  k[gpu_rnd_below(8)],
				  i % 3 == 1 ? 2 + gpu_rnd_below(2) : 1, gap, i);
		if (i % 4 == 1)
			p.b.batch = 1;
		if (p.b.k % 32)
			p.x.batch = p.b.batch = p.c.batch = 1;
		check_product(&p);
	}
	p = dense_product(1, 33, 0, 1, 0, 1);
	check_product(&p);
	/* One phase of A and a step more, of each number of rows. */
	for (int m = 1; m <= 4; m++)
		for (int type = 0; type < 2; type++) {
			const int64_t phase = 16384 / (m == 3 ? 4 : m);

			p = dense_product(m, 33, phase + 256 + 32, 1, 8 * type,
					  type + 4 * m);
			p.values = MIDDLE;
			check_product(&p);
		}
	/* More chunks of A than there is space for, in several rounds. */
	for (int i = 0; i < 4; i++) {
		p = dense_product(7 + 8 * (i / 2), i % 2 ? 4500 : 40,
				  i % 2 ? 528 : 8192 + 48, 1, 8 * (i % 2), i);
		check_product(&p);
	}
	if (gpu_is_small())
		return;
	for (int i = 0; i < 32; i++) {
		p = dense_product(1 + i % 16, 4096, 7168, 1 + i / 16, 0, i % 2);
		check_product(&p);
	}
	p = dense_product(1, 64, 65536 + 48, 1, 0, 2);
	check_product(&p);
	p = dense_product(3, 64, 65536 + 32, 1, 0, 9);
	check_product(&p);
	/* Large weights (gemv.h). */
	for (int i = 0; i < 4; i++) {
		p = dense_product(3 + i % 2, 4096 + i, 8192, 1, 0, i);
		check_product(&p);
	}
}

/*
 * So many tiles for each CTA of Hopper's skinny kernels that some tiles have two
 * warps, each for a half of every block (skinny.cuh).  The same matrix is then
 * multiplied in another cut, with the same bits: alone and not in a batch of three,
 * or not packed.
 */
static void check_half_tiles(void)
{
	static const int tiles[] = {5, 7, 10, 14};
	struct nib_device_info info = {.struct_bytes = sizeof(info)};
	struct product p;

	gpu_must(nib_device_get_info(gpu_test.gpu, &info, &gpu_test.err), "info");
	for (int i = 0; i < 8; i++) {
		const int64_t n = 16 * tiles[i % 4] * info.multiprocessors;

		p = i < 4 ? dense_product(5 + i % 4, n, 288, 3, 0, i)
			  : product(5 + i % 4, n - 16, 288, 1, 0, i - 4);
		p.packed = i >= 4;
		check_product(&p);
	}
}

/*
 * 17 to 64 rows of one matrix: Hopper's wide kernels, with slices of k that end
 * anywhere, and more chunks of A than there is space for.
 */
static void check_wide_products(void)
{
	static const int64_t n[] = {1, 63, 64, 65, 129, 300, 520, 1100};
	static const int64_t k[] = {0, 16, 48, 240, 272, 528, 1040, 2320, 3344, 4096};
	struct product p;

	for (int i = 0; i < gpu_cases(120); i++) {
		const int64_t m = 17 + gpu_rnd_below(48);
		const int64_t n_i = n[gpu_rnd_below(8)];
		const int64_t k_i = k[gpu_rnd_below(10)];

		/* Rows of 16 bytes, or not. */
		p = i % 2 ? dense_product(m, n_i, k_i, 1,
					  i % 3 ? 8 * gpu_rnd_below(3)
						: 1 + gpu_rnd_below(7),
					  i / 2)
			  : product(m, n_i, k_i, 1, i % 3 ? 0 : 16 * gpu_rnd_below(3),
				    i / 2);
		check_product(&p);
	}
	if (gpu_is_small())
		return;
	for (int i = 0; i < 24; i++) {
		const int64_t m = 17 + gpu_rnd_below(48);

		p = i % 4 ? dense_product(m, i % 3 ? 4096 : 7168, i % 3 ? 4096 : 2048,
					  1, 0, i)
			  : product(m, i % 3 ? 4096 : 7168, i % 3 ? 4096 : 2048, 1, 0,
				    i / 4);
		check_product(&p);
	}
}

/*
 * 9 to 64 rows of whole k64: the mma kernels of Ampere and Ada, in which slices of k
 * and groups of warps have steps or none, and rows are aligned or not.
 */
static void check_middle_products(void)
{
	static const int64_t n[] = {1, 64, 129, 300};
	static const int64_t k[] = {64, 192, 1024, 2112, 4160};

	for (int i = 0; i < gpu_cases(80); i++) {
		/* Hopper sums more rows of one matrix in another order than a batch. */
		const int64_t batch = i % 5 ? 1 : 2;
		const int64_t m = 9 + gpu_rnd_below(batch > 1 ? 8 : 56);
		const int64_t n_i = n[gpu_rnd_below(4)], k_i = k[gpu_rnd_below(5)];
		/* Hopper's tiles, which take the longest k, need rows of 16 bytes. */
		const bool is_aligned = batch > 1 || i % 2 || (m > 16 && k_i > 2112);
		const struct product p =
		    i % 3 ? dense_product(m, n_i, k_i, batch,
					  is_aligned ? 8 * gpu_rnd_below(3)
						     : 1 + gpu_rnd_below(7),
					  i / 2)
			  : product(m, n_i, k_i, batch, 32 * gpu_rnd_below(3), i / 2);

		check_product(&p);
	}
}

/* Runs a plan in one of many workspaces, twice; returns NULL, or what went wrong. */
static const char *run_in(struct nib_plan *plan, const struct nib_problem *problem,
			  const struct product_memory *m,
			  const struct gpu_twin *workspace, const uint8_t *want)
{
	const struct nib_run_options options = {.struct_bytes = sizeof(options),
						.workspace = gpu_device_of(workspace),
						.workspace_bytes = workspace->bytes};

	for (int run = 0; run < 2; run++) {
		gpu_poison(&m->c, POISON);
		gpu_poison(workspace, 0xFF);
		if (nib_run(plan, problem, 1, &options, &gpu_test.err) ||
		    nib_device_wait(gpu_test.gpu, NULL, &gpu_test.err))
			return gpu_test.err.message;
		if (!gpu_download(&m->c, gpu_host_of(&m->c)) ||
		    !gpu_guards_hold(workspace))
			return "wrote into a guard band";
		if (memcmp(want, gpu_host_of(&m->c), m->c.bytes) != 0)
			return "bits differ in another workspace";
	}
	return NULL;
}

/* A plan with split-k in more workspaces than those whose counters it keeps. */
static void check_workspaces(void)
{
	const struct nib_plan_options options = {.struct_bytes = sizeof(options),
						 .caller_workspace = 1};
	struct nib_plan_info info = {.struct_bytes = sizeof(info)};
	const struct product p = dense_product(20, 129, 4160, 1, 0, 0);
	struct product_memory m = product_new(&p);
	const struct nib_problem work = problem(&p, &m, gpu_device_of);
	struct gpu_twin spaces[10];
	struct nib_plan *plan;
	const char *why = multiply(NIB_OP_GEMM, &work, &m);
	uint8_t *want = gpu_take(m.c.bytes);

	memcpy(want, gpu_host_of(&m.c), m.c.bytes);
	gpu_must(nib_plan_create(gpu_test.gpu, NIB_OP_GEMM, &work, 1, &options, &plan,
				 &gpu_test.err),
		 "plan");
	gpu_must(nib_plan_get_info(plan, &info, &gpu_test.err), "info");
	for (int i = 0; i < 10; i++)
		spaces[i] = gpu_twin_new(info.workspace_bytes);
	for (int i = 0; i < 20 && !why; i++)
		why = run_in(plan, &work, &m, &spaces[i % 10], want);
	gpu_verdict(!why, "split-k in ten workspaces", why);
	nib_plan_free(plan);
	for (int i = 0; i < 10; i++)
		gpu_twin_free(&spaces[i]);
	free(want);
	product_free(&m);
}

int main(void)
{
	int code;

	if (!gpu_begin(&code))
		return code;
	check_all_products();
	/* Hopper has kernels for them. */
	if (gpu_test.arithmetic == NIB_ARITHMETIC_FP16_TENSOR) {
		check_dense_products();
		check_half_tiles();
		check_wide_products();
		check_middle_products();
		check_workspaces();
	}
	return gpu_end();
}
