/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_arguments_strides.c - the strides that are accepted: rows and batches in either
 * order, as long as no two elements share a byte.  Every small view, and many pairs of
 * views, are compared with sets of bytes.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/arguments.h"
#include "common/unit.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define BYTES	     4096

static uint8_t memory[BYTES], zeros[BYTES];

/* batch * rows pieces of `width` bytes. */
struct grid {
	int64_t at, width, rows, row_stride, batch, batch_stride;
};

/* Marks the bytes of all pieces; false if one was marked already. */
static bool mark(const struct grid *g, uint8_t *marks)
{
	bool is_new = true;

	for (int64_t i = 0; i < g->batch * g->rows * g->width; i++) {
		const int64_t piece = i / g->width;
		const int64_t at = g->at + piece / g->rows * g->batch_stride +
				   piece % g->rows * g->row_stride + i % g->width;

		assert_true(at < BYTES);
		is_new = is_new && !marks[at];
		marks[at] = 1;
	}
	return is_new;
}

static bool is_distinct(const struct grid *x, const struct grid *y)
{
	uint8_t marks[BYTES] = {0};
	const bool is_new = mark(x, marks);

	return (!y || mark(y, marks)) && is_new;
}

static bool is_nested(const struct grid *g)
{
	const int64_t rows = (g->rows - 1) * g->row_stride + g->width;
	const int64_t batches = (g->batch - 1) * g->batch_stride + g->width;

	return (g->rows == 1 || g->row_stride >= g->width) &&
	       (g->batch == 1 || g->batch_stride >= rows ||
		(g->batch_stride >= g->width && g->row_stride >= batches));
}

/* ---- one view ------------------------------------------------------------ */

enum array { CODES, SCALES, ELEMENTS, ARRAYS };

/* A plan of a problem one of whose arrays is g; the message names its array. */
static bool is_taken(enum array array, const struct grid *g)
{
	static const char *const names[] = {"a.", "a.scale_", "c."};
	struct nib_problem p = {
	    .a = {.rows = g->rows, .k = 16, .batch = g->batch},
	    .b = {.rows = 3, .k = 16},
	    .c = {.rows = g->rows, .cols = 3, .batch = g->batch},
	};
	struct nib_plan *plan;
	struct nib_error err = {.message = ""};

	if (array == CODES) {
		p.a.row_stride_bytes = g->row_stride;
		p.a.batch_stride_bytes = g->batch_stride;
	} else if (array == SCALES) {
		p.a.scale_row_stride_bytes = g->row_stride;
		p.a.scale_batch_stride_bytes = g->batch_stride;
	} else {
		p.b.rows = p.c.cols = g->width;
		p.c.row_stride_elems = g->row_stride;
		p.c.batch_stride_elems = g->batch_stride;
	}
	if (nib_plan_create(device, NIB_OP_GEMM, &p, 1, NULL, &plan, &err)) {
		assert_contains(err.message, names[array]);
		assert_contains(err.message, "must be");
	}
	nib_plan_free(plan);
	return err.message[0] == '\0';
}

static void check_view(enum array array, const struct grid *g)
{
	const bool taken = is_taken(array, g);
	const bool distinct = is_distinct(g, NULL);

	if ((taken && !distinct) || (!taken && distinct && is_nested(g)))
		fail_msg("array %d, %" PRId64 " rows %" PRId64 " apart, %" PRId64
			 " batches %" PRId64 " apart, each %" PRId64 ": %s",
			 (int)array, g->rows, g->row_stride, g->batch, g->batch_stride,
			 g->width, taken ? "taken" : "refused");
}

static void every_small_view(void **state)
{
	static const int64_t widths[] = {8, 1, 3};
	const int64_t most = test_is_small() ? 12 : 28;

	for (int array = 0; array < ARRAYS; array++)
		for (int64_t i = 0; i < 16 * most * most; i++) {
			const struct grid g = {
			    .width = widths[array],
			    .rows = 1 + i % 4,
			    .batch = 1 + i / 4 % 4,
			    .row_stride = 1 + i / 16 % most,
			    .batch_stride = 1 + i / 16 / most,
			};

			check_view((enum array)array, &g);
		}
}

