/* SPDX-License-Identifier: Apache-2.0 */
/* test_replace.c - planted bugs: lines of a text that are changed or go. */
#include <stdlib.h>
#include <string.h>

#include "common/alloc.h"
#include "common/unit.h"
#include "ptx/replace.h"

static void becomes(const char *text, const char *rule, const char *want)
{
	struct emu_error err = {""};
	char *got = emu_replace(text, rule, &err);

	if (!got)
		fail_msg("%s", err.text);
	assert_string_equal(got, want);
	free(got);
}

static void lines_change_or_go(void **state)
{
	becomes("a;\nb;\nc;\n", "b;=>", "a;\n\nc;\n");
	becomes("a;\nxb;y\nc;", "b;=>", "a;\n\nc;");
	becomes("wait 1;\nwait 1;\n", "wait 1=>wait 2", "wait 2;\nwait 2;\n");
	becomes("wait 1;\nwait 1;\nwait 1;", "wait 1=>wait 23#2",
		"wait 1;\nwait 23;\nwait 1;");
	becomes("a\na\n", "a=>#2", "a\n\n");
	/* Only the first match in a line, and no match across lines. */
	becomes("aa\na\n", "aa=>b", "b\na\n");
	becomes("a a\n", "a=>bbb", "bbb a\n");
	becomes("a\nb\n", "ab=>c", "a\nb\n");
	becomes("", "a=>b", "");
	becomes("ab", "abc=>", "ab");
	becomes("\n\nx", "x=>y", "\n\ny");
	becomes("a=>b", "a=>c", "c=>b");
}

static void what_is_no_rule(void **state)
{
	static const char *const rules[] = {"", "=>", "=>a", "a", "a=b"};
	struct emu_error err;

	for (size_t i = 0; i < 5; i++) {
		assert_null(emu_replace("a", rules[i], &err));
		assert_non_null(strstr(err.text, "must be text=>other"));
	}
	if (!test_alloc_works())
		return;
	test_alloc_fail(1, TEST_ALLOC_ONE);
	assert_null(emu_replace("a", "a=>b", &err));
	assert_true(test_alloc_stop());
	assert_string_equal(err.text, "out of memory");
}

static void changed_lines_are_counted(void **state)
{
	assert_int_equal(emu_replaced_lines("a;\nb;\n", "a;\nb;\n"), 0);
	assert_int_equal(emu_replaced_lines("a;\nb;\nc;\n", "a;\n\nc;\n"), 1);
	assert_int_equal(emu_replaced_lines("b\na\nb", "bc\na\nd"), 2);
	assert_int_equal(emu_replaced_lines("", ""), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(lines_change_or_go),
	    cmocka_unit_test(what_is_no_rule),
	    cmocka_unit_test(changed_lines_are_counted),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
