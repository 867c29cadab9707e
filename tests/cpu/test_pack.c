/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_pack.c - how much memory packed weights take, and their updates.  What
 * they compute is test_multiply.c's and test_same_bits.c's.
 */
#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "common/alloc.h"
#include "common/data.h"

#define MATRICES 64

/* In use, mapped blocks included. */
static size_t used_bytes(void)
{
	const struct mallinfo2 info = mallinfo2();

	return info.uordblks + info.hblkhd;
}

/* A model has thousands of tiny matrices (routers, test models). */
static void tiny_weights_take_little(void **state)
{
	struct nib_device *device = test_device("scalar", 2);
	struct rng rng = rng_new(test_seed());
	struct test_nvfp4 b =
	    test_nvfp4_new(&rng, 3, 48, 1, NIB_LINEAR, TEST_SCALES_ANY, 0, 0);
	struct nib_packed *packed[MATRICES];
	size_t before;

	(void)state;
	if (!test_alloc_works()) {
		test_nvfp4_free(&b);
		nib_device_close(device);
		skip();
	}
	/* Whatever threads and streams allocate once. */
	assert_int_equal(nib_pack(device, &b.view, &packed[0], NULL), NIB_OK);
	nib_packed_free(packed[0]);
	before = used_bytes();
	for (int i = 0; i < MATRICES; i++)
		assert_int_equal(nib_pack(device, &b.view, &packed[i], NULL),
				 NIB_OK);
	assert_in_range(used_bytes() - before, MATRICES * 3 * 48 / 2,
			MATRICES * 2048);
	for (int i = 0; i < MATRICES; i++)
		nib_packed_free(packed[i]);
	test_nvfp4_free(&b);
	nib_device_close(device);
}

/* Sizes without values are not bounded by any memory. */
static void nothing_takes_nothing(void **state)
{
	static const struct nib_nvfp4 views[] = {
	    {.rows = INT64_C(1) << 40, .batch = INT64_C(1) << 21},
	    {.rows = 17, .batch = 3},
	    {.k = 64, .batch = 5},
	    {.k = 0},
	};
	struct nib_device *device = test_device("scalar", 2);

	(void)state;
	for (size_t i = 0; i < sizeof(views) / sizeof(*views); i++) {
		struct nib_packed *packed = NULL;
		struct nib_error err;

		if (nib_pack(device, &views[i], &packed, &err) != NIB_OK)
			fail_msg("%zu: %s", i, err.message);
		assert_int_equal(nib_packed_bytes(packed), 0);
		nib_packed_free(packed);
	}
	nib_device_close(device);
}

#define ROWS  37
#define COLS  96
#define BATCH 2

static struct test_nvfp4 matrix(struct rng *rng, int64_t rows)
{
	return test_nvfp4_new(rng, rows, COLS, BATCH, NIB_LINEAR,
			      TEST_SCALES_ANY, 0, 0);
}

static void assert_same_product(struct nib_plan *plan, struct nib_problem p,
				const struct nib_packed *packed,
				const struct test_dense *want)
{
	struct test_dense c = test_dense_new(NIB_FP32, 3, ROWS, BATCH, 0);
	struct nib_error err;

	p.c = c.view;
	p.b = (struct nib_nvfp4){0};
	p.b_packed = packed;
	if (nib_run(plan, &p, 1, NULL, &err))
		fail_msg("%s", err.message);
	assert_memory_equal(c.view.data, want->view.data, want->bytes);
	test_dense_free(&c);
}

/* A plan of the old weights multiplies by the new ones. */
static void an_update_gives_the_new_weights(void **state)
{
	struct nib_device *device = test_device("scalar", 2);
	struct rng rng = rng_new(test_seed());
	struct test_nvfp4 a = matrix(&rng, 3);
	struct test_nvfp4 b[] = {matrix(&rng, ROWS), matrix(&rng, ROWS)};
	struct test_dense want = test_dense_new(NIB_FP32, 3, ROWS, BATCH, 0);
	struct nib_problem p = {.a = a.view, .c = want.view};
	struct nib_packed *packed;
	struct nib_plan *plan;
	struct nib_error err;

	(void)state;
	assert_int_equal(nib_pack_shared(device, &b[0].view, &packed, &err),
			 NIB_OK);
	/* A CPU has an order of its own. */
	assert_true(nib_packed_bytes(packed) >= b[0].codes_bytes);
	p.b_packed = packed;
	assert_int_equal(
	    nib_plan_create(device, NIB_GEMM, &p, 1, NULL, &plan, &err),
	    NIB_OK);
	p.b_packed = NULL;
	for (int i = 0; i < 2; i++) {
		p.b = b[i].view;
		if (i)
			assert_int_equal(
			    nib_packed_update(packed, &b[i].view, &err),
			    NIB_OK);
		assert_int_equal(nib_multiply(device, NIB_GEMM, &p, 1, &err),
				 NIB_OK);
		assert_same_product(plan, p, packed, &want);
	}
	nib_plan_free(plan);
	nib_packed_free(packed);
	test_dense_free(&want);
	test_nvfp4_free(&a);
	test_nvfp4_free(&b[0]);
	test_nvfp4_free(&b[1]);
	nib_device_close(device);
}

static void an_update_has_the_sizes(void **state)
{
	struct nib_device *device = test_device("scalar", 2);
	struct rng rng = rng_new(test_seed());
	struct test_nvfp4 b = matrix(&rng, ROWS);
	struct nib_packed *packed;
	struct nib_nvfp4 other = b.view;
	struct nib_error err;

	(void)state;
	assert_int_equal(nib_pack(device, &b.view, &packed, &err), NIB_OK);
	other.rows--;
	assert_int_equal(nib_packed_update(packed, &other, &err),
			 NIB_BAD_ARGUMENT);
	assert_string_equal(err.argument, "b.rows");
	assert_string_equal(err.message,
			    "b.rows = 36: must be 37, as packed has");
	other = b.view;
	other.k -= 16;
	assert_int_equal(nib_packed_update(packed, &other, &err),
			 NIB_BAD_ARGUMENT);
	assert_string_equal(err.argument, "b.k");
	other = b.view;
	other.batch = 1;
	assert_int_equal(nib_packed_update(packed, &other, &err),
			 NIB_BAD_ARGUMENT);
	assert_string_equal(err.argument, "b.batch");
	assert_int_equal(nib_packed_update(packed, &b.view, &err), NIB_OK);
	nib_packed_free(packed);
	test_nvfp4_free(&b);
	nib_device_close(device);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(an_update_gives_the_new_weights),
	    cmocka_unit_test(an_update_has_the_sizes),
	    cmocka_unit_test(tiny_weights_take_little),
	    cmocka_unit_test(nothing_takes_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
