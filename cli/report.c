/* SPDX-License-Identifier: Apache-2.0 */
/* report.c - rows of nib bench as one HTML page with charts. */
#include "report.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "roofline.h"
#include "rows.h"
#include "svg.h"

static const char style[] =
    ":root{color-scheme:light dark;--fg:#1b1f23;--dim:#5b636b;--bg:#fff;"
    "--box:#f5f6f8;--edge:#d9dde2}\n"
    "@media(prefers-color-scheme:dark){:root{--fg:#e6e8eb;--dim:#a3abb4;"
    "--bg:#15181c;--box:#1f2329;--edge:#363c44}}\n"
    "body{font:15px/1.5 system-ui,sans-serif;color:var(--fg);"
    "background:var(--bg);margin:0 auto;padding:24px 20px 60px;"
    "max-width:960px}\n"
    "h1{font-size:26px;margin:0 0 4px}h2{font-size:19px;margin:40px 0 4px}\n"
    "p{margin:0 0 12px;color:var(--dim)}\n"
    ".tiles{display:flex;flex-wrap:wrap;gap:12px;margin:20px 0}\n"
    ".tile{background:var(--box);border:1px solid var(--edge);"
    "border-radius:8px;padding:10px 16px;min-width:120px}\n"
    ".tile b{display:block;font-size:22px}.tile span{color:var(--dim)}\n"
    ".bad b{color:var(--s6)}\n"
    ".scroll{overflow-x:auto}\n"
    "table{border-collapse:collapse;font-size:13px;white-space:nowrap;"
    "font-variant-numeric:tabular-nums}\n"
    "th,td{padding:4px 10px;border-bottom:1px solid var(--edge);"
    "text-align:right}\n"
    "th{background:var(--box)}\n"
    "th.t,td.t{text-align:left}td.bad{color:var(--s6);font-weight:700}\n"
    "code{font:12px ui-monospace,monospace;background:var(--box);"
    "padding:1px 4px;border-radius:3px}\n"
    "details{margin:12px 0}summary{cursor:pointer}\n"
    "details li{margin:4px 0;overflow-wrap:anywhere}\n";

/* ---- choosing rows ------------------------------------------------------- */

static bool is_baseline(const json_t *row)
{
	return !strncmp(row_get_text(row, "backend"), "baseline:", 9);
}

static bool is_peak(const json_t *row)
{
	return !strcmp(row_get_text(row, "op"), "peak");
}

static bool is_ours(const json_t *row)
{
	return !is_baseline(row) && !is_peak(row) &&
	       row_get_number(row, "time_s") > 0;
}

static bool is_memory_bound(const json_t *row)
{
	return strstr(row_get_text(row, "limit_kind"), "bandwidth") != NULL;
}

/* "gemm 128x4096x7168": what was computed. */
static void name_work(const json_t *row, char text[SVG_TEXT])
{
	snprintf(text, SVG_TEXT, "%s %s", row_get_text(row, "op"),
		 row_get_text(row, "shape"));
}

/* "cpu-avx512, 2 threads": what computed it. */
static void name_backend(const json_t *row, char text[SVG_TEXT])
{
	const json_t *packed = json_object_get(row, "packed");
	const char *backend = row_get_text(row, "backend");
	double threads = row_get_number(row, "threads");

	snprintf(text, SVG_TEXT, "%s%s, %.0f thread%s",
		 is_baseline(row) ? backend + strlen("baseline:") : backend,
		 json_is_false(packed) ? " unpacked" : "", threads,
		 threads == 1 ? "" : "s");
}

static void fill_bar(const json_t *row, const json_t *before, bool grouped,
		     struct svg_bar *bar)
{
	char work[SVG_TEXT], last[SVG_TEXT] = "", backend[SVG_TEXT];
	const char *baseline = row_get_text(row, "backend");

	*bar = (struct svg_bar){0};
	name_work(row, work);
	name_backend(row, backend);
	if (before)
		name_work(before, last);
	if (grouped && strcmp(work, last))
		memcpy(bar->group, work, sizeof work);
	memcpy(bar->label, grouped ? backend : work, SVG_TEXT);
	snprintf(bar->hint, sizeof bar->hint, "%s, %s", work, backend);
	if (is_baseline(row))
		bar->series = strstr(baseline, "bf16")	     ? 1
			      : strstr(baseline, "avx2")     ? 3
			      : strstr(baseline, "openblas") ? 4
							     : 2;
	else if (strstr(baseline, "avx512bw") || !strstr(baseline, "avx512"))
		bar->series = 5;
}

/* ---- charts -------------------------------------------------------------- */

/* One chart: which rows, and what of them. */
struct view {
	bool (*wanted)(const json_t *row);
	void (*fill)(const json_t *row, struct svg_bar *bar);
	struct svg_chart chart;
};

static bool wants_limit(const json_t *row)
{
	return is_ours(row) && row_get_number(row, "fraction_of_limit") > 0;
}

