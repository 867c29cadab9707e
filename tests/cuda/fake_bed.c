/* SPDX-License-Identifier: Apache-2.0 */
/* fake_bed.c - see fake_bed.h. */
#include "fake_bed.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/unit.h"

#define MAX_TESTS 64

static void *library;

static void run_here(void **state)
{
	const struct fake_test *test = *state;

	test->run();
}

static void run_apart(void **state)
{
	const struct fake_test *test = *state;
	char program[4096] = "";
	int status = -1;
	pid_t child;

	/* The link is read here, because valgrind cannot execute it. */
	assert_true(readlink("/proc/self/exe", program, sizeof(program) - 1) > 0);
	fflush(NULL);
	child = fork();
	if (child == 0) {
		/* Lines of the parent's form would be counted as its tests. */
		setenv("CMOCKA_MESSAGE_OUTPUT", "TAP", 1);
		execl(program, program, test->name, (char *)NULL);
		_exit(126);
	}
	assert_true(child > 0);
	assert_int_equal(waitpid(child, &status, 0), child);
	if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
		fail_msg("%s: status 0x%x", test->name, (unsigned)status);
}

int fake_main(int argc, char **argv, const struct fake_test *tests, size_t count)
{
	struct CMUnitTest all[MAX_TESTS];
	size_t used = 0;

	memset(all, 0, sizeof(all));
	for (size_t i = 0; i < count && i < MAX_TESTS; i++) {
		if (argc > 1 && strcmp(argv[1], tests[i].name) != 0)
			continue;
		all[used].name = tests[i].name;
		all[used].test_func = argc > 1 ? run_here : run_apart;
		all[used].initial_state = (void *)&tests[i];
		used++;
	}
	if (used == 0 || count > MAX_TESTS)
		return 1;
	return _cmocka_run_group_tests("fake_cuda", all, used, NULL, NULL);
}

struct fake_cuda *fake_open(const char *path)
{
	struct fake_cuda *fake;

	library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!library) {
		fprintf(stderr, "%s\n", dlerror());
		exit(1);
	}
	fake = dlsym(library, "fake_cuda");
	if (!fake || setenv("NIB_CUDA_LIBRARY", path, 1) != 0)
		exit(1);
	return fake;
}

void fake_check_clean(const struct fake_cuda *fake)
{
	assert_int_equal(fake->retained, 0);
	assert_int_equal(fake->depth, 0);
	assert_int_equal(fake->modules, 0);
	assert_int_equal(fake->allocations, 0);
	assert_int_equal(fake->outside, 0);
}

void fake_register_memory(const void *pointer, size_t bytes, int type, int ordinal,
			  int is_managed)
{
	void *symbol = dlsym(library, "fake_register");
	fake_cuda_register *call;

	if (!symbol)
		exit(1);
	memcpy(&call, &symbol, sizeof(call));
	call(pointer, bytes, type, ordinal, is_managed);
}
