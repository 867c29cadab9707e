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

/* Every key, in the order of CSV; those with a title are for people. */
extern const struct table_column row_columns[];

/*
 * A table whose columns are the keys of rows, and all its rows.  Must not move
 * until rows_end().
 */
struct rows {
	struct table_column columns[48];
	struct table *table;
	json_t *all; /* array */
	int64_t above_limit, ok, not_ok;
	double checked; /* elements of C */
};
/*
 * People do not see the columns of hidden (NULL-terminated); shape_width is the
 * least width of their shapes.
 */
void rows_begin(struct rows *rows, enum table_format format,
		const char *const *hidden, int shape_width);
/* Takes over row and prints it. */
void rows_add(struct rows *rows, json_t *row);
/* CLI_OK, or prints and returns. */
int rows_end(struct rows *rows);

#endif
