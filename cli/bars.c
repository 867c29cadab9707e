/* SPDX-License-Identifier: Apache-2.0 */
/* bars.c - charts of horizontal bars in an HTML page: see report.h. */
#include "report.h"

#include <math.h>
#include <string.h>

#include "cli.h"

void html_put(FILE *file, const char *before, const char *text, const char *after)
{
	static const char special[] = "&<>\"";
	static const char *const names[] = {"&amp;", "&lt;", "&gt;", "&quot;"};

	fputs(before, file);
	for (; *text; text++) {
		const char *at = strchr(special, *text);
		const size_t control = cli_control_bytes(text);

		/* Bidirectional controls can disguise text. */
		if (control > 1) {
			fputc('?', file);
			text += control - 1;
		} else if (at)
			fputs(names[at - special], file);
		else
			fputc(*text, file);
	}
	fputs(after, file);
}

/* Okabe and Ito's colours, which colour-blind readers tell apart. */
static const char style[] =
    ":root{--s0:#0072b2;--s1:#e69f00;--s2:#009e73;--s3:#cc79a7;"
    "--s4:#8c8c8c;--s5:#56b4e9;--s6:#c62828;--line:#b3261e;"
    "--grid:#e3e3e3}\n"
    "@media(prefers-color-scheme:dark){:root{--s0:#56b4e9;"
    "--s1:#e69f00;--s2:#2bb892;--s3:#d89bbb;--s4:#9a9a9a;"
    "--s5:#3f7fb5;--s6:#ff6b5e;--line:#ff8a7a;--grid:#33373d}}\n"
    ".bars{font-size:13px;line-height:1.3}\n"
    ".bars h3{font-size:13px;margin:14px 0 4px;overflow-wrap:anywhere}\n"
    /* Label, plot and value; on a phone the label is a line of its own. */
    ".bar{display:grid;grid-template-columns:280px 1fr 170px;gap:2px 12px;"
    "align-items:center;margin:4px 0}\n"
    ".bar>*{overflow-wrap:anywhere;min-width:0}\n"
    ".plot{position:relative;height:16px;background:var(--box)}\n"
    ".plot>*{position:absolute;top:0;bottom:0}\n"
    ".plot i{left:0;min-width:1px}\n"
    ".plot u{top:-3px;bottom:-3px;border-left:2px dashed var(--line)}\n"
    ".plot s{top:-2px;bottom:-2px;border-left:3px solid var(--fg)}\n"
    ".axis .plot{background:none;color:var(--dim)}\n"
    ".axis .plot span{transform:translateX(-50%);white-space:nowrap}\n"
    ".key{color:var(--line)}\n"
    "@media(max-width:700px){.bar{grid-template-columns:1fr 116px}"
    ".bar>:first-child{grid-column:1/-1}.axis>:first-child{display:none}}\n";

void bars_put_style(FILE *file)
{
	fputs(style, file);
	for (int i = 0; i < BAR_SERIES; i++)
		fprintf(file, ".s%d{fill:var(--s%d);background:var(--s%d)}\n", i, i, i);
}

/* A step of 1, 2 or 5 times a power of ten that cuts end into 2 to 5. */
static double nice_step(double end)
{
	double step = pow(10, floor(log10(end / 2)));

	if (end / step > 10)
		return 5 * step;
	return end / step > 5 ? 2 * step : step;
}

static double axis_end(const struct bar_chart *chart, const struct bar *bars, int count)
{
	double end = chart->line;

	for (int i = 0; i < count; i++)
		end = fmax(end, fmax(bars[i].value, bars[i].mark));
	return end > 0 ? end * 1.02 : 1;
}

static void put_head(FILE *file, const struct bar_chart *chart)
{
	html_put(file, "<section><h2>", chart->title, "</h2>\n");
	html_put(file, "<p>", chart->note, "");
	if (chart->mark_label)
		html_put(file, " The black tick (white on dark pages) is ",
			 chart->mark_label, ".");
	if (chart->line > 0)
		html_put(file, " <span class=key>The dashed line is ",
			 chart->line_label, ".</span>");
	fputs("</p>\n<div class=bars>\n", file);
}

static void put_axis(FILE *file, const struct bar_chart *chart, double end)
{
	double step = nice_step(end);

	fputs("<div class='bar axis'><span></span><span class=plot>", file);
	for (int i = 0; i * step <= end; i++)
		fprintf(file, "<span style='left:%.2f%%'>%g</span>",
			100 * i * step / end, i * step);
	html_put(file, "</span><span>", chart->unit, "</span></div>\n");
}

static void put_bar(FILE *file, const struct bar_chart *chart, const struct bar *bar,
		    double end)
{
	if (bar->group[0])
		html_put(file, "<h3>", bar->group, "</h3>\n");
	html_put(file, "<div class=bar><span>", bar->label, "</span><span class=plot>");
	fprintf(file, "<i class=s%d style='width:%.2f%%'></i>", bar->series,
		100 * bar->value / end);
	if (chart->line > 0)
		fprintf(file, "<u style='left:%.2f%%'></u>", 100 * chart->line / end);
	if (bar->mark > 0)
		fprintf(file, "<s style='left:%.2f%%'></s>", 100 * bar->mark / end);
	html_put(file, "</span><span>", bar->value_text, "</span></div>\n");
}

void bars_put(FILE *file, const struct bar_chart *chart, const struct bar *bars,
	      int count)
{
	double end = axis_end(chart, bars, count);

	if (count == 0)
		return;
	put_head(file, chart);
	for (int i = 0; i < count; i++)
		put_bar(file, chart, &bars[i], end);
	put_axis(file, chart, end);
	fputs("</div></section>\n", file);
}
