/* SPDX-License-Identifier: Apache-2.0 */
/*
 * emu_traffic.c small|seeds - runs products on the software GPU for
 * test_sm100_traffic.py, which counts the bytes that they load.  Writes to stderr,
 * where NIBEMU_VERBOSE=1 prints the counts of each launch:
 *
 *   product OP MxNxKxL,... TASKS SLICES   before the launches
 *   operand a|b|b2|c INDEX ADDRESS BYTES  of each codes, scales or c
 *   done
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/contest.h"
#include "cuda/gpu_common.h"

/* clang-format off */
static const struct contest_spec small[] = {
	{NIB_OP_GEMM, 1, {{128, 512, 1024, 1}}},
	{NIB_OP_GEMM, 1, {{300, 512, 512, 1}}},
	{NIB_OP_GEMM, 3, {{40, 512, 768, 1}, {176, 512, 768, 1},
		{96, 512, 768, 1}}},
	{NIB_OP_DUAL_GEMM, 1, {{72, 512, 768, 1}}},
	{NIB_OP_GEMV, 1, {{1, 768, 2048, 2}}},
};
/* clang-format on */

static uint64_t seed = 1111;

static void *copy(const char *name, int index, const void *from, size_t bytes)
{
	void *to = NULL;

	gpu_must(nib_device_alloc(gpu_test.gpu, bytes, &to, &gpu_test.err), "alloc");
	gpu_must(nib_device_copy(gpu_test.gpu, to, from, bytes, NULL, &gpu_test.err),
		 "upload");
	fprintf(stderr, "operand %s %d 0x%" PRIxPTR " %zu\n", name, index,
		(uintptr_t)to, bytes);
	return to;
}

static void copy_operand(const char *name, int index, struct nib_fp4 *v)
{
	if (!v->codes)
		return;
	v->codes = copy(name, index, v->codes, contest_codes_bytes(v));
	v->scales = copy(name, index, v->scales, contest_scales_bytes(v));
}

static void tell(const struct contest_spec *spec, const struct nib_problem *problems)
{
	struct nib_plan_info info = {.struct_bytes = sizeof(info)};
	struct nib_plan *plan;

	gpu_must(nib_plan_create(gpu_test.gpu, spec->op, problems, spec->count, NULL,
				 &plan, &gpu_test.err),
		 "plan");
	gpu_must(nib_plan_get_info(plan, &info, &gpu_test.err), "info");
	fprintf(stderr, "product %s ",
		spec->op == NIB_OP_DUAL_GEMM ? "dual"
		: spec->op == NIB_OP_GEMV    ? "gemv"
		: spec->count > 1	     ? "group"
					     : "gemm");
	for (int i = 0; i < spec->count; i++)
		fprintf(stderr, "%s%" PRId64 "x%" PRId64 "x%" PRId64 "x%" PRId64,
			i ? "," : "", spec->sizes[i].m, spec->sizes[i].n,
			spec->sizes[i].k, spec->sizes[i].l);
	fprintf(stderr, " %" PRId64 " %d\n", info.tasks, info.k_slices);
	nib_plan_free(plan);
}

static void free_all(const struct nib_problem *p)
{
	void *const memory[] = {p->a.codes,  p->a.scales,  p->b.codes, p->b.scales,
				p->b2.codes, p->b2.scales, p->c.data};

	for (size_t i = 0; i < sizeof(memory) / sizeof(*memory); i++)
		nib_device_free(gpu_test.gpu, memory[i]);
}

static void run(const struct contest_spec *spec)
{
	struct nib_problem problems[CONTEST_GROUP];

	for (int i = 0; i < spec->count; i++) {
		struct nib_problem host =
		    contest_problem(spec->op, &spec->sizes[i], &seed);
		struct nib_problem *p = &problems[i];

		*p = host;
		copy_operand("a", i, &p->a);
		copy_operand("b", i, &p->b);
		copy_operand("b2", i, &p->b2);
		p->c.data = copy("c", i, host.c.data, contest_result_bytes(&host.c));
		contest_free(&host);
	}
	tell(spec, problems);
	gpu_must(
	    nib_multiply(gpu_test.gpu, spec->op, problems, spec->count, &gpu_test.err),
	    "multiply");
	gpu_must(nib_device_wait(gpu_test.gpu, NULL, &gpu_test.err), "wait");
	fputs("done\n", stderr);
	for (int i = 0; i < spec->count; i++)
		free_all(&problems[i]);
}

int main(int argc, char **argv)
{
	const bool is_small = argc > 1 && strcmp(argv[1], "small") == 0;
	const struct contest_spec *specs = is_small ? small : contest_benchmarks;
	const size_t count =
	    is_small ? sizeof(small) / sizeof(*small) : contest_n_benchmarks;
	int code;

	if (!gpu_begin(&code))
		return code;
	for (size_t i = 0; i < count; i++)
		run(&specs[i]);
	return 0;
}
