/* SPDX-License-Identifier: Apache-2.0 */
/* rows.h - rows of the bench: JSON objects, printed by table.h. */
#ifndef NIB_BENCH_ROWS_H
#define NIB_BENCH_ROWS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "stats.h"
#include "table.h"

/* A row that has every key of the list below, null. */
json_t *row_new(void);
void row_text(json_t *row, const char *key, const char *text);
/* inf and NaN stay null. */
void row_number(json_t *row, const char *key, double x);
void row_integer(json_t *row, const char *key, int64_t n);
void row_bool(json_t *row, const char *key, bool yes);
void row_samples(json_t *row, const char *key,
		 const struct bench_samples *samples);
/* "spread": what the middle half of the samples spans, over their median. */
void row_spread(json_t *row, const struct bench_samples *samples);

/* Reading: 0, "" or false when the key is missing or null. */
double row_get_number(const json_t *row, const char *key);
const char *row_get_text(const json_t *row, const char *key);

/*
 * A table whose columns are the keys of rows.  People do not see those of
 * hidden (NULL-terminated); shape_width is the least width of their shapes.
 * Must not move until rows_table_end().
 */
struct rows_table {
	struct table_column columns[48];
	int64_t above_limit; /* rows that rows_table_end() notes */
	struct table *table;
};
void rows_table_begin(struct rows_table *rows, enum table_format format,
		      const char *const *hidden, int shape_width);
void rows_table_add(struct rows_table *rows, const json_t *row);
int rows_table_end(struct rows_table *rows);

#endif
