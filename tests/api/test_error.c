/* SPDX-License-Identifier: Apache-2.0 */
/* test_error.c - messages: what fits, and where they are cut. */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "common/unit.h"
#include "core/error.h"
#include "core/text.h"

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

	text_of(text, CAPACITY, "\xC3\xA9");
	assert_int_equal(nib_fail(&err, NIB_STATUS_IO, "%s", text), NIB_STATUS_IO);
	assert_int_equal(err.status, NIB_STATUS_IO);
	assert_string_equal(err.message, text);
	assert_int_equal(nib_fail(NULL, NIB_STATUS_IO, "%s", text), NIB_STATUS_IO);
}

/* The end of the capacity falls on each byte of a character in turn. */
static void a_cut_falls_between_characters(void **state)
{
	static const char *const characters[] = {"e", "\xC3\xA9", "\xE2\x82\xAC",
						 "\xF0\x9F\x98\x80"};
	struct nib_error err;
	char text[2 * CAPACITY];

	for (size_t i = 0; i < 4; i++) {
		const size_t length = strlen(characters[i]);

		for (size_t kept = 0; kept <= length; kept++) {
			text_of(text, CAPACITY - kept + length, characters[i]);
			strcat(text, "tail");
			nib_fail(&err, NIB_STATUS_BAD_FILE, "%s", text);
			assert_int_equal(strlen(err.message),
					 kept == length ? CAPACITY : CAPACITY - kept);
			assert_memory_equal(err.message, text, strlen(err.message));
		}
	}
}

/* Names of files may be any bytes: no byte of them is a reason to lose more. */
static void text_that_is_not_utf8(void **state)
{
	struct nib_error err;
	char text[2 * CAPACITY];

	memset(text, 0x80, sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	nib_fail(&err, NIB_STATUS_IO, "%s", text);
	assert_int_equal(strlen(err.message), CAPACITY);
}

/* Names and paths of any length, and nothing after the text's memory. */
static void long_names_are_cut(void **state)
{
	struct {
		char shown[NIB_SHOWN_BYTES], behind[8];
	} text;
	char name[3 * NIB_SHOWN_BYTES];

	for (size_t n = 0; n + 1 < sizeof(name); n++) {
		const bool is_cut = n >= NIB_SHOWN_BYTES;

		for (size_t i = 0; i < n; i++)
			name[i] = (char)('a' + i % 26);
		name[n] = '\0';
		memset(&text, 0xA5, sizeof(text));
		assert_string_equal(nib_show_name(text.shown, name), text.shown);
		assert_int_equal(strlen(text.shown), is_cut ? NIB_SHOWN_BYTES - 1 : n);
		if (is_cut)
			assert_string_equal(text.shown + NIB_SHOWN_BYTES - 4, "...");
		assert_memory_equal(text.shown, name, is_cut ? NIB_SHOWN_BYTES - 4 : n);
		assert_string_equal(nib_show_path(text.shown, name), text.shown);
		assert_int_equal(strlen(text.shown), is_cut ? NIB_SHOWN_BYTES - 1 : n);
		assert_string_equal(text.shown + (is_cut ? 3 : 0),
				    name + (is_cut ? n - NIB_SHOWN_BYTES + 4 : 0));
		for (size_t i = 0; i < sizeof(text.behind); i++)
			assert_int_equal((unsigned char)text.behind[i], 0xA5);
	}
}

/* The message begins with the argument, which may be a label in parts. */
static void errors_carry_their_argument(void **state)
{
	const struct {
		struct nib_label label;
		const char *member, *want;
	} cases[] = {
	    {nib_label("name"), "", "name"},
	    {nib_label("options"), "threads", "options.threads"},
	    {nib_label_of("moe", -1, "a"), "k", "moe.a.k"},
	    {nib_label_of("problems", 3, "a"), "k", "problems[3].a.k"},
	    {nib_label_of("problems", 3, "alpha"), "", "problems[3].alpha"},
	    {nib_label_of("problems", 3, ""), "c", "problems[3].c"},
	};
	char want[64];
	struct nib_error err;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		memset(&err, 'x', sizeof(err));
		assert_int_equal(nib_fail_at(&err, NIB_STATUS_BAD_ARGUMENT,
					     cases[i].label, cases[i].member,
					     " = %d: no", 7),
				 NIB_STATUS_BAD_ARGUMENT);
		assert_int_equal(err.status, NIB_STATUS_BAD_ARGUMENT);
		assert_string_equal(err.argument, cases[i].want);
		snprintf(want, sizeof(want), "%s = 7: no", cases[i].want);
		assert_string_equal(err.message, want);
	}
	nib_fail_argument(&err, NIB_STATUS_UNSUPPORTED, "shape", "[%d] = 3", 2);
	assert_string_equal(err.argument, "shape");
	assert_string_equal(err.message, "shape[2] = 3");
	nib_fail(&err, NIB_STATUS_IO, "x.safetensors: no");
	assert_string_equal(err.argument, "");
	assert_string_equal(err.message, "x.safetensors: no");
	assert_int_equal(nib_fail_argument(NULL, NIB_STATUS_IO, "a", " b"),
			 NIB_STATUS_IO);
	assert_int_equal(nib_fail_at(NULL, NIB_STATUS_IO, nib_label("a"), "b", " c"),
			 NIB_STATUS_IO);
}