/* What a refusal offers: stacked batches, or interleaved ones. */
static void messages(void **state)
{
	static const struct {
		int64_t row_stride, batch_stride;
		const char *text;
	} cases[] = {
	    {40, 12,
	     "problems[0].c.batch_stride_elems = 12: must be 0 (dense), at "
	     "least 167 (stacked) or 7 to 11 (interleaved)"},
	    {40, 6, "or 7 to 11 (interleaved"},
	    {40, 166, "at least 167 (stacked"},
	    {40, -8, "must be 0 (dense) or at least 167"},
	    {27, 7, "must be 0 (dense) or at least 115"},
	    {40, INT64_MAX / 8, "below 2^62"},
	};
	struct nib_problem p = {
	    .a = {.rows = 5, .k = 16, .batch = 4},
	    .b = {.rows = 7, .k = 16},
	    .c = {.rows = 5, .cols = 7, .batch = 4},
	};

	for (size_t i = 0; i < COUNT(cases); i++) {
		struct nib_plan *plan;
		struct nib_error err;

		p.c.row_stride_elems = cases[i].row_stride;
		p.c.batch_stride_elems = cases[i].batch_stride;
		assert_refused(
		    nib_plan_create(device, NIB_OP_GEMM, &p, 1, NULL, &plan, &err),
		    NIB_STATUS_BAD_ARGUMENT, &err, cases[i].text);
	}
}

/* ---- two arrays in one memory -------------------------------------------- */

static struct grid random_grid(int64_t width, int64_t unit)
{
	const bool is_between = rng_below(&rng, 2);
	struct grid g = {
	    .at = rng_below(&rng, 60) * unit,
	    .width = width * unit,
	    .rows = 1 + rng_below(&rng, 3),
	    .batch = 1 + rng_below(&rng, 3),
	};
	const int64_t inner = width + rng_below(&rng, 12);
	const int64_t outer =
	    inner * (is_between ? g.batch : g.rows) + rng_below(&rng, 12);

	g.row_stride = (is_between ? outer : inner) * unit;
	g.batch_stride = (is_between ? inner : outer) * unit;
	return g;
}

static bool do_spans_cross(const struct grid *x, const struct grid *y)
{
	return x->at < y->at + (y->batch - 1) * y->batch_stride +
			   (y->rows - 1) * y->row_stride + y->width &&
	       y->at < x->at + (x->batch - 1) * x->batch_stride +
			   (x->rows - 1) * x->row_stride + x->width;
}

static struct nib_problem problem_of(const struct grid *g, enum nib_dtype dtype)
{
	const int64_t size = (int64_t)nib_dtype_bytes(dtype);

	return (struct nib_problem){
	    .a = {.codes = zeros,
		  .scales = zeros,
		  .rows = g->rows,
		  .k = 16,
		  .batch = g->batch},
	    .b = {.codes = zeros, .scales = zeros, .rows = g->width / size, .k = 16},
	    .c = {.data = memory + g->at,
		  .dtype = dtype,
		  .rows = g->rows,
		  .cols = g->width / size,
		  .batch = g->batch,
		  .row_stride_elems = g->row_stride / size,
		  .batch_stride_elems = g->batch_stride / size},
	};
}

/* Whether two outputs are taken together, whichever comes first. */
static bool are_outputs_taken(const struct grid *x, enum nib_dtype x_dtype,
			      const struct grid *y, enum nib_dtype y_dtype)
{
	const struct nib_problem problems[3] = {
	    problem_of(x, x_dtype), problem_of(y, y_dtype), problem_of(x, x_dtype)};
	struct nib_error err = {.message = "overlap"};
	const enum nib_status status =
	    nib_multiply(device, NIB_OP_GEMM, problems, 2, &err);

	assert_int_equal(nib_multiply(device, NIB_OP_GEMM, problems + 1, 2, NULL),
			 status);
	assert_contains(err.message, "overlap");
	return status == NIB_STATUS_OK;
}

/* The second is often like the first, somewhere next to it. */
static void pairs_of_outputs(void **state)
{
	const int most = test_is_small() ? 2000 : 50000;
	int crossing = 0;

	for (int i = 0; i < most; i++) {
		const enum nib_dtype dtypes[2] = {(enum nib_dtype)rng_below(&rng, 3),
						  (enum nib_dtype)rng_below(&rng, 3)};
		struct grid x = random_grid(1 + rng_below(&rng, 4),
					    (int64_t)nib_dtype_bytes(dtypes[0]));
		struct grid y = random_grid(1 + rng_below(&rng, 4),
					    (int64_t)nib_dtype_bytes(dtypes[i % 2]));

		if (i % 2 == 0) {
			y.row_stride = x.row_stride;
			y.batch_stride = x.batch_stride;
			if (i % 4)
				y.rows = x.rows, y.batch = x.batch;
		}
		if (!is_nested(&x) || !is_nested(&y) ||
		    !are_outputs_taken(&x, dtypes[0], &y, dtypes[i % 2]))
			continue;
		crossing += do_spans_cross(&x, &y);
		if (!is_distinct(&x, &y))
			fail_msg("%d: taken, but bytes are in both", i);
	}
	assert_true(crossing > most / 40);
}

