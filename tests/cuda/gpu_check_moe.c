/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_check_moe.c - MoE problems on the GPU: few and many experts, empty ones, scales
 * laid out expert by expert, rows outside the offsets, and offsets that point outside
 * the tensors, which no device checks beforehand.
 */
#include "gpu_moe.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ORACLE_PRODUCTS 16000000

static const char *check_result(const struct gpu_moe *x, const struct gpu_moe_memory *m)
{
	const struct nib_moe_problem on_host = gpu_moe_problem(x, m, gpu_host_of);
	const struct nib_check_options options =
	    gpu_check_options(x->b.rows, x->b.k, x->experts, ORACLE_PRODUCTS);
	struct nib_check_result r = {.struct_bytes = sizeof(r)};

	gpu_must(nib_moe_check(x->op, &on_host, &options, &r, &gpu_test.err), "check");
	return gpu_result(&r);
}

static const char *run_once(struct nib_plan *plan, const struct nib_moe_problem *p,
			    const struct gpu_twin *workspace)
{
	const struct nib_run_options options = {
	    .struct_bytes = sizeof(options),
	    .workspace = gpu_device_of(workspace),
	    .workspace_bytes = workspace->bytes,
	};

	gpu_poison(workspace, 0xFF);
	if (nib_moe_run(plan, p, &options, &gpu_test.err) ||
	    nib_device_wait(gpu_test.gpu, NULL, &gpu_test.err))
		return gpu_test.err.message;
	return gpu_guards_hold(workspace)
		   ? NULL
		   : "wrote into the guard band of the workspace";
}

/* Runs a plan twice; checks the bound, and that both give the same bits. */
static const char *run_plan(const struct gpu_moe *x, const struct gpu_moe_memory *m,
			    struct nib_plan *plan)
{
	const struct nib_moe_problem p = gpu_moe_problem(x, m, gpu_device_of);
	struct nib_plan_info info = {.struct_bytes = sizeof(info)};
	uint8_t *again = gpu_take(m->base.c.bytes);
	struct gpu_twin workspace;
	const char *why;

	gpu_must(nib_plan_get_info(plan, &info, &gpu_test.err), "plan");
	workspace = gpu_twin_new(info.workspace_bytes);
	why = run_once(plan, &p, &workspace);
	if (!why && !gpu_download(&m->base.c, gpu_host_of(&m->base.c)))
		why = "wrote into the guard band of c";
	if (!why)
		why = gpu_moe_places(x, m);
	if (!why)
		why = check_result(x, m);
	if (!why)
		why = run_once(plan, &p, &workspace);
	if (!why && (!gpu_download(&m->base.c, again) ||
		     memcmp(again, gpu_host_of(&m->base.c), m->base.c.bytes) != 0))
		why = "bits differ in a second run";
	if (!why && !gpu_moe_unchanged(m))
		why = "an input changed";
	gpu_twin_free(&workspace);
	free(again);
	return why;
}

static const char *run_moe(const struct gpu_moe *x, const struct gpu_moe_memory *m)
{
	const struct nib_moe_problem p = gpu_moe_problem(x, m, gpu_device_of);
	const struct nib_plan_options options = {.struct_bytes = sizeof(options),
						 .caller_workspace = 1};
	struct nib_plan *plan = NULL;
	const char *why;

	if (nib_moe_plan_create(gpu_test.gpu, x->op, &p, &options, &plan,
				&gpu_test.err))
		return gpu_test.err.message;
	why = run_plan(x, m, plan);
	nib_plan_free(plan);
	return why;
}

