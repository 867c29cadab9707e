/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_check_mixture.c - mixtures of experts on the GPU: few and many experts,
 * empty ones, scales laid out expert by expert, rows outside the offsets.
 */
#include "gpu_mixture.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ORACLE_PRODUCTS 16000000

static const char *check_result(const struct gpu_mixture *x,
				const struct gpu_mixture_memory *m)
{
	const struct nib_moe_problem on_host =
	    gpu_mixture_problem(x, m, gpu_host_of);
	const struct nib_check_options options = {
	    .struct_bytes = sizeof(options),
	    .sample_rows =
		1 + ORACLE_PRODUCTS / (x->b.rows * x->b.k + 1) / x->experts,
	    .seed = gpu_rnd(),
	    .arithmetic = NIB_ARITHMETIC_FP16_TENSOR,
	};
	struct nib_check_result r = {.struct_bytes = sizeof(r)};
	static char text[160];

	gpu_must(nib_check_moe(x->op, &on_host, &options, &r, &gpu_test.err),
		 "check");
	snprintf(text, sizeof(text),
		 "%" PRId64 " of %" PRId64 " outside, %.3g of the bound, "
		 "expert %" PRId64 " [%" PRId64 ", %" PRId64 "]: %g, not %g",
		 r.failed, r.checked, r.worst_fraction, r.problem, r.row, r.col,
		 r.got, r.want);
	return r.failed ? text : NULL;
}

static const char *run_once(struct nib_plan *plan,
			    const struct nib_moe_problem *p,
			    const struct gpu_twin *workspace)
{
	const struct nib_run_options options = {
	    .struct_bytes = sizeof(options),
	    .workspace = gpu_device_of(workspace),
	    .workspace_bytes = workspace->bytes,
	};

	gpu_poison(workspace, 0xFF);
	if (nib_run_moe(plan, p, &options, &gpu_test.err) ||
	    nib_device_wait(gpu_test.gpu, NULL, &gpu_test.err))
		return gpu_test.err.message;
	return gpu_guards_hold(workspace) ? NULL
					  : "guard band of the workspace";
}

/* Twice by one plan: within the bound, and the same bits. */
static const char *run_plan(const struct gpu_mixture *x,
			    const struct gpu_mixture_memory *m,
			    struct nib_plan *plan)
{
	const struct nib_moe_problem p =
	    gpu_mixture_problem(x, m, gpu_device_of);
	struct nib_plan_info info = {.struct_bytes = sizeof(info)};
	uint8_t *again = gpu_take(m->c.bytes);
	struct gpu_twin workspace;
	const char *why;

	gpu_must(nib_plan_get_info(plan, &info, &gpu_test.err), "plan");
	workspace = gpu_twin_new(info.workspace_bytes);
	why = run_once(plan, &p, &workspace);
	if (!why && !gpu_download(&m->c, gpu_host_of(&m->c)))
		why = "guard band of c";
	if (!why)
		why = gpu_mixture_places(x, m);
	if (!why)
		why = check_result(x, m);
	if (!why)
		why = run_once(plan, &p, &workspace);
	if (!why && (!gpu_download(&m->c, again) ||
		     memcmp(again, gpu_host_of(&m->c), m->c.bytes) != 0))
		why = "other bits in a second run";
	if (!why && !gpu_mixture_unchanged(m))
		why = "an input changed";
	gpu_twin_free(&workspace);
	free(again);
	return why;
}

static const char *run_mixture(const struct gpu_mixture *x,
			       const struct gpu_mixture_memory *m)
{
	const struct nib_moe_problem p =
	    gpu_mixture_problem(x, m, gpu_device_of);
	const struct nib_plan_options options = {
	    .struct_bytes = sizeof(options), .caller_workspace = 1};
	struct nib_plan *plan = NULL;
	const char *why;

	if (nib_plan_create_moe(gpu_test.gpu, x->op, &p, &options, &plan,
				&gpu_test.err))
		return gpu_test.err.message;
	why = run_plan(x, m, plan);
	nib_plan_free(plan);
	return why;
}

static void check_mixture(enum nib_op op, int64_t experts, int64_t most,
			  int64_t empty, int64_t n, int64_t k)
{
	struct gpu_mixture x = gpu_any_mixture(op, experts, most, empty, n, k);
	struct gpu_mixture_memory m = gpu_mixture_new(&x);
	const char *why = run_mixture(&x, &m);

	gpu_test.passed += !why;
	gpu_test.failed += why != NULL;
	if (why)
		printf("FAIL mixture %s %s experts %" PRId64 " rows %" PRId64
		       " n %" PRId64 " k %" PRId64 " a %s b %s%s%s: %s\n",
		       op == NIB_DUAL_GEMM ? "dual" : "gemm",
		       gpu_dtype_name(x.c.dtype), experts, x.rows, n, k,
		       gpu_layout_name(x.a.layout), gpu_layout_name(x.b.layout),
		       x.has_scale_rows ? " scale rows" : "",
		       x.packed ? " packed" : "", why);
	gpu_mixture_free(&m);
}

int main(void)
{
	static const int64_t experts[] = {1, 2, 3, 8, 31, 32, 33, 128, 257};
	static const int64_t n[] = {1, 64, 129, 250, 300};
	static const int64_t k[] = {16, 48, 240, 272, 512, 1040, 7168};
	int code;

	if (!gpu_begin(&code))
		return code;
	for (int i = 0; i < gpu_cases(90); i++) {
		const enum nib_op op = i & 1 ? NIB_DUAL_GEMM : NIB_GEMM;
		const int64_t count = experts[i % (gpu_is_small() ? 7 : 9)];

		/* Also experts of over 128 and over 256 tokens. */
		check_mixture(op, count, count < 9 ? 600 : 20 + i % 3 * 60,
			      i % 8, n[i % 5],
			      k[count < 33 && !gpu_is_small() ? i % 7 : i % 5]);
	}
	for (int i = 0; i < 4 && !gpu_is_small(); i++) {
		const enum nib_op op = i & 1 ? NIB_DUAL_GEMM : NIB_GEMM;

		check_mixture(op, 1024, 12, 6, 129, 64);
		check_mixture(op, 1000, 3, 0, 64, 272);
		check_mixture(op, 8, 300, 1, 1000, 2048);
		check_mixture(op, 5, 0, 0, 64, 32);
		/* Nearly all are empty, and few have very many tokens. */
		check_mixture(op, 1024, 400, 7, 64, 48);
		check_mixture(op, 512, 2000, 7, 65, 16);
		check_mixture(op, 64, 1, 6, 250, 7168);
	}
	return gpu_end();
}
