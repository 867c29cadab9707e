/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_check_contest.c - the problems of common/contest.h on the GPU. */
#include <stdio.h>

#include "common/contest.h"
#include "gpu_common.h"

static uint64_t seed = 1111;

/* A copy of the host's memory on the GPU. */
static void *copy(const void *from, size_t bytes)
{
	void *to = NULL;

	gpu_must(nib_device_alloc(gpu_test.gpu, bytes, &to, &gpu_test.err), "alloc");
	gpu_must(nib_device_copy(gpu_test.gpu, to, from, bytes, NULL, &gpu_test.err),
		 "upload");
	return to;
}

static void copy_operand(struct nib_fp4 *v)
{
	if (!v->codes)
		return;
	v->codes = copy(v->codes, contest_codes_bytes(v));
	v->scales = copy(v->scales, contest_scales_bytes(v));
}

static struct nib_problem copy_problem(const struct nib_problem *p)
{
	struct nib_problem on_gpu = *p;

	copy_operand(&on_gpu.a);
	copy_operand(&on_gpu.b);
	copy_operand(&on_gpu.b2);
	on_gpu.c.data = copy(p->c.data, contest_result_bytes(&p->c));
	return on_gpu;
}

static void free_copy(const struct nib_problem *p)
{
	void *const memory[] = {p->a.codes,  p->a.scales,  p->b.codes, p->b.scales,
				p->b2.codes, p->b2.scales, p->c.data};

	for (size_t i = 0; i < sizeof(memory) / sizeof(*memory); i++)
		nib_device_free(gpu_test.gpu, memory[i]);
}

static bool check_products(const struct contest_spec *spec,
			   const struct nib_problem *host,
			   const struct nib_problem *gpu, char *why, size_t bytes)
{
	for (int i = 0; i < spec->count; i++) {
		gpu_must(nib_device_copy(gpu_test.gpu, host[i].c.data, gpu[i].c.data,
					 contest_result_bytes(&host[i].c), NULL,
					 &gpu_test.err),
			 "download");
		if (contest_check(spec->op, &host[i], &seed, why, bytes))
			return false;
	}
	return true;
}

static void check_spec(const struct contest_spec *spec)
{
	struct nib_problem host[CONTEST_GROUP], gpu[CONTEST_GROUP];
	char name[96], why[sizeof(gpu_test.err.message)] = "";
	bool ok;

	for (int i = 0; i < spec->count; i++) {
		host[i] = contest_problem(spec->op, &spec->sizes[i], &seed);
		gpu[i] = copy_problem(&host[i]);
	}
	ok = !nib_multiply(gpu_test.gpu, spec->op, gpu, spec->count, &gpu_test.err) &&
	     !nib_device_wait(gpu_test.gpu, NULL, &gpu_test.err);
	if (!ok)
		snprintf(why, sizeof(why), "%s", gpu_test.err.message);
	else
		ok = check_products(spec, host, gpu, why, sizeof(why));
	contest_name(spec, name, sizeof(name));
	gpu_verdict(ok, name, why);
	for (int i = 0; i < spec->count; i++) {
		contest_free(&host[i]);
		free_copy(&gpu[i]);
	}
}

/* Multiplications of a spec that a small run leaves out. */
#define LARGE INT64_C(400000000)

static int64_t products(const struct contest_spec *spec)
{
	int64_t sum = 0;

	for (int i = 0; i < spec->count; i++)
		sum += spec->sizes[i].m * spec->sizes[i].n * spec->sizes[i].k *
		       spec->sizes[i].l;
	return spec->op == NIB_OP_DUAL_GEMM ? 2 * sum : sum;
}

static void check_specs(const struct contest_spec *specs, size_t count)
{
	char name[96];

	for (size_t i = 0; i < count; i++) {
		if (!gpu_is_small() || products(&specs[i]) <= LARGE) {
			check_spec(&specs[i]);
			continue;
		}
		contest_name(&specs[i], name, sizeof(name));
		printf("skipped: %s: large for NIB_TEST_SIZE\n", name);
	}
}

int main(void)
{
	int code;

	if (!gpu_begin(&code))
		return code;
	check_specs(contest_tests, contest_n_tests);
	check_specs(contest_benchmarks, contest_n_benchmarks);
	return gpu_end();
}
