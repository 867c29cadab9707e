/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_check_dense.c - products of fp16 and bf16 by NVFP4 weights on the GPU, also in
 * batches, groups and MoE.  Results are within their bound and have the same bits in a
 * second run; inputs, gaps and guard bands do not change.
 */
#include "gpu_problem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Products that the oracle adds up for one matrix: it is slow. */
#define ORACLE_PRODUCTS 2000000
#define GROUP_MAX	6

static const enum nib_dtype types[] = {NIB_DTYPE_FP16, NIB_DTYPE_BF16};

/* ---- verdicts ------------------------------------------------------------ */

/* Whether the memory after the rows of c is still poison. */
static bool gaps_hold(const struct gpu_sizes *c, const void *data)
{
	const int64_t size = (int64_t)nib_dtype_bytes(c->dtype);
	const int64_t pitch = (c->k + c->gap) * size;
	const uint8_t *row = data;

	for (int64_t r = 0; r < c->rows * c->batch; r++, row += pitch)
		for (int64_t i = c->k * size; i < pitch; i++)
			if (row[i] != 0xFF)
				return false;
	return true;
}

/* Elements that were not written are NaN, which no bound takes. */
static const char *check_item(const struct gpu_item *x, const struct gpu_memory *m)
{
	const struct nib_problem on_host = gpu_problem(x, m, gpu_host_of);
	const struct nib_check_options options =
	    gpu_check_options(x->b.rows, x->b.k, x->c.batch, ORACLE_PRODUCTS);
	struct nib_check_result result = {.struct_bytes = sizeof(result)};

	if (!gpu_download(&m->c, gpu_host_of(&m->c)))
		return "wrote into the guard band of c";
	if (!gaps_hold(&x->c, gpu_host_of(&m->c)))
		return "wrote outside c";
	gpu_must(nib_check(x->op, &on_host, 1, &options, &result, &gpu_test.err),
		 "check");
	if (result.failed)
		return gpu_result(&result);
	return gpu_inputs_unchanged(m) ? NULL : "an input changed";
}

/* Runs twice, on workspaces that hold something else before. */
static const char *run_twice(enum nib_op op, const struct nib_problem *p, int64_t count,
			     const struct gpu_memory *m)
{
	uint8_t *first[GROUP_MAX] = {NULL};
	const char *why = NULL;

	for (int run = 0; run < 2 && !why; run++) {
		for (int64_t i = 0; i < count; i++)
			gpu_poison(&m[i].c, 0xFF);
		if (nib_multiply(gpu_test.gpu, op, p, count, &gpu_test.err) ||
		    nib_device_wait(gpu_test.gpu, NULL, &gpu_test.err))
			why = gpu_test.err.message;
		for (int64_t i = 0; i < count && !why; i++) {
			uint8_t *now = gpu_take(m[i].c.bytes + 1);

			if (!gpu_download(&m[i].c, now))
				why = "wrote into the guard band of c";
			else if (run && memcmp(first[i], now, m[i].c.bytes) != 0)
				why = "bits differ in the second run";
			free(first[i]);
			first[i] = now;
		}
	}
	for (int64_t i = 0; i < count; i++)
		free(first[i]);
	return why;
}

/* ---- products ------------------------------------------------------------ */

static void check_products(const struct gpu_item *x, int64_t count, const char *what)
{
	struct gpu_memory m[GROUP_MAX];
	struct nib_problem p[GROUP_MAX];
	const char *why;
	char name[256];

	for (int64_t i = 0; i < count; i++) {
		m[i] = gpu_memory_new(&x[i]);
		p[i] = gpu_problem(&x[i], &m[i], gpu_device_of);
	}
	why = run_twice(x->op, p, count, m);
	gpu_name_item(x, what, name, sizeof(name));
	if (why)
		gpu_tell(name, why);
	for (int64_t i = 0; i < count; i++) {
		if (!why) {
			gpu_name_item(&x[i], what, name, sizeof(name));
			gpu_tell(name, check_item(&x[i], &m[i]));
		}
		gpu_memory_free(&m[i]);
	}
}

static const int64_t edges_m[] = {0,  1,  4,  5,   8,	9,   16,  17, 33,
				  63, 65, 96, 127, 129, 200, 257, 300};
static const int64_t edges_n[] = {1, 63, 64, 65, 127, 129, 250, 520};
static const int64_t edges_k[] = {0, 16, 48, 240, 272, 528, 1040};

