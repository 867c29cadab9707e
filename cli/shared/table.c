/* SPDX-License-Identifier: Apache-2.0 */
/*
 * table.c - prints rows: see table.h.  A row is a JSON object whatever the
 * format, so that every format shows the same values.
 */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "message.h"
#include "progress.h"
#include "table.h"
#include "text.h"

#define MAX_COLUMNS 64
#define CELL	    TABLE_CELL
#define DIGITS	    15 /* 0.1 stays 0.1; integers up to 1e15 stay whole */

struct table {
	const struct table_column *columns;
	enum table_format format;
	int flags, n_columns, failed, colour;
	json_t *row;	 /* the one being filled */
	json_t *waiting; /* array: rows whose widths are not known yet */
	int64_t printed; /* rows */
	enum { NOTHING, NOTE, ROW } last; /* what was printed last */
	int width[MAX_COLUMNS];
	int is_number[MAX_COLUMNS];
};

int table_is_for_people(const struct table *table)
{
	return table &&
	       (table->format == TABLE_FORMAT_TEXT || table->format == TABLE_FORMAT_MD);
}

/* Characters on screen: bytes that do not continue a UTF-8 sequence. */
static int screen_width(const char *text)
{
	int n = 0;

	for (; *text; text++)
		n += ((unsigned char)*text & 0xC0) != 0x80;
	return n;
}

/* no-color.org: set and not empty. */
static int wants_colour(void)
{
	const char *no = getenv("NO_COLOR");

	return cli_is_terminal(STDOUT_FILENO) && !(no && *no);
}

struct table *table_new(const struct table_column *columns, enum table_format format,
			int flags)
{
	struct table *table = calloc(1, sizeof(*table));

	if (!table)
		return NULL;
	table->columns = columns;
	table->format = format;
	table->flags = flags;
	table->colour = format == TABLE_FORMAT_TEXT && wants_colour();
	table->waiting = json_array();
	table->failed = !table->waiting;
	for (int i = 0; i < MAX_COLUMNS && columns[i].key; i++) {
		const char *title = columns[i].title ? columns[i].title : "";

		table->n_columns = i + 1;
		table->width[i] = screen_width(title) > columns[i].width
				      ? screen_width(title)
				      : columns[i].width;
	}
	return table;
}

void table_widen(struct table *table, const char *key, int width)
{
	for (int i = 0; table && i < table->n_columns; i++)
		if (!strcmp(table->columns[i].key, key) && table->width[i] < width)
			table->width[i] = width;
}

/* ---- values -------------------------------------------------------------- */

void table_json(struct table *table, const char *key, json_t *value)
{
	if (!table) {
		json_decref(value);
		return;
	}
	if (!table->row)
		table->row = json_object();
	/* Steals value, also when it fails. */
	if (json_object_set_new(table->row, key, value))
		table->failed = 1;
}

void table_text(struct table *table, const char *key, const char *text)
{
	json_t *value = json_string(text);

	/* A file's names need not be UTF-8; JSON must be. */
	table_json(table, key, value ? value : json_string("(not UTF-8)"));
}

void table_int(struct table *table, const char *key, int64_t n)
{
	table_json(table, key, json_integer(n));
}

void table_number(struct table *table, const char *key, double x)
{
	table_json(table, key, isfinite(x) ? json_real(x) : json_null());
}

void table_bool(struct table *table, const char *key, int yes)
{
	table_json(table, key, json_boolean(yes));
}

void table_shape(struct table *table, const char *key, const int64_t *shape, int rank)
{
	json_t *list = json_array();
	int failed = 0;

	for (int i = 0; i < rank; i++)
		failed |= json_array_append_new(list, json_integer(shape[i]));
	table_json(table, key, list);
	if (table && failed)
		table->failed = 1;
}

/* ---- for people ---------------------------------------------------------- */

static void list_text(const json_t *list, char cell[CELL])
{
	size_t used = 0, i;
	json_t *item;

	json_array_foreach(list, i, item)
	{
		if (used > CELL - 32)
			break;
		used += (size_t)snprintf(cell + used, CELL - used, "%s%.15g",
					 i ? ", " : "[", json_number_value(item));
	}
	snprintf(cell + used, CELL - used, used ? "]" : "[]");
}

