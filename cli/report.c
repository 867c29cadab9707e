/* SPDX-License-Identifier: Apache-2.0 */
/*
 * report.c - rows of nib bench as one HTML page.  Every row is in the table and
 * in one chart of its speed; bars.c and roofline.c draw the charts.
 */
#include "report.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bars.h"
#include "cli.h"
#include "roofline.h"
#include "rows.h"

static const char style[] =
    ":root{color-scheme:light dark;--fg:#1b1f23;--dim:#5b636b;--bg:#fff;"
    "--box:#f5f6f8;--edge:#d9dde2}\n"
    "@media(prefers-color-scheme:dark){:root{--fg:#e6e8eb;--dim:#a3abb4;"
    "--bg:#15181c;--box:#1f2329;--edge:#363c44}}\n"
    "body{font:15px/1.5 system-ui,sans-serif;color:var(--fg);"
    "background:var(--bg);margin:0 auto;padding:24px 16px 60px;"
    "max-width:1240px}\n"
    "h1{font-size:26px;margin:0 0 4px}h2{font-size:19px;margin:40px 0 4px}\n"
    "p{margin:0 0 12px;color:var(--dim);max-width:80ch;"
    "overflow-wrap:anywhere}\n"
    ".tiles{display:flex;flex-wrap:wrap;gap:12px;margin:20px 0}\n"
    ".tile{background:var(--box);border:1px solid var(--edge);"
    "border-radius:8px;padding:10px 16px;flex:0 1 auto;min-width:110px}\n"
    ".tile b{display:block;font-size:22px}.tile span{color:var(--dim)}\n"
    ".bad b{color:var(--s6)}\n"
    "table{border-collapse:collapse;font-size:12px;line-height:1.35;"
    "width:100%;font-variant-numeric:tabular-nums}\n"
    "th,td{padding:4px 5px;border-bottom:1px solid var(--edge);"
    "text-align:right;white-space:nowrap}\n"
    "th{background:var(--box)}\n"
    "th.t,td.t{text-align:left;white-space:normal;"
    "overflow-wrap:break-word}td.bad{color:var(--s6);font-weight:700}\n"
    "code{font:12px ui-monospace,monospace;background:var(--box);"
    "padding:1px 4px;border-radius:3px}\n"
    "details{margin:12px 0}summary{cursor:pointer}\n"
    "details li{margin:4px 0;overflow-wrap:anywhere}\n";

/* On a narrow screen a row of the table is a card with a line for each cell. */
#define NARROW "@media(max-width:1000px){"

/* ---- choosing rows ------------------------------------------------------- */

static bool is_ours(const json_t *row)
{
	return !row_is_baseline(row) && !row_is_peak(row);
}

static bool has(const json_t *row, const char *key)
{
	return row_get_number(row, key) > 0;
}

static bool is_same(const json_t *a, const json_t *b, const char *key)
{
	return !strcmp(row_get_text(a, key), row_get_text(b, key));
}

/*
 * Whether a multiplication has so few rows that memory, or the rate of a GEMM,
 * is its limit: what our first row of the same shape says.
 */
static bool is_of_few_rows(const json_t *rows, const json_t *row)
{
	const char *limit = row_get_text(row, "limit_kind");
	size_t i;
	const json_t *other;

	json_array_foreach(rows, i, other)
	{
		if (is_ours(other) && is_same(other, row, "op") &&
		    is_same(other, row, "shape")) {
			limit = row_get_text(other, "limit_kind");
			break;
		}
	}
	return strstr(limit, "bandwidth") || !strncmp(limit, "gemm ", 5);
}

static bool wants_limit(const json_t *rows, const json_t *row)
{
	(void)rows;
	return is_ours(row) && has(row, "fraction_of_limit");
}

static bool wants_error(const json_t *rows, const json_t *row)
{
	(void)rows;
	return is_ours(row) && has(row, "bound");
}

/* Every row with a time is wanted by exactly one of those that follow. */

static bool wants_many(const json_t *rows, const json_t *row)
{
	return !row_is_peak(row) && has(row, "gflops") &&
	       !is_of_few_rows(rows, row);
}