/* A text that is longer than its field is cut, and so is what follows. */
static void a_long_argument_is_cut(void **state)
{
	struct nib_error err;
	char text[2 * CAPACITY];

	text_of(text, CAPACITY, "");
	nib_fail_argument(&err, NIB_STATUS_BAD_ARGUMENT, text, " = %s", text);
	assert_int_equal(strlen(err.argument), sizeof(err.argument) - 1);
	assert_int_equal(strlen(err.message), CAPACITY);
	assert_memory_equal(err.message, err.argument, strlen(err.argument));
	assert_memory_equal(err.message + strlen(err.argument), " = x", 4);
}

/* The argument of what users meet first, through the public functions. */
static void public_functions_name_their_argument(void **state)
{
	const struct nib_device_options options = {sizeof(options), .threads = -1};
	const struct nib_problem problem = {.a = {.k = 17}, .b = {.k = 16}};
	struct nib_device *device;
	struct nib_plan *plan;
	struct nib_file *file;
	struct nib_error err;

	nib_device_open("abacus", NULL, &device, &err);
	assert_string_equal(err.argument, "name");
	nib_device_open("cpu", &options, &device, &err);
	assert_string_equal(err.argument, "options.threads");
	assert_ok(nib_device_open("cpu", NULL, &device, &err));
	nib_plan_create(device, NIB_OP_GEMM, &problem, 1, NULL, &plan, &err);
	assert_string_equal(err.argument, "problems[0].a.k");
	nib_device_close(device);
	/* What the operating system says is about no argument. */
	nib_file_open("/none/at/all", &file, &err);
	assert_int_equal(err.status, NIB_STATUS_IO);
	assert_string_equal(err.argument, "");
}

static void every_status_has_a_name(void **state)
{
	for (int i = NIB_STATUS_OK; i <= NIB_STATUS_DEVICE_FAILED; i++)
		for (int j = NIB_STATUS_OK; j < i; j++)
			assert_string_not_equal(nib_status_name((enum nib_status)i),
						nib_status_name((enum nib_status)j));
	assert_string_equal(
	    nib_status_name((enum nib_status)(NIB_STATUS_DEVICE_FAILED + 1)),
	    "unknown status");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(what_fits_is_whole),
	    cmocka_unit_test(a_cut_falls_between_characters),
	    cmocka_unit_test(text_that_is_not_utf8),
	    cmocka_unit_test(long_names_are_cut),
	    cmocka_unit_test(errors_carry_their_argument),
	    cmocka_unit_test(a_long_argument_is_cut),
	    cmocka_unit_test(public_functions_name_their_argument),
	    cmocka_unit_test(every_status_has_a_name),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