static void number_text(const struct table_column *column, double x, char cell[CELL])
{
	double scale = column->scale != 0 ? column->scale : 1;
	const char *print = column->print ? column->print : "%.4g";

	if (!strcmp(print, TABLE_SECONDS)) {
		cli_seconds_text(x, cell);
	} else if (!strcmp(print, TABLE_BYTES)) {
		cli_size_text(x, cell);
	} else {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
		snprintf(cell, CELL, print, x * scale);
#pragma GCC diagnostic pop
	}
}

/* A bar would end the cell of Markdown. */
static void escape_bars(char cell[CELL])
{
	char raw[CELL];
	size_t n = 0;

	memcpy(raw, cell, CELL);
	for (const char *c = raw; *c && n < CELL - 2; c++) {
		if (*c == '|')
			cell[n++] = '\\';
		cell[n++] = *c;
	}
	cell[n] = '\0';
}

void table_cell(const struct table_column *column, const json_t *value,
		char cell[TABLE_CELL])
{
	if (!value || json_is_null(value)) {
		snprintf(cell, CELL, "-");
	} else if (json_is_string(value)) {
		snprintf(cell, CELL, "%s", json_string_value(value));
		cli_clean(cell);
	} else if (json_is_boolean(value)) {
		snprintf(cell, CELL, "%s", json_is_true(value) ? "yes" : "NO");
	} else if (json_is_integer(value) && !column->print) {
		snprintf(cell, CELL, "%lld", (long long)json_integer_value(value));
	} else if (json_is_number(value)) {
		number_text(column, json_number_value(value), cell);
	} else {
		list_text(value, cell);
	}
}

/* row NULL: the title. */
static void cell_text(const struct table *table, int i, const json_t *row,
		      char cell[CELL])
{
	const struct table_column *column = &table->columns[i];

	if (row)
		table_cell(column, json_object_get(row, column->key), cell);
	else
		snprintf(cell, CELL, "%s", column->title);
	if (table->format == TABLE_FORMAT_MD)
		escape_bars(cell);
}

/* The escape sequence before a cell: bold titles, yes green and NO red. */
static const char *colour(const struct table *table, int i, const json_t *row)
{
	const json_t *value = json_object_get(row, table->columns[i].key);

	if (!table->colour)
		return "";
	if (!row)
		return "\033[1m";
	return json_is_true(value)    ? "\033[32m"
	       : json_is_false(value) ? "\033[1;31m"
				      : "";
}

/* row NULL: the titles. */
static void print_cells(const struct table *table, const json_t *row)
{
	int md = table->format == TABLE_FORMAT_MD, blanks = 0;

	for (int i = 0; i < table->n_columns; i++) {
		const char *before = colour(table, i, row);
		char cell[CELL];
		int pad;

		if (!table->columns[i].title)
			continue;
		cell_text(table, i, row, cell);
		pad = table->width[i] - screen_width(cell);
		pad = pad > 0 ? pad : 0;
		if (md)
			printf("%*s| ", blanks, "");
		blanks = (md ? 0 : blanks) + (table->is_number[i] ? pad : 0);
		/* Blanks wait until text follows: none end a line. */
		if (*cell) {
			printf("%*s%s%s%s", blanks, "", before, cell,
			       *before ? "\033[0m" : "");
			blanks = 0;
		}
		blanks += (table->is_number[i] ? 0 : pad) + (md ? 1 : 2);
	}
	if (md)
		printf("%*s|", blanks, "");
	putchar('\n');
}

static void measure(struct table *table, const json_t *row)
{
	for (int i = 0; i < table->n_columns; i++) {
		char cell[CELL];
		int width;

		if (!table->columns[i].title)
			continue;
		cell_text(table, i, row, cell);
		width = screen_width(cell);
		if (width > table->width[i])
			table->width[i] = width;
		if (json_is_number(json_object_get(row, table->columns[i].key)))
			table->is_number[i] = 1;
	}
}

static void print_titles(const struct table *table)
{
	int md = table->format == TABLE_FORMAT_MD;

	if (md && table->last == NOTE)
		putchar('\n');
	print_cells(table, NULL);
	for (int i = 0; i < table->n_columns && md; i++)
		if (table->columns[i].title) {
			fputs("| ", stdout);
			for (int j = 0; j < table->width[i] - 1; j++)
				putchar('-');
			fputs(table->is_number[i] ? ": " : "- ", stdout);
		}
	fputs(md ? "|\n" : "", stdout);
}