/* What engines do must be taken. */
static void usual_pairs(void **state)
{
	static const struct grid pairs[][2] = {
	    /* Heads 0 to 1 and 2 to 4 of [tokens, heads, dim]. */
	    {{0, 8, 6, 40, 2, 8}, {16, 8, 6, 40, 3, 8}},
	    /* Two halves of every head. */
	    {{0, 4, 6, 40, 5, 8}, {4, 4, 6, 40, 5, 8}},
	    /* Two halves of every row, batches apart. */
	    {{0, 8, 6, 16, 3, 100}, {8, 8, 6, 16, 3, 100}},
	    /* The same of vectors, the second before the first. */
	    {{8, 8, 1, 8, 3, 16}, {0, 8, 1, 8, 3, 16}},
	};

	for (size_t i = 0; i < COUNT(pairs); i++) {
		assert_true(do_spans_cross(&pairs[i][0], &pairs[i][1]));
		assert_true(are_outputs_taken(&pairs[i][0], NIB_DTYPE_FP32,
					      &pairs[i][1], NIB_DTYPE_FP32));
	}
}

/* ---- codes and scales of one output -------------------------------------- */

static bool is_quantized(const struct grid *codes, const struct grid *scales)
{
	const struct nib_dense x = {.data = zeros,
				    .dtype = NIB_DTYPE_FP16,
				    .rows = codes->rows,
				    .cols = 16,
				    .batch = codes->batch};
	const struct nib_fp4 q = {
	    .codes = memory + codes->at,
	    .scales = memory + scales->at,
	    .rows = codes->rows,
	    .k = 16,
	    .batch = codes->batch,
	    .row_stride_bytes = codes->row_stride,
	    .batch_stride_bytes = codes->batch_stride,
	    .scale_row_stride_bytes = scales->row_stride,
	    .scale_batch_stride_bytes = scales->batch_stride,
	};

	return nib_quantize(device, &x, &q, NULL, NULL, NULL) == NIB_STATUS_OK;
}

static void codes_beside_scales(void **state)
{
	static const struct grid usual[][2] = {
	    /* [tokens, heads, codes and scales]. */
	    {{0, 8, 5, 40, 4, 9}, {8, 1, 5, 40, 4, 9}},
	    {{1, 8, 5, 40, 4, 9}, {0, 1, 5, 40, 4, 9}},
	    /* [tokens, codes of all heads, scales of all heads]. */
	    {{0, 8, 5, 36, 4, 8}, {32, 1, 5, 36, 4, 1}},
	    /* [batch, rows, codes and scales], gaps between batches. */
	    {{0, 8, 5, 9, 4, 52}, {8, 1, 5, 9, 4, 52}},
	};
	const int most = test_is_small() ? 2000 : 50000;
	int crossing = 0;

	for (size_t i = 0; i < COUNT(usual); i++)
		assert_true(is_quantized(&usual[i][0], &usual[i][1]));
	for (int i = 0; i < most; i++) {
		const struct grid codes = random_grid(8, 1);
		struct grid scales = random_grid(1, 1);

		scales.rows = codes.rows;
		scales.batch = codes.batch;
		scales.row_stride = codes.row_stride;
		if (i % 2)
			scales.batch_stride = codes.batch_stride;
		if (!is_nested(&codes) || !is_nested(&scales) ||
		    !is_quantized(&codes, &scales))
			continue;
		crossing += do_spans_cross(&codes, &scales);
		if (!is_distinct(&codes, &scales))
			fail_msg("%d: taken, but codes meet scales", i);
	}
	assert_true(crossing > most / 40);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(every_small_view),	   cmocka_unit_test(messages),
	    cmocka_unit_test(pairs_of_outputs),	   cmocka_unit_test(usual_pairs),
	    cmocka_unit_test(codes_beside_scales),
	};

	return cmocka_run_group_tests(tests, open_device, close_device);
}
