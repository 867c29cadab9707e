/* SPDX-License-Identifier: Apache-2.0 */
/*
 * text.c - words and numbers read and written, the names nearest to a word, and
 * times: see text.h.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "text.h"

const char *const cli_dtype_names[] = {"fp32", "fp16", "bf16"};
const char *const cli_layout_names[] = {"linear", "tiled"};

size_t cli_control_bytes(const char *text)
{
	const unsigned char *c = (const unsigned char *)text;

	if (c[0] < 0x20 || c[0] == 0x7F)
		return c[0] != '\0';
	/* U+0080 to U+009F, U+061C */
	if ((c[0] == 0xC2 && c[1] >= 0x80 && c[1] < 0xA0) ||
	    (c[0] == 0xD8 && c[1] == 0x9C))
		return 2;
	/* U+200E, U+200F, U+202A to U+202E, U+2066 to U+2069 */
	if (c[0] == 0xE2 && ((c[1] == 0x80 && (c[2] == 0x8E || c[2] == 0x8F ||
					       (c[2] >= 0xAA && c[2] <= 0xAE))) ||
			     (c[1] == 0x81 && c[2] >= 0xA6 && c[2] <= 0xA9)))
		return 3;
	return 0;
}

void cli_clean(char *text)
{
	char *to = text;

	for (const char *c = text; *c; c++) {
		const size_t control = cli_control_bytes(c);

		*to++ = control ? '?' : *c;
		c += control ? control - 1 : 0;
	}
	*to = '\0';
}

int cli_is_terminal(int fd)
{
	const char *term = getenv("TERM");

	return isatty(fd) && !(term && !strcmp(term, "dumb"));
}

double cli_now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

const char *cli_size_text(double bytes, char text[CLI_SIZE_TEXT])
{
	static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
	int unit = 0;

	for (; bytes >= 1024 && unit < 4; unit++)
		bytes /= 1024;
	snprintf(text, CLI_SIZE_TEXT, unit && bytes < 99.95 ? "%.1f %s" : "%.0f %s",
		 bytes, units[unit]);
	return text;
}

const char *cli_seconds_text(double s, char text[CLI_SECONDS_TEXT])
{
	snprintf(text, CLI_SECONDS_TEXT, "%.3f %s",
		 s < 1e-3 ? s * 1e6
		 : s < 1  ? s * 1e3
			  : s,
		 s < 1e-3 ? "us"
		 : s < 1  ? "ms"
			  : "s");
	return text;
}

const char *cli_s(int64_t n)
{
	return n == 1 ? "" : "s";
}

int cli_parse_int(const char *text, int64_t *value)
{
	char *end;
	long long n;

	errno = 0;
	n = strtoll(text, &end, 10);
	if (end == text || *end || errno)
		return -1;
	*value = n;
	return 0;
}

int cli_parse_double(const char *text, double *value)
{
	char *end;
	double x = strtod(text, &end);

	if (end == text || *end || !isfinite(x))
		return -1;
	*value = x;
	return 0;
}

int cli_word_index(const char *words, const char *word)
{
	size_t n = strlen(word);

	for (int i = 0; n; i++) {
		size_t length = strcspn(words, "|");

		if (length == n && strncmp(words, word, n) == 0)
			return i;
		if (!words[length])
			break;
		words += length + 1;
	}
	return -1;
}

/* ---- the nearest name ---------------------------------------------------- */

#define LONGEST_WORD 255

/* Edit distance; "far" for longer words. */
static size_t distance(const char *a, const char *b)
{
	size_t row[LONGEST_WORD + 1], n = strlen(b);

	if (n > LONGEST_WORD || strlen(a) > LONGEST_WORD)
		return SIZE_MAX;
	for (size_t j = 0; j <= n; j++)
		row[j] = j;
	for (size_t i = 1; a[i - 1]; i++) {
		size_t diagonal = row[0];

		row[0] = i;
		for (size_t j = 1; j <= n; j++) {
			size_t best = diagonal + (a[i - 1] != b[j - 1]);

			diagonal = row[j];
			if (row[j] + 1 < best)
				best = row[j] + 1;
			if (row[j - 1] + 1 < best)
				best = row[j - 1] + 1;
			row[j] = best;
		}
	}
	return row[n];
}

void cli_keep_nearest(const char *word, const char *candidate, size_t *least,
		      const char **best)
{
	size_t n = strlen(word), d = distance(word, candidate);

	/* A beginning of the right name counts as near: --thr, --thread. */
	if (n >= 3 && strncmp(word, candidate, n) == 0)
		d = 1;
	if (d < *least) {
		*least = d;
		*best = candidate;
	}
}

/* Whether a is b or ends with a dot and b: layers.0.mlp.up_proj and up_proj. */
static int is_end_of(const char *a, const char *b)
{
	const size_t n = strlen(a), m = strlen(b);

	return n && m > n && b[m - n - 1] == '.' && !strcmp(b + m - n, a);
}

#define NEAREST 3

struct nearest {
	int n;
	const char *names[NEAREST];
	size_t edits[NEAREST];
};

/* Keeps the nearest names; of equals, those that come first. */
static void keep_near(struct nearest *best, const char *name, size_t edits)
{
	int at = best->n;

	if (at == NEAREST && edits >= best->edits[--at])
		return;
	best->n = at + 1 > best->n ? at + 1 : best->n;
	for (; at > 0 && best->edits[at - 1] > edits; at--) {
		best->edits[at] = best->edits[at - 1];
		best->names[at] = best->names[at - 1];
	}
	best->edits[at] = edits;
	best->names[at] = name;
}

/* name without ".weight", in bare if it is not too long. */
static const char *without_weight(const char *name, char bare[LONGEST_WORD + 1])
{
	static const char end[] = ".weight";
	const size_t n = strlen(name), m = sizeof(end) - 1;

	if (n <= m || n > LONGEST_WORD || strcmp(name + n - m, end) != 0)
		return name;
	memcpy(bare, name, n - m);
	bare[n - m] = '\0';
	return bare;
}

const char *cli_nearest(const char *word,
			const char *(*name_at)(const void *list, int64_t i),
			const void *list, int64_t count, char text[CLI_NEAREST_TEXT])
{
	const size_t most = strlen(word) < 8 ? 2 : strlen(word) / 4;
	struct nearest best = {0};
	char bare_word[LONGEST_WORD + 1], bare[LONGEST_WORD + 1];
	size_t used = 0;

	word = without_weight(word, bare_word);
	for (int64_t i = 0; i < count; i++) {
		const char *name = without_weight(name_at(list, i), bare);
		const size_t d = is_end_of(word, name) || is_end_of(name, word)
				     ? 0
				     : distance(word, name);

		if (d <= most)
			keep_near(&best, name_at(list, i), d);
	}
	text[0] = '\0';
	for (int i = 0; i < best.n; i++)
		used += (size_t)snprintf(text + used, CLI_NEAREST_TEXT - used,
					 "%s'%.120s'%s",
					 !i		  ? "; did you mean "
					 : i + 1 < best.n ? ", "
							  : " or ",
					 best.names[i], i + 1 == best.n ? "?" : "");
	return text;
}