/* Prints the rows that waited for their widths. */
static void print_waiting(struct table *table)
{
	size_t i;
	json_t *row;

	json_array_foreach(table->waiting, i, row) measure(table, row);
	json_array_foreach(table->waiting, i, row)
	{
		if (!table->printed++)
			print_titles(table);
		print_cells(table, row);
		table->last = ROW;
	}
	json_array_clear(table->waiting);
}

void table_note(struct table *table, const char *format, ...)
{
	size_t own = strspn(format, "\n");
	va_list list;
	char *text;
	int length;

	if (!table_is_for_people(table))
		return;
	progress_hide();
	print_waiting(table);
	va_start(list, format);
	length = vasprintf(&text, format, list);
	va_end(list);
	if (length < 0) {
		table->failed = 1;
		return;
	}
	cli_clean(text + own);
	/* Markdown takes a line right after a row for a row. */
	if (table->format == TABLE_FORMAT_MD && table->last == ROW && !own && *text)
		putchar('\n');
	puts(text);
	table->last = NOTE;
	free(text);
}

/* ---- for programs -------------------------------------------------------- */

static void csv_text(struct table *table, const char *value)
{
	char *text = strdup(value);
	int quoted;

	if (!text) {
		table->failed = 1;
		return;
	}
	cli_clean(text);
	quoted = text[strcspn(text, ",\"")] != '\0';
	if (quoted)
		putchar('"');
	for (const char *c = text; *c; c++) {
		if (*c == '"')
			putchar('"');
		putchar(*c);
	}
	if (quoted)
		putchar('"');
	free(text);
}

static void csv_value(struct table *table, const json_t *value)
{
	size_t i;
	json_t *item;

	if (json_is_string(value))
		csv_text(table, json_string_value(value));
	else if (json_is_integer(value))
		printf("%lld", (long long)json_integer_value(value));
	else if (json_is_real(value))
		printf("%.*g", DIGITS, json_real_value(value));
	else if (json_is_boolean(value))
		fputs(json_is_true(value) ? "true" : "false", stdout);
	else if (json_is_array(value))
		json_array_foreach(value, i, item)
		{
			fputs(i ? ";" : "", stdout);
			csv_value(table, item);
		}
}

static void print_csv(struct table *table, const json_t *row)
{
	for (int i = 0; i < table->n_columns; i++) {
		fputs(i ? "," : "", stdout);
		if (row)
			csv_value(table, json_object_get(row, table->columns[i].key));
		else
			csv_text(table, table->columns[i].key);
	}
	putchar('\n');
}

static void print_row(struct table *table, json_t *row)
{
	const size_t flags = JSON_REAL_PRECISION(DIGITS) | JSON_COMPACT;
	char *text;

	if (table->format == TABLE_FORMAT_CSV) {
		if (!table->printed)
			print_csv(table, NULL);
		print_csv(table, row);
	} else {
		for (int i = 0; i < table->n_columns; i++)
			if (!json_object_get(row, table->columns[i].key))
				json_object_set_new(row, table->columns[i].key,
						    json_null());
		if (table->format == TABLE_FORMAT_JSON)
			fputs(table->printed ? ",\n" : "[\n", stdout);
		text = json_dumps(row, flags);
		if (text)
			fputs(text, stdout);
		table->failed |= !text;
		free(text);
		if (table->format == TABLE_FORMAT_JSONL)
			putchar('\n');
	}
	table->printed++;
}

void table_end_row(struct table *table)
{
	json_t *row;

	if (!table || !table->row)
		return;
	row = table->row;
	table->row = NULL;
	progress_hide();
	if (!table_is_for_people(table)) {
		print_row(table, row);
		json_decref(row);
	} else if (json_array_append_new(table->waiting, row)) {
		table->failed = 1;
	} else if (table->flags & TABLE_STREAM) {
		print_waiting(table);
	}
	if (table->flags & TABLE_STREAM)
		fflush(stdout);
}

int table_end(struct table *table)
{
	int failed;

	if (!table)
		return cli_no_memory("table");
	progress_hide();
	if (table_is_for_people(table))
		print_waiting(table);
	else if (table->format == TABLE_FORMAT_JSON)
		fputs(table->printed ? "\n]\n" : "[]\n", stdout);
	else if (table->format == TABLE_FORMAT_CSV && !table->printed)
		print_csv(table, NULL);
	failed = table->failed;
	json_decref(table->row);
	json_decref(table->waiting);
	free(table);
	return failed ? cli_no_memory("table") : CLI_OK;
}
