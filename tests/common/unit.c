/* SPDX-License-Identifier: Apache-2.0 */
/* common/unit.c - see unit.h. */
#include "unit.h"

#include <string.h>

void test_contains(const char *text, const char *part, const char *file, int line)
{
	if (strstr(text, part))
		return;
	print_error("'%s' lacks '%s'\n", text, part);
	_fail(file, line);
}

struct nib_plan_info test_plan_info(const struct nib_plan *plan)
{
	struct nib_plan_info info = {.struct_bytes = sizeof(info)};

	assert_ok(nib_plan_get_info(plan, &info, NULL));
	return info;
}

struct nib_device_info test_device_info(const struct nib_device *device)
{
	struct nib_device_info info = {.struct_bytes = sizeof(info)};

	assert_ok(nib_device_get_info(device, &info, NULL));
	return info;
}
