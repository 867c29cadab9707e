/* SPDX-License-Identifier: Apache-2.0 */
/* text.h - words and numbers read and written, names and times. */
#ifndef NIB_TEXT_H
#define NIB_TEXT_H

#include <stddef.h>
#include <stdint.h>

/* Index of word in "a|b|c", or -1. */
int cli_word_index(const char *words, const char *word);
/* A whole decimal number; 0 on success. */
int cli_parse_int(const char *text, int64_t *value);
int cli_parse_double(const char *text, double *value);

/*
 * Replaces control characters of text by "?": names in files may hold
 * characters that move a terminal's cursor or begin a line of their own.
 */
void cli_clean(char *text);
/* Bytes of the control character that text begins with, those of the direction
 * of writing too; 0: it begins with none. */
size_t cli_control_bytes(const char *text);
extern const char *const cli_dtype_names[]; /* "fp32", "fp16", "bf16" */
#define CLI_DTYPE_WORDS	 "fp32|fp16|bf16"
#define CLI_LAYOUT_WORDS "linear|tiled"
extern const char *const cli_layout_names[]; /* "linear", "tiled" */
/* The type of C of every command without --out, except nib check. */
#define CLI_OUT_DEFAULT "bf16"

/* A terminal that understands escape sequences: TERM is not "dumb". */
int cli_is_terminal(int fd);
/* Seconds of a clock that only goes forward. */
double cli_now_s(void);
/* "1.5 GiB" into text, which is returned. */
#define CLI_SIZE_TEXT 32
const char *cli_size_text(double bytes, char text[CLI_SIZE_TEXT]);
/* "1.500 ms" into text; returns it. */
#define CLI_SECONDS_TEXT 32
const char *cli_seconds_text(double s, char text[CLI_SECONDS_TEXT]);
/* "s" unless n is 1: the plural of what is counted. */
const char *cli_s(int64_t n);

/* Sets *best to candidate if word is fewer than *least edits from it, and *least. */
void cli_keep_nearest(const char *word, const char *candidate, size_t *least,
		      const char **best);
/*
 * "; did you mean 'a', 'b' or 'c'?" into text, of the names of a list that are
 * like word; "" if none is.
 */
#define CLI_NEAREST_TEXT 448
const char *cli_nearest(const char *word,
			const char *(*name_at)(const void *list, int64_t i),
			const void *list, int64_t count, char text[CLI_NEAREST_TEXT]);

#endif
