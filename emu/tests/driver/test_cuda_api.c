/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_cuda_api.c - compares src/driver/cuda_api.h with CUDA's own cuda.h, if that is
 * installed: numbers, layouts, exported names.
 */
#include <string.h>

#include "common/unit.h"
#include "cuda_header.h"
#include "driver/cuda_api.h"

#include "declared.h"

static void numbers_and_layouts(void **state)
{
	const int count = (int)(sizeof(declared) / sizeof(*declared));

	if (cuda_header_count() == 0)
		skip();
	assert_int_equal(cuda_header_count(), count);
	for (int i = 0; i < count; i++)
		if (declared[i].value != cuda_header_value(i))
			fail_msg("%s is %lld here, %lld in cuda.h", declared[i].name,
				 declared[i].value, cuda_header_value(i));
}

static void exported_names(void **state)
{
	static const char *const ours[] = {
#define F(name, arguments) #name,
#include "driver/cuda_api.def"
#undef F
	};

	if (cuda_header_count() == 0)
		skip();
	for (int i = 0; cuda_header_names[i]; i++) {
		int found = 0;

		for (size_t j = 0; j < sizeof(ours) / sizeof(*ours); j++)
			found += strcmp(ours[j], cuda_header_names[i]) == 0;
		if (found != 1)
			fail_msg("cuda_api.def lacks %s", cuda_header_names[i]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(numbers_and_layouts),
	    cmocka_unit_test(exported_names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
