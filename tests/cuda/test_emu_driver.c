/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_emu_driver.c - the software GPU is the driver that nibblas expects: it exports
 * every function of driver.def, and the declarations of both are equal.
 */
#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "backend/cuda/common/driver.h"
#include "cuda/emu_declared.h"
#include "fake_cuda/declared.h"

static void declarations_agree(void **state)
{
	const size_t count = sizeof(declared) / sizeof(*declared);
	size_t common = 0;

	(void)state;
	for (size_t i = 0; i < count; i++) {
		long long value;

		if (!emu_declared(declared[i].name, &value))
			continue;
		common++;
		if (declared[i].value != value)
			fail_msg("%s is %lld in nibblas, %lld in emu/",
				 declared[i].name, declared[i].value, value);
	}
	/* Each list has names of its own, but most are in both. */
	assert_true(common >= 40);
}

static void functions_are_exported(void **state)
{
	static const char *const names[] = {
#define F(name, arguments) #name,
#include "backend/cuda/common/driver.def"
#undef F
	};
	void *library = dlopen(NIB_EMU_LIBRARY, RTLD_NOW | RTLD_LOCAL);

	(void)state;
	if (!library)
		fail_msg("%s", dlerror());
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		if (!dlsym(library, names[i]))
			fail_msg("emu/ lacks %s", names[i]);
	dlclose(library);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(declarations_agree),
	    cmocka_unit_test(functions_are_exported),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