static bool wants_few(const json_t *rows, const json_t *row)
{
	return !row_is_peak(row) && has(row, "gflops") &&
	       is_of_few_rows(rows, row);
}

static bool wants_moved(const json_t *rows, const json_t *row)
{
	(void)rows;
	return !row_is_peak(row) && !has(row, "gflops") && has(row, "gbps");
}

static bool wants_time(const json_t *rows, const json_t *row)
{
	(void)rows;
	return has(row, "time_s") && !has(row, "gflops") && !has(row, "gbps");
}

static bool wants_rate(const json_t *rows, const json_t *row)
{
	(void)rows;
	return row_is_peak(row) && has(row, "gflops");
}

static bool wants_bandwidth(const json_t *rows, const json_t *row)
{
	(void)rows;
	return row_is_peak(row) && !has(row, "gflops") && has(row, "gbps");
}

/* ---- bars ---------------------------------------------------------------- */

/* These fill a bar's value, text and mark: scale times the row's numbers. */

static void fill_limit(const json_t *row, double scale, struct bar *bar)
{
	bar->value = 100 * scale * row_get_number(row, "fraction_of_limit");
	snprintf(bar->value_text, sizeof bar->value_text, "%.0f %% %.48s",
		 bar->value, row_get_text(row, "limit_kind"));
}

/* A rate, and the one that the row's limit would be. */
static void fill_speed(const json_t *row, double scale, const char *rate,
		       const char *amount, struct bar *bar)
{
	bar->value = scale * row_get_number(row, rate);
	if (has(row, "limit_s"))
		bar->mark = scale * 1e-9 * row_get_number(row, amount) /
			    row_get_number(row, "limit_s");
	snprintf(bar->value_text, sizeof bar->value_text, "%.*f",
		 bar->value < 100, bar->value);
}

static void fill_gflops(const json_t *row, double scale, struct bar *bar)
{
	fill_speed(row, scale, "gflops", "flop", bar);
}

static void fill_gbps(const json_t *row, double scale, struct bar *bar)
{
	fill_speed(row, scale, "gbps", "bytes", bar);
}

static void fill_rate(const json_t *row, double scale, struct bar *bar)
{
	bar->value = scale * row_get_number(row, "gflops");
	snprintf(bar->value_text, sizeof bar->value_text, "%.1f %s%.16s/s",
		 bar->value, scale < 1 ? "T" : "G", row_get_text(row, "unit"));
}

static void fill_time(const json_t *row, double scale, struct bar *bar)
{
	char text[CLI_SECONDS_TEXT];

	bar->value = 1e6 * scale * row_get_number(row, "time_s");
	snprintf(bar->value_text, sizeof bar->value_text, "%s",
		 cli_seconds_text(row_get_number(row, "time_s"), text));
}

static void fill_error(const json_t *row, double scale, struct bar *bar)
{
	bar->value = scale * row_get_number(row, "error_fraction");
	if (!json_is_true(json_object_get(row, "ok")))
		bar->series = 6;
	snprintf(bar->value_text, sizeof bar->value_text, "%.1e of %.1e",
		 row_get_number(row, "error"), row_get_number(row, "bound"));
}

