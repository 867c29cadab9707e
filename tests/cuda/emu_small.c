/* SPDX-License-Identifier: Apache-2.0 */
/*
 * emu_small.c [tiles|skinny|warps|wide|dense] - runs a few small multiplications on a
 * GPU and compares them with the oracle.  Some are long enough to fill every ring more
 * than once.  Stops at the first that fails, and prints the reason.  tiles (the
 * default): NVFP4 by all kernels; skinny, warps, wide: few rows, of each type; dense: A
 * of fp16 and bf16.  Exit code 0, 1, or 77 without a GPU.  test_emu_mutations.py runs
 * it with bugs planted in the kernels.
 */
#include <stdio.h>
#include <string.h>

#include "cuda/gpu_common.h"
#include "cuda/gpu_problem.h"

#define MOST_CASES 7

enum a { NVFP4, FP16, BF16 };

static const struct set {
	const char *name;
	struct {
		enum nib_op op;
		int64_t m, n, k;
		enum a a;
	} sizes[MOST_CASES]; /* m 0: no more */
} sets[] = {
    {"tiles",
     {{NIB_OP_GEMM, 1, 48, 4096, NVFP4},
      {NIB_OP_GEMM, 16, 64, 96, NVFP4},
      {NIB_OP_DUAL_GEMM, 1, 250, 272, NVFP4},
      {NIB_OP_DUAL_GEMM, 17, 129, 240, NVFP4},
      {NIB_OP_DUAL_GEMM, 64, 64, 4096, NVFP4},
      {NIB_OP_GEMM, 9, 63, 4128, NVFP4},
      {NIB_OP_DUAL_GEMM, 130, 128, 1040, NVFP4}}},
    {"wide",
     {{NIB_OP_GEMM, 40, 130, 2832, NVFP4},
      {NIB_OP_GEMM, 20, 63, 4096, FP16},
      {NIB_OP_GEMM, 64, 200, 3072, BF16}}},
    {"skinny",
     {{NIB_OP_GEMM, 5, 500, 2336, NVFP4},
      {NIB_OP_GEMM, 16, 320, 4128, FP16},
      {NIB_OP_GEMM, 8, 63, 4128, BF16},
      /* Four CTAs of 10 tiles, of which two are half tiles. */
      {NIB_OP_GEMM, 7, 640, 4384, BF16}}},
    {"warps",
     {{NIB_OP_GEMM, 5, 500, 2240, NVFP4},
      {NIB_OP_GEMM, 16, 120, 1088, FP16},
      {NIB_OP_GEMM, 12, 63, 1024, NVFP4},
      {NIB_OP_GEMM, 8, 200, 1920, BF16}}},
    {"dense",
     {{NIB_OP_GEMM, 1, 48, 4128, FP16},
      {NIB_OP_GEMM, 2, 300, 1040, BF16},
      {NIB_OP_DUAL_GEMM, 17, 129, 240, FP16},
      {NIB_OP_GEMM, 72, 64, 4096, BF16},
      {NIB_OP_DUAL_GEMM, 130, 128, 1040, FP16}}},
};

static const struct set *find_set(const char *name)
{
	for (size_t i = 0; i < sizeof(sets) / sizeof(*sets); i++)
		if (strcmp(sets[i].name, name) == 0)
			return &sets[i];
	return NULL;
}

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
		return "wrote into the guard band of c";
	gpu_must(nib_check(x->op, &on_host, 1, &options, &result, &gpu_test.err),
		 "check");
	return result.failed ? "values outside their bound" : NULL;
}

int main(int argc, char **argv)
{
	const struct set *set = find_set(argc > 1 ? argv[1] : "tiles");
	const char *why = NULL;
	int code;

	if (!set) {
		fprintf(stderr, "emu_small [tiles|skinny|warps|wide|dense]\n");
		return 1;
	}
	if (!gpu_begin(&code))
		return code;
	for (int i = 0; i < MOST_CASES && set->sizes[i].m && !why; i++) {
		struct gpu_item x =
		    gpu_any_item(set->sizes[i].op, set->sizes[i].m, set->sizes[i].n,
				 set->sizes[i].k, 1, 1);
		struct gpu_memory m;
		struct nib_problem p;

		if (set->sizes[i].a != NVFP4)
			gpu_make_dense(&x, set->sizes[i].a == FP16 ? NIB_DTYPE_FP16
								   : NIB_DTYPE_BF16);
		m = gpu_memory_new(&x);
		p = gpu_problem(&x, &m, gpu_device_of);
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
