/* SPDX-License-Identifier: Apache-2.0 */
/*
 * report.c - rows of nib bench as one HTML page.  Every row is in the table and
 * in one chart of its speed; bars.c and roofline.c draw the charts.
 */
#include "report.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "baseline.h"
#include "cli.h"
#include "out_file.h"
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
    ".warn{border-left:4px solid var(--s6);padding-left:10px;"
    "color:var(--fg)}\n"
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

/*
 * The charts, in their order on the page: first those that compare.  Every row
 * with a time is in exactly one of those of speed, which are all but SHARE and
 * ERROR.
 */
enum kind {
	TOKEN,
	PROMPT,
	MANY_ROWS,
	FEW_ROWS,
	MOVED,
	TIME,
	SHARE,
	ERROR,
	RATE,
	BANDWIDTH
};

static bool is_of_one_row(const json_t *row)
{
	return !strncmp(row_get_text(row, "shape"), "1 row", 5) &&
	       row_get_text(row, "shape")[5] != 's';
}

static bool is_in(const json_t *rows, const json_t *row, enum kind kind)
{
	const bool is_peak = row_is_peak(row);

	if (kind == SHARE)
		return is_ours(row) && has(row, "fraction_of_limit");
	if (kind == ERROR)
		return is_ours(row) && has(row, "bound");
	if (row_is_block(row))
		return kind == (is_of_one_row(row) ? TOKEN : PROMPT);
	if (has(row, "gflops") && is_peak)
		return kind == RATE;
	if (has(row, "gflops"))
		return kind == (is_of_few_rows(rows, row) ? FEW_ROWS : MANY_ROWS);
	if (has(row, "gbps"))
		return kind == (is_peak ? BANDWIDTH : MOVED);
	return kind == TIME && has(row, "time_s");
}

/* ---- bars ---------------------------------------------------------------- */

#define BLOCK_NOTE                                                                     \
	"Time of the block's linear layers, one after the other; shorter is "          \
	"better. nibblas multiplies NVFP4 weights by bf16 activations "                \
	"(W4A16), the other libraries weights of their own type."

