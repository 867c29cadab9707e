/* SPDX-License-Identifier: Apache-2.0 */
/* baseline_engine.h - what one library must bring to be a baseline; see baseline.c. */
#ifndef NIB_BENCH_BASELINE_ENGINE_H
#define NIB_BENCH_BASELINE_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "baseline.h"

/* C[m, n] = A[m, k] * B[n, k]^T in floats, all dense and row-major. */
struct baseline_matmul {
	int64_t m, n, k;
	const float *a, *b; /* good during add() only */
	float *c;	    /* written by run(); lives until remove() */
};

struct baseline_engine {
	const char *backend;
	enum peak_kind limit;
	int operand_bytes; /* of one value of a and b: 4 or 2 */
	/*
	 * Opens the library, once in the process.  threads: what it may use.
	 * These return NULL or false with a reason.
	 */
	bool (*open)(char reason[BASELINE_REASON]);
	void (*set_threads)(int threads);
	/* Copies (packs) the operands of a multiplication; its handle. */
	void *(*add)(const struct baseline_matmul *matmul,
		     char reason[BASELINE_REASON]);
	void (*run)(void *handle);
	void (*remove)(void *handle);
};

extern const struct baseline_engine baseline_onednn_bf16;
extern const struct baseline_engine baseline_onednn_f32;
extern const struct baseline_engine baseline_onednn_f32_avx2;
extern const struct baseline_engine baseline_openblas_f32;

/* Opens a library: the first of its names (NULL ends them) that is found. */
void *baseline_dlopen(const char *const *names, char reason[BASELINE_REASON]);

#endif
