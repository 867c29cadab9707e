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

/* Twice by one plan: within the bound, and the same bits. */
static const char *run_mixture(const struct gpu_mixture *x,
			       const struct gpu_mixture_memory *m)
{
	const struct nib_moe_problem p =
	    gpu_mixture_problem(x, m, gpu_device_of);
	uint8_t *again = gpu_take(m->c.bytes);
	struct nib_plan *plan = NULL;
	const char *why = NULL;

	if (nib_plan_create_moe(gpu_test.gpu, x->op, &p, NULL, &plan,
				&gpu_test.err) ||
	    nib_run_moe(plan, &p, NULL, &gpu_test.err) ||
	    nib_device_wait(gpu_test.gpu, NULL, &gpu_test.err))
		why = gpu_test.err.message;
	else if (!gpu_download(&m->c, gpu_host_of(&m->c)))
		why = "guard band of c";
	if (!why)
		why = gpu_mixture_places(x, m);
	if (!why)
		why = check_result(x, m);
	if (!why && (nib_run_moe(plan, &p, NULL, &gpu_test.err) ||
		     nib_device_wait(gpu_test.gpu, NULL, &gpu_test.err)))
		why = gpu_test.err.message;
	if (!why && (!gpu_download(&m->c, again) ||
		     memcmp(again, gpu_host_of(&m->c), m->c.bytes) != 0))
		why = "other bits in a second run";
	if (!why && !gpu_mixture_unchanged(m))
		why = "an input changed";
	nib_plan_free(plan);
	free(again);
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
	static const int64_t k[] = {16, 48, 272, 512};
	int code;

	if (!gpu_begin(&code))
		return code;
	for (int i = 0; i < 90; i++) {
		const enum nib_op op = i & 1 ? NIB_DUAL_GEMM : NIB_GEMM;
		const int64_t count = experts[i % 9];

		/* Also experts of over 128 and over 256 tokens. */
		check_mixture(op, count, count < 9 ? 600 : 20 + i % 3 * 60,
			      i % 8, n[i % 5], k[i % 4]);
	}
	for (int i = 0; i < 4; i++) {
		const enum nib_op op = i & 1 ? NIB_DUAL_GEMM : NIB_GEMM;

		check_mixture(op, 1024, 12, 6, 129, 64);
		check_mixture(op, 1000, 3, 0, 64, 272);
		check_mixture(op, 8, 300, 1, 1000, 2048);
		check_mixture(op, 5, 0, 0, 64, 32);
	}
	return gpu_end();
}
