/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_json.c - compares the JSON reader with jansson on random text that is nearly
 * valid: both accept the same text, with the same values.
 *
 * Two differences are intended: strings here have no U+0000, and integers no sign.
 */
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "common/data.h"
#include "common/problem.h"
#include "common/unit.h"
#include "core/json.h"

#define PIECES	 6
#define CAPACITY (16 * PIECES)

static struct rng rng;

static int rounds(void)
{
	return test_is_small() ? 20000 : 500000;
}

/* Up to PIECES of the pieces, side by side; the length. */
static size_t random_text(char text[CAPACITY], const char *const *pieces, int64_t count)
{
	const int64_t used = rng_below(&rng, PIECES + 1);
	size_t length = 0;

	for (int64_t i = 0; i < used; i++) {
		const char *piece = pieces[rng_below(&rng, count)];

		memcpy(text + length, piece, strlen(piece));
		length += strlen(piece);
	}
	return length;
}

/* What both say of text between quotes; 1 if it was a string. */
static int check_string(const char *text, size_t length)
{
	char quoted[CAPACITY + 2], decoded[CAPACITY + 2];
	struct nib_json json;
	const char *ours;
	json_t *theirs;
	bool is_string;

	quoted[0] = '"';
	memcpy(quoted + 1, text, length);
	quoted[length + 1] = '"';
	nib_json_init(&json, quoted, length + 2, decoded);
	ours = nib_json_string(&json);
	if (ours && !nib_json_end(&json))
		ours = NULL;
	theirs = json_loadb(quoted, length + 2, JSON_DECODE_ANY, NULL);
	is_string = theirs && json_is_string(theirs);
	if (is_string != !!ours ||
	    (ours && strcmp(ours, json_string_value(theirs)) != 0))
		fail_msg("%.*s: '%s', jansson '%s'", (int)length + 2, quoted,
			 ours ? ours : json.problem,
			 is_string ? json_string_value(theirs) : "(refused)");
	json_decref(theirs);
	return is_string;
}

static void strings(void **state)
{
	static const char *const pieces[] = {"a",
					     "/",
					     "\"",
					     "\\",
					     "\\\"",
					     "\\\\",
					     "\\/",
					     "\\b",
					     "\\f",
					     "\\n",
					     "\\r",
					     "\\t",
					     "\\x",
					     "\\u",
					     "\\u0041",
					     "\\u00e9",
					     "\\u20AC",
					     "\\uD83D",
					     "\\uDE00",
					     "\\u00g0",
					     "\\uFFFF",
					     "\\uD83D\\uDE00",
					     "\\u001f",
					     "\n",
					     "\x1f",
					     "\x7f",
					     "\xC3\xA9",
					     "\xE2\x82\xAC",
					     "\xF0\x9F",
					     "\x98\x80",
					     "\xC0\x80",
					     "\xE0\x80\x80",
					     "\xED\xA0\x80",
					     "\xF4\x8F\xBF\xBF",
					     "\xF4\x90\x80\x80",
					     "\xF8",
					     "\x80",
					     "\xC3"};
	char text[CAPACITY];
	int taken = 0;

	for (int i = 0; i < rounds(); i++) {
		size_t length =
		    random_text(text, pieces, sizeof(pieces) / sizeof(*pieces));

		taken += check_string(text, length);
	}
	/* Both sides of the rule are met often. */
	assert_in_range(taken, rounds() / 50, rounds() / 2);
}

static void every_code_unit(void **state)
{
	char text[CAPACITY];

	for (unsigned unit = 1; unit <= 0xFFFF; unit++) {
		int length = snprintf(text, sizeof(text), "\\u%04x", unit);

		check_string(text, (size_t)length);
		length = snprintf(text, sizeof(text), "\\uD834\\u%04X", unit);
		check_string(text, (size_t)length);
	}
}