static void check_any(struct gpu_moe x)
{
	struct gpu_moe_memory m = gpu_moe_new(&x);
	const char *why = run_moe(&x, &m);

	gpu_test.passed += !why;
	gpu_test.failed += why != NULL;
	if (why)
		printf("FAIL moe %s %s experts %" PRId64 " rows %" PRId64 " n %" PRId64
		       " k %" PRId64 " a %s b %s%s%s: %s\n",
		       x.op == NIB_OP_DUAL_GEMM ? "dual" : "gemm",
		       gpu_dtype_name(x.c.dtype), x.experts, x.rows, x.b.rows, x.b.k,
		       gpu_layout_name(x.a.layout), gpu_layout_name(x.b.layout),
		       x.has_scale_rows ? " scale rows" : "", x.packed ? " packed" : "",
		       why);
	gpu_moe_free(&m);
}

static void check_moe(enum nib_op op, int64_t experts, int64_t most, int64_t empty,
		      int64_t n, int64_t k)
{
	check_any(gpu_any_moe(op, experts, most, empty, n, k));
}

/* ---- where experts begin ------------------------------------------------- */

static void check_expert_rows(int64_t experts, bool anything)
{
	const size_t n = (size_t)experts;
	struct gpu_twin ends = gpu_twin_new(n * 4);
	struct gpu_twin rows = gpu_twin_new(n * 4 + 4);
	struct gpu_twin scales = gpu_twin_new(n * 4);
	int32_t *values = gpu_host_of(&ends), at = 0;
	uint8_t *got = gpu_take(rows.bytes + scales.bytes);
	char name[80];
	bool ok;

	for (size_t i = 0; i < n; i++) {
		at += (int32_t)(gpu_rnd() % 300) * (int32_t)(gpu_rnd() % 3);
		values[i] = anything ? (int32_t)gpu_rnd() : at;
	}
	gpu_upload(&ends);
	gpu_upload(&rows);
	gpu_upload(&scales);
	gpu_must(nib_moe_expert_rows(gpu_test.cpu, values, experts, gpu_host_of(&rows),
				     gpu_host_of(&scales), NULL, &gpu_test.err),
		 "expert rows");
	gpu_test.err.message[0] = '\0';
	ok = !nib_moe_expert_rows(gpu_test.gpu, gpu_device_of(&ends), experts,
				  gpu_device_of(&rows), gpu_device_of(&scales), NULL,
				  &gpu_test.err) &&
	     gpu_download(&rows, got) &&
	     memcmp(got, gpu_host_of(&rows), rows.bytes) == 0 &&
	     gpu_download(&scales, got) &&
	     memcmp(got, gpu_host_of(&scales), scales.bytes) == 0 &&
	     !nib_moe_expert_rows(gpu_test.gpu, gpu_device_of(&ends), experts,
				  gpu_device_of(&rows), NULL, NULL, &gpu_test.err) &&
	     gpu_download(&rows, got) &&
	     memcmp(got, gpu_host_of(&rows), rows.bytes) == 0;
	snprintf(name, sizeof(name), "expert rows %" PRId64 "%s", experts,
		 anything ? ", any ends" : "");
	gpu_verdict(ok, name,
		    gpu_test.err.message[0] ? gpu_test.err.message : "values differ");
	free(got);
	gpu_twin_free(&ends);
	gpu_twin_free(&rows);
	gpu_twin_free(&scales);
}

static void check_all_expert_rows(void)
{
	static const int64_t counts[] = {1, 2, 31, 32, 33, 64, 100, 1000};

	for (size_t i = 0; i < sizeof(counts) / sizeof(*counts); i++) {
		check_expert_rows(counts[i], false);
		check_expert_rows(counts[i], true);
	}
}

/* ---- arrays on the device that say anything ------------------------------ */

/* The bytes of c's rows [first, end). */
static const uint8_t *rows_of(const struct gpu_moe *x, const uint8_t *c, int64_t first,
			      int64_t end, size_t *bytes)
{
	const int64_t pitch = x->c.k + x->c.gap;

	*bytes = (size_t)((end - first) * pitch) * sizeof(float);
	return c + (size_t)(first * pitch) * sizeof(float);
}