static void check_singles(void)
{
	for (int i = 0; i < gpu_cases(17 * 8); i++) {
		/* 17, 8 and 7 share no factor: all pairs come. */
		const enum nib_op op = i % 3 == 2 ? NIB_OP_DUAL_GEMM : NIB_OP_GEMM;
		struct gpu_item x = gpu_any_item(op, edges_m[i % 17], edges_n[i % 8],
						 edges_k[i % 7], 1, 1);

		gpu_make_dense(&x, types[i & 1]);
		check_products(&x, 1, "single");
	}
}

/* Batches of a few matrices, and of more than a launch's table holds. */
static void check_batches(void)
{
	for (int i = 0; i < gpu_cases(24); i++) {
		const enum nib_op op = i & 1 ? NIB_OP_DUAL_GEMM : NIB_OP_GEMM;
		const int64_t batch = i % 3 ? 2 + gpu_rnd_below(3) : 50;
		struct gpu_item x =
		    gpu_any_item(op, 1 + gpu_rnd_below(40), edges_n[i % 6],
				 edges_k[1 + i % 5], batch, i & 2 ? batch : 1);

		x.a.is_between = i & 4;
		x.c.gap = 0;
		gpu_make_dense(&x, types[i / 2 & 1]);
		check_products(&x, 1, "batch");
	}
}

static void check_groups(void)
{
	for (int i = 0; i < gpu_cases(24); i++) {
		const enum nib_op op = i & 1 ? NIB_OP_DUAL_GEMM : NIB_OP_GEMM;
		struct gpu_item x[GROUP_MAX];

		for (int j = 0; j < GROUP_MAX; j++) {
			x[j] = gpu_any_item(op, gpu_rnd_below(j ? 70 : 300),
					    1 + gpu_rnd_below(300),
					    16 * gpu_rnd_below(30), 1, 1);
			gpu_make_dense(&x[j], types[i / 2 & 1]);
		}
		check_products(x, GROUP_MAX, "group");
	}
}

/* ---- MoE ----------------------------------------------------------------- */

/* What else an expert problem has: rows of each expert, some none. */
static void deal_rows(int32_t *offsets, int64_t experts, int64_t most)
{
	offsets[0] = 0;
	for (int64_t e = 0; e < experts; e++)
		offsets[e + 1] =
		    offsets[e] +
		    (gpu_rnd_below(4) ? (int32_t)gpu_rnd_below(most + 1) : 0);
}

static struct nib_moe_problem moe_of(const struct gpu_item *x,
				     const struct gpu_memory *m,
				     const struct gpu_twin *offsets,
				     const struct gpu_twin *alpha,
				     void *(*side)(const struct gpu_twin *))
{
	const struct nib_problem p = gpu_problem(x, m, side);
	struct nib_moe_problem moe;

	memset(&moe, 0, sizeof(moe));
	moe.problem.b = p.b, moe.problem.b2 = p.b2;
	moe.problem.b_packed = p.b_packed, moe.problem.b2_packed = p.b2_packed;
	moe.problem.c = p.c, moe.problem.x = p.x;
	moe.problem.activations = p.activations;
	moe.problem.alpha = side(alpha);
	moe.problem.alpha2 = moe.problem.alpha + x->b.batch;
	moe.row_offsets = side(offsets);
	return moe;
}

static const char *check_moe(const struct gpu_item *x, const struct gpu_memory *m,
			     const struct gpu_twin *offsets,
			     const struct gpu_twin *alpha)
{
	const struct nib_moe_problem p = moe_of(x, m, offsets, alpha, gpu_device_of);
	const struct nib_moe_problem on_host =
	    moe_of(x, m, offsets, alpha, gpu_host_of);
	const struct nib_check_options options =
	    gpu_check_options(x->b.rows, x->b.k, 1, ORACLE_PRODUCTS);
	struct nib_check_result result = {.struct_bytes = sizeof(result)};
	struct nib_plan *plan;
	const char *why = NULL;

	if (nib_moe_plan_create(gpu_test.gpu, x->op, &p, NULL, &plan, &gpu_test.err))
		return gpu_test.err.message;
	if (nib_moe_run(plan, &p, NULL, &gpu_test.err) ||
	    nib_device_wait(gpu_test.gpu, NULL, &gpu_test.err))
		why = gpu_test.err.message;
	nib_plan_free(plan);
	if (why)
		return why;
	if (!gpu_download(&m->c, gpu_host_of(&m->c)))
		return "wrote into the guard band of c";
	if (!gaps_hold(&x->c, gpu_host_of(&m->c)))
		return "wrote outside c";
	gpu_must(nib_moe_check(x->op, &on_host, &options, &result, &gpu_test.err),
		 "check");
	return gpu_result(&result);
}

