/* SPDX-License-Identifier: Apache-2.0 */
/* baseline_openblas.c - OpenBLAS's sgemm on dequantised operands. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "baseline.h"

#ifdef NIB_HAVE_OPENBLAS
#include <cblas.h>

static __typeof__(cblas_sgemm) *sgemm;
static __typeof__(openblas_set_num_threads) *set_num_threads;
static __typeof__(openblas_get_config) *get_config; /* NULL: it has none */

static bool open_library(char reason[BASELINE_REASON])
{
	static const char *const names[] = {"libopenblas.so.0", "libopenblas.so", NULL};
	void *library = baseline_dlopen(names, reason);

	if (!library)
		return false;
	*(void **)&sgemm = dlsym(library, "cblas_sgemm");
	*(void **)&set_num_threads = dlsym(library, "openblas_set_num_threads");
	*(void **)&get_config = dlsym(library, "openblas_get_config");
	if (!sgemm || !set_num_threads)
		return baseline_refuse(reason, "%s has no cblas_sgemm()", names[0]);
	return true;
}

/* openblas_get_config(): "OpenBLAS 0.3.21 NO_LAPACKE DYNAMIC_ARCH ...". */
static void describe(char text[BASELINE_VERSION])
{
	const char *config = get_config ? get_config() : "";
	const char *number = strchr(config, ' ');

	if (number)
		snprintf(text, BASELINE_VERSION, "%.*s",
			 (int)(number + 1 + strcspn(number + 1, " ") - config), config);
}

static void set_threads(int threads)
{
	set_num_threads(threads);
}

static void run(const struct baseline_matmul *mm)
{
	sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (int)mm->m, (int)mm->n,
	      (int)mm->k, 1.0f, mm->a, (int)mm->k, mm->b, (int)mm->k, 0.0f, mm->c,
	      (int)mm->n);
}

#define FUNCTIONS                                                                      \
	.open = open_library, .version = describe, .set_threads = set_threads,         \
	.run = run
#endif

const struct baseline_engine baseline_openblas_f32 = {
    .backend = "baseline:openblas-f32",
    .library = "OpenBLAS",
    .package = "Debian: libopenblas-dev",
    .limit = PEAK_FMA,
    .a_bytes = 4,
    .b_bytes = 4,
    .tolerance = 1e-4,
#ifdef FUNCTIONS
    FUNCTIONS
#endif
};
