/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_bfmmla.c - compares products of bf16 activations by the set neonbf16 with the
 * definition of its instructions, bit by bit: also where products and sums are flushed.
 * Few rows of small x are multiplied as many rows are.
 */
#include <math.h>
#include <stdint.h>

#include "common/data.h"
#include "common/odd_sums.h"
#include "common/unit.h"
#include "format/e2m1.h"
#include "format/e4m3.h"
#include "format/half.h"
#include "format/view.h"

#define COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))
#define MOST_K	     1104

/* Rows up to which weights are decoded in registers, for bfdot. */
#define FEW_ROWS 4

static struct rng rng;

/* x of all signs, 2^e to 2^(e + 2). */
static void fill(const struct nib_dense *x, int e)
{
	for (int64_t i = 0; i < x->rows * x->cols; i++) {
		const double size = ldexp(1 + rng_uniform(&rng), e);

		nib_dense_set_bits(
		    x, 0, i / x->cols, i % x->cols,
		    nib_fp64_to_dtype(rng_below(&rng, 2) ? size : -size, x->dtype));
	}
}

static float element(const struct nib_problem *p, int64_t row, int64_t col, bool few)
{
	static float x[MOST_K], w[MOST_K], codes[MOST_K], scales[MOST_K];

	for (int64_t k = 0; k < p->x.cols; k++) {
		const uint8_t byte = nib_fp4_row(&p->b, 0, col)[k / 2];

		x[k] = nib_dense_get(&p->x, 0, row, k);
		codes[k] = (float)nib_e2m1_twice[k % 2 ? byte >> 4 : byte & 15] * 0.5f;
		scales[k] = nib_e4m3_to_float(
		    *nib_fp4_scale(&p->b, 0, col, k / NIB_NVFP4_BLOCK));
		w[k] = codes[k] * scales[k];
	}
	return few ? odd_sum_of_blocks(x, codes, scales, p->x.cols)
		   : odd_sum(x, w, p->x.cols);
}

static void check(struct nib_device *device, int64_t m, int64_t k, int e)
{
	const int64_t n = 37;
	struct test_dense x = test_dense_new(NIB_DTYPE_BF16, m, k, 1, 0);
	struct test_dense c = test_dense_new(NIB_DTYPE_FP32, m, n, 1, 0);
	struct test_nvfp4 b = test_nvfp4_new(&rng, n, k, 1, NIB_SCALE_LAYOUT_LINEAR,
					     TEST_SCALES_ANY, 0, 0);
	const struct nib_problem p = {.x = x.view,
				      .activations = NIB_ACTIVATIONS_DENSE,
				      .b = b.view,
				      .c = c.view};
	const bool few = m <= FEW_ROWS && e >= -110;

	fill(&x.view, e);
	assert_ok(nib_multiply(device, NIB_OP_GEMM, &p, 1, NULL));
	for (int64_t i = 0; i < m * n; i++) {
		const float got = nib_dense_get(&c.view, 0, i / n, i % n);
		const float want = element(&p, i / n, i % n, few);

		if (got != want)
			fail_msg("%d rows, k %d, 2^%d, element %d: %a, must be %a",
				 (int)m, (int)k, e, (int)i, (double)got, (double)want);
	}
	test_dense_free(&x);
	test_dense_free(&c);
	test_nvfp4_free(&b);
}

static void bits_of_the_definition(void **state)
{
	static const int64_t ms[] = {1, 2, 3, 4, 5, 7, 12};
	static const int64_t ks[] = {16, 48, 208, MOST_K};
	static const int sizes[] = {0, 100, -110, -111, -122, -128};
	struct nib_device *device = test_device("neonbf16", 1);

	if (!device)
		skip();
	for (int i = 0; i < COUNT(ms) * COUNT(ks) * COUNT(sizes); i++)
		check(device, ms[i % COUNT(ms)], ks[i / COUNT(ms) % COUNT(ks)],
		      sizes[i / COUNT(ms) / COUNT(ks)]);
	nib_device_close(device);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(bits_of_the_definition)};

	rng = rng_new(test_seed());
	return cmocka_run_group_tests(tests, NULL, NULL);
}
