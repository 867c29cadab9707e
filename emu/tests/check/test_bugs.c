/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_bugs.c [SCHEDULES] - bugs of real kernels (bugs.def) on the software GPU.  The
 * correct program has no report on any schedule (by default 25), and the wrong one
 * has the fitting report.  Prints a table: the bug, the number of schedules on which
 * it was found, and the rule.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/run.h"
#include "common/unit.h"
#include "hardware/tensor_map.h"

#define SCHEDULES  25
#define DATA_BYTES 4096

struct bug {
	const char *what, *where;
	uint32_t block, cluster, grid;
	const char *words, *text;
};

static const struct bug bugs[] = {
#define BUG(what, where, block, cluster, grid, words, text)                            \
	{what, where, block, cluster, grid, words, text},
#include "check/bugs.def"
#undef BUG
};

#define BUGS (sizeof(bugs) / sizeof(*bugs))

/* "$right~wrong$" becomes one of them. */
static void choose(const char *text, bool is_wrong, char *to, size_t size)
{
	bool is_inside = false, is_second = false;
	size_t used = 0;

	for (; *text && used + 1 < size; text++) {
		if (*text == '$') {
			is_inside = !is_inside;
			is_second = false;
		} else if (*text == '~' && is_inside) {
			is_second = true;
		} else if (!is_inside || is_second == is_wrong) {
			to[used++] = *text;
		}
	}
	to[used] = '\0';
}

/* A map at the start of in, of the bytes after it. */
static void put_map(uint64_t address, uint8_t *in)
{
	const struct emu_tensor_map map = {
	    .address = address + 1024,
	    .sizes = {64, 8},
	    .strides_bytes = {64},
	    .box = {64, 4},
	    .element_strides = {1, 1},
	    .type = EMU_TENSOR_U8,
	    .rank = 2,
	};

	emu_tensor_map_encode(&map, in);
}

static bool run(const struct bug *b, bool is_wrong, uint64_t seed,
		struct emu_error *err)
{
	static const uint8_t in[DATA_BYTES];
	static uint8_t out[DATA_BYTES];
	static char text[EMU_TEXT_BYTES];
	struct emu_job job = {
	    .in = in,
	    .in_bytes = sizeof(in),
	    .out = out,
	    .out_bytes = sizeof(out),
	    .block = b->block,
	    .cluster = b->cluster,
	    .grid = b->grid,
	    .shared_bytes = 4096,
	    .seed = seed,
	    .budget = 2000000,
	    .prepare = strstr(b->text, "bulk.tensor") ? put_map : NULL,
	    .is_chain = b->text[0] == '.',
	};

	choose(b->text, is_wrong, text, sizeof(text));
	job.ptx = job.is_chain ? text : emu_module_text(text);
	return emu_run_job(&job, err);
}

#define MOST_WORDS 12

/* Finds word n between bars.  Returns its length; 0: there is none. */
static size_t word_at(const char **words, int n)
{
	while (n-- && **words) {
		*words += strcspn(*words, "|");
		*words += **words == '|';
	}
	return strcspn(*words, "|");
}

/* The index of the first of the words that text has; -1: none. */
static int says(const char *text, const char *words)
{
	for (int n = 0; n < MOST_WORDS; n++) {
		const char *at = words;
		const size_t length = word_at(&at, n);
		char word[200];

		if (length == 0)
			break;
		snprintf(word, sizeof(word), "%.*s", (int)length, at);
		if (strstr(text, word))
			return n;
	}
	return -1;
}

/* "never written (12), deadlock (13)" */
static void print_words(const char *words, const uint64_t *counts)
{
	const char *between = "";

	for (int n = 0; n < MOST_WORDS; n++) {
		const char *at = words;
		const size_t length = word_at(&at, n);

		if (!counts[n])
			continue;
		printf("%s\"%.*s\" (%d)", between, (int)length, at, (int)counts[n]);
		between = ", ";
	}
	printf(" |\n");
}

/* Prints the row of a bug; false, with the reason, if it is not found as expected. */
static bool check_bug(const struct bug *b, uint64_t schedules)
{
	uint64_t found = 0, counts[MOST_WORDS] = {0};
	struct emu_error err = {{0}};
	int word;

	for (uint64_t seed = 1; seed <= schedules; seed++) {
		if (!run(b, false, seed, &err)) {
			print_error("%s: without it, seed %d: %s\n", b->what, (int)seed,
				    err.text);
			return false;
		}
		err.text[0] = '\0';
		if (run(b, true, seed, &err))
			continue;
		word = says(err.text, b->words);
		if (word < 0) {
			print_error("%s, seed %d: the report does not fit: %s\n",
				    b->what, (int)seed, err.text);
			return false;
		}
		found++;
		counts[word]++;
	}
	printf("| %s | %s | %d of %d | ", b->what, b->where, (int)found,
	       (int)schedules);
	print_words(b->words, counts);
	return found > schedules / 4;
}

static uint64_t schedules = SCHEDULES;

static void test_bugs(void **state)
{
	int failed = 0;

	printf("| bug | where it was found | schedules | the report says |\n"
	       "|---|---|---|---|\n");
	for (size_t i = 0; i < BUGS; i++)
		failed += !check_bug(&bugs[i], schedules);
	assert_int_equal(failed, 0);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_bugs)};

	if (argc > 1)
		schedules = strtoull(argv[1], NULL, 10);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
