/* SPDX-License-Identifier: Apache-2.0 */
/* replace.c - planted bugs; see replace.h. */
#include "ptx/replace.h"

#include <stdlib.h>
#include <string.h>

struct rule {
	const char *from, *to;
	size_t from_length, to_length;
	unsigned long only; /* this line of those that match; 0: all */
};

static bool read_rule(const char *text, struct rule *r, struct emu_error *err)
{
	const char *arrow = strstr(text, "=>");
	const char *number;

	if (!arrow || arrow == text) {
		emu_fail(err, "replacement \"%s\": must be text=>other", text);
		return false;
	}
	r->from = text;
	r->from_length = (size_t)(arrow - text);
	r->to = arrow + 2;
	number = strrchr(r->to, '#');
	r->only = number ? strtoul(number + 1, NULL, 10) : 0;
	r->to_length = number ? (size_t)(number - r->to) : strlen(r->to);
	return true;
}

/* The first place of the rule's text in a line; NULL: none. */
static const char *find(const struct rule *r, const char *line, size_t length)
{
	for (; length >= r->from_length; line++, length--)
		if (memcmp(line, r->from, r->from_length) == 0)
			return line;
	return NULL;
}

/* Writes the changed line to `to` (NULL: returns only its length). */
static size_t changed_line(const struct rule *r, const char *line, size_t length,
			   char *to)
{
	const char *at = find(r, line, length);
	const size_t before = (size_t)(at - line);
	const size_t behind = length - before - r->from_length;

	if (r->to_length == 0)
		return 0;
	if (to) {
		memcpy(to, line, before);
		memcpy(to + before, r->to, r->to_length);
		memcpy(to + before + r->to_length, at + r->from_length, behind);
	}
	return before + r->to_length + behind;
}

/* Writes the changed text to `to` (NULL: returns only its length). */
static size_t changed_text(const struct rule *r, const char *text, char *to)
{
	unsigned long matches = 0;
	size_t used = 0;

	while (*text) {
		const size_t length = strcspn(text, "\n");
		char *at = to ? to + used : NULL;

		if (find(r, text, length) && (++matches == r->only || r->only == 0)) {
			used += changed_line(r, text, length, at);
		} else {
			if (at)
				memcpy(at, text, length);
			used += length;
		}
		text += length;
		if (*text && to)
			to[used] = '\n';
		used += *text != 0;
		text += *text != 0;
	}
	return used;
}

/* One rule, of `length` characters. */
static char *replace_one(const char *text, const char *rule, size_t length,
			 struct emu_error *err)
{
	char *copy = NULL, *own = malloc(length + 1);
	struct rule r;

	if (!own) {
		emu_fail(err, "out of memory");
		return NULL;
	}
	memcpy(own, rule, length);
	own[length] = 0;
	if (read_rule(own, &r, err)) {
		copy = malloc(changed_text(&r, text, NULL) + 1);
		if (copy)
			copy[changed_text(&r, text, copy)] = 0;
		else
			emu_fail(err, "out of memory");
	}
	free(own);
	return copy;
}

char *emu_replace(const char *text, const char *rule, struct emu_error *err)
{
	char *last = NULL;

	do {
		const size_t length = strcspn(rule, "\n");
		char *next = replace_one(last ? last : text, rule, length, err);

		free(last);
		last = next;
		rule += length;
	} while (last && *rule++);
	return last;
}

size_t emu_replaced_lines(const char *text, const char *copy)
{
	size_t count = 0;

	for (;;) {
		const size_t a = strcspn(text, "\n"), b = strcspn(copy, "\n");

		count += a != b || memcmp(text, copy, a) != 0;
		text += a;
		copy += b;
		if (!*text || !*copy)
			return count;
		text++;
		copy++;
	}
}
