/* SPDX-License-Identifier: Apache-2.0 */
/* rows.h - rows of the bench: JSON objects, printed by table.h. */
#ifndef NIB_BENCH_ROWS_H
#define NIB_BENCH_ROWS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "stats.h"
#include "table.h"

void row_text(json_t *row, const char *key, const char *text);
/* inf and NaN are null. */
void row_number(json_t *row, const char *key, double x);
void row_integer(json_t *row, const char *key, int64_t n);
void row_bool(json_t *row, const char *key, bool yes);
/* "samples_s", and "spread": what their middle half spans, over the median. */
void row_samples(json_t *row, const struct bench_samples *samples);

/* Reading: 0, "" or false when the key is missing or null. */
double row_get_number(const json_t *row, const char *key);
const char *row_get_text(const json_t *row, const char *key);
bool row_is_baseline(const json_t *row);
bool row_is_peak(const json_t *row);
/* The layers of a decoder block together, by nib demo. */
#define ROW_BLOCK "decoder_block"
bool row_is_block(const json_t *row);

/* From this fraction of its limit on a row is above it; rates vary by some percent. */
#define ROWS_ABOVE_LIMIT 1.05
/* limit_note of a row whose operands, all copies together, are not much larger than the
 * caches. */
#define ROWS_CACHED "partly in caches"

/* Every key, in the order of CSV; those with a title are for people. */
extern const struct table_column row_columns[];

/*
 * A table whose columns are the keys of rows, and all its rows.  Must not move
 * until rows_end().
 */
struct rows {
	struct table_column columns[56];
	struct table *table;
	json_t *all; /* array */
	int64_t ok, not_ok;
	/* Above the limit: with operands partly in caches, by a rate that no plain loop
	 * reached, and for no reason that is known. */
	int64_t above_cached, above_rate, above_limit;
	double checked; /* elements of C */
	/* People do not see the rows of baselines, only the comparison. */
	bool ours_only;
};
/*
 * Appends to hidden the columns in which rows of measurements, or of
 * predictions, have nothing; how many.  ROWS_OTHER_KIND is the most.
 */
#define ROWS_OTHER_KIND 11
int rows_hide_other_kind(bool predicts, const char **hidden);
/*
 * People do not see the columns of hidden (NULL-terminated); shape_width is the
 * least width of their shapes.
 */
void rows_begin(struct rows *rows, enum table_format format, const char *const *hidden,
		int shape_width);
/* Takes over row and prints it. */
void rows_add(struct rows *rows, json_t *row);
/* The same, but people do not see it. */
void rows_keep(struct rows *rows, json_t *row);
/*
 * A sentence on how quiet the machine was while the rows of the array were
 * measured: what other programs used, and the spread of the samples.  Returns
 * whether times are to be doubted; "" without rows that say it.
 */
#define ROWS_QUIET_TEXT 320
bool rows_quiet_text(const json_t *all, char text[ROWS_QUIET_TEXT]);
/* CLI_OK, or prints and returns. */
int rows_end(struct rows *rows);

#endif
