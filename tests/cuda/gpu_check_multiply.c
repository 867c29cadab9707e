/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_check_multiply.c - products, dual products, batches and groups on the GPU:
 *
 * - results are within their bound, and NaN exactly where a scale is NaN;
 * - guard bands and gaps do not change;
 * - bits are the same in later runs, in any order of a group, with any other problems
 *   in the group, and from two threads.
 *
 * gpu_check_moe.c tests MoE.
 */
#include "gpu_problem.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The most products that the oracle sums for one matrix, because it is slow. */
#define ORACLE_PRODUCTS 8000000
#define GROUP_MAX	100
#define RUNS		200
#define THREAD_RUNS	50

/* ---- verdicts ------------------------------------------------------------ */

static uint32_t element(const struct gpu_sizes *c, const void *data, int64_t i)
{
	uint32_t bits;
	uint16_t half;

	if (c->dtype == NIB_DTYPE_FP32) {
		memcpy(&bits, (const uint8_t *)data + 4 * i, 4);
		return bits;
	}
	memcpy(&half, (const uint8_t *)data + 2 * i, 2);
	return half;
}

static bool is_nan(const struct gpu_sizes *c, uint32_t bits)
{
	if (c->dtype == NIB_DTYPE_FP32)
		return (bits & 0x7FFFFFFF) > 0x7F800000;
	return (bits & 0x7FFF) > (c->dtype == NIB_DTYPE_FP16 ? 0x7C00 : 0x7F80);
}

/* Checks one row of c with its gap.  The poison is a NaN that no product gives. */
static const char *check_row(const struct gpu_item *x, const void *c, int64_t at,
			     bool is_nan_row, bool has_nan_col)
{
	const int64_t pitch = x->c.k + x->c.gap;
	const uint32_t untouched = x->c.dtype == NIB_DTYPE_FP32 ? UINT32_MAX : 0xFFFF;

	for (int64_t col = 0; col < pitch; col++) {
		const uint32_t bits = element(&x->c, c, at * pitch + col);
		const bool wants_nan = is_nan_row || (has_nan_col && col == x->nan_col);

		if (col >= x->c.k) {
			if (bits != untouched)
				return "wrote outside c";
		} else if (bits == untouched) {
			return "not written";
		} else if (is_nan(&x->c, bits) != wants_nan) {
			return wants_nan ? "no NaN from a NaN scale"
					 : "NaN from numbers";
		}
	}
	return NULL;
}

/* Checks that all of c is written, that no gap is, and which elements are NaN. */
static const char *check_written(const struct gpu_item *x, const void *c)
{
	const int64_t batches = x->c.batch, rows = x->c.rows;
	const char *why = NULL;

	for (int64_t b = 0; b < batches && !why; b++)
		for (int64_t row = 0; row < rows && !why; row++)
			why = check_row(
			    x, c, x->c.is_between ? row * batches + b : b * rows + row,
			    b == 0 && row == x->nan_row,
			    b == 0 || x->b.batch < batches);
	return why;
}

static const char *check_item(const struct gpu_item *x, const struct gpu_memory *m)
{
	const struct nib_problem on_host = gpu_problem(x, m, gpu_host_of);
	const struct nib_check_options options =
	    gpu_check_options(x->b.rows, x->b.k, x->c.batch, ORACLE_PRODUCTS);
	struct nib_check_result result = {.struct_bytes = sizeof(result)};
	const char *why;

	if (!gpu_download(&m->c, gpu_host_of(&m->c)))
		return "wrote into the guard band of c";
	why = check_written(x, gpu_host_of(&m->c));
	if (why)
		return why;
	gpu_must(nib_check(x->op, &on_host, 1, &options, &result, &gpu_test.err),
		 "check");
	if (result.failed)
		return gpu_result(&result);
	return gpu_inputs_unchanged(m) ? NULL : "an input changed";
}

static const char *run_plan(struct nib_plan *plan, const struct nib_problem *p,
			    int64_t count)
{
	struct nib_plan_info info = {.struct_bytes = sizeof(info)};
	struct nib_run_options options = {.struct_bytes = sizeof(options)};
	struct gpu_twin workspace;
	const char *why = NULL;

	gpu_must(nib_plan_get_info(plan, &info, &gpu_test.err), "plan");
	workspace = gpu_twin_new(info.workspace_bytes);
	gpu_poison(&workspace, 0xFF);
	options.workspace = gpu_device_of(&workspace);
	options.workspace_bytes = info.workspace_bytes;
	if (nib_run(plan, p, count, &options, &gpu_test.err) ||
	    nib_device_wait(gpu_test.gpu, NULL, &gpu_test.err))
		why = gpu_test.err.message;
	else if (!gpu_guards_hold(&workspace))
		why = "wrote into the guard band of the workspace";
	gpu_twin_free(&workspace);
	return why;
}