/* One chart: which rows, and what of them. */
static const struct view {
	bool (*wanted)(const json_t *rows, const json_t *row);
	void (*fill)(const json_t *row, double scale, struct bar *bar);
	struct bar_chart chart;
} views[] = {
    {wants_limit,
     fill_limit,
     {.title = "Share of this machine's limit",
      .note = "The least time this machine could need over the time taken. "
	      "The limit is the slower of two: the multiply-adds at the rate "
	      "of the backend's multiply instruction (for up to 8 rows: of a "
	      "GEMM), and the bytes at the bandwidth of memory. Both were "
	      "measured in the same run. Above 100 % the machine was busy "
	      "with something else meanwhile.",
      .unit = "%",
      .line = 100,
      .line_label = "100 %, the limit"}},
    {wants_many,
     fill_gflops,
     {.title = "Multiplications of many rows",
      .note = "Bound by arithmetic. Rows of one shape were measured in the "
	      "same rounds. Baselines, if any, got operands that were "
	      "dequantised (and packed) beforehand.",
      .unit = "GFLOP/s",
      .larger_unit = "TFLOP/s",
      .mark_label = "the limit of the row"}},
    {wants_few,
     fill_gflops,
     {.title = "Multiplications of few rows",
      .note = "Bound by the weights that must be read, or by a GEMM's rate. "
	      "Operands out of the caches. Baselines read the same weights "
	      "in wider types.",
      .unit = "GFLOP/s",
      .larger_unit = "TFLOP/s",
      .mark_label = "the limit of the row"}},
    {wants_moved,
     fill_gbps,
     {.title = "Conversions",
      .note = "Bytes that must be moved, each once, over the time taken; "
	      "operands out of the caches.",
      .unit = "GB/s",
      .mark_label = "the measured bandwidth"}},
    {wants_time,
     fill_time,
     {.title = "Times without a limit",
      .note = "Making a plan, enqueuing a run, and other times on the host.",
      .unit = "us"}},
    {wants_error,
     fill_error,
     {.title = "Error against its bound",
      .note = "The worst |C - exact| of the elements compared with the exact "
	      "integer sum, as a share of the bound of that element. "
	      "Rounding to a 16-bit type alone may reach 1.",
      .unit = "of bound",
      .line = 1,
      .line_label = "1, the bound"}},
    {wants_rate,
     fill_rate,
     {.title = "Peaks of this machine: arithmetic",
      .note = "Instructions in a loop that does nothing else, and GEMMs of "
	      "many rows; the limits above.",
      .unit = "G/s",
      .larger_unit = "T/s"}},
    {wants_bandwidth,
     fill_gbps,
     {.title = "Peaks of this machine: memory",
      .note = "Plain loops over more memory than the caches hold.",
      .unit = "GB/s"}},
};

/* "gemm 128x4096x7168": what was computed. */
static void name_work(const json_t *row, char text[BAR_TEXT])
{
	snprintf(text, BAR_TEXT, "%.20s%s%.200s",
		 row_is_peak(row) ? "" : row_get_text(row, "op"),
		 row_is_peak(row) ? "" : " ", row_get_text(row, "shape"));
}

/* "cpu-avx512, 2 threads": what computed it. */
static void name_backend(const json_t *row, bool with_threads,
			 char text[BAR_TEXT])
{
	const char *backend = row_get_text(row, "backend");
	double threads = row_get_number(row, "threads");
	char count[32] = "";

	if (row_is_baseline(row))
		backend += strlen("baseline:");
	if (with_threads)
		snprintf(count, sizeof count, ", %.0f thread%s", threads,
			 threads == 1 ? "" : "s");
	snprintf(text, BAR_TEXT, "%.200s%s%s", backend,
		 json_is_false(json_object_get(row, "packed")) ? " unpacked"
							       : "",
		 count);
}

/* Those of a GPU have one thread each, which says nothing. */
static bool have_threads(const json_t *rows)
{
	size_t i;
	const json_t *row;

	json_array_foreach(rows, i, row)
	{
		if (row_get_number(row, "threads") > 1 ||
		    !strncmp(row_get_text(row, "backend"), "cpu", 3))
			return true;
	}
	return false;
}

static int series_of(const json_t *row)
{
	const char *backend = row_get_text(row, "backend");

	if (!row_is_baseline(row))
		return !strncmp(backend, "cpu-", 4) &&
			       strcmp(backend, "cpu-avx512")
			   ? 5
			   : 0;
	return strstr(backend, "bf16")	     ? 1
	       : strstr(backend, "avx2")     ? 3
	       : strstr(backend, "openblas") ? 4
					     : 2;
}

/* The bars of a view; *groups: how many of them have a line above. */
static int fill_bars(const json_t *rows, const struct view *view, double scale,
		     struct bar *bars, int *groups)
{
	const bool threads = have_threads(rows);
	char work[BAR_TEXT], last[BAR_TEXT] = "";
	const json_t *row;
	int count = 0;
	size_t i;

	*groups = 0;
	json_array_foreach(rows, i, row)
	{
		struct bar *bar = &bars[count];

		if (!view->wanted(rows, row))
			continue;
		name_work(row, work);
		/* Peaks are not compared with each other. */
		if (strcmp(work, last) || row_is_peak(row)) {
			memcpy(bar->group, work, sizeof work);
			++*groups;
		}
		memcpy(last, work, sizeof last);
		name_backend(row, threads, bar->label);
		bar->series = series_of(row);
		view->fill(row, scale, bar);
		count++;
	}
	return count;
}

