/* SPDX-License-Identifier: Apache-2.0 */
/* test_sum_slots.c - only the last step of a layer of experts. */
#include <stdio.h>
#include <string.h>

#include "common/data.h"
#include "common/unit.h"
#include "format/half.h"

#define TOP_K 3

/* Floats or bf16; values are small multiples of 1/8, so that bf16 has them. */
static float value_of(const struct test_dense *m, int64_t row, int64_t col)
{
	const int64_t stride = m->view.row_stride_elems;
	const int64_t at = row * (stride ? stride : m->view.cols) + col;

	return m->view.dtype == NIB_DTYPE_FP32
		   ? ((const float *)m->view.data)[at]
		   : nib_bf16_to_fp32(((const uint16_t *)m->view.data)[at]);
}

static void fill(struct rng *rng, struct test_dense *m)
{
	for (int64_t i = 0; i < m->view.rows * m->view.cols; i++) {
		const float x = (float)(rng_below(rng, 65) - 32) / 8;

		if (m->view.dtype == NIB_DTYPE_FP32)
			((float *)m->view.data)[i] = x;
		else
			((uint16_t *)m->view.data)[i] = nib_fp32_to_bf16(x);
	}
}

/* Sums slot after slot, not contracted. */
static float sum(const struct test_dense *rows, const int32_t *slot_rows,
		 const float *weights, int64_t col)
{
	volatile float total = 0;

	for (int j = 0; j < TOP_K; j++)
		if (slot_rows[j] >= 0) {
			const volatile float product =
			    weights[j] * value_of(rows, slot_rows[j], col);

			total = total + product;
		}
	return total;
}

static void check(struct nib_device *device, enum nib_dtype dtype, int64_t tokens,
		  int64_t cols, int64_t count)
{
	const size_t bytes = (size_t)(tokens * TOP_K) * 4;
	struct rng rng = rng_new((uint64_t)(tokens * 1000 + cols));
	struct test_dense rows = test_dense_new(dtype, count, cols, 1, 0);
	struct test_dense y = test_dense_new(dtype, tokens, cols, 1, 5);
	int32_t *slot_rows = guard_new(bytes);
	float *weights = guard_new(bytes);
	struct nib_error err;

	fill(&rng, &rows);
	for (int64_t i = 0; i < tokens * TOP_K; i++) {
		slot_rows[i] = (int32_t)rng_below(&rng, count + 1) - 1;
		/* Weights of slots that are left out do not matter. */
		weights[i] =
		    slot_rows[i] < 0 ? (float)(1e300 * 1e300) : (float)rng_normal(&rng);
	}
	assert_ok_err(nib_moe_sum_slots(device, &rows.view, slot_rows, weights, TOP_K,
					&y.view, NULL, &err),
		      &err);
	for (int64_t i = 0; i < tokens * cols; i++) {
		const int64_t t = i / cols, col = i % cols;
		float want =
		    sum(&rows, slot_rows + t * TOP_K, weights + t * TOP_K, col);

		if (dtype == NIB_DTYPE_BF16)
			want = nib_bf16_to_fp32(nib_fp32_to_bf16(want));
		if (value_of(&y, t, col) != want)
			fail_msg("tokens %d, cols %d: y[%d, %d] = %a, not %a",
				 (int)tokens, (int)cols, (int)t, (int)col,
				 (double)value_of(&y, t, col), (double)want);
	}
	guard_free(weights, bytes);
	guard_free(slot_rows, bytes);
	test_dense_free(&y);
	test_dense_free(&rows);
}

static void sums(void **state)
{
	static const int64_t cols[] = {1, 15, 256, 257, 1000};
	struct nib_device *device = test_device("scalar", 2);

	for (int i = 0; i < 5; i++)
		for (int64_t tokens = 0; tokens <= 40; tokens += 20) {
			check(device, NIB_DTYPE_FP32, tokens, cols[i], 7);
			check(device, NIB_DTYPE_BF16, tokens, cols[i], 90);
			/* No rows at all: zeros. */
			check(device, NIB_DTYPE_FP32, tokens, cols[i], 0);
		}
	nib_device_close(device);
}

