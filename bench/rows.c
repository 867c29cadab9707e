/* SPDX-License-Identifier: Apache-2.0 */
/* rows.c - rows of the bench: JSON objects, printed by table.h. */
#include "rows.h"

#include <math.h>
#include <string.h>

#include "machine.h"

const struct table_column row_columns[] = {
    {.key = "op", .title = "op", .width = 10},
    {.key = "shape", .title = "shape", .width = 18},
    {.key = "backend", .title = "backend", .width = 20},
    {.key = "threads", .title = "thr"},
    {.key = "layout", .title = "layout"},
    {.key = "activations", .title = "A", .width = 5},
    {.key = "dtype", .title = "in", .width = 4},
    {.key = "out", .title = "out", .width = 4},
    {.key = "packed", .title = "packed"},
    {.key = "time_s", .title = "time", .print = TABLE_SECONDS, .width = 10},
    {.key = "predicted_us", .title = "predicted us", .print = "%.2f", .width = 12},
    {.key = "spread", .title = "spread", .print = "%.0f %%", .scale = 100},
    {.key = "gflops", .title = "GFLOP/s", .print = "%.1f", .width = 7},
    {.key = "gbps", .title = "GB/s", .print = "%.1f", .width = 5},
    {.key = "fraction_of_limit", .title = "of limit", .print = "%.1f %%", .scale = 100},
    {.key = "limit_kind", .title = "limit", .width = 14},
    {.key = "error", .title = "error", .print = "%.1e", .width = 7},
    {.key = "bound", .title = "bound", .print = "%.1e", .width = 7},
    {.key = "ok", .title = "ok", .width = 3},
    {.key = "against_baselines", .title = "against baselines"},
    {.key = "busy", .title = "busy"},
    {.key = "last_warp", .title = "the last warp"},
    {.key = "longest_wait", .title = "longest wait"},
    {.key = "name"},
    {.key = "predicted"},
    {.key = "chain"},
    {.key = "grids"},
    {.key = "skipped"},
    {.key = "samples_s"},
    {.key = "flop"},
    {.key = "bytes"},
    {.key = "limit_s"},
    {.key = "limit_note"},
    {.key = "peak_gflops"},
    {.key = "peak_gbps"},
    {.key = "read_s"},
    {.key = "fraction_of_read"},
    {.key = "clock_before_mhz"},
    {.key = "clock_after_mhz"},
    {.key = "error_fraction"},
    {.key = "checked"},
    {.key = "copies"},
    {.key = "unit"},
    {.key = "pattern"},
    {.key = "speedup"},
    {.key = "plan"},
    {.key = "version"},
    {.key = "machine"},
    {.key = "processors"},
    {.key = "others_busy"},
    {.key = "load_average"},
    {.key = "date"},
    {.key = "command"},
    {0},
};

void row_text(json_t *row, const char *key, const char *text)
{
	json_object_set_new(row, key, json_string(text));
}

void row_number(json_t *row, const char *key, double x)
{
	json_object_set_new(row, key, isfinite(x) ? json_real(x) : json_null());
}

void row_integer(json_t *row, const char *key, int64_t n)
{
	json_object_set_new(row, key, json_integer(n));
}

void row_bool(json_t *row, const char *key, bool yes)
{
	json_object_set_new(row, key, json_boolean(yes));
}

void row_samples(json_t *row, const struct bench_samples *samples)
{
	json_t *list = json_array();

	for (int i = 0; i < samples->count; i++)
		json_array_append_new(list, json_real(samples->values[i]));
	json_object_set_new(row, "samples_s", list);
	row_number(row, "spread",
		   (bench_samples_quantile(samples, 0, 0.75) -
		    bench_samples_quantile(samples, 0, 0.25)) /
		       bench_samples_median(samples, 0));
}

double row_get_number(const json_t *row, const char *key)
{
	return json_number_value(json_object_get(row, key));
}

const char *row_get_text(const json_t *row, const char *key)
{
	const char *text = json_string_value(json_object_get(row, key));

	return text ? text : "";
}

bool row_is_baseline(const json_t *row)
{
	return !strncmp(row_get_text(row, "backend"), "baseline:", 9);
}

bool row_is_peak(const json_t *row)
{
	return !strcmp(row_get_text(row, "op"), "peak");
}

bool row_is_block(const json_t *row)
{
	return !strcmp(row_get_text(row, "op"), ROW_BLOCK);
}

int rows_hide_other_kind(bool predicts, const char **hidden)
{
	static const char *const measured[] = {"threads",
					       "time_s",
					       "spread",
					       "gflops",
					       "gbps",
					       "limit_kind",
					       "fraction_of_limit",
					       "error",
					       "bound",
					       "ok",
					       "against_baselines"};
	static const char *const predicted[] = {"predicted_us", "busy", "last_warp",
						"longest_wait"};
	const char *const *list = predicts ? measured : predicted;
	const int count = predicts ? sizeof measured / sizeof *measured
				   : sizeof predicted / sizeof *predicted;

	memcpy(hidden, list, (size_t)count * sizeof *hidden);
	return count;
}

