/* SPDX-License-Identifier: Apache-2.0 */
/*
 * json.h - a cursor over JSON text: tokens, no tree.
 *
 * A safetensors header has one shape, so its reader requests the token that
 * must come next and everything else is an error.  Nothing is allocated,
 * nothing recurses, and no number in the text decides how much work is done. (A
 * tree builder needs some forty bytes for each byte of a hostile header, and
 * the common ones do not survive every failed allocation.)
 */
#ifndef NIB_JSON_H
#define NIB_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct nib_json {
	const char *at, *end;
	const char *begin;
	/* What is wrong at `at`; NULL until a call fails. */
	const char *problem;
	/* Receives the decoded strings, which are never longer than their text. */
	char *strings;
};

/* strings: n_bytes of memory, which must live as long as the strings. */
void nib_json_init(struct nib_json *json, const char *text, size_t n_bytes,
		   char *strings);

/* Skips white space, then c if it comes next; returns whether it did. */
bool nib_json_take(struct nib_json *json, char c);
/* The same, but anything else is a problem. */
bool nib_json_expect(struct nib_json *json, char c);
/* A string, decoded and NUL-terminated; NULL on a problem.  No U+0000. */
const char *nib_json_string(struct nib_json *json);
/* An integer 0 .. INT64_MAX without sign, fraction or exponent. */
bool nib_json_int(struct nib_json *json, int64_t *value);
/*
 * Any value, whose text is checked and then forgotten; a problem where it
 * nests deeper than NIB_JSON_DEPTH.
 */
#define NIB_JSON_DEPTH 64
bool nib_json_skip(struct nib_json *json);
/* Nothing but white space is left. */
bool nib_json_end(struct nib_json *json);

/* A problem found by the caller; returns false. */
bool nib_json_fail(struct nib_json *json, const char *problem);

#endif
