/* SPDX-License-Identifier: Apache-2.0 */
/*
 * common/contest.h - the GPU MODE x NVIDIA NVFP4 problems: the sizes of their ten
 * tests and of their benchmarks, their data, and their check (rtol = atol = 1e-3,
 * fp16) against a float64 sum that shares no code with the library.  It includes only
 * nibblas.h, for tests on the CPU and programs on the GPU.
 *
 * Memory: a [L, M, K/2], b [L, N, K/2], c [L, M, N], scales tiled, L outermost.
 * The vector of a gemv is row 0 of 128.
 */
#ifndef NIB_TESTS_COMMON_CONTEST_H
#define NIB_TESTS_COMMON_CONTEST_H

#include <stddef.h>
#include <stdint.h>

#include "nibblas.h"

#define CONTEST_GROUP 8

struct contest_size {
	int64_t m, n, k, l;
};

/* One run: count products, more than one for a group. */
struct contest_spec {
	enum nib_op op;
	int count;
	struct contest_size sizes[CONTEST_GROUP];
};

extern const struct contest_spec contest_tests[];
extern const size_t contest_n_tests; /* ten of each problem */
extern const struct contest_spec contest_benchmarks[];
extern const size_t contest_n_benchmarks;

/* "dual gemm m 256 n 4096 k 7168 l 1", of the first product. */
void contest_name(const struct contest_spec *spec, char *text, size_t bytes);

/*
 * Random operands in host memory, c all NaN; *seed moves on.  No memory ends
 * the program.
 */
struct nib_problem contest_problem(enum nib_op op, const struct contest_size *size,
				   uint64_t *seed);
void contest_free(struct nib_problem *p);
/* Bytes of codes, scales and c, as they were allocated. */
size_t contest_codes_bytes(const struct nib_fp4 *v);
size_t contest_scales_bytes(const struct nib_fp4 *v);
size_t contest_result_bytes(const struct nib_dense *c);

/*
 * Some rows and columns of every matrix of c; of any strides.  Returns 0, or
 * after the first element that is not close -1 with text.
 */
int contest_check(enum nib_op op, const struct nib_problem *p, uint64_t *seed,
		  char *text, size_t bytes);

#endif
