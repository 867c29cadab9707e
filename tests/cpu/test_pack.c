/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_pack.c - how much memory packed weights take.  What they compute is
 * test_multiply.c's and test_same_bits.c's.
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

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(tiny_weights_take_little),
	    cmocka_unit_test(nothing_takes_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
