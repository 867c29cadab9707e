/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_runtime_api.c - compares the layouts of src/runtime/cudart.h with CUDA's own
 * header, if that is installed.
 */
#include "common/unit.h"
#include "runtime/cudart.h"
#include "runtime_header.h"

#include "declared_runtime.h"

static void layouts(void **state)
{
	const int count = (int)(sizeof(declared) / sizeof(*declared));

	if (runtime_header_count() == 0)
		skip();
	assert_int_equal(runtime_header_count(), count);
	for (int i = 0; i < count; i++)
		if (declared[i].value != runtime_header_value(i))
			fail_msg("%s is %lld here, %lld in CUDA's header",
				 declared[i].name, declared[i].value,
				 runtime_header_value(i));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(layouts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