static int put_view(FILE *file, const json_t *rows, const struct view *view)
{
	struct bar *bars = calloc(json_array_size(rows) + 1, sizeof *bars);
	struct bar_chart chart = view->chart;
	int count, groups;
	double most = 0;

	if (!bars)
		return cli_no_memory("charts");
	count = fill_bars(rows, view, 1, bars, &groups);
	for (int j = 0; j < count; j++)
		most = bars[j].value > most ? bars[j].value : most;
	if (most >= 1e4 && chart.larger_unit) {
		chart.unit = chart.larger_unit;
		fill_bars(rows, view, 1e-3, bars, &groups);
	}
	/* Where no work has two bars, a bar needs no line above it. */
	for (int j = 0; j < count && groups == count; j++) {
		char label[BAR_TEXT];

		snprintf(label, sizeof label, "%.120s, %.120s", bars[j].group,
			 bars[j].label);
		memcpy(bars[j].label, label, sizeof label);
		bars[j].group[0] = '\0';
	}
	bars_put(file, &chart, bars, count);
	free(bars);
	return CLI_OK;
}

/* ---- numbers ------------------------------------------------------------- */

static void put_tile(FILE *file, bool bad, const char *text, const char *what)
{
	fprintf(file, "<div class='tile%s'><b>", bad ? " bad" : "");
	html_put_text(file, text);
	fprintf(file, "</b><span>%s</span></div>\n", what);
}

static void put_tiles(FILE *file, const json_t *rows)
{
	int checked = 0, ok = 0;
	double gflops = 0, gbps = 0, least = 0;
	char text[64];
	size_t i;
	const json_t *row;

	json_array_foreach(rows, i, row)
	{
		double share = row_get_number(row, "fraction_of_limit");
		bool by_memory =
		    strstr(row_get_text(row, "limit_kind"), "bandwidth");

		if (!is_ours(row))
			continue;
		if (row_get_number(row, "gflops") > gflops)
			gflops = row_get_number(row, "gflops");
		if (by_memory && row_get_number(row, "gbps") > gbps)
			gbps = row_get_number(row, "gbps");
		if (share > 0 && (least <= 0 || share < least))
			least = share;
		checked += json_is_boolean(json_object_get(row, "ok"));
		ok += json_is_true(json_object_get(row, "ok"));
	}
	fputs("<div class=tiles>\n", file);
	snprintf(text, sizeof text, "%d of %d", ok, checked);
	put_tile(file, ok < checked, checked ? text : "-",
		 "checked results right");
	snprintf(text, sizeof text, "%.0f GFLOP/s", gflops);
	put_tile(file, false, text, "fastest multiplication");
	snprintf(text, sizeof text, "%.1f GB/s", gbps);
	put_tile(file, false, gbps > 0 ? text : "-",
		 "fastest memory-bound row");
	snprintf(text, sizeof text, "%.0f %%", 100 * least);
	put_tile(file, false, text, "lowest share of the limit");
	fputs("</div>\n", file);
}

/* A narrow screen shows the title of a column in each cell. */
static void put_table_style(FILE *file)
{
	int n = 0;

	fputs(NARROW "table,tbody{display:block}"
		     "tr{display:grid;grid-template-columns:1fr 1fr;"
		     "border-bottom:2px solid var(--edge);padding:8px 0}"
		     "tr:first-child{display:none}"
		     "td{border:0;text-align:left;padding:1px 4px}"
		     "td.t{overflow-wrap:anywhere}td:empty{display:none}"
		     "td::before{color:var(--dim);margin-right:6px}",
	      file);
	for (const struct table_column *c = row_columns; c->key; c++) {
		if (c->title)
			fprintf(file, "td:nth-child(%d)::before{content:'%s'}",
				++n, c->title);
	}
	fputs("}\n", file);
}

