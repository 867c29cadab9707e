/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fake_bed.h - helpers of tests on the fake driver (fake_cuda/).  The library opens its
 * driver once in a process, so each test runs in a process of its own.
 */
#ifndef NIB_TESTS_COMMON_FAKE_CUDA_H
#define NIB_TESTS_COMMON_FAKE_CUDA_H

#include <stddef.h>

#include "fake_cuda/fake_cuda.h"

struct fake_test {
	const char *name;
	void (*run)(void);
};

/*
 * main() of such a program: every test, each by running the program again with
 * its name.
 */
int fake_main(int argc, char **argv, const struct fake_test *tests, size_t count);

/* Opens the fake at path and makes it the library's driver. */
struct fake_cuda *fake_open(const char *path);
/* All is given back, and no call came without a context. */
void fake_check_clean(const struct fake_cuda *fake);
void fake_register_memory(const void *pointer, size_t bytes, int type, int ordinal,
			  int is_managed);

#endif