/* Poison is a NaN that no sum gives; it stays after the columns. */
static const char *all_are_nan(const struct gpu_moe *x, const uint8_t *c, size_t bytes)
{
	const size_t pitch = (size_t)(x->c.k + x->c.gap);

	for (size_t i = 0; i < bytes / sizeof(float); i++) {
		uint32_t bits;

		memcpy(&bits, c + i * sizeof(bits), sizeof(bits));
		if (i % pitch >= (size_t)x->c.k) {
			if (bits != UINT32_MAX)
				return "wrote between rows of c";
		} else if (bits == UINT32_MAX) {
			return "a row of no scale was not written";
		} else if ((bits & 0x7FFFFFFF) <= 0x7F800000) {
			return "a number where no scale can be";
		}
	}
	return NULL;
}

/* Checks that c, fp32, is NaN in the expert's rows and equals good in others. */
static const char *only_one_is_nan(const struct gpu_moe *x,
				   const struct gpu_moe_memory *m, const uint8_t *good,
				   int64_t expert)
{
	const int32_t *offsets = gpu_host_of(&m->offsets);
	const uint8_t *c = gpu_host_of(&m->base.c);
	const char *why = NULL;

	for (int64_t e = 0; e < x->experts && !why; e++) {
		size_t bytes;
		const uint8_t *now = rows_of(x, c, offsets[e], offsets[e + 1], &bytes);
		const uint8_t *then =
		    rows_of(x, good, offsets[e], offsets[e + 1], &bytes);

		if (e == expert)
			why = all_are_nan(x, now, bytes);
		else if (memcmp(now, then, bytes) != 0)
			why = "the bits of another expert changed";
	}
	return why;
}

/* One entry of scale_rows leads out of the scales. */
static const char *run_bad_scales(const struct gpu_moe *x,
				  const struct gpu_moe_memory *m, struct nib_plan *plan,
				  const struct gpu_twin *workspace, const uint8_t *good)
{
	const struct nib_moe_problem p = gpu_moe_problem(x, m, gpu_device_of);
	const int32_t *offsets = gpu_host_of(&m->offsets);
	int32_t *scale_rows = gpu_host_of(&m->scale_rows);
	const char *why = NULL;

	for (int64_t e = 0; e < x->experts && !why; e++) {
		const int32_t own = offsets[e + 1] - offsets[e];
		const int32_t total = (int32_t)x->a.rows;
		const int32_t bad[] = {-1, INT32_MIN, total - own + 1, INT32_MAX,
				       INT32_MAX - own};
		const int32_t kept = scale_rows[e];

		for (size_t i = 0; i < sizeof(bad) / sizeof(*bad) && !why; i++) {
			scale_rows[e] = bad[i];
			gpu_upload(&m->scale_rows);
			gpu_poison(&m->base.c, 0xFF);
			why = run_once(plan, &p, workspace);
			if (!why && !gpu_download(&m->base.c, gpu_host_of(&m->base.c)))
				why = "wrote into the guard band of c";
			if (!why)
				why = only_one_is_nan(x, m, good, e);
		}
		scale_rows[e] = kept;
	}
	gpu_upload(&m->scale_rows);
	return why;
}

static void make_bad_offsets(const struct gpu_moe *x, int32_t *offsets)
{
	const int32_t rows = (int32_t)x->rows;
	const int32_t odd[] = {0,	 -1,	    INT32_MIN,
			       rows,	 rows + 1,  INT32_MAX - 100,
			       rows / 2, INT32_MAX, INT32_MIN + 5};

	do {
		for (int64_t e = 0; e <= x->experts; e++)
			offsets[e] = odd[gpu_rnd_below(9)];
	} while (gpu_moe_shares_rows(x, offsets));
}