/* One chart: what of the rows it shows, in what unit. */
static const struct view {
	const char *key;
	double factor; /* what key is multiplied by */
	struct bar_chart chart;
} views[] = {
    [TOKEN] = {"time_s",
	       1e3,
	       {.title = "A decoder block of a Llama: one token",
		.note = BLOCK_NOTE,
		.unit = "ms"}},
    [PROMPT] = {"time_s",
		1e3,
		{.title = "A decoder block of a Llama: a prompt",
		 .note = BLOCK_NOTE,
		 .unit = "ms"}},
    [SHARE] = {"fraction_of_limit",
	       100,
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
    [MANY_ROWS] = {"gflops",
		   1,
		   {.title = "Multiplications of many rows",
		    .note =
			"Bound by arithmetic. Rows of one shape were measured in the "
			"same rounds. Baselines, if any, got operands that were "
			"dequantised (and packed) beforehand.",
		    .unit = "GFLOP/s",
		    .larger_unit = "TFLOP/s",
		    .mark_label = "the limit of the row"}},
    [FEW_ROWS] = {"gflops",
		  1,
		  {.title = "Multiplications of few rows",
		   .note =
		       "Bound by the weights that must be read, or by a GEMM's rate. "
		       "Operands out of the caches. Baselines read the same weights "
		       "in wider types.",
		   .unit = "GFLOP/s",
		   .larger_unit = "TFLOP/s",
		   .mark_label = "the limit of the row"}},
    [MOVED] = {"gbps",
	       1,
	       {.title = "Conversions",
		.note = "Bytes that must be moved, each once, over the time taken; "
			"operands out of the caches.",
		.unit = "GB/s",
		.mark_label = "the measured bandwidth"}},
    [TIME] = {"time_s",
	      1e6,
	      {.title = "Times without a limit",
	       .note = "Making a plan, enqueuing a run, and other times on the host.",
	       .unit = "us"}},
    [ERROR] = {"error_fraction",
	       1,
	       {.title = "Error against its bound",
		.note = "The worst |C - exact| of the elements compared with the exact "
			"integer sum, as a share of the bound of that element. "
			"Rounding to a 16-bit type may reach 1 by itself.",
		.unit = "of bound",
		.line = 1,
		.line_label = "1, the bound"}},
    [RATE] = {"gflops",
	      1,
	      {.title = "Peaks of this machine: arithmetic",
	       .note = "Instructions in a loop that does nothing else, and GEMMs of "
		       "many rows; the limits above.",
	       .unit = "G/s",
	       .larger_unit = "T/s"}},
    [BANDWIDTH] = {"gbps",
		   1,
		   {.title = "Peaks of this machine: memory",
		    .note = "Plain loops over more memory than the caches hold.",
		    .unit = "GB/s"}},
};

/* The rate that the row's limit would be, or 0. */
static double limit_rate(const json_t *row, const char *amount)
{
	if (!has(row, "limit_s"))
		return 0;
	return 1e-9 * row_get_number(row, amount) / row_get_number(row, "limit_s");
}

/* Sets the bar's value, in the chart's unit over scale, its text and mark. */
static void fill_value(const json_t *row, enum kind kind, double scale, struct bar *bar)
{
	const struct view *view = &views[kind];
	const double value = scale * view->factor * row_get_number(row, view->key);
	const bool is_moved = kind == MOVED || kind == BANDWIDTH;
	char *text = bar->value_text;
	const size_t bytes = sizeof bar->value_text;

	bar->value = value;
	if (kind == SHARE) {
		snprintf(text, bytes, "%.0f %% %.48s", value,
			 row_get_text(row, "limit_kind"));
	} else if (kind == RATE) {
		snprintf(text, bytes, "%.1f %s%.16s/s", value, scale < 1 ? "T" : "G",
			 row_get_text(row, "unit"));
	} else if (kind == TIME || kind <= PROMPT) {
		cli_seconds_text(row_get_number(row, "time_s"), text);
	} else if (kind == ERROR) {
		snprintf(text, bytes, "%.1e of %.1e", row_get_number(row, "error"),
			 row_get_number(row, "bound"));
		if (!json_is_true(json_object_get(row, "ok")))
			bar->series = 6;
	} else {
		snprintf(text, bytes, "%.*f", value < 100, value);
		bar->mark = scale * limit_rate(row, is_moved ? "bytes" : "flop");
	}
}

/* "gemm 128x4096x7168": what was computed. */
static void name_work(const json_t *row, char text[BAR_TEXT])
{
	snprintf(text, BAR_TEXT, "%.20s%s%.200s",
		 row_is_peak(row) ? "" : row_get_text(row, "op"),
		 row_is_peak(row) ? "" : " ", row_get_text(row, "shape"));
}

/* "cpu-avx512vnni, 2 threads": what computed it. */
static void name_backend(const json_t *row, bool with_threads, char text[BAR_TEXT])
{
	const char *backend = row_get_text(row, "backend");
	const char *of = row_get_text(row, "activations");
	double threads = row_get_number(row, "threads");
	char count[32] = "", a[32] = "";

	if (row_is_baseline(row))
		backend += strlen("baseline:");
	else if (*of && strcmp(of, "nvfp4"))
		snprintf(a, sizeof a, ", A of %.16s", of);
	if (with_threads)
		snprintf(count, sizeof count, ", %.0f thread%s", threads,
			 threads == 1 ? "" : "s");
	snprintf(text, BAR_TEXT, "%.160s%s%s%s", backend,
		 json_is_false(json_object_get(row, "packed")) ? " unpacked" : "", a,
		 count);
}

/* Whether threads are worth naming: rows of a GPU have one each. */
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
			       strcmp(backend, "cpu-avx512vnni") &&
			       strcmp(backend, "cpu-amx")
			   ? 5
			   : 0;
	return strstr(backend, "bf16")	     ? 1
	       : strstr(backend, "avx2")     ? 3
	       : strstr(backend, "openblas") ? 4
	       : strstr(backend, "ggml")     ? 4
					     : 2;
}

