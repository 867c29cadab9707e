/* SPDX-License-Identifier: Apache-2.0 */
/* svg.c - charts of horizontal bars, written into an HTML page. */
#include "svg.h"

#include <math.h>
#include <string.h>

/* Pixels at the chart's natural size; the page scales it. */
#define WIDTH	    920
#define LABEL_WIDTH 360
#define VALUE_WIDTH 130
#define PLOT_WIDTH  (WIDTH - LABEL_WIDTH - VALUE_WIDTH)
#define BAR	    16
#define GAP	    6
#define GROUP	    26 /* a group's heading */
#define TOP	    26 /* labels of lines */
#define AXIS	    30
/* Characters of 12 pixel fonts are some 7 wide on average. */
#define CHARS_OF_LABEL 48

void svg_put_text(FILE *file, const char *text)
{
	for (; *text; text++) {
		switch (*text) {
		case '&':
			fputs("&amp;", file);
			break;
		case '<':
			fputs("&lt;", file);
			break;
		case '>':
			fputs("&gt;", file);
			break;
		case '"':
			fputs("&quot;", file);
			break;
		default:
			fputc(*text, file);
		}
	}
}

void svg_put_style(FILE *file)
{
	/* Okabe and Ito's colours, which colour-blind readers tell apart. */
	fputs(":root{--s0:#0072b2;--s1:#e69f00;--s2:#009e73;--s3:#cc79a7;"
	      "--s4:#8c8c8c;--s5:#56b4e9;--s6:#c62828;--line:#b3261e;"
	      "--grid:#e3e3e3}\n"
	      "@media(prefers-color-scheme:dark){:root{--s0:#56b4e9;"
	      "--s1:#e69f00;--s2:#2bb892;--s3:#d89bbb;--s4:#9a9a9a;"
	      "--s5:#3f7fb5;--s6:#ff6b5e;--line:#ff8a7a;--grid:#33373d}}\n"
	      "svg{width:100%;height:auto;max-width:920px;display:block}\n"
	      "svg text{font:12px system-ui,sans-serif;fill:var(--fg)}\n"
	      "svg .group{font-weight:600}\n"
	      /* Numbers stay readable where a line runs through them. */
	      "svg .value{paint-order:stroke;stroke:var(--bg);"
	      "stroke-width:4px;stroke-linejoin:round}\n"
	      "svg .axis{fill:var(--dim)}\n"
	      "svg .grid{stroke:var(--grid)}\n"
	      "svg .line{stroke:var(--line);stroke-width:1.5;"
	      "stroke-dasharray:5 3}\n"
	      "svg .linelabel{fill:var(--line)}\n"
	      "svg .mark{stroke:var(--fg);stroke-width:2.5}\n"
	      "svg .roof{stroke:var(--line);stroke-width:2}\n"
	      "svg .lead{fill:none;stroke:var(--dim);stroke-width:.7;"
	      "opacity:.6}\n",
	      file);
	for (int i = 0; i < SVG_SERIES; i++)
		fprintf(file, "svg .s%d{fill:var(--s%d)}\n", i, i);
}

/* A step of 1, 2 or 5 times a power of ten that cuts max into 4 to 8. */
static double nice_step(double max)
{
	double step = pow(10, floor(log10(max / 4)));

	if (max / step > 20)
		return 5 * step;
	return max / step > 8 ? 2 * step : step;
}

static double axis_end(const struct svg_chart *chart,
		       const struct svg_bar *bars, int count)
{
	double end = chart->line;

	for (int i = 0; i < count; i++) {
		end = fmax(end, bars[i].value);
		end = fmax(end, bars[i].mark);
	}
	return end > 0 ? end * 1.04 : 1;
}

static int chart_height(const struct svg_bar *bars, int count)
{
	int height = TOP + AXIS;

	for (int i = 0; i < count; i++)
		height += BAR + GAP + (bars[i].group[0] ? GROUP : 0);
	return height;
}

void svg_put_cut(FILE *file, const char *text, size_t most)
{
	char cut[SVG_TEXT];

	snprintf(cut, sizeof cut, "%.*s%s",
		 (int)(strlen(text) > most ? most - 1 : most), text,
		 strlen(text) > most ? "\xe2\x80\xa6" : "");
	svg_put_text(file, cut);
}