static const char *multiply(enum nib_op op, const struct nib_problem *p, int64_t count)
{
	const struct nib_plan_options options = {.struct_bytes = sizeof(options),
						 .caller_workspace = 1};
	struct nib_plan *plan;
	const char *why;

	if (nib_plan_create(gpu_test.gpu, op, p, count, &options, &plan, &gpu_test.err))
		return gpu_test.err.message;
	why = run_plan(plan, p, count);
	nib_plan_free(plan);
	return why;
}

/* ---- single problems ----------------------------------------------------- */

static void check_single(const struct gpu_item *x)
{
	struct gpu_memory m = gpu_memory_new(x);
	const struct nib_problem p = gpu_problem(x, &m, gpu_device_of);
	const char *why = multiply(x->op, &p, 1);
	char name[256];

	if (!why)
		why = check_item(x, &m);
	gpu_name_item(x, "single", name, sizeof(name));
	gpu_tell(name, why);
	gpu_memory_free(&m);
}

static const int64_t edges_m[] = {0,  1,   7,	8,   9,	  16,  17,  63, 64,
				  65, 127, 128, 129, 255, 256, 257, 511};
static const int64_t edges_n[] = {1, 63, 64, 65, 127, 129, 250, 1000};
static const int64_t edges_k[] = {0, 16, 48, 240, 272, 1040, 7168};

static int64_t edge_k(int i)
{
	return edges_k[i % (gpu_is_small() ? 6 : 7)];
}

/* Bits 0 to 3: whether a, b, b2 and c interleave the rows of their matrices. */
static void set_between(struct gpu_item *x, int bits)
{
	x->a.is_between = bits & 1;
	x->b.is_between = bits & 2;
	x->b2.is_between = bits & 4;
	x->c.is_between = bits & 8;
}

static void check_singles(void)
{
	for (int i = 0; i < gpu_cases(17 * 8); i++) {
		/* 17, 8 and 7 share no factor, so all pairs of sizes occur. */
		const int64_t m = edges_m[i % 17], n = edges_n[i % 8];
		struct gpu_item x;

		x = gpu_any_item(NIB_OP_GEMM, m, n, edge_k(i), 1, 1);
		check_single(&x);
		x = gpu_any_item(NIB_OP_DUAL_GEMM, m, n, edge_k(i + 3), 1, 1);
		check_single(&x);
	}
	for (int i = 0; i < gpu_cases(48); i++) {
		const enum nib_op op = i & 1 ? NIB_OP_DUAL_GEMM : NIB_OP_GEMM;
		const int64_t batch = 2 + gpu_rnd_below(3);
		struct gpu_item x =
		    gpu_any_item(op, 1 + gpu_rnd_below(i % 3 ? 150 : 4), edges_n[i % 8],
				 edges_k[gpu_rnd_below(6)], batch, i & 2 ? batch : 1);

		set_between(&x, i >> 2);
		check_single(&x);
	}
}

/* ---- batches ------------------------------------------------------------- */

/* Bytes from one matrix to the next. */
static int64_t codes_stride(const struct gpu_sizes *s)
{
	return s->is_between ? s->k / 2 + s->gap
			     : (int64_t)gpu_codes_bytes(s) / s->batch;
}

static int64_t scales_stride(const struct gpu_sizes *s)
{
	return s->is_between && s->layout == NIB_SCALE_LAYOUT_LINEAR
		   ? s->k / 16 + s->gap
		   : (int64_t)gpu_scale_bytes(s) / s->batch;
}

/* Reduces v to count matrices from `first` on, unless all problems share one. */
static void cut_operand(const struct gpu_sizes *s, int64_t first, int64_t count,
			struct nib_fp4 *v)
{
	if (s->batch == 1)
		return;
	v->codes = (char *)v->codes + first * codes_stride(s);
	v->scales = (char *)v->scales + first * scales_stride(s);
	v->batch_stride_bytes = s->batch > 1 ? codes_stride(s) : 0;
	v->scale_batch_stride_bytes = s->batch > 1 ? scales_stride(s) : 0;
	v->batch = count;
}

static struct nib_problem cut_problem(const struct gpu_item *x,
				      const struct nib_problem *p, int64_t first,
				      int64_t count)
{
	const int64_t pitch = x->c.k + x->c.gap;
	const int64_t stride = x->c.is_between ? pitch : x->c.rows * pitch;
	struct nib_problem part = *p;

	cut_operand(&x->a, first, count, &part.a);
	cut_operand(&x->b, first, count, &part.b);
	cut_operand(&x->b2, first, count, &part.b2);
	part.c.data =
	    (char *)p->c.data + first * stride * (int64_t)nib_dtype_bytes(p->c.dtype);
	part.c.batch_stride_elems = stride;
	part.c.batch = count;
	return part;
}