static void put_cell(FILE *file, const struct table_column *column,
		     const json_t *row)
{
	const json_t *value = json_object_get(row, column->key);
	const char *why = row_get_text(row, "skipped");
	bool is_last = !strcmp(column->key, "against_baselines");
	char text[TABLE_CELL] = "";

	if (is_last && !json_is_string(value) && *why)
		snprintf(text, sizeof text, "skipped: %.400s", why);
	/* A peak's time is that of 1e9 units. */
	else if (value && !json_is_null(value) &&
		 !(row_is_peak(row) && !strcmp(column->key, "time_s")))
		table_cell(column, value, text);
	if (json_is_number(value))
		fputs("<td>", file);
	else if (!strcmp(column->key, "ok") && json_is_false(value))
		fputs("<td class='t bad'>", file);
	else
		fputs("<td class=t>", file);
	html_put_text(file, text);
	fputs("</td>", file);
}

static void put_table(FILE *file, const json_t *rows)
{
	const struct table_column *c;
	size_t i;
	const json_t *row;

	fputs("<section><h2>All rows</h2>\n<table><tbody><tr>", file);
	for (c = row_columns; c->key; c++) {
		if (c->title)
			fprintf(file, "<th%s>%s",
				c->print || !strcmp(c->key, "threads")
				    ? ""
				    : " class=t",
				c->title);
	}
	fputs("</tr>\n", file);
	json_array_foreach(rows, i, row)
	{
		fputs("<tr>", file);
		for (c = row_columns; c->key; c++) {
			if (c->title)
				put_cell(file, c, row);
		}
		fputs("</tr>\n", file);
	}
	fputs("</tbody></table></section>\n", file);
}

static void put_commands(FILE *file, const json_t *rows)
{
	size_t i;
	const json_t *row;

	fputs("<section><h2>To measure a row again</h2>\n<details><summary>"
	      "The command of each row</summary><ol>\n",
	      file);
	json_array_foreach(rows, i, row)
	{
		fputs("<li><code>", file);
		html_put_text(file, row_get_text(row, "command"));
		fputs("</code></li>\n", file);
	}
	fputs("</ol></details></section>\n", file);
}

/* ---- the page ------------------------------------------------------------ */

static void put_head(FILE *file, const json_t *first, const char *how)
{
	fputs("<!doctype html>\n<html lang=en><head><meta charset=utf-8>\n"
	      "<meta name=viewport content='width=device-width'>\n"
	      "<title>nibblas report</title>\n<style>\n",
	      file);
	fputs(style, file);
	put_table_style(file);
	bars_put_style(file);
	roofline_put_style(file);
	fputs("</style></head><body>\n<h1>nibblas report</h1>\n<p>", file);
	html_put_text(file, row_get_text(first, "machine"));
	fputs("<br>nibblas ", file);
	html_put_text(file, row_get_text(first, "version"));
	fputs(", ", file);
	html_put_text(file, row_get_text(first, "date"));
	if (how) {
		fputs("<br><code>", file);
		html_put_text(file, how);
		fputs("</code>", file);
	}
	fputs("</p>\n", file);
}

static int put_page(FILE *file, const json_t *rows, const char *how)
{
	int code = CLI_OK;

	put_head(file, json_array_get(rows, 0), how);
	put_tiles(file, rows);
	for (size_t i = 0; i < sizeof views / sizeof views[0] && !code; i++)
		code = put_view(file, rows, &views[i]);
	if (!code)
		code = roofline_put(file, rows);
	put_table(file, rows);
	put_commands(file, rows);
	fputs("</body></html>\n", file);
	return code;
}

int report_write(const char *path, const json_t *rows, const char *how)
{
	size_t bytes = strlen(path) + sizeof ".part";
	char *part = malloc(bytes);
	FILE *file = NULL;
	int code, bad;

	if (!part)
		return cli_no_memory("report");
	snprintf(part, bytes, "%s.part", path);
	file = fopen(part, "w");
	if (!file) {
		code = cli_error(CLI_FAILED, "%s: %s", part, strerror(errno));
		free(part);
		return code;
	}
	code = put_page(file, rows, how);
	bad = ferror(file) | fclose(file);
	if (!code && (bad || rename(part, path) != 0))
		code = cli_error(CLI_FAILED, "%s: %s", path, strerror(errno));
	if (code)
		remove(part);
	free(part);
	return code;
}
