/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_opcodes.c - the table of opcodes: every type of a row can be bound, every row
 * can be matched, and docs/opcodes.md is up to date.  With --table it prints the
 * table of that page.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/unit.h"
#include "instruction/binds.h"
#include "instruction/opcodes.h"

#define BEGIN "<!-- opcodes: made by test_emu_opcodes --table -->\n"
#define END   "<!-- end of opcodes -->\n"

static void print_words(FILE *to, const char *words)
{
	bool is_first = true;

	while (*words) {
		const size_t n = strcspn(words, " ");

		fprintf(to, "%s`.%.*s`", is_first ? "" : " ", (int)n, words);
		is_first = false;
		words += n;
		words += strspn(words, " ");
	}
}

/* "sm_80; `.relaxed`: sm_90" */
static void print_targets(FILE *to, const struct emu_opcode *row)
{
	const char *words = row->word_targets;

	if (row->target)
		fprintf(to, "sm_%s", row->target);
	while (words && *words) {
		const size_t entry = strcspn(words, " ");
		size_t n = entry;

		while (words[n - 1] != ':')
			n--;
		fprintf(to, "%s`.%.*s`: sm_%.*s",
			words == row->word_targets && !row->target ? "" : "; ",
			(int)n - 1, words, (int)(entry - n), words + n);
		words += entry;
		words += strspn(words, " ");
	}
}

static void print_table(FILE *to)
{
	fputs(BEGIN "| opcode | words that may follow | types | `.target` |\n"
		    "|---|---|---|---|\n",
	      to);
	for (size_t i = 0; i < emu_opcode_count; i++) {
		const struct emu_opcode *row = &emu_opcodes[i];

		fprintf(to, "| `%s` | ", row->name);
		print_words(to, row->modifiers);
		fputs(" | ", to);
		print_words(to, row->types);
		fputs(" | ", to);
		print_targets(to, row);
		fputs(" |\n", to);
	}
	fputs(END, to);
}

static char *read_all(FILE *from)
{
	char *text = NULL;
	size_t capacity = 0, used = 0;

	do {
		capacity += 65536;
		text = realloc(text, capacity);
		assert_non_null(text);
		used += fread(text + used, 1, capacity - used - 1, from);
	} while (used == capacity - 1);
	text[used] = '\0';
	return text;
}

static void test_page(void **state)
{
	FILE *file = fopen(NIBEMU_OPCODES, "r"), *made = tmpfile();
	char *page, *table;

	assert_non_null(file);
	assert_non_null(made);
	page = read_all(file);
	print_table(made);
	rewind(made);
	table = read_all(made);
	if (!strstr(page, table))
		fail_msg("docs/opcodes.md: not the table of this program, "
			 "test_emu_opcodes --table");
	fclose(file);
	fclose(made);
	free(page);
	free(table);
}

static bool is_bound(const char *name, enum emu_type type)
{
	static const struct emu_alu *const tables[] = {
	    emu_integer_alu, emu_bits_alu,	  emu_float_alu,
	    emu_pair_alu,    emu_approximate_alu, emu_carry_alu};

	for (size_t t = 0; t < sizeof(tables) / sizeof(*tables); t++)
		for (const struct emu_alu *a = tables[t]; a->name; a++)
			if (a->type == type && strcmp(a->name, name) == 0)
				return true;
	return false;
}

static void test_types(void **state)
{
	for (size_t i = 0; i < emu_opcode_count; i++) {
		const struct emu_opcode *row = &emu_opcodes[i];
		const char *at = row->types;

		while (*at) {
			const size_t n = strcspn(at, " ");
			const enum emu_type type = emu_type_of(at, n);

			if (type == EMU_NO_TYPE)
				fail_msg("%s: .%.*s is no type", row->name, (int)n, at);
			if (row->bind == emu_bind_alu && !is_bound(row->name, type))
				fail_msg("%s.%.*s does nothing", row->name, (int)n, at);
			at += n;
			at += strspn(at, " ");
		}
	}
}

/* True if each of the words, separated by blanks, is a word or type of the row. */
static bool takes_all(const struct emu_opcode *row, const char *words)
{
	char padded[1024], wanted[64];

	assert_true(snprintf(padded, sizeof(padded), " %s %s ", row->modifiers,
			     row->types) < (int)sizeof(padded));
	while (*words) {
		const size_t n = strcspn(words, " ");

		assert_true(snprintf(wanted, sizeof(wanted), " %.*s ", (int)n, words) <
			    (int)sizeof(wanted));
		if (!strstr(padded, wanted))
			return false;
		words += n;
		words += strspn(words, " ");
	}
	return true;
}

/*
 * A row without a word of its own is never used, because the first row of a name
 * that accepts all words is used.
 */
static void test_rows_are_reached(void **state)
{
	for (size_t i = 0; i < emu_opcode_count; i++)
		for (size_t k = 0; k < i; k++) {
			const struct emu_opcode *row = &emu_opcodes[i];
			const struct emu_opcode *before = &emu_opcodes[k];

			if (strcmp(row->name, before->name) == 0 &&
			    takes_all(before, row->modifiers) &&
			    takes_all(before, row->types))
				fail_msg("row %zu, %s: never used: row %zu takes all "
					 "that it takes",
					 i, row->name, k);
		}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_types),
	    cmocka_unit_test(test_rows_are_reached),
	    cmocka_unit_test(test_page),
	};

	if (argc > 1 && strcmp(argv[1], "--table") == 0) {
		print_table(stdout);
		return 0;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
