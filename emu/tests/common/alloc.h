/* SPDX-License-Identifier: Apache-2.0 */
/*
 * common/alloc.h - makes a chosen allocation of the program fail.
 *
 *	if (!test_alloc_works())
 *		skip();
 *	for (long n = 1;; n++) {
 *		test_alloc_fail(n, TEST_ALLOC_ONE);
 *		status = the_call();
 *		if (!test_alloc_stop())
 *			break;	// it made fewer than n allocations
 *		... status must say that memory ran out ...
 *	}
 *
 * Counts malloc, calloc, realloc, aligned_alloc, posix_memalign and memalign of all
 * threads, also those made by strdup and similar functions.
 */
#ifndef EMU_TESTS_ALLOC_H
#define EMU_TESTS_ALLOC_H

#include <stdbool.h>

enum test_alloc_mode {
	TEST_ALLOC_ONE,	 /* the nth allocation from now on fails */
	TEST_ALLOC_FROM, /* the nth and all after it fail */
};

/*
 * False where allocations cannot be made to fail (a sanitizer or valgrind has
 * its own malloc, or the C library is not glibc); the reason is printed once.
 */
bool test_alloc_works(void);
/* n = 1 is the next allocation. */
void test_alloc_fail(long n, enum test_alloc_mode mode);
/* Ends it; true if an allocation failed. */
bool test_alloc_stop(void);
/* Blocks allocated and not yet freed: equal before and after, no leak. */
long test_alloc_live(void);

#endif