static void put_axis(FILE *file, const struct svg_chart *chart, double end,
		     int height)
{
	double step = nice_step(end);
	int bottom = height - AXIS;

	for (int i = 0; i * step <= end; i++) {
		double x = LABEL_WIDTH + i * step / end * PLOT_WIDTH;

		fprintf(file,
			"<line class=grid x1='%.1f' x2='%.1f' y1='%d' "
			"y2='%d'/><text class=axis x='%.1f' y='%d' "
			"text-anchor=middle>%g</text>\n",
			x, x, TOP, bottom, x, bottom + 16, i * step);
	}
	fprintf(file, "<text class=axis x='%d' y='%d'>%s</text>\n",
		LABEL_WIDTH + PLOT_WIDTH + 14, bottom + 16, chart->unit);
}

static void put_line(FILE *file, const struct svg_chart *chart, double end,
		     int height)
{
	double x = LABEL_WIDTH + chart->line / end * PLOT_WIDTH;

	if (chart->line <= 0)
		return;
	fprintf(file,
		"<line class=line x1='%.1f' x2='%.1f' y1='%d' y2='%d'/>"
		"<text class=linelabel x='%.1f' y='%d' text-anchor=end>",
		x, x, TOP - 4, height - AXIS, x, TOP - 10);
	svg_put_text(file, chart->line_label);
	fputs("</text>\n", file);
}

static void put_bar(FILE *file, const struct svg_bar *bar, double end, int y)
{
	double width = fmax(bar->value / end * PLOT_WIDTH, 1);
	double mark = LABEL_WIDTH + bar->mark / end * PLOT_WIDTH;
	double text_x = LABEL_WIDTH + width + 6;

	double text_end = text_x + 8 * (double)strlen(bar->value_text);

	/* A mark just behind the bar would cross the number. */
	if (bar->mark > 0 && mark + 6 > text_x && mark < text_end)
		text_x = mark + 6;
	fputs("<g><title>", file);
	svg_put_text(file, bar->hint[0] ? bar->hint : bar->label);
	fprintf(file, "</title><text x='%d' y='%d' text-anchor=end>",
		LABEL_WIDTH - 8, y + BAR - 4);
	svg_put_cut(file, bar->label, CHARS_OF_LABEL);
	fprintf(file,
		"</text><rect class=s%d x='%d' y='%d' width='%.1f' height='%d' "
		"rx=2 />",
		bar->series, LABEL_WIDTH, y, width, BAR);
	if (bar->mark > 0)
		fprintf(file,
			"<line class=mark x1='%.1f' x2='%.1f' y1='%d' "
			"y2='%d'/>",
			mark, mark, y - 2, y + BAR + 2);
	fprintf(file, "<text class=value x='%.1f' y='%d'>", text_x,
		y + BAR - 4);
	svg_put_text(file, bar->value_text);
	fputs("</text></g>\n", file);
}

void svg_put_bars(FILE *file, const struct svg_chart *chart,
		  const struct svg_bar *bars, int count)
{
	int height = chart_height(bars, count), y = TOP;
	double end = axis_end(chart, bars, count);

	if (count == 0)
		return;
	fputs("<section><h2>", file);
	svg_put_text(file, chart->title);
	fputs("</h2>\n<p>", file);
	svg_put_text(file, chart->note);
	if (chart->mark_label) {
		fputs(" The black tick (white on dark pages) is ", file);
		svg_put_text(file, chart->mark_label);
		fputs(".", file);
	}
	fprintf(file, "</p>\n<svg viewBox='0 0 %d %d' role=img aria-label=\"",
		WIDTH, height);
	svg_put_text(file, chart->title);
	fputs("\">\n", file);
	put_axis(file, chart, end, height);
	put_line(file, chart, end, height);
	for (int i = 0; i < count; i++) {
		if (bars[i].group[0]) {
			fprintf(file, "<text class=group x='0' y='%d'>",
				y + GROUP - 8);
			svg_put_text(file, bars[i].group);
			fputs("</text>\n", file);
			y += GROUP;
		}
		put_bar(file, &bars[i], end, y);
		y += BAR + GAP;
	}
	fputs("</svg></section>\n", file);
}
