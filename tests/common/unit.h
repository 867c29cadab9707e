/* SPDX-License-Identifier: Apache-2.0 */
/*
 * common/unit.h - cmocka with the headers that it needs before it, and what the
 * suites assert most: a status, the text of a message.
 */
#ifndef NIB_TESTS_COMMON_UNIT_H
#define NIB_TESTS_COMMON_UNIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "nibblas.h"

#define assert_ok(status) assert_int_equal(status, NIB_STATUS_OK)

/* The same of a call that describes its failure in *err. */
#define assert_ok_err(status, err)                                                     \
	do {                                                                           \
		if (status)                                                            \
			fail_msg("%s", (err)->message);                                \
	} while (0)

/* part occurs in text; a failure prints both. */
#define assert_contains(text, part) test_contains(text, part, __FILE__, __LINE__)
void test_contains(const char *text, const char *part, const char *file, int line);

/* The call returns status, which *err has as well, with part in its message. */
#define assert_refused(call, want, err, part)                                          \
	do {                                                                           \
		assert_int_equal(call, want);                                          \
		assert_int_equal((err)->status, want);                                 \
		assert_contains((err)->message, part);                                 \
	} while (0)

struct nib_plan_info test_plan_info(const struct nib_plan *plan);
struct nib_device_info test_device_info(const struct nib_device *device);

#endif
