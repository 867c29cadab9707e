/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_outputs.c - outputs of a group must not overlap.  nib_valid_outputs() gives the
 * same answer as a comparison of every pair, in any order, in a time that grows as
 * n log n.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "api/outputs.h"
#include "common/arguments.h"
#include "common/unit.h"
#include "core/view.h"

/* Addresses; no byte of them is touched. */
#define BASE ((uintptr_t)1 << 40)

static struct nib_dense output_at(uintptr_t at, int64_t rows, int64_t cols,
				  int64_t row_stride)
{
	return (struct nib_dense){.data = (void *)at,
				  .dtype = NIB_DTYPE_BF16,
				  .rows = rows,
				  .cols = cols,
				  .batch = 1,
				  .row_stride_elems = row_stride,
				  .batch_stride_elems = rows * row_stride};
}

/* A problem whose inputs are empty, resolved as validation leaves it. */
static struct nib_problem problem_of(struct nib_dense c)
{
	struct nib_problem p = {.c = c};

	p.a.batch = p.b.batch = 1;
	return p;
}

static enum nib_status check(const struct nib_problem *problems, int64_t count,
			     struct nib_error *err)
{
	void *scratch = malloc((size_t)count * nib_outputs_bytes());
	enum nib_status status;

	assert_non_null(scratch);
	status = nib_valid_outputs(NIB_OP_GEMM, problems, count, scratch, err);
	free(scratch);
	return status;
}

static void shuffle(struct nib_problem *problems, int64_t count)
{
	for (int64_t i = count - 1; i > 0; i--) {
		const int64_t j = (int64_t)(rng_next(&rng) % (uint64_t)(i + 1));
		const struct nib_problem kept = problems[i];

		problems[i] = problems[j];
		problems[j] = kept;
	}
}

/* ---- against every pair --------------------------------------------------- */

static bool any_pair_overlaps(const struct nib_problem *problems, int64_t count)
{
	for (int64_t i = 0; i < count; i++)
		for (int64_t j = i + 1; j < count; j++)
			if (nib_dense_overlap(&problems[i].c, &problems[j].c))
				return true;
	return false;
}

/* Codes or x, as A is. */
static struct nib_span a_span(const struct nib_problem *p)
{
	return p->activations == NIB_ACTIVATIONS_NVFP4 ? nib_codes_span(&p->a)
						       : nib_dense_span(&p->x);
}

static bool any_input_overlaps(const struct nib_problem *problems, int64_t count)
{
	for (int64_t i = 0; i < count; i++)
		for (int64_t j = 0; j < count; j++)
			if (nib_spans_overlap(nib_dense_span(&problems[j].c),
					      a_span(&problems[i])))
				return true;
	return false;
}

static int64_t below(int64_t end)
{
	return (int64_t)(rng_next(&rng) % (uint64_t)end);
}

/* Outputs in a small space: rows, columns, heads, and empty ones. */
static struct nib_dense random_output(int kind, int64_t space)
{
	const int64_t stride = 16;
	struct nib_dense c = output_at(BASE + 2 * (uintptr_t)below(space), 1 + below(3),
				       1 + below(6), stride);

	if (kind == 1) { /* columns of one matrix */
		const int64_t cols = below(4);

		c = output_at(BASE + (uintptr_t)(2 * stride * below(6) + 8 * below(4)),
			      1 + below(4), cols, stride);
	} else if (kind == 2) { /* columns of the heads of one tensor */
		c = output_at(BASE + 2 * (uintptr_t)below(4), 3, 1 + below(2), stride);
		c.batch = 4;
		c.batch_stride_elems = 4;
	} else if (kind == 3) { /* of any stride, in stacks */
		c.row_stride_elems = c.cols + below(12);
		c.batch = 1 + below(3);
		c.batch_stride_elems = c.rows * c.row_stride_elems + below(20);
	}
	if (below(8) == 0)
		c.rows = 0;
	return c;
}

static void as_every_pair_says(void **state)
{
	enum { MOST = 12 };
	struct nib_problem problems[MOST];
	const int rounds = test_is_small() ? 4000 : 40000;
	int refused_ones = 0, taken_ones = 0;

	for (int round = 0; round < rounds; round++) {
		const int64_t count = 1 + below(MOST);
		const int kind = (int)below(5);
		const int64_t space = 8 << below(8);
		struct nib_error err = {.status = NIB_STATUS_OK};
		bool want;

		for (int64_t i = 0; i < count; i++)
			problems[i] = problem_of(
			    random_output(kind == 4 ? (int)below(4) : kind, space));
		want = any_pair_overlaps(problems, count);
		if (want != (check(problems, count, &err) != NIB_STATUS_OK))
			fail_msg("round %d, kind %d, %lld outputs: %s", round, kind,
				 (long long)count, err.message);
		refused_ones += want;
		taken_ones += !want && count > 2;
	}
	/* The cases are about as many. */
	assert_true(refused_ones > rounds / 40 && taken_ones > rounds / 40);
}