static void fill_limit(const json_t *row, struct svg_bar *bar)
{
	bar->value = 100 * row_get_number(row, "fraction_of_limit");
	snprintf(bar->value_text, sizeof bar->value_text, "%.0f %% %.24s",
		 bar->value,
		 is_memory_bound(row) ? "bandwidth"
				      : row_get_text(row, "limit_kind"));
}

static bool wants_gflops(const json_t *row)
{
	return (is_baseline(row) || is_ours(row)) &&
	       row_get_number(row, "gflops") > 0 && !is_memory_bound(row);
}

static void fill_gflops(const json_t *row, struct svg_bar *bar)
{
	bar->value = row_get_number(row, "gflops");
	if (!is_baseline(row) && row_get_number(row, "limit_s") > 0)
		bar->mark = row_get_number(row, "flop") /
			    row_get_number(row, "limit_s") * 1e-9;
	snprintf(bar->value_text, sizeof bar->value_text, "%.0f", bar->value);
}

static bool wants_gbps(const json_t *row)
{
	return is_ours(row) && is_memory_bound(row);
}

static void fill_gbps(const json_t *row, struct svg_bar *bar)
{
	bar->value = row_get_number(row, "gbps");
	bar->mark = row_get_number(row, "bytes") /
		    row_get_number(row, "limit_s") * 1e-9;
	snprintf(bar->value_text, sizeof bar->value_text, "%.1f", bar->value);
}

static bool wants_error(const json_t *row)
{
	return is_ours(row) && json_is_boolean(json_object_get(row, "ok"));
}

static void fill_error(const json_t *row, struct svg_bar *bar)
{
	bar->value = row_get_number(row, "error_fraction");
	if (!json_is_true(json_object_get(row, "ok")))
		bar->series = 6;
	snprintf(bar->value_text, sizeof bar->value_text, "%.1e of %.1e",
		 row_get_number(row, "error"), row_get_number(row, "bound"));
}

static const struct view views[] = {
    {wants_limit,
     fill_limit,
     {.title = "Share of this machine's limit",
      .note =
	  "The least time this machine could need over the time taken. The "
	  "limit is the multiply-adds at the rate of the backend's multiply "
	  "instruction (for up to 8 rows: of a GEMM), or the bytes at the "
	  "bandwidth of memory, whichever is slower; both were measured in "
	  "the same run.  Above 100 %: the machine was busy with something "
	  "else when they were.",
      .unit = "%",
      .line = 100,
      .line_label = "100 %: the limit"}},
    {wants_gflops,
     fill_gflops,
     {.title = "Multiplications that are bound by arithmetic",
      .note = "Same shape, same run, in turns. Baselines, if any, got operands "
	      "that were dequantised (and packed) beforehand.",
      .unit = "GFLOP/s",
      .mark_label = "the backend's limit"}},
    {wants_gbps,
     fill_gbps,
     {.title = "Operations that are bound by memory",
      .note = "Bytes that must be moved, each once, over the time taken; "
	      "operands out of the caches.",
      .unit = "GB/s",
      .mark_label = "the measured bandwidth"}},
    {wants_error,
     fill_error,
     {.title = "Error against its bound",
      .note = "The worst |C - exact| of the elements compared with the exact "
	      "integer sum, as a share of the bound of that element. Rounding "
	      "to a 16-bit type alone may reach 1.",
      .unit = "of bound",
      .line = 1,
      .line_label = "1: the bound"}},
};

/* True if the wanted rows differ in more than what they compute. */
static bool needs_groups(const json_t *rows, const struct view *view)
{
	char backend[SVG_TEXT], first[SVG_TEXT] = "";
	size_t i;
	const json_t *row;

	json_array_foreach(rows, i, row)
	{
		if (!view->wanted(row))
			continue;
		name_backend(row, backend);
		if (!first[0])
			memcpy(first, backend, sizeof first);
		else if (strcmp(backend, first))
			return true;
	}
	return false;
}

static int put_view(FILE *file, const json_t *rows, const struct view *view)
{
	struct svg_bar *bars = calloc(json_array_size(rows) + 1, sizeof *bars);
	bool grouped = needs_groups(rows, view);
	const json_t *row, *before = NULL;
	int count = 0;
	size_t i;

	if (!bars)
		return cli_no_memory("charts");
	json_array_foreach(rows, i, row)
	{
		if (!view->wanted(row))
			continue;
		fill_bar(row, before, grouped, &bars[count]);
		view->fill(row, &bars[count++]);
		before = row;
	}
	svg_put_bars(file, &view->chart, bars, count);
	free(bars);
	return CLI_OK;
}

/* ---- numbers ------------------------------------------------------------- */

