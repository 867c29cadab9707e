/* SPDX-License-Identifier: Apache-2.0 */
/* baseline_openblas.c - OpenBLAS's sgemm on dequantised operands. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "baseline_engine.h"
#include "machine.h"

#ifdef NIB_HAVE_OPENBLAS
#include <cblas.h>

static __typeof__(cblas_sgemm) *sgemm;
static __typeof__(openblas_set_num_threads) *set_num_threads;

struct handle {
	int m, n, k;
	float *a, *b, *c;
	size_t a_bytes, b_bytes;
};

static bool open_library(char reason[BASELINE_REASON])
{
	static const char *const names[] = {"libopenblas.so.0",
					    "libopenblas.so", NULL};
	void *library = baseline_dlopen(names, reason);

	if (!library)
		return false;
	*(void **)&sgemm = dlsym(library, "cblas_sgemm");
	*(void **)&set_num_threads = dlsym(library, "openblas_set_num_threads");
	if (!sgemm || !set_num_threads) {
		snprintf(reason, BASELINE_REASON, "%s has no cblas_sgemm()",
			 names[0]);
		return false;
	}
	return true;
}

static void set_threads(int threads)
{
	set_num_threads(threads);
}

static void remove_matmul(void *handle)
{
	struct handle *h = handle;

	machine_free(h->a, h->a_bytes);
	machine_free(h->b, h->b_bytes);
	free(h);
}

static void *add(const struct baseline_matmul *matmul,
		 char reason[BASELINE_REASON])
{
	struct handle *h = calloc(1, sizeof *h);

	if (h) {
		*h = (struct handle){
		    .m = (int)matmul->m,
		    .n = (int)matmul->n,
		    .k = (int)matmul->k,
		    .c = matmul->c,
		    .a_bytes = (size_t)(matmul->m * matmul->k) * sizeof(float),
		    .b_bytes = (size_t)(matmul->n * matmul->k) * sizeof(float),
		};
		h->a = machine_alloc(h->a_bytes);
		h->b = machine_alloc(h->b_bytes);
	}
	if (!h || !h->a || !h->b) {
		snprintf(reason, BASELINE_REASON, "out of memory");
		if (h)
			remove_matmul(h);
		return NULL;
	}
	memcpy(h->a, matmul->a, h->a_bytes);
	memcpy(h->b, matmul->b, h->b_bytes);
	return h;
}

static void run(void *handle)
{
	const struct handle *h = handle;

	sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, h->m, h->n, h->k, 1.0f,
	      h->a, h->k, h->b, h->k, 0.0f, h->c, h->n);
}

#define FUNCTIONS                                                              \
	.set_threads = set_threads, .add = add, .run = run,                    \
	.remove = remove_matmul,

#else

static bool open_library(char reason[BASELINE_REASON])
{
	snprintf(reason, BASELINE_REASON,
		 "not built with OpenBLAS's headers "
		 "(Debian: libopenblas-dev)");
	return false;
}

/* None: open() fails. */
#define FUNCTIONS

#endif

const struct baseline_engine baseline_openblas_f32 = {
    .backend = "baseline:openblas-f32",
    .limit = PEAK_FMA,
    .operand_bytes = 4,
    .open = open_library,
    FUNCTIONS};
