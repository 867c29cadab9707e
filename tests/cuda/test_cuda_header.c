/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_cuda_header.c - compares src/backend/cuda/common/driver.h with CUDA's own
 * cuda.h, if that is installed: numbers, layouts, exported names.
 */
#include <string.h>

#include "backend/cuda/common/driver.h"
#include "common/unit.h"
#include "fake_cuda/declared.h"
#include "fake_cuda/real.h"

static void numbers_and_layouts(void **state)
{
	const int count = (int)(sizeof(declared) / sizeof(*declared));

	if (real_count() == 0)
		skip();
	assert_int_equal(real_count(), count);
	for (int i = 0; i < count; i++)
		if (declared[i].value != real_value(i))
			fail_msg("%s is %lld here, %lld in cuda.h", declared[i].name,
				 declared[i].value, real_value(i));
}

static void exported_names(void **state)
{
	static const char *const ours[] = {
#define F(name, arguments) #name,
#include "backend/cuda/common/driver.def"
#undef F
	};

	if (real_count() == 0)
		skip();
	for (int i = 0; real_names[i]; i++) {
		int found = 0;

		for (size_t j = 0; j < sizeof(ours) / sizeof(*ours); j++)
			found += strcmp(ours[j], real_names[i]) == 0;
		if (found != 1)
			fail_msg("driver.def lacks %s", real_names[i]);
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