static void put_tile(FILE *file, bool bad, const char *text, const char *what)
{
	fprintf(file, "<div class='tile%s'><b>", bad ? " bad" : "");
	svg_put_text(file, text);
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

		if (!is_ours(row))
			continue;
		if (row_get_number(row, "gflops") > gflops)
			gflops = row_get_number(row, "gflops");
		if (is_memory_bound(row) && row_get_number(row, "gbps") > gbps)
			gbps = row_get_number(row, "gbps");
		if (share > 0 && (least <= 0 || share < least))
			least = share;
		checked += wants_error(row);
		ok += json_is_true(json_object_get(row, "ok"));
	}
	fputs("<div class=tiles>\n", file);
	snprintf(text, sizeof text, "%d of %d", ok, checked);
	put_tile(file, ok < checked, text, "results inside their bound");
	snprintf(text, sizeof text, "%.0f GFLOP/s", gflops);
	put_tile(file, false, text, "fastest multiplication");
	snprintf(text, sizeof text, "%.1f GB/s", gbps);
	put_tile(file, false, gbps > 0 ? text : "-",
		 "fastest memory-bound row");
	snprintf(text, sizeof text, "%.0f %%", 100 * least);
	put_tile(file, false, text, "lowest share of the limit");
	fputs("</div>\n", file);
}

static void put_number(FILE *file, const json_t *row, const char *key,
		       double scale, const char *unit, int digits)
{
	const json_t *value = json_object_get(row, key);

	if (json_is_number(value))
		fprintf(file, "<td>%.*f%s</td>", digits,
			json_number_value(value) * scale, unit);
	else
		fputs("<td>-</td>", file);
}

static void put_time(FILE *file, double s)
{
	char text[CLI_SECONDS_TEXT];

	fprintf(file, "<td>%s</td>", s > 0 ? cli_seconds_text(s, text) : "-");
}

static void put_words(FILE *file, const json_t *row, const char *key)
{
	fputs("<td class=t>", file);
	svg_put_text(file, row_get_text(row, key));
	fputs("</td>", file);
}

static void put_error(FILE *file, const json_t *row)
{
	const json_t *ok = json_object_get(row, "ok");

	if (!json_is_boolean(ok))
		fputs("<td>-</td><td>-</td><td class=t></td>", file);
	else
		fprintf(file, "<td>%.1e</td><td>%.1e</td><td class='t%s",
			row_get_number(row, "error"),
			row_get_number(row, "bound"),
			json_is_true(ok) ? "'>yes</td>" : " bad'>NO</td>");
}

static void put_table(FILE *file, const json_t *rows)
{
	size_t i;
	const json_t *row;

	fputs(
	    "<section><h2>All rows</h2>\n<div class=scroll><table><tr>"
	    "<th class=t>op<th class=t>shape<th class=t>backend<th>threads"
	    "<th class=t>layout<th class=t>out<th>time<th>spread<th>GFLOP/s<th>GB/s"
	    "<th>of limit<th class=t>limit<th>error<th>bound<th class=t>ok"
	    "<th class=t>against baselines</tr>\n",
	    file);
	json_array_foreach(rows, i, row)
	{
		fputs("<tr>", file);
		put_words(file, row, "op");
		put_words(file, row, "shape");
		put_words(file, row, "backend");
		put_number(file, row, "threads", 1, "", 0);
		put_words(file, row, "layout");
		put_words(file, row, "out");
		if (is_peak(row))
			fputs("<td>-</td>", file);
		else
			put_time(file, row_get_number(row, "time_s"));
		put_number(file, row, "spread", 100, " %", 0);
		put_number(file, row, "gflops", 1, "", 1);
		put_number(file, row, "gbps", 1, "", 1);
		put_number(file, row, "fraction_of_limit", 100, " %", 1);
		put_words(file, row, "limit_kind");
		put_error(file, row);
		put_words(file, row, "against_baselines");
		fputs("</tr>\n", file);
	}
	fputs("</table></div></section>\n", file);
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
		svg_put_text(file, row_get_text(row, "command"));
		fputs("</code></li>\n", file);
	}
	fputs("</ol></details></section>\n", file);
}

static int put_page(FILE *file, const json_t *rows, const char *how)
{
	const json_t *first = json_array_get(rows, 0);
	int code = CLI_OK;

	fputs("<!doctype html>\n<html lang=en><head><meta charset=utf-8>\n"
	      "<meta name=viewport content='width=device-width'>\n"
	      "<title>nibblas report</title>\n<style>\n",
	      file);
	fputs(style, file);
	svg_put_style(file);
	fputs("</style></head><body>\n<h1>nibblas report</h1>\n<p>", file);
	svg_put_text(file, row_get_text(first, "machine"));
	fputs("<br>nibblas ", file);
	svg_put_text(file, row_get_text(first, "version"));
	fputs(", ", file);
	svg_put_text(file, row_get_text(first, "date"));
	if (how) {
		fputs("<br><code>", file);
		svg_put_text(file, how);
		fputs("</code>", file);
	}
	fputs("</p>\n", file);
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