/* Every two bytes, and every byte before and after a character. */
static void every_byte(void **state)
{
	char text[4];

	for (unsigned i = 0; i < 0x10000; i++) {
		text[0] = (char)(i >> 8);
		text[1] = (char)i;
		if (text[0] && text[1])
			check_string(text, 2);
		text[2] = text[3] = (char)0x80;
		if (text[0] && text[1])
			check_string(text, 4);
	}
}

static void integers(void **state)
{
	static const char *const pieces[] = {
	    "0", "1", "9",	  "00", "922337203685477580",
	    "7", "8", "99999999", ".",	"e1",
	    "E", "-", "+",	  " ",	"x",
	    "0x"};
	char text[CAPACITY];
	int taken = 0;

	for (int i = 0; i < rounds(); i++) {
		const size_t length =
		    random_text(text, pieces, sizeof(pieces) / sizeof(*pieces));
		struct nib_json json;
		int64_t ours = -1;
		bool is_ours, is_theirs;
		json_t *theirs;

		nib_json_init(&json, text, length, NULL);
		is_ours = nib_json_int(&json, &ours) && nib_json_end(&json);
		theirs = json_loadb(text, length, JSON_DECODE_ANY, NULL);
		is_theirs =
		    theirs && json_is_integer(theirs) && !memchr(text, '-', length);
		if (is_ours != is_theirs ||
		    (is_ours && ours != json_integer_value(theirs)))
			fail_msg("'%.*s': %d %" PRId64 ", jansson %d", (int)length,
				 text, is_ours, ours, is_theirs);
		json_decref(theirs);
		taken += is_ours;
	}
	assert_in_range(taken, rounds() / 50, rounds() / 2);
}

/* A skipped value is one that jansson reads, and ends where it ends. */
static void skipped_values(void **state)
{
	static const char *const pieces[] = {
	    "{", "}",  "[",  "]",  ",",	  ":",	  "\"a\":", "\"\"", "0",
	    "1", "-2", ".5", "e3", "E+1", "true", "false",  "null", " ",
	    "[", "]",  "{",  "}",  "01",  "nul",  "\"a\":", "[1,2]"};
	const int64_t count = (int64_t)(sizeof(pieces) / sizeof(pieces[0]));
	int taken = 0;

	rng = rng_new(31);
	for (int i = 0; i < rounds(); i++) {
		char text[CAPACITY], strings[CAPACITY];
		size_t length = random_text(text, pieces, count);
		struct nib_json json;
		json_error_t error;
		json_t *theirs;
		bool ours;

		nib_json_init(&json, text, length, strings);
		ours = nib_json_skip(&json) && nib_json_end(&json);
		theirs = json_loadb(text, length, JSON_DECODE_ANY, &error);
		/* Numbers that nobody reads may be of any size. */
		if (!theirs && json_error_code(&error) == json_error_numeric_overflow)
			continue;
		if (ours != (theirs != NULL))
			fail_msg("'%.*s': %s", (int)length, text,
				 ours ? "taken" : json.problem);
		taken += ours;
		assert_true(!ours || json.strings == strings);
		json_decref(theirs);
	}
	assert_true(taken > rounds() / 100);
}

static void skipped_depth(void **state)
{
	char text[2 * NIB_JSON_DEPTH + 2], strings[2 * NIB_JSON_DEPTH + 2];

	for (int depth = NIB_JSON_DEPTH; depth <= NIB_JSON_DEPTH + 1; depth++) {
		struct nib_json json;
		size_t n = (size_t)depth;

		memset(text, '[', n);
		memset(text + n, ']', n);
		nib_json_init(&json, text, 2 * n, strings);
		assert_int_equal(nib_json_skip(&json), depth == NIB_JSON_DEPTH);
		assert_true(depth == NIB_JSON_DEPTH ||
			    strcmp(json.problem, "nested too deeply") == 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(strings),	      cmocka_unit_test(every_code_unit),
	    cmocka_unit_test(every_byte),     cmocka_unit_test(integers),
	    cmocka_unit_test(skipped_values), cmocka_unit_test(skipped_depth),
	};

	rng = rng_new(test_seed());
	return cmocka_run_group_tests(tests, NULL, NULL);
}