/*
 * A large batch, which the backend runs as one problem with strides, has the same bits
 * as its parts, whose launches list each matrix.  PART is the most matrices of such a
 * launch, and a multiple of 16, so that every part begins aligned.
 */
#define PART 48
static void check_batch(struct gpu_item x)
{
	struct gpu_memory m;
	struct nib_problem p;
	uint8_t *first;
	const char *why;
	char name[256];

	x.packed = false;
	m = gpu_memory_new(&x);
	p = gpu_problem(&x, &m, gpu_device_of);
	first = gpu_take(m.c.bytes);
	why = multiply(x.op, &p, 1);
	if (!why)
		why = check_item(&x, &m);
	memcpy(first, gpu_host_of(&m.c), m.c.bytes);
	gpu_poison(&m.c, 0xFF);
	for (int64_t l = 0; l < x.c.batch && !why; l += PART) {
		const int64_t left = x.c.batch - l;
		const struct nib_problem part =
		    cut_problem(&x, &p, l, left < PART ? left : PART);

		why = multiply(x.op, &part, 1);
	}
	if (!why && !gpu_download(&m.c, gpu_host_of(&m.c)))
		why = "wrote into the guard band of c";
	if (!why && memcmp(first, gpu_host_of(&m.c), m.c.bytes) != 0)
		why = "bits differ from those of its parts";
	gpu_name_item(&x, "batch", name, sizeof(name));
	gpu_tell(name, why);
	free(first);
	gpu_memory_free(&m);
}

static void check_batches(void)
{
	for (int i = 0; i < gpu_cases(40); i++) {
		const enum nib_op op = i & 1 ? NIB_OP_DUAL_GEMM : NIB_OP_GEMM;
		const int64_t batch = 49 + gpu_rnd_below(60);
		struct gpu_item x = gpu_any_item(
		    op, 1 + gpu_rnd_below(i % 4 ? 40 : 150), edges_n[i % 7],
		    edges_k[gpu_rnd_below(5)], batch, i & 2 ? batch : 1);

		set_between(&x, i >> 2);
		check_batch(x);
		/* Packed weights cannot be cut into parts. */
		x.packed = true;
		check_single(&x);
	}
	/* Two launches, because the converted rows exceed half of the L2. */
	check_batch(gpu_any_item(NIB_OP_GEMM, 1300, 1, 16, 49, 49));
	/* More matrices than the y dimension of a grid has CTAs; for the vector
	 * kernel. */
	if (!gpu_is_small())
		check_batch(gpu_any_item(NIB_OP_GEMM, 1, 1, 16, 65536 + 20, 1));
}

/* ---- groups -------------------------------------------------------------- */

struct group {
	enum nib_op op;
	int count;
	struct gpu_item items[GROUP_MAX];
	struct gpu_memory memory[GROUP_MAX];
	uint8_t *first[GROUP_MAX]; /* the bits of the first run */
};

static struct group *group_new(enum nib_op op, int count)
{
	struct group *g = gpu_take(sizeof(*g));

	g->op = op;
	g->count = count;
	for (int i = 0; i < count; i++) {
		g->items[i] = gpu_any_item(op, gpu_rnd_below(i % 7 ? 40 : 300),
					   edges_n[gpu_rnd_below(8)],
					   edges_k[gpu_rnd_below(6)], 1, 1);
		g->memory[i] = gpu_memory_new(&g->items[i]);
		g->first[i] = gpu_take(g->memory[i].c.bytes);
	}
	return g;
}

static void group_free(struct group *g)
{
	for (int i = 0; i < g->count; i++) {
		gpu_memory_free(&g->memory[i]);
		free(g->first[i]);
	}
	free(g);
}

/* Runs count problems of the group: from, from + step, ..., modulo its size. */
static const char *run_some(const struct group *g, int from, int step, int count)
{
	struct nib_problem p[GROUP_MAX];

	for (int i = 0; i < count; i++) {
		const int at = (from + i * step) % g->count;

		gpu_poison(&g->memory[at].c, 0xFF);
		p[i] = gpu_problem(&g->items[at], &g->memory[at], gpu_device_of);
	}
	return multiply(g->op, p, count);
}

static bool same_bits(const struct group *g, int at)
{
	const size_t bytes = g->memory[at].c.bytes;
	uint8_t *now = gpu_take(bytes);
	const bool ok = gpu_download(&g->memory[at].c, now) &&
			memcmp(now, g->first[at], bytes) == 0;

	free(now);
	return ok;
}

static void check_again(const struct group *g, int from, int step, int count,
			const char *what)
{
	const char *why = run_some(g, from, step, count);
	char name[256];

	for (int i = 0; i < count; i++) {
		const int at = (from + i * step) % g->count;

		gpu_name_item(&g->items[at], what, name, sizeof(name));
		gpu_tell(name, why ? why : same_bits(g, at) ? NULL : "bits differ");
	}
}