static void refusals(void **state)
{
	struct nib_device *device = test_device("scalar", 1);
	const struct nib_call_options stream = {sizeof(stream), device};
	float x[24] = {0}, out[24], weights[6] = {0};
	int32_t slot_rows[6] = {0, 1, -1, 2, 0, 3};
	const struct nib_dense rows = {
	    .data = x, .dtype = NIB_DTYPE_FP32, .rows = 4, .cols = 6};
	const struct nib_dense y = {
	    .data = out, .dtype = NIB_DTYPE_FP32, .rows = 2, .cols = 6};
	struct nib_dense half = rows, wide = rows, gap = rows, two = rows;
	struct nib_dense many = y, inside = y, few = rows;
	struct nib_error err;
	const struct {
		const struct nib_dense *rows;
		const int32_t *slot_rows;
		const float *weights;
		int64_t top_k;
		const struct nib_dense *y;
		const struct nib_call_options *options;
		const char *message;
	} cases[] = {
	    {NULL, slot_rows, weights, 3, &y, NULL, "rows = NULL"},
	    {&rows, slot_rows, weights, 3, NULL, NULL, "y = NULL"},
	    {&rows, NULL, weights, 3, &y, NULL, "slot_rows = NULL: must point"},
	    {&rows, slot_rows, NULL, 3, &y, NULL, "weights = NULL: must point"},
	    {&rows, slot_rows, weights, -1, &y, NULL, "top_k = -1: must not"},
	    {&rows, slot_rows, weights, INT64_C(1) << 31, &y, NULL, "top_k = "},
	    {&rows, slot_rows, weights, 1 << 30, &y, NULL, "top_k = "},
	    {&rows, slot_rows, weights, 3, &y, &stream, "options.stream = 0x"},
	    {&half, slot_rows, weights, 3, &y, NULL, "rows.dtype = 2: must be"},
	    {&wide, slot_rows, weights, 3, &y, NULL, "rows.cols = 5: must be"},
	    {&gap, slot_rows, weights, 3, &y, NULL,
	     "rows.row_stride_elems = 7: must be rows.cols = 6"},
	    {&two, slot_rows, weights, 3, &y, NULL, "rows.batch = 2: must be"},
	    {&rows, slot_rows, weights, 3, &many, NULL, "y.batch = 2: must be"},
	    {&rows, slot_rows, weights, 3, &inside, NULL, "y"},
	    {&rows, (const int32_t *)out, weights, 3, &y, NULL, "y"},
	    {&rows, slot_rows, out + 6, 3, &y, NULL, "y"},
	    {&few, slot_rows, weights, 3, &y, NULL,
	     "slot_rows[1, 2] = 3: must be below rows.rows = 3"},
	};

	half.dtype = NIB_DTYPE_BF16;
	wide.cols = 5;
	gap.row_stride_elems = 7;
	gap.rows = two.rows = 2;
	two.batch = many.batch = 2;
	many.rows = 1;
	inside.data = x + 12;
	few.rows = 3;
	assert_int_equal(
	    nib_moe_sum_slots(NULL, &rows, slot_rows, weights, 3, &y, NULL, &err),
	    NIB_STATUS_BAD_ARGUMENT);
	assert_string_equal(err.message, "device = NULL: must be an open device");
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		memset(out, 0x55, sizeof(out));
		assert_int_equal(nib_moe_sum_slots(device, cases[i].rows,
						   cases[i].slot_rows, cases[i].weights,
						   cases[i].top_k, cases[i].y,
						   cases[i].options, &err),
				 NIB_STATUS_BAD_ARGUMENT);
		if (strncmp(err.message, cases[i].message, strlen(cases[i].message)) !=
		    0)
			fail_msg("case %zu: %s", i, err.message);
		for (size_t j = 0; j < sizeof(out); j++)
			assert_int_equal(((const uint8_t *)out)[j], 0x55);
	}
	nib_device_close(device);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(sums),
	    cmocka_unit_test(refusals),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