/* Offsets that descend, begin before the rows or lead after them. */
static const char *run_bad_offsets(const struct gpu_moe *x,
				   const struct gpu_moe_memory *m,
				   struct nib_plan *plan,
				   const struct gpu_twin *workspace)
{
	const struct nib_moe_problem p = gpu_moe_problem(x, m, gpu_device_of);
	int32_t *offsets = gpu_host_of(&m->offsets);
	const char *why = NULL;

	for (int i = 0; i < gpu_cases(60) && !why; i++) {
		make_bad_offsets(x, offsets);
		/* All at the end of what an int holds. */
		for (int64_t e = 0; e < x->experts && i == 0; e++)
			offsets[e] = INT32_MAX;
		gpu_upload(&m->offsets);
		why = run_once(plan, &p, workspace);
		if (!why && !gpu_guards_hold(&m->base.c))
			why = "wrote into the guard band of c";
	}
	return why;
}

/* A plan for runs whose scale tensor may have another number of rows. */
static struct nib_plan *plan_of_total(enum nib_op op, struct nib_moe_problem p,
				      int64_t scale_rows_total)
{
	const struct nib_plan_options options = {.struct_bytes = sizeof(options),
						 .caller_workspace = 1};
	struct nib_plan *plan = NULL;

	p.scale_rows_total = scale_rows_total;
	gpu_must(
	    nib_moe_plan_create(gpu_test.gpu, op, &p, &options, &plan, &gpu_test.err),
	    "plan");
	return plan;
}

/* A plan of no rows of scales gives the bits of a plan of too many. */
static const char *run_without_total(enum nib_op op, const struct gpu_moe *x,
				     const struct gpu_moe_memory *m,
				     const struct gpu_twin *workspace,
				     const uint8_t *good)
{
	const struct nib_moe_problem p = gpu_moe_problem(x, m, gpu_device_of);
	struct nib_plan *plan = plan_of_total(op, p, 0);
	const char *why;

	gpu_poison(&m->base.c, 0xFF);
	why = run_once(plan, &p, workspace);
	if (!why && !gpu_download(&m->base.c, gpu_host_of(&m->base.c)))
		why = "wrote into the guard band of c";
	if (!why && memcmp(gpu_host_of(&m->base.c), good, m->base.c.bytes) != 0)
		why = "scale_rows_total of the plan changes the result";
	nib_plan_free(plan);
	return why;
}

/* The plan allows any scale row: only the run's scale_rows_total bounds them. */
static void check_bad_arrays(enum nib_op op, enum nib_scale_layout layout,
			     int64_t experts, int64_t most, int64_t k)
{
	struct gpu_moe x = gpu_any_moe(op, experts, most, 0, 64, k);
	struct nib_plan_info info = {.struct_bytes = sizeof(info)};
	struct gpu_moe_memory m;
	struct gpu_twin workspace;
	struct nib_moe_problem p;
	struct nib_plan *plan;
	const char *why;
	uint8_t *good;

	x.a.layout = layout;
	x.c.dtype = NIB_DTYPE_FP32;
	x.has_scale_rows = true;
	/* Few rows: more than experts, skinny, or fewer, vector. */
	if (most < 10) {
		x.spare = x.a.gap = x.b.gap = x.b2.gap = 0;
		x.b.layout = x.b2.layout = NIB_SCALE_LAYOUT_TILED_128X4;
	}
	m = gpu_moe_new(&x);
	p = gpu_moe_problem(&x, &m, gpu_device_of);
	good = gpu_take(m.base.c.bytes);
	plan = plan_of_total(op, p, INT32_MAX);
	gpu_must(nib_plan_get_info(plan, &info, &gpu_test.err), "plan");
	workspace = gpu_twin_new(info.workspace_bytes);
	why = run_once(plan, &p, &workspace);
	if (!why && !gpu_download(&m.base.c, good))
		why = "wrote into the guard band of c";
	if (!why)
		why = run_without_total(op, &x, &m, &workspace, good);
	if (!why)
		why = run_bad_scales(&x, &m, plan, &workspace, good);
	gpu_verdict(!why, "scale_rows outside the scales", why);
	why = run_bad_offsets(&x, &m, plan, &workspace);
	gpu_verdict(!why, "row_offsets outside the rows", why);
	nib_plan_free(plan);
	gpu_twin_free(&workspace);
	gpu_moe_free(&m);
	free(good);
}

