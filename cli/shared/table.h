/* SPDX-License-Identifier: Apache-2.0 */
/*
 * table.h - rows of named values, printed for people (aligned, or Markdown) or
 * for programs (CSV, JSON, JSON lines).  People see a few columns, rounded;
 * programs see every column, exact, but for control characters of text, which
 * only JSON shows as they are.
 *
 *	struct table *t = table_new(columns, format, TABLE_STREAM);
 *	table_text(t, "op", "gemm");
 *	table_number(t, "time_s", 0.0123);
 *	table_end_row(t);
 *	code = table_end(t);
 */
#ifndef NIB_TABLE_H
#define NIB_TABLE_H

#include <jansson.h>
#include <stdint.h>

/* In the order of --format. */
enum table_format {
	TABLE_FORMAT_TEXT,
	TABLE_FORMAT_MD,
	TABLE_FORMAT_CSV,
	TABLE_FORMAT_JSON,
	TABLE_FORMAT_JSONL,
};

#define TABLE_SECONDS "s"
#define TABLE_BYTES   "B"

struct table_column {
	const char *key;   /* "time_s"; NULL ends the list */
	const char *title; /* "time", for people; NULL = for programs only */
	/*
	 * For people: a number is multiplied by scale (0 = 1) and printed with
	 * print (NULL = "%.4g"), which takes one double: "%.1f ms"; with
	 * TABLE_SECONDS or TABLE_BYTES in the unit that suits it: "12.3 us".
	 */
	const char *print;
	double scale;
	int width; /* for people, TABLE_STREAM: least width; 0 = the title's */
};

/* A value as people see it, cut to fit; "-" without one. */
#define TABLE_CELL 512
void table_cell(const struct table_column *column, const json_t *value,
		char cell[TABLE_CELL]);

/* Flags of table_new(). */
#define TABLE_STREAM                                                                   \
	1 /* print each row as it ends; columns keep their width               \
	   */

struct table;

/*
 * columns must outlive the table.  NULL without memory; every other call takes
 * a NULL table and does nothing, and table_end() then says so.
 */
struct table *table_new(const struct table_column *columns, enum table_format format,
			int flags);
/* Makes the column of key at least so wide, before its first row. */
void table_widen(struct table *table, const char *key, int width);
/* For people only (text, Markdown): a line between rows; a heading.  Empty
 * lines before it are those at the beginning of format. */
__attribute__((format(printf, 2, 3))) void table_note(struct table *table,
						      const char *format, ...);
int table_is_for_people(const struct table *table);

/* Values of the current row, in any order; a column not set is empty, in JSON
 * null. */
void table_text(struct table *table, const char *key, const char *text);
void table_int(struct table *table, const char *key, int64_t n);
/* inf and NaN are JSON null. */
void table_number(struct table *table, const char *key, double x);
/* "yes" and "NO" for people, true and false for programs. */
void table_bool(struct table *table, const char *key, int yes);
/* A tensor's sizes: "[128, 64]" for people, "128;64" in CSV. */
void table_shape(struct table *table, const char *key, const int64_t *shape, int rank);
/* Takes over value, which may be any JSON; NULL marks the table as failed. */
void table_json(struct table *table, const char *key, json_t *value);
void table_end_row(struct table *table);

/* Prints what is left and frees; CLI_OK, or CLI_FAILED after a message. */
int table_end(struct table *table);

#endif