/* The bars of a chart; *groups: how many of them have a line above. */
static int fill_bars(const json_t *rows, enum kind kind, double scale, struct bar *bars,
		     int *groups)
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

		if (!is_in(rows, row, kind))
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
		fill_value(row, kind, scale, bar);
		count++;
	}
	return count;
}

static int put_bars(FILE *file, const json_t *rows, enum kind kind)
{
	struct bar *bars = calloc(json_array_size(rows) + 1, sizeof *bars);
	struct bar_chart chart = views[kind].chart;
	int count, groups;
	double most = 0;

	if (!bars)
		return cli_no_memory("charts");
	count = fill_bars(rows, kind, 1, bars, &groups);
	for (int j = 0; j < count; j++)
		most = bars[j].value > most ? bars[j].value : most;
	if (most >= 1e4 && chart.larger_unit) {
		chart.unit = chart.larger_unit;
		fill_bars(rows, kind, 1e-3, bars, &groups);
	}
	/* Bars need no line above them if no work has two. */
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
	html_put(file, bad ? "<div class='tile bad'><b>" : "<div class='tile'><b>",
		 text, "</b>");
	html_put(file, "<span>", what, "</span></div>\n");
}

/* A tile for each baseline: the median of the speedups over it. */
static void put_speedups(FILE *file, const json_t *rows)
{
	for (int i = 0; i < BASELINES; i++) {
		const char *name = baseline_engines[i]->backend + strlen("baseline:");
		struct bench_samples ratios = {0};
		char text[64], what[96];
		const json_t *row;
		size_t j;

		json_array_foreach(rows, j, row)
		{
			const json_t *all = json_object_get(row, "speedup");

			if (!row_is_block(row) && has(all, name))
				bench_samples_add(&ratios, row_get_number(all, name));
		}
		snprintf(text, sizeof text, "%.2f times",
			 bench_samples_median(&ratios, 0));
		snprintf(what, sizeof what, "as fast as %s (median of %d)", name,
			 ratios.count);
		if (ratios.count)
			put_tile(file, false, text, what);
		bench_samples_free(&ratios);
	}
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
		bool by_memory = strstr(row_get_text(row, "limit_kind"), "bandwidth");

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
	put_tile(file, ok < checked, checked ? text : "-", "checked results right");
	put_speedups(file, rows);
	snprintf(text, sizeof text, "%.0f GFLOP/s", gflops);
	put_tile(file, false, text, "fastest multiplication");
	snprintf(text, sizeof text, "%.1f GB/s", gbps);
	put_tile(file, false, gbps > 0 ? text : "-", "fastest memory-bound row");
	snprintf(text, sizeof text, "%.0f %%", 100 * least);
	put_tile(file, false, text, "lowest share of the limit");
	fputs("</div>\n", file);
}

#define SKIPPED_COLUMN "against_baselines"

/* Columns that say nothing in any row are left out. */
static bool is_shown(const struct table_column *column, const json_t *rows)
{
	const json_t *row;
	size_t i;

	json_array_foreach(rows, i, row)
	{
		const json_t *value = json_object_get(row, column->key);

		if (column->title && value && !json_is_null(value))
			return true;
		/* It says why, in this column. */
		if (*row_get_text(row, "skipped") &&
		    !strcmp(column->key, SKIPPED_COLUMN))
			return true;
	}
	return false;
}

/* A narrow screen shows the title of a column in each cell. */
static void put_table_style(FILE *file, const json_t *rows)
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
		if (is_shown(c, rows))
			fprintf(file, "td:nth-child(%d)::before{content:'%s'}", ++n,
				c->title);
	}
	fputs("}\n", file);
}