void rows_begin(struct rows *rows, enum table_format format, const char *const *hidden,
		int shape_width)
{
	memcpy(rows->columns, row_columns, sizeof row_columns);
	for (struct table_column *c = rows->columns; c->key; c++) {
		if (!strcmp(c->key, "shape"))
			c->width = shape_width;
		for (int j = 0; hidden[j]; j++) {
			if (!strcmp(c->key, hidden[j]))
				c->title = NULL;
		}
	}
	rows->table = table_new(rows->columns, format, TABLE_STREAM);
}

static void count_above_limit(struct rows *rows, const json_t *row)
{
	const char *note = row_get_text(row, "limit_note");

	if (!(row_get_number(row, "fraction_of_limit") > ROWS_ABOVE_LIMIT))
		return;
	if (!strcmp(note, ROWS_CACHED))
		rows->above_cached++;
	else if (*note)
		rows->above_rate++;
	else
		rows->above_limit++;
}

void rows_add(struct rows *rows, json_t *row)
{
	count_above_limit(rows, row);
	rows->ok += json_is_true(json_object_get(row, "ok"));
	rows->not_ok += json_is_false(json_object_get(row, "ok"));
	rows->checked += row_get_number(row, "checked");
	if (rows->ours_only && row_is_baseline(row) &&
	    table_is_for_people(rows->table)) {
		json_array_append_new(rows->all, row);
		return;
	}
	for (int i = 0; rows->columns[i].key; i++) {
		const char *key = rows->columns[i].key;
		json_t *value = json_object_get(row, key);

		table_json(rows->table, key, value ? json_incref(value) : json_null());
	}
	table_end_row(rows->table);
	json_array_append_new(rows->all, row);
}

void rows_keep(struct rows *rows, json_t *row)
{
	if (table_is_for_people(rows->table))
		json_array_append_new(rows->all, row);
	else
		rows_add(rows, row);
}

/* ---- was the machine quiet? ---------------------------------------------- */

/* From here on times are to be doubted: the spread of half of the rows. */
#define WIDE_SPREAD 0.1

/* The median of the values of our rows, and the largest; -1 without values. */
static double row_median(const json_t *all, const char *key, double *largest)
{
	struct bench_samples values = {0};
	double median = -1;
	const json_t *row;
	size_t i;

	*largest = -1;
	json_array_foreach(all, i, row)
	{
		if (json_is_number(json_object_get(row, key)) && !row_is_peak(row) &&
		    !row_is_baseline(row))
			bench_samples_add(&values, row_get_number(row, key));
	}
	if (values.count) {
		median = bench_samples_median(&values, 0);
		*largest = bench_samples_quantile(&values, 0, 1);
	}
	bench_samples_free(&values);
	return median;
}

bool rows_quiet_text(const json_t *all, char text[ROWS_QUIET_TEXT])
{
	char busy[64] = "Other programs used an unknown number";
	double widest, load, processors, most;
	const double others = row_median(all, "others_busy", &most);
	const double spread = row_median(all, "spread", &widest);
	size_t used;

	row_median(all, "load_average", &load);
	row_median(all, "processors", &processors);
	*text = '\0';
	if (processors <= 0)
		return false;
	if (others >= 0)
		snprintf(busy, sizeof busy, "Other programs used %.1f", others);
	used = (size_t)snprintf(
	    text, ROWS_QUIET_TEXT,
	    "%s of %.0f processors (load average %.1f); the samples of a row "
	    "spread by %.0f %% (median), %.0f %% at most.",
	    busy, processors, load, 100 * fmax(spread, 0), 100 * fmax(widest, 0));
	if (others < MACHINE_BUSY && spread < WIDE_SPREAD)
		return false;
	snprintf(text + used, ROWS_QUIET_TEXT - used,
		 " The machine was busy: times are too long and vary. Measure "
		 "again when it is quiet.");
	return true;
}

static void note_above_limit(struct rows *rows, int64_t count, const char *why)
{
	if (count)
		table_note(rows->table, "%lld row%s above the limit: %s",
			   (long long)count, count == 1 ? " is" : "s are", why);
}

int rows_end(struct rows *rows)
{
	char quiet[ROWS_QUIET_TEXT];

	rows_quiet_text(rows->all, quiet);
	if (*quiet)
		table_note(rows->table, "%s", quiet);
	note_above_limit(rows, rows->above_cached,
			 "operands " ROWS_CACHED ", compared with memory");
	note_above_limit(rows, rows->above_rate,
			 "faster than the plain loops that measure it, so that limits "
			 "of earlier rows are too low");
	note_above_limit(
	    rows, rows->above_limit,
	    "the machine was busy with something else when the limits were "
	    "measured");
	return table_end(rows->table);
}
