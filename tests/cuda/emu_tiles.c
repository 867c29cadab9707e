/* SPDX-License-Identifier: Apache-2.0 */
/*
 * emu_tiles.c [JOB]... - runs all or the named products in tiles on the software B200.
 * Each covers another path of the Blackwell kernel (sm100/gemm.cuh).  Prints "HASH JOB:
 * PLAN" for each job, with the hash of the memory of its results, and compares them
 * with the oracle unless NIB_TEST_HASH_ONLY is set.  Stops at the first failure.  Exit
 * code 0, 1, or 77 without a GPU.
 *
 * test_emu_b200.py runs it with planted bugs and on other schedules.  The plans are for
 * eight multiprocessors (NIBEMU_SMS=8).
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/gpu_common.h"
#include "cuda/gpu_moe.h"
#include "cuda/gpu_problem.h"

#define ITEMS	    4
#define MAX_RESULTS ITEMS
#define ORACLE_WORK 2000000
#define MOE_EXPERTS 6

struct size {
	int64_t m, n, k, batch;
};

/* Sizes of no rows end the list; of MoE, m: most rows of an expert. */
static const struct job {
	const char *name;
	enum nib_op op;
	bool moe, linear; /* scales that are staged */
	int runs;	  /* launches, each of which may begin early */
	struct size sizes[ITEMS];
} jobs[] = {
    {"pair", NIB_OP_GEMM, .runs = 2, .sizes = {{64, 256, 512, 1}}},
    {"overlap", NIB_OP_GEMM, .runs = 1, .sizes = {{512, 1536, 512, 1}}},
    {"lag", NIB_OP_GEMM, .runs = 1, .sizes = {{33, 3000, 1024, 1}}},
    {"ring", NIB_OP_GEMM, .runs = 1, .sizes = {{65, 256, 2816, 2}}},
    {"shift", NIB_OP_GEMM, .runs = 1, .sizes = {{320, 512, 256, 1}}},
    {"queue", NIB_OP_GEMM, .runs = 1, .sizes = {{16, 9000, 256, 1}}},
    {"single", NIB_OP_GEMM, .runs = 1, .sizes = {{16, 100, 2576, 18}}},
    {"split", NIB_OP_GEMM, .runs = 2, .sizes = {{40, 250, 4096, 1}}},
    {"singles", NIB_OP_GEMM, .runs = 2, .sizes = {{40, 100, 4096, 1}}},
    {"group", NIB_OP_GEMM, .runs = 1,
     .sizes =
	 {{100, 300, 528, 1}, {0, 64, 64, 1}, {17, 130, 1024, 2}, {65, 256, 272, 1}}},
    {"staged", NIB_OP_GEMM, .linear = true, .runs = 2, .sizes = {{77, 200, 400, 1}}},
    {"dual", NIB_OP_DUAL_GEMM, .runs = 1, .sizes = {{144, 1500, 512, 1}}},
    {"duals", NIB_OP_DUAL_GEMM, .runs = 1, .sizes = {{16, 120, 4096, 1}}},
    {"moe", NIB_OP_GEMM, .moe = true, .runs = 1,
     .sizes = {{130, 2000, 272, MOE_EXPERTS}}},
    {"dualmoe", NIB_OP_DUAL_GEMM, .moe = true, .runs = 1,
     .sizes = {{70, 200, 272, MOE_EXPERTS}}},
    {"slots", NIB_OP_GEMM, .runs = 1, .sizes = {{256, 1024, 1280, 1}}},
};

static uint64_t hash_of(uint64_t hash, const void *data, size_t bytes)
{
	const uint8_t *at = data;

	for (size_t i = 0; i < bytes; i++)
		hash = (hash ^ at[i]) * UINT64_C(0x100000001B3);
	return hash;
}

static bool wants_oracle(void)
{
	return !getenv("NIB_TEST_HASH_ONLY");
}

static struct nib_check_options check_options(const struct size *s)
{
	return (struct nib_check_options){
	    .struct_bytes = sizeof(struct nib_check_options),
	    .sample_rows = 2 + ORACLE_WORK / (s->n * s->k + 1) / s->batch,
	    .seed = gpu_rnd(),
	    .arithmetic = gpu_test.arithmetic,
	};
}

static const char *verdict(const struct nib_check_result *r)
{
	static char text[200];

	snprintf(text, sizeof(text),
		 "%" PRId64 " of %" PRId64 " values outside their bound, "
		 "[%" PRId64 ", %" PRId64 ", %" PRId64 "]: %g, not %g",
		 r->failed, r->checked, r->batch, r->row, r->col, r->got, r->want);
	return r->failed ? text : NULL;
}

/* ---- products ------------------------------------------------------------ */

static struct gpu_item item_of(const struct job *j, int i)
{
	const struct size *s = &j->sizes[i];
	struct gpu_item x = gpu_any_item(j->op, s->m, s->n, s->k, s->batch, s->batch);
	const enum nib_scale_layout layout =
	    j->linear ? NIB_SCALE_LAYOUT_LINEAR : NIB_SCALE_LAYOUT_TILED_128X4;
	struct gpu_sizes *operands[] = {&x.a, &x.b, &x.b2};

	for (int o = 0; o < 3; o++) {
		operands[o]->layout = layout;
		operands[o]->gap = 0;
		operands[o]->is_between = false;
	}
	x.c.gap = 0;
	x.c.dtype = NIB_DTYPE_FP32;
	x.packed = x.no_alpha = false;
	x.nan_row = x.nan_col = -1;
	return x;
}

