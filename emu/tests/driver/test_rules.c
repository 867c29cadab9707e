/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_rules.c - reports come with their rules: every phrase by which bugs of
 * bugs.def are found has a rule, and a failed launch shows it.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/unit.h"
#include "driver/cuda_api.h"
#include "machine/rules.h"

static const struct {
	const char *what, *where, *words, *text;
} bugs[] = {
#define BUG(what, where, block, cluster, grid, words, text) {what, where, words, text},
#include "check/bugs.def"
#undef BUG
};

/*
 * True for the start of a sentence whose end names what is missing; the end has a
 * rule.
 */
static bool is_beginning(const char *word)
{
	return strcmp(word, "reads it") == 0 || strcmp(word, "wrote it") == 0 ||
	       strcmp(word, "a wgmma of") == 0;
}

static void test_bugs(void **state)
{
	char word[200];

	for (size_t i = 0; i < sizeof(bugs) / sizeof(*bugs); i++) {
		const char *at = bugs[i].words;

		while (*at) {
			const size_t n = strcspn(at, "|");

			snprintf(word, sizeof(word), "%.*s", (int)n, at);
			if (!is_beginning(word) && !emu_rule_for(word))
				fail_msg("no rule for \"%s\" (%s)", word, bugs[i].what);
			at += n + (at[n] == '|');
		}
	}
	assert_null(emu_rule_for("no memory for a copy"));
}

/* ---- the page ------------------------------------------------------------ */

static void print_table(FILE *to)
{
	const struct emu_rule *r;

	fputs("| name | waivable | reports with | rule | try |\n"
	      "|---|---|---|---|---|\n",
	      to);
	for (size_t i = 0; (r = emu_rule_at(i)); i++)
		fprintf(to, "| `%s` | %s | \"%s\" | %s | %s%s%s |\n", r->name,
			r->can_go_on ? "yes" : "", r->phrase, r->rule, r->mend,
			emu_rule_update(r) ? ". For an update: " : "",
			emu_rule_update(r) ? emu_rule_update(r) : "");
}

static char *read_all(FILE *from)
{
	char *text = NULL;
	size_t bytes = 0;

	(void)!getdelim(&text, &bytes, '\0', from);
	fclose(from);
	assert_non_null(text);
	return text;
}

static void test_page(void **state)
{
	FILE *file = fopen(NIBEMU_RULES, "r"), *made = tmpfile();
	char *page, *table;

	assert_non_null(file);
	assert_non_null(made);
	print_table(made);
	rewind(made);
	table = read_all(made);
	page = read_all(file);
	if (!strstr(page, table))
		fail_msg("docs/rules.md: not the table of this program, "
			 "test_emu_rules --table");
	free(table);
	free(page);
}

/* Names for NIBEMU_WAIVE are unique and have only the usual letters. */
static void test_names(void **state)
{
	const struct emu_rule *r;

	for (size_t i = 0; (r = emu_rule_at(i)); i++) {
		assert_ptr_equal(emu_rule_named(r->name, strlen(r->name)), r);
		assert_int_equal(strspn(r->name, "abcdefghijklmnopqrstuvwxyz"
						 "0123456789-"),
				 strlen(r->name));
	}
}

/* ---- a launch ------------------------------------------------------------ */

/* A kernel that loads from address 0, whose name has words of other rules. */
static const char *const text =
    ".version 9.0\n.target sm_90a\n.address_size 64\n"
    ".visible .entry deadlock_descriptor()\n{\n\t.reg .b64 %d<2>; .reg .b32 %r<2>;\n"
    "\tmov.b64 %d1, 0;\n\tld.global.u32 %r1, [%d1];\n\tret;\n}\n";

static void test_launch(void **state)
{
	const char *said = NULL;
	CUfunction function;
	CUcontext context;
	CUmodule module;

	assert_int_equal(cuInit(0), CUDA_SUCCESS);
	assert_int_equal(cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
	assert_int_equal(cuModuleLoadDataEx(&module, text, 0, NULL, NULL),
			 CUDA_SUCCESS);
	assert_int_equal(cuModuleGetFunction(&function, module, "deadlock_descriptor"),
			 CUDA_SUCCESS);
	assert_int_equal(
	    cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL),
	    CUDA_SUCCESS);
	assert_int_equal(cuCtxSynchronize(), CUDA_ERROR_LAUNCH_FAILED);
	assert_int_equal(cuGetErrorString(CUDA_ERROR_LAUNCH_FAILED, &said),
			 CUDA_SUCCESS);
	for (const char *const *word =
		 (const char *const[]){
		     "deadlock_descriptor, cluster 0, CTA (0,0,0), warp 0, "
		     "lane 0, PTX line 8: ld: ",
		     "these bytes are not allocated", "\n  rule: address: ",
		     "\n  try: ", "\n  again: NIBEMU_SEED=3", NULL};
	     *word; word++)
		if (!strstr(said, *word))
			fail_msg("'%s' is not in: %s", *word, said);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_page),
	    cmocka_unit_test(test_names),
	    cmocka_unit_test(test_bugs),
	    cmocka_unit_test(test_launch),
	};

	if (argc > 1 && strcmp(argv[1], "--table") == 0) {
		print_table(stdout);
		return 0;
	}
	if (setenv("NIBEMU_SEED", "3", 1) != 0 ||
	    setenv("NIBEMU_MEMORY_BYTES", "0x10000000", 1) != 0)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