/* Experts of few rows, which some GPUs have kernels of their own for. */
static void check_few_rows(void)
{
	static const int64_t n[] = {1, 64, 129, 300};
	static const int64_t k[] = {16, 272, 512, 2048, 4160};

	for (int i = 0; i < gpu_cases(60); i++)
		check_moe(NIB_OP_GEMM, 90 + i * 7 % 50, 1 + i % 3, 3 + i % 5, n[i % 4],
			  k[i % 5]);
	/* Some have more rows than a kernel takes at a time. */
	check_moe(NIB_OP_GEMM, 200, 6, 6, 64, 64);
	check_moe(NIB_OP_GEMM, 200, 9, 7, 65, 576);
	for (int i = 0; i < (gpu_is_small() ? 2 : 4); i++)
		check_bad_arrays(NIB_OP_GEMM,
				 i & 2 ? NIB_SCALE_LAYOUT_TILED_128X4
				       : NIB_SCALE_LAYOUT_LINEAR,
				 2, 4, i & 1 ? 48 : 64);
	for (int i = 0; i < (gpu_is_small() ? 2 : 6); i++)
		check_bad_arrays(i & 1 ? NIB_OP_DUAL_GEMM : NIB_OP_GEMM,
				 i & 2 ? NIB_SCALE_LAYOUT_TILED_128X4
				       : NIB_SCALE_LAYOUT_LINEAR,
				 4, 1, 64);
}

/*
 * What Hopper's skinny kernel for experts takes: tiled scales, whole pieces of 16
 * bytes, up to eight rows in all and more than experts, or over 128 rows, of each
 * expert one in the average.
 */
static void check_skinny(void)
{
	static const int64_t n[] = {1, 64, 129, 700};
	static const int64_t few_k[] = {32, 544, 4128, 7168};
	static const int64_t k[] = {2048, 2080, 4352};

	for (int i = 0; i < gpu_cases(60); i++) {
		/* Some experts have more rows than a unit. */
		const bool few = i % 3 == 0;
		struct gpu_moe x =
		    few ? gpu_any_moe(NIB_OP_GEMM, 1 + i % 2, 5, 0, n[i % 4],
				      few_k[i / 3 % 4])
			: gpu_any_moe(NIB_OP_GEMM, 150 + i * 7 % 90, i % 2 ? 2 : 20,
				      i % 2 ? 2 : 6, n[i % 4], k[i / 3 % 3]);

		x.spare = few ? 0 : 8;
		x.a.gap = x.b.gap = 8 * (i % 4 / 3) * 2;
		x.b.layout = NIB_SCALE_LAYOUT_TILED_128X4;
		check_any(x);
	}
}

/*
 * What Hopper's vector kernels for experts take: up to 128 rows in all and as
 * many experts, whole pieces of 16 bytes.  An expert may have several rows all the
 * same, and rows may have none.
 */
static void check_vector(void)
{
	static const int64_t n[] = {1, 16, 129, 700};
	static const int64_t k[] = {32, 544, 768, 4128, 7168, 20480};

	for (int i = 0; i < gpu_cases(60); i++) {
		const enum nib_op op = i & 1 ? NIB_OP_DUAL_GEMM : NIB_OP_GEMM;
		struct gpu_moe x = gpu_any_moe(op, 36 + i % 5, 1 + i / 3 % 3, 5 + i % 3,
					       n[i % 4], k[i / 2 % 6]);

		x.spare = i % 3;
		x.a.gap = x.b.gap = x.b2.gap = 8 * (i % 4 / 3) * 2;
		x.b2.layout = x.b.layout = i % 5 && x.b.k % 256
					       ? NIB_SCALE_LAYOUT_TILED_128X4
					       : NIB_SCALE_LAYOUT_LINEAR;
		check_any(x);
	}
}