/* One row or none at an address: 8 bytes of codes, or 16 floats. */
static void set_a(struct nib_problem *p, int activations, uintptr_t at)
{
	p->activations = (enum nib_activations)activations;
	p->a.rows = below(2);
	p->a.k = 16;
	if (p->activations != NIB_ACTIVATIONS_NVFP4) {
		p->x = output_at(at, p->a.rows, 16, 16);
		p->x.dtype = (enum nib_dtype)below(3);
		return;
	}
	p->a.codes = (void *)at;
	p->a.row_stride_bytes = 8;
}

/* An input meets an output of another problem exactly if its bytes do. */
static void inputs_of_others(void **state)
{
	enum { MOST = 12 };
	struct nib_problem problems[MOST];
	int refused_ones = 0, taken_ones = 0;

	for (int round = 0; round < 20000; round++) {
		const int64_t count = 2 + below(MOST - 1);
		struct nib_error err = {.status = NIB_STATUS_OK};
		bool want;

		for (int64_t i = 0; i < count; i++) {
			problems[i] = problem_of(
			    output_at(BASE + (uintptr_t)(64 * i), 1, 1 + below(8), 32));
			set_a(&problems[i], round % 3,
			      BASE + (uintptr_t)below(64 * count + 64));
		}
		shuffle(problems, count);
		want = any_input_overlaps(problems, count);
		if (want != (check(problems, count, &err) != NIB_STATUS_OK))
			fail_msg("round %d, %lld outputs: %s", round, (long long)count,
				 err.message);
		refused_ones += want;
		taken_ones += !want;
	}
	assert_true(refused_ones > 1000 && taken_ones > 1000);
}

/* ---- scaling -------------------------------------------------------------- */

enum pattern { ROWS, COLUMNS, CUT_COLUMNS, HEADS, PATTERNS };

/* Output i of n, of which no two overlap. */
static struct nib_dense apart(enum pattern pattern, int64_t i, int64_t n)
{
	const int64_t half = (n + 1) / 2;
	struct nib_dense c;

	switch (pattern) {
	case ROWS:
		return output_at(BASE + (uintptr_t)(64 * i), 2, 8, 8);
	case COLUMNS:
		return output_at(BASE + (uintptr_t)(16 * i), 5, 8, 8 * n);
	case CUT_COLUMNS: /* each column in two pieces of different lengths */
		return output_at(
		    BASE + (uintptr_t)(16 * (i / 2) +
				       (i % 2 ? 16 * half * (2 + i / 2 % 3) : 0)),
		    i % 2 ? 9 : 2 + i / 2 % 3, 8, 8 * half);
	default:
		c = output_at(BASE + (uintptr_t)(16 * i), 3, 8, 4 * 8 * n);
		c.batch = 4;
		c.batch_stride_elems = 8 * n;
		return c;
	}
}

/* Processor time of a call, the least of five. */
static double seconds(const struct nib_problem *problems, int64_t count)
{
	double best = 1e9;

	for (int i = 0; i < 5; i++) {
		struct timespec begin, end;
		struct nib_error err;
		double time;

		clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
		assert_ok_err(check(problems, count, &err), &err);
		clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
		time = (double)(end.tv_sec - begin.tv_sec) +
		       1e-9 * (double)(end.tv_nsec - begin.tv_nsec);
		best = time < best ? time : best;
	}
	return best;
}

static double time_of(enum pattern pattern, int64_t count)
{
	struct nib_problem *problems = malloc((size_t)count * sizeof(*problems));
	double time;

	assert_non_null(problems);
	for (int64_t i = 0; i < count; i++) {
		problems[i] = problem_of(apart(pattern, i, count));
		if (i % 100 == 7)
			problems[i].c.rows = 0;
	}
	shuffle(problems, count);
	time = seconds(problems, count);
	free(problems);
	return time;
}

/*
 * Eight times as many problems, shuffled and some of them empty, take some ten
 * times as long, where every pair would be 64 times.
 */
static void time_grows_as_n_log_n(void **state)
{
	for (int pattern = 0; pattern < PATTERNS; pattern++) {
		const double few = time_of((enum pattern)pattern, 5000);
		const double many = time_of((enum pattern)pattern, 40000);

		if (many > 32 * few)
			fail_msg("pattern %d: 5,000 take %g s, 40,000 %g s", pattern,
				 few, many);
	}
}

static int seed(void **state)
{
	rng = rng_new(test_seed());
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(as_every_pair_says),
	    cmocka_unit_test(inputs_of_others),
	    cmocka_unit_test(time_grows_as_n_log_n),
	};

	return cmocka_run_group_tests(tests, seed, NULL);
}