/* A group of gpu_cases(all) problems, but at least 10, so that steps of seven reach
 * different problems. */
static void check_group(enum nib_op op, int all)
{
	const int count = gpu_cases(all) < 10 ? 10 : gpu_cases(all);
	struct group *g = group_new(op, count);
	const char *failed = run_some(g, 0, 1, count), *why;
	char name[256];

	for (int i = 0; i < count; i++) {
		const struct gpu_memory *m = &g->memory[i];

		why = failed ? failed : check_item(&g->items[i], m);
		gpu_name_item(&g->items[i], "group", name, sizeof(name));
		gpu_tell(name, why);
		memcpy(g->first[i], gpu_host_of(&m->c), m->c.bytes);
	}
	/* In reverse order; every seventh, but at least two, because a single problem
	 * may use split-k; a pair. */
	check_again(g, count - 1, count - 1, count, "reversed");
	check_again(g, 3, 7, count < 14 ? 2 : count / 7, "other neighbours");
	check_again(g, 0, 7, 2, "pair");
	group_free(g);
}

/* ---- the same bits, run after run ---------------------------------------- */

struct runner {
	struct gpu_item item;
	struct gpu_memory memory;
	struct nib_plan *plan;
	uint8_t *first, *now;
	int runs;
	struct nib_error err;
	const char *why;
};

static void runner_new(struct runner *r, const struct gpu_item *x, int runs)
{
	struct nib_problem p;

	memset(r, 0, sizeof(*r));
	r->item = *x;
	r->memory = gpu_memory_new(x);
	r->runs = runs;
	r->first = gpu_take(r->memory.c.bytes);
	r->now = gpu_take(r->memory.c.bytes);
	p = gpu_problem(x, &r->memory, gpu_device_of);
	gpu_must(
	    nib_plan_create(gpu_test.gpu, x->op, &p, 1, NULL, &r->plan, &gpu_test.err),
	    "plan");
}

static void *run_again(void *argument)
{
	struct runner *r = argument;
	const struct nib_problem p = gpu_problem(&r->item, &r->memory, gpu_device_of);

	for (int i = 0; i < r->runs && !r->why; i++) {
		uint8_t *to = i ? r->now : r->first;

		gpu_poison(&r->memory.c, 0xFF);
		if (nib_run(r->plan, &p, 1, NULL, &r->err) ||
		    nib_device_wait(gpu_test.gpu, NULL, &r->err))
			r->why = r->err.message;
		else if (!gpu_download(&r->memory.c, to))
			r->why = "wrote into the guard band of c";
		else if (i && memcmp(r->now, r->first, r->memory.c.bytes) != 0)
			r->why = "bits differ in a later run";
	}
	return NULL;
}

static void runner_end(struct runner *r, const char *what)
{
	char name[256];

	gpu_name_item(&r->item, what, name, sizeof(name));
	gpu_tell(name, r->why ? r->why : check_item(&r->item, &r->memory));
	nib_plan_free(r->plan);
	free(r->first);
	free(r->now);
	gpu_memory_free(&r->memory);
}

static void check_runs(enum nib_op op, int64_t m, int64_t n, int64_t k)
{
	const struct gpu_item x = gpu_any_item(op, m, n, k, 1, 1);
	struct runner r;

	runner_new(&r, &x, gpu_cases(RUNS));
	run_again(&r);
	runner_end(&r, "repeated runs");
}

static void check_threads(void)
{
	const struct gpu_item x = gpu_any_item(NIB_OP_GEMM, 257, 1000, 7168, 1, 1);
	const struct gpu_item y = gpu_any_item(NIB_OP_DUAL_GEMM, 65, 1000, 1040, 1, 1);
	struct runner r[2];
	pthread_t thread;

	runner_new(&r[0], &x, THREAD_RUNS);
	runner_new(&r[1], &y, THREAD_RUNS);
	if (pthread_create(&thread, NULL, run_again, &r[1]) != 0) {
		gpu_tell("threads", "pthread_create failed");
		return;
	}
	run_again(&r[0]);
	pthread_join(thread, NULL);
	runner_end(&r[0], "two threads");
	runner_end(&r[1], "two threads");
}

int main(void)
{
	int code;

	if (!gpu_begin(&code))
		return code;
	check_singles();
	check_batches();
	check_group(NIB_OP_GEMM, GROUP_MAX);
	check_group(NIB_OP_DUAL_GEMM, 49);
	if (!gpu_is_small()) {
		check_runs(NIB_OP_GEMM, 256, 1000, 1040);
		check_runs(NIB_OP_GEMM, 9, 250, 7168);
		check_runs(NIB_OP_DUAL_GEMM, 129, 1000, 1040);
		check_threads();
	}
	return gpu_end();
}