static const char *check_items(const struct job *j, const struct gpu_item *x,
			       const struct gpu_memory *m, int count, uint64_t *hash)
{
	const char *why = NULL;

	for (int i = 0; i < count && !why; i++) {
		const struct nib_check_options options = check_options(&j->sizes[i]);
		const struct nib_problem p = gpu_problem(&x[i], &m[i], gpu_host_of);
		struct nib_check_result r = {.struct_bytes = sizeof(r)};

		if (!gpu_download(&m[i].c, gpu_host_of(&m[i].c)))
			return "wrote into the guard band of c";
		*hash = hash_of(*hash, gpu_host_of(&m[i].c), m[i].c.bytes);
		if (!wants_oracle())
			continue;
		gpu_must(nib_check(j->op, &p, 1, &options, &r, &gpu_test.err), "check");
		why = verdict(&r);
	}
	return why;
}

static const char *run_items(const struct job *j, char *plan_text, size_t size,
			     uint64_t *hash)
{
	struct nib_plan_info info = {.struct_bytes = sizeof(info)};
	struct gpu_item x[ITEMS];
	struct gpu_memory m[ITEMS];
	struct nib_problem p[ITEMS];
	struct nib_plan *plan;
	const char *why = NULL;
	int count = 0;

	for (; count < ITEMS && j->sizes[count].n; count++) {
		x[count] = item_of(j, count);
		m[count] = gpu_memory_new(&x[count]);
		p[count] = gpu_problem(&x[count], &m[count], gpu_device_of);
	}
	gpu_must(
	    nib_plan_create(gpu_test.gpu, j->op, p, count, NULL, &plan, &gpu_test.err),
	    j->name);
	gpu_must(nib_plan_get_info(plan, &info, &gpu_test.err), j->name);
	snprintf(plan_text, size, "%s", info.explanation);
	for (int i = 0; i < j->runs && !why; i++)
		if (nib_run(plan, p, count, NULL, &gpu_test.err))
			why = gpu_test.err.message;
	if (!why && nib_device_wait(gpu_test.gpu, NULL, &gpu_test.err))
		why = gpu_test.err.message;
	if (!why)
		why = check_items(j, x, m, count, hash);
	/* After a fault the device takes nothing back. */
	for (int i = 0; i < count && !why; i++)
		gpu_memory_free(&m[i]);
	if (!why)
		nib_plan_free(plan);
	return why;
}

/* ---- MoE ----------------------------------------------------------------- */

static const char *check_moe(const struct job *j, const struct gpu_moe *x,
			     const struct gpu_moe_memory *m, uint64_t *hash)
{
	const struct nib_check_options options = check_options(&j->sizes[0]);
	const struct nib_moe_problem p = gpu_moe_problem(x, m, gpu_host_of);
	struct nib_check_result r = {.struct_bytes = sizeof(r)};
	const char *why;

	if (!gpu_download(&m->base.c, gpu_host_of(&m->base.c)))
		return "wrote into the guard band of c";
	*hash = hash_of(*hash, gpu_host_of(&m->base.c), m->base.c.bytes);
	why = gpu_moe_places(x, m);
	if (why || !wants_oracle())
		return why;
	gpu_must(nib_moe_check(x->op, &p, &options, &r, &gpu_test.err), "check");
	return verdict(&r);
}

static const char *run_moe(const struct job *j, char *plan_text, size_t size,
			   uint64_t *hash)
{
	const struct size *s = &j->sizes[0];
	struct gpu_moe x = gpu_any_moe(j->op, s->batch, s->m, 3, s->n, s->k);
	struct nib_plan_info info = {.struct_bytes = sizeof(info)};
	struct gpu_moe_memory m;
	struct nib_moe_problem p;
	struct nib_plan *plan;
	const char *why = NULL;

	x.packed = false;
	x.has_scale_rows = j->op == NIB_OP_DUAL_GEMM;
	x.c.dtype = NIB_DTYPE_BF16;
	m = gpu_moe_new(&x);
	p = gpu_moe_problem(&x, &m, gpu_device_of);
	gpu_must(
	    nib_moe_plan_create(gpu_test.gpu, j->op, &p, NULL, &plan, &gpu_test.err),
	    j->name);
	gpu_must(nib_plan_get_info(plan, &info, &gpu_test.err), j->name);
	snprintf(plan_text, size, "%s", info.explanation);
	if (nib_moe_run(plan, &p, NULL, &gpu_test.err) ||
	    nib_device_wait(gpu_test.gpu, NULL, &gpu_test.err))
		why = gpu_test.err.message;
	if (!why)
		why = check_moe(j, &x, &m, hash);
	if (!why) {
		gpu_moe_free(&m);
		nib_plan_free(plan);
	}
	return why;
}

/* ---- all ----------------------------------------------------------------- */

static bool is_named(const char *name, int argc, char **argv)
{
	for (int i = 1; i < argc; i++)
		if (strcmp(argv[i], name) == 0)
			return true;
	return argc == 1;
}

int main(int argc, char **argv)
{
	const char *why = NULL;
	int code;

	if (!gpu_begin(&code))
		return code;
	for (size_t i = 0; i < sizeof(jobs) / sizeof(*jobs) && !why; i++) {
		const struct job *j = &jobs[i];
		uint64_t hash = UINT64_C(0xCBF29CE484222325);
		char plan[700];

		if (!is_named(j->name, argc, argv))
			continue;
		gpu_seed(i);
		why = j->moe ? run_moe(j, plan, sizeof(plan), &hash)
			     : run_items(j, plan, sizeof(plan), &hash);
		if (why)
			printf("FAIL %s: %s\n", j->name, why);
		else
			printf("%016" PRIx64 " %s: %s\n", hash, j->name, plan);
		fflush(stdout);
	}
	return why != NULL;
}
