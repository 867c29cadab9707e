/* SPDX-License-Identifier: Apache-2.0 */
/*
 * emu_small.c - seven small multiplications on a GPU, three of them long enough
 * that every ring is filled more than once, checked against the oracle; stops
 * at the first that fails and says why.  Exit code 0, 1, or 77 without a GPU.
 * What test_emu_mutations.py runs with bugs planted in the kernels.
 */
#include <stdio.h>

#include "cuda/gpu_common.h"
#include "cuda/gpu_problem.h"

#define CASES 7

static const struct {
	enum nib_op op;
	int64_t m, n, k;
} sizes[CASES] = {
    {NIB_GEMM, 1, 48, 4096},	     {NIB_GEMM, 16, 64, 64},
    {NIB_DUAL_GEMM, 1, 250, 272},    {NIB_GEMM, 17, 129, 240},
    {NIB_DUAL_GEMM, 64, 64, 4096},   {NIB_GEMM, 9, 63, 4096},
    {NIB_DUAL_GEMM, 130, 128, 1040},
};

static const char *check(const struct gpu_item *x, const struct gpu_memory *m)
{
	const struct nib_check_options options = {
	    .struct_bytes = sizeof(options),
	    .sample_rows = 1000,
	    .arithmetic = gpu_test.arithmetic,
	};
	const struct nib_problem on_host = gpu_problem(x, m, gpu_host_of);
	struct nib_check_result result = {.struct_bytes = sizeof(result)};

	if (!gpu_download(&m->c, gpu_host_of(&m->c)))
		return "guard band of c";
	gpu_must(
	    nib_check(x->op, &on_host, 1, &options, &result, &gpu_test.err),
	    "check");
	return result.failed ? "values outside their bound" : NULL;
}

int main(void)
{
	const char *why = NULL;
	int code;

	if (!gpu_begin(&code))
		return code;
	for (int i = 0; i < CASES && !why; i++) {
		const struct gpu_item x = gpu_any_item(
		    sizes[i].op, sizes[i].m, sizes[i].n, sizes[i].k, 1, 1);
		struct gpu_memory m = gpu_memory_new(&x);
		const struct nib_problem p = gpu_problem(&x, &m, gpu_device_of);

		if (nib_multiply(gpu_test.gpu, x.op, &p, 1, &gpu_test.err) ||
		    nib_device_wait(gpu_test.gpu, NULL, &gpu_test.err))
			why = gpu_test.err.message;
		else
			why = check(&x, &m);
		if (why)
			printf("%s\n", why);
		/* After a fault the device takes nothing back. */
		if (!why)
			gpu_memory_free(&m);
	}
	return why != NULL;
}