/*
 * What the mma kernels take: tiled scales, whole pieces of 16 bytes, k of whole 64.
 * Experts of no row up to more than a tile has; n that ends in each warp.
 */
static void check_mma(void)
{
	static const int64_t n[] = {1, 16, 17, 64, 129, 250, 384, 700};
	static const int64_t k[] = {64, 128, 192, 448, 768, 4160};
	static const int64_t most[] = {1, 9, 20, 40, 90};

	setenv("NIB_CUDA_MMA", "always", 1);
	for (int i = 0; i < gpu_cases(120); i++) {
		const enum nib_op op = i / 4 & 1 ? NIB_OP_DUAL_GEMM : NIB_OP_GEMM;
		struct gpu_moe x = gpu_any_moe(op, 3 + i * 7 % 20 * 6, most[i / 2 % 5],
					       i % 6, n[i % 8], k[i / 3 % 6]);

		x.spare = 20;
		x.a.gap = x.b.gap = x.b2.gap = 8 * (i % 4 / 3) * 2;
		x.b.layout = x.b2.layout = NIB_SCALE_LAYOUT_TILED_128X4;
		check_any(x);
	}
	for (int i = 0; i < 4; i++)
		check_bad_arrays(i & 1 ? NIB_OP_DUAL_GEMM : NIB_OP_GEMM,
				 NIB_SCALE_LAYOUT_TILED_128X4, 4, i & 2 ? 3 : 40, 64);
	unsetenv("NIB_CUDA_MMA");
}

/* few: only experts of few rows; mma: only those of check_mma(). */
int main(int argc, char **argv)
{
	static const int64_t experts[] = {1, 2, 3, 8, 31, 32, 33, 128, 257};
	static const int64_t n[] = {1, 64, 129, 250, 300};
	static const int64_t k[] = {16, 48, 240, 272, 512, 1040, 7168};
	int code;

	if (!gpu_begin(&code))
		return code;
	if (argc > 1 && strcmp(argv[1], "mma") == 0) {
		check_mma();
		return gpu_end();
	}
	check_few_rows();
	check_mma();
	check_skinny();
	check_vector();
	if (argc > 1 && strcmp(argv[1], "few") == 0)
		return gpu_end();
	for (int i = 0; i < gpu_cases(90); i++) {
		const enum nib_op op = i & 1 ? NIB_OP_DUAL_GEMM : NIB_OP_GEMM;
		const int64_t count = experts[i % (gpu_is_small() ? 7 : 9)];

		/* Also experts of over 128 and over 256 tokens. */
		check_moe(op, count, count < 9 ? 600 : 20 + i % 3 * 60, i % 8, n[i % 5],
			  k[count < 33 && !gpu_is_small() ? i % 7 : i % 5]);
	}
	for (int i = 0; i < 4; i++)
		check_bad_arrays(i & 1 ? NIB_OP_DUAL_GEMM : NIB_OP_GEMM,
				 i & 2 ? NIB_SCALE_LAYOUT_TILED_128X4
				       : NIB_SCALE_LAYOUT_LINEAR,
				 6, 150, 48);
	check_all_expert_rows();
	for (int i = 0; i < 4 && !gpu_is_small(); i++) {
		const enum nib_op op = i & 1 ? NIB_OP_DUAL_GEMM : NIB_OP_GEMM;

		check_moe(op, 1024, 12, 6, 129, 64);
		check_moe(op, 1000, 3, 0, 64, 272);
		check_moe(op, 8, 300, 1, 1000, 2048);
		check_moe(op, 5, 0, 0, 64, 32);
		/* Nearly all are empty, and few have very many tokens. */
		check_moe(op, 1024, 400, 7, 64, 48);
		check_moe(op, 512, 2000, 7, 65, 16);
		check_moe(op, 64, 1, 6, 250, 7168);
	}
	return gpu_end();
}