static void put_cell(FILE *file, const struct table_column *column, const json_t *row)
{
	const json_t *value = json_object_get(row, column->key);
	const char *why = row_get_text(row, "skipped");
	bool is_last = !strcmp(column->key, SKIPPED_COLUMN);
	char text[TABLE_CELL] = "";

	if (is_last && !json_is_string(value) && *why)
		snprintf(text, sizeof text, "skipped: %.400s", why);
	/* A peak's time is that of 1e9 units. */
	else if (value && !json_is_null(value) &&
		 !(row_is_peak(row) && !strcmp(column->key, "time_s")))
		table_cell(column, value, text);
	html_put(file,
		 json_is_number(value) ? "<td>"
		 : !strcmp(column->key, "ok") && json_is_false(value)
		     ? "<td class='t bad'>"
		     : "<td class=t>",
		 text, "</td>");
}

static void put_table(FILE *file, const json_t *rows)
{
	const struct table_column *c;
	size_t i;
	const json_t *row;

	fputs("<section><h2>All rows</h2>\n<table><tbody><tr>", file);
	for (c = row_columns; c->key; c++) {
		if (is_shown(c, rows))
			fprintf(file, "<th%s>%s",
				c->print || !strcmp(c->key, "threads") ? ""
								       : " class=t",
				c->title);
	}
	fputs("</tr>\n", file);
	json_array_foreach(rows, i, row)
	{
		fputs("<tr>", file);
		for (c = row_columns; c->key; c++) {
			if (is_shown(c, rows))
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
	json_array_foreach(rows, i, row) html_put(
	    file, "<li><code>", row_get_text(row, "command"), "</code></li>\n");
	fputs("</ol></details></section>\n", file);
}

/* ---- the page ------------------------------------------------------------ */

static void put_head(FILE *file, const json_t *rows, const char *how)
{
	const json_t *first = json_array_get(rows, 0);
	char quiet[ROWS_QUIET_TEXT];
	bool is_busy;

	fputs("<!doctype html>\n<html lang=en><head><meta charset=utf-8>\n"
	      "<meta name=viewport content='width=device-width'>\n"
	      "<title>nibblas report</title>\n<style>\n",
	      file);
	fputs(style, file);
	put_table_style(file, rows);
	bars_put_style(file);
	roofline_put_style(file);
	html_put(file, "</style></head><body>\n<h1>nibblas report</h1>\n<p>",
		 row_get_text(first, "machine"), "<br>nibblas ");
	html_put(file, "", row_get_text(first, "version"), ", ");
	html_put(file, "", row_get_text(first, "date"), "");
	if (how)
		html_put(file, "<br><code>", how, "</code>");
	fputs("</p>\n", file);
	is_busy = rows_quiet_text(rows, quiet);
	if (*quiet)
		html_put(file, is_busy ? "<p class=warn>" : "<p>", quiet, "</p>\n");
}

static int put_page(FILE *file, const json_t *rows, const char *how)
{
	int code = CLI_OK;

	put_head(file, rows, how);
	put_tiles(file, rows);
	for (int kind = TOKEN; kind <= BANDWIDTH && !code; kind++)
		code = put_bars(file, rows, (enum kind)kind);
	if (!code)
		code = roofline_put(file, rows);
	put_table(file, rows);
	put_commands(file, rows);
	fputs("</body></html>\n", file);
	return code;
}

int report_write(const char *path, const json_t *rows, const char *how)
{
	struct out_file out;
	int code;

	if (!out_file_open(&out, path))
		return cli_error(CLI_FAILED, "%s: %s", path, strerror(errno));
	code = put_page(out.stream, rows, how);
	if (code)
		out_file_discard(&out);
	else if (!out_file_commit(&out))
		code = cli_error(CLI_FAILED, "%s: %s", path, strerror(errno));
	return code;
}
