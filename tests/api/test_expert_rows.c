/* SPDX-License-Identifier: Apache-2.0 */
/* test_expert_rows.c - where the rows and scales of MoE experts begin. */
#include <string.h>

#include "common/data.h"
#include "common/unit.h"

#define EXPERTS 7

static void begins_of_ends(void **state)
{
	static const int32_t ends[EXPERTS] = {3, 3, 131, 259, 260, 516, 600};
	static const int32_t rows[EXPERTS + 1] = {0, 3, 3, 131, 259, 260, 516, 600};
	/* 3, 0, 128, 128, 1, 256 rows padded to 128. */
	static const int32_t scales[EXPERTS] = {0, 128, 128, 256, 384, 512, 768};
	struct nib_device *device = test_device("scalar", 1);
	int32_t got_rows[EXPERTS + 2], got_scales[EXPERTS + 1];

	for (int64_t n = 1; n <= EXPERTS; n++) {
		memset(got_rows, 0x55, sizeof(got_rows));
		memset(got_scales, 0x55, sizeof(got_scales));
		assert_ok(nib_moe_expert_rows(device, ends, n, got_rows, got_scales,
					      NULL, NULL));
		assert_memory_equal(got_rows, rows, (size_t)(n + 1) * sizeof(*rows));
		assert_memory_equal(got_scales, scales, (size_t)n * sizeof(*scales));
		assert_int_equal(got_rows[n + 1], 0x55555555);
		assert_int_equal(got_scales[n], 0x55555555);
	}
	memset(got_rows, 0x55, sizeof(got_rows));
	assert_ok(
	    nib_moe_expert_rows(device, ends, EXPERTS, got_rows, NULL, NULL, NULL));
	assert_memory_equal(got_rows, rows, sizeof(rows));
	nib_device_close(device);
}

/* Ends that are wrong break nothing here: sums wrap. */
static void ends_of_anything(void **state)
{
	static const int32_t ends[4] = {INT32_MAX, INT32_MIN, -5, INT32_MAX};
	struct nib_device *device = test_device("scalar", 1);
	int32_t rows[5], scales[4];

	assert_ok(nib_moe_expert_rows(device, ends, 4, rows, scales, NULL, NULL));
	assert_memory_equal(rows + 1, ends, sizeof(ends));
	nib_device_close(device);
}

static void refusals(void **state)
{
	struct nib_device *device = test_device("scalar", 1);
	const struct nib_call_options stream = {sizeof(stream), device};
	int32_t ends[4] = {1, 2, 3, 4}, rows[5], scales[4];
	struct nib_error err;
	const struct {
		struct nib_device *device;
		int32_t *ends, *rows, *scales;
		const struct nib_call_options *options;
		int64_t experts;
		const char *message;
	} cases[] = {
	    {NULL, ends, rows, scales, NULL, 4, "device = NULL"},
	    {device, NULL, rows, scales, NULL, 4, "ends = NULL"},
	    {device, ends, NULL, scales, NULL, 4, "row_offsets = NULL"},
	    {device, ends, rows, scales, NULL, 0,
	     "experts = 0: must be 1 to 2147483647"},
	    /* As many as are allowed: the next rule is broken. */
	    {device, ends, NULL, scales, NULL, INT32_MAX, "row_offsets = NULL"},
	    {device, ends, NULL, scales, NULL, INT64_C(1) << 31,
	     "experts = 2147483648: must be 1 to"},
	    {device, ends, rows, scales, NULL, INT64_MAX,
	     "experts = 9223372036854775807: must be 1 to"},
	    {device, ends, rows, scales, &stream, 4, "options.stream = 0x"},
	    {device, ends, ends + 3, scales, NULL, 4, "row_offsets = 0x"},
	    {device, ends, rows, ends + 3, NULL, 4, "scale_rows = 0x"},
	    {device, ends, rows, rows + 4, NULL, 4, "scale_rows = 0x"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		assert_int_equal(nib_moe_expert_rows(cases[i].device, cases[i].ends,
						     cases[i].experts, cases[i].rows,
						     cases[i].scales, cases[i].options,
						     &err),
				 NIB_STATUS_BAD_ARGUMENT);
		if (strncmp(err.message, cases[i].message, strlen(cases[i].message)) !=
		    0)
			fail_msg("case %zu: %s", i, err.message);
	}
	nib_device_close(device);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(begins_of_ends),
	    cmocka_unit_test(ends_of_anything),
	    cmocka_unit_test(refusals),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
