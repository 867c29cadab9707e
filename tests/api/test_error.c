/* SPDX-License-Identifier: Apache-2.0 */
/* test_error.c - messages: what fits, and where they are cut. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "core/error.h"

#define CAPACITY (sizeof(((struct nib_error *)0)->message) - 1)

/* Text of `bytes` bytes that ends with `tail`. */
static void text_of(char *text, size_t bytes, const char *tail)
{
	const size_t length = strlen(tail);

	memset(text, 'x', bytes - length);
	memcpy(text + bytes - length, tail, length + 1);
}

static void what_fits_is_whole(void **state)
{
	struct nib_error err;
	char text[CAPACITY + 1];

	(void)state;
	text_of(text, CAPACITY, "\xC3\xA9");
	assert_int_equal(nib_fail(&err, NIB_IO, "%s", text), NIB_IO);
	assert_int_equal(err.status, NIB_IO);
	assert_string_equal(err.message, text);
	assert_int_equal(nib_fail(NULL, NIB_IO, "%s", text), NIB_IO);
}

/* The end of the capacity falls on each byte of a character in turn. */
static void a_cut_falls_between_characters(void **state)
{
	static const char *const characters[] = {
	    "e", "\xC3\xA9", "\xE2\x82\xAC", "\xF0\x9F\x98\x80"};
	struct nib_error err;
	char text[2 * CAPACITY];

	(void)state;
	for (size_t i = 0; i < 4; i++) {
		const size_t length = strlen(characters[i]);

		for (size_t kept = 0; kept <= length; kept++) {
			text_of(text, CAPACITY - kept + length, characters[i]);
			strcat(text, "tail");
			nib_fail(&err, NIB_BAD_FILE, "%s", text);
			assert_int_equal(strlen(err.message),
					 kept == length ? CAPACITY
							: CAPACITY - kept);
			assert_memory_equal(err.message, text,
					    strlen(err.message));
		}
	}
}

/* Names of files may be any bytes: no byte of them is a reason to lose more. */
static void text_that_is_not_utf8(void **state)
{
	struct nib_error err;
	char text[2 * CAPACITY];

	(void)state;
	memset(text, 0x80, sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	nib_fail(&err, NIB_IO, "%s", text);
	assert_int_equal(strlen(err.message), CAPACITY);
}

static void every_status_has_a_name(void **state)
{
	(void)state;
	for (int i = NIB_OK; i <= NIB_DEVICE_FAILED; i++)
		for (int j = NIB_OK; j < i; j++)
			assert_string_not_equal(
			    nib_status_name((enum nib_status)i),
			    nib_status_name((enum nib_status)j));
	assert_string_equal(
	    nib_status_name((enum nib_status)(NIB_DEVICE_FAILED + 1)),
	    "unknown status");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(what_fits_is_whole),
	    cmocka_unit_test(a_cut_falls_between_characters),
	    cmocka_unit_test(text_that_is_not_utf8),
	    cmocka_unit_test(every_status_has_a_name),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