/* An item of `rows` rows of A and its experts, whose rows are in offsets. */
static void check_expert_item(struct gpu_item *x, const struct gpu_twin *offsets,
			      enum nib_dtype dtype)
{
	struct gpu_twin alpha = gpu_twin_new(2 * sizeof(float) * (size_t)x->b.batch);
	struct gpu_memory m;
	char name[256];

	gpu_make_dense(x, dtype);
	m = gpu_memory_new(x);
	gpu_upload(offsets);
	gpu_fill_alpha(&alpha);
	gpu_name_item(x, "experts", name, sizeof(name));
	gpu_tell(name, check_moe(x, &m, offsets, &alpha));
	gpu_memory_free(&m);
	gpu_twin_free(&alpha);
}

static void use_tiled_scales(struct gpu_item *x)
{
	x->b.layout = x->b2.layout = NIB_SCALE_LAYOUT_TILED_128X4;
	x->b.gap = x->b2.gap = 0;
}

/*
 * few: as Hopper's skinny kernel for experts takes them, or, many times as many
 * experts, the vector kernels.
 */
static void check_experts(bool few, bool many)
{
	static const int64_t few_k[] = {32, 544, 2080, 4352};

	for (int i = 0; i < gpu_cases(32); i++) {
		const enum nib_op op =
		    i & 1 && (!few || many) ? NIB_OP_DUAL_GEMM : NIB_OP_GEMM;
		const int64_t experts = (many ? 40 : 1) + gpu_rnd_below(i % 4 ? 9 : 60);
		struct gpu_twin offsets = gpu_twin_new((size_t)experts * 4 + 4);
		struct gpu_item x;
		int64_t rows;

		deal_rows(gpu_host_of(&offsets), many ? 4 : experts,
			  few	  ? 2
			  : i % 3 ? 20
				  : 90);
		/* Later experts have none. */
		for (int64_t e = 5; e <= experts && many; e++)
			((int32_t *)gpu_host_of(&offsets))[e] =
			    ((int32_t *)gpu_host_of(&offsets))[4];
		rows = ((int32_t *)gpu_host_of(&offsets))[experts] +
		       gpu_rnd_below(few ? 2 : 30);
		x = gpu_any_item(op, rows, edges_n[i % 8],
				 few ? few_k[i / 2 % 4] : edges_k[i % 7], 1, 1);
		x.b.batch = x.b2.batch = experts;
		if (few)
			use_tiled_scales(&x);
		check_expert_item(&x, &offsets, types[i / 2 & 1]);
		gpu_twin_free(&offsets);
	}
}

/* The same by the mma kernels, of whole k64. */
static void check_mma(void)
{
	static const int64_t k[] = {64, 192, 768, 4160};
	static const int64_t most[] = {1, 9, 20, 70};

	setenv("NIB_CUDA_MMA", "always", 1);
	for (int i = 0; i < gpu_cases(64); i++) {
		const int64_t experts = 1 + gpu_rnd_below(60);
		struct gpu_twin offsets = gpu_twin_new((size_t)experts * 4 + 4);
		struct gpu_item x;

		deal_rows(gpu_host_of(&offsets), experts, most[i / 4 % 4]);
		x = gpu_any_item(i / 2 & 1 ? NIB_OP_DUAL_GEMM : NIB_OP_GEMM,
				 ((int32_t *)gpu_host_of(&offsets))[experts] +
				     gpu_rnd_below(30),
				 edges_n[i % 8], k[i / 3 % 4], 1, 1);
		x.b.batch = x.b2.batch = experts;
		use_tiled_scales(&x);
		check_expert_item(&x, &offsets, types[i & 1]);
		gpu_twin_free(&offsets);
	}
	unsetenv("NIB_CUDA_MMA");
}

/* mma: only the experts of the mma kernels. */
int main(int argc, char **argv)
{
	int exit_code;

	if (!gpu_begin(&exit_code))
		return exit_code;
	check_mma();
	if (argc > 1 && strcmp(argv[1], "mma") == 0)
		return gpu_end();
	check_singles();
	check_batches();
	check_groups();
	check_experts(false, false);
	check_experts(true, false);
	check_experts(true, true);
	return gpu_end();
}
