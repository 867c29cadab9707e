/* SPDX-License-Identifier: Apache-2.0 */
/* test_title.c - names of kernels for people, and texts that do not fit. */
#include <stdio.h>
#include <string.h>

#include "common/unit.h"
#include "hardware/emu.h"
#include "machine/title.h"

static void check(const char *name, size_t size, const char *want)
{
	char text[200];

	emu_kernel_title(name, text, size);
	assert_string_equal(text, want);
}

static void test_titles(void **state)
{
	check("matmul_kernel", 200, "matmul_kernel");
	check("_Zfoo", 200, "_Zfoo");
	check("a_long_name", 8, "a_lo...");
	check("", 8, "");
}

static void test_cpp_titles(void **state)
{
	char text[200];

	emu_kernel_title("_Z1kv", text, sizeof(text));
	if (strcmp(text, "k") != 0)
		skip(); /* no libstdc++ */
	check("_Z8row_sumsILb0EEvPKfPf", 200, "row_sums<false>");
	check("_Z8row_sumsILb0EEvPKfPf", 10, "row_su...");
	check("_ZN2ns3sumEPKfPf", 200, "ns::sum");
	check("_ZN8__main__3addB2v1B5cw51cE5ArrayIfE", 200, "__main__::add");
	/* A variable of a function. */
	check("_ZZ6shoverPiE1a", 200, "shover(int*)::a");
	check("_ZN12_GLOBAL__N_14copyEPi", 200, "(anonymous namespace)::copy");
	check("_Z4applyIPFfffEEvT_", 200, "_Z4applyIPFfffEEvT_");
	check("_Z5applyIPFfffEEvT_", 200, "apply<float (*)(float, float)>");
}

/* A text ends after a whole line, or a whole word, and later ones are left out. */
static void test_long_texts(void **state)
{
	struct emu_error err = {{0}};
	size_t length;

	emu_fail(&err, "deadlock: 1000 warps wait:");
	for (int i = 0; i < 1000; i++)
		emu_add_text(&err, "\n  warp %d waits at a barrier", i);
	length = strlen(err.text);
	assert_in_range(length, sizeof(err.text) - 60, sizeof(err.text) - 1);
	assert_string_equal(err.text + length - 16, "at a barrier ...");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_titles),
	    cmocka_unit_test(test_cpp_titles),
	    cmocka_unit_test(test_long_texts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
