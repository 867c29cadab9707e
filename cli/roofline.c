/* SPDX-License-Identifier: Apache-2.0 */
/*
 * roofline.c - operations a byte against operations a second, both in powers of
 * ten, below the roof of what was measured: reading on its slope, the multiply
 * instruction on its flat part.
 *
 * The chart is drawn for the width of a phone, so that its texts can be read
 * there; wider screens enlarge it.  Dots carry numbers, and a list next to the
 * chart has their names.
 */
#include "report.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "peaks.h"
#include "rows.h"

/* Pixels at the chart's natural size. */
#define WIDTH	   350
#define LEFT	   40
#define PLOT_WIDTH 270
#define TOP	   46
#define MIN_HEIGHT 240
#define BOTTOM	   34
#define LABEL_X	   (LEFT + PLOT_WIDTH + 22)
#define LABEL_STEP 11
/* More rows than this are dots without numbers. */
#define MAX_LABELS 40

struct point {
	double per_byte, per_s; /* FLOP */
	double x, y, label_y;
	char name[BAR_TEXT];
	bool is_bad;
};

struct chart {
	struct point *points;
	int count;
	double flop_per_s, bytes_per_s; /* the roof */
	double x_low, x_high, y_low, y_high;
	double unit; /* of the axis of FLOP a second */
	const char *unit_name;
	int height; /* of the plot */
	char backend[64];
	enum cli_activations activations;
	double threads;
};

/* What A is in a row; rows of before it could be chosen do not say. */
static enum cli_activations activations_of(const json_t *row)
{
	int index =
	    cli_word_index(CLI_ACTIVATIONS_WORDS, row_get_text(row, "activations"));

	return index < 0 ? ACT_NVFP4 : (enum cli_activations)index;
}

static bool belongs(const json_t *row, const struct chart *chart)
{
	return !strcmp(row_get_text(row, "backend"), chart->backend) &&
	       activations_of(row) == chart->activations &&
	       fabs(row_get_number(row, "threads") - chart->threads) < 0.5;
}

/* Whether a rate is one that a scale can show: any machine's, and far more. */
static bool is_rate(double x)
{
	return x >= 1e-30 && x <= 1e30;
}

static bool is_point(const json_t *row)
{
	const double flop = row_get_number(row, "flop");

	return !row_is_baseline(row) && is_rate(flop / row_get_number(row, "bytes")) &&
	       is_rate(flop / row_get_number(row, "time_s")) &&
	       is_rate(row_get_number(row, "peak_gflops")) &&
	       is_rate(row_get_number(row, "peak_gbps"));
}

static void add_point(struct chart *chart, const json_t *row)
{
	struct point *p = &chart->points[chart->count++];
	double flop = row_get_number(row, "flop");

	*p = (struct point){
	    .per_byte = flop / row_get_number(row, "bytes"),
	    .per_s = flop / row_get_number(row, "time_s"),
	    .is_bad = json_is_false(json_object_get(row, "ok")),
	};
	snprintf(p->name, sizeof p->name, "%.20s %.200s, %.0f %%",
		 row_get_text(row, "op"), row_get_text(row, "shape"),
		 100 * row_get_number(row, "fraction_of_limit"));
	chart->flop_per_s =
	    fmax(chart->flop_per_s, row_get_number(row, "peak_gflops") * 1e9);
	chart->bytes_per_s =
	    fmax(chart->bytes_per_s, row_get_number(row, "peak_gbps") * 1e9);
}

/*
 * The rate that the table of the run has, or 0.  The rate in a row is the one
 * known when that was measured, and the largest of these is a lucky moment's.
 */
static double run_rate(const json_t *rows, const struct chart *chart,
		       enum peak_kind kind, const char *key)
{
	size_t i;
	const json_t *row;

	json_array_foreach(rows, i, row)
	{
		if (row_is_peak(row) &&
		    !strcmp(row_get_text(row, "shape"), peak_name(kind)) &&
		    fabs(row_get_number(row, "threads") - chart->threads) < 0.5)
			return row_get_number(row, key) * 1e9;
	}
	return 0;
}

static void set_roof(struct chart *chart, const json_t *rows)
{
	double flop = run_rate(
	    rows, chart, peak_multiply(chart->backend, chart->activations), "gflops");
	double bytes = run_rate(rows, chart, peak_read_memory(chart->backend), "gbps");

	if (is_rate(flop))
		chart->flop_per_s = flop;
	if (is_rate(bytes))
		chart->bytes_per_s = bytes;
}

/* ---- scales -------------------------------------------------------------- */

/* The n-th of 1, 2, 5, 10, 20, ... */
static double tick(int n)
{
	static const double digits[] = {1, 2, 5};
	int decade = n >= 0 ? n / 3 : -((2 - n) / 3);

	return digits[n - 3 * decade] * pow(10, decade);
}

/* The last tick that is not above x, and the first that is not below. */
static int tick_below(double x)
{
	int n = 3 * (int)floor(log10(x)) + 3;

	while (tick(n) > x * (1 + 1e-9))
		n--;
	return n;
}

static int tick_above(double x)
{
	int n = tick_below(x);

	return tick(n) < x * (1 - 1e-9) ? n + 1 : n;
}

/* Ridge and all points lie inside, with some margin. */
static void set_scales(struct chart *c)
{
	double ridge = c->flop_per_s / c->bytes_per_s;

	c->x_low = c->x_high = ridge;
	c->y_low = c->y_high = c->flop_per_s;
	for (int i = 0; i < c->count; i++) {
		const struct point *p = &c->points[i];

		c->x_low = fmin(c->x_low, p->per_byte);
		c->x_high = fmax(c->x_high, p->per_byte);
		c->y_low = fmin(c->y_low, p->per_s);
		c->y_high = fmax(c->y_high, p->per_s);
	}
	c->x_low = tick(tick_below(c->x_low / 1.5));
	c->x_high = tick(tick_above(c->x_high * 1.5));
	c->y_low = tick(tick_below(c->y_low / 1.5));
	c->y_high = tick(tick_above(c->y_high * 1.3));
	c->unit = c->flop_per_s >= 1e13 ? 1e12 : 1e9;
	c->unit_name = c->flop_per_s >= 1e13 ? "TFLOP/s" : "GFLOP/s";
	c->height = MIN_HEIGHT;
	if (c->count <= MAX_LABELS && c->count * LABEL_STEP > c->height)
		c->height = c->count * LABEL_STEP;
}

static double x_of(const struct chart *c, double per_byte)
{
	return LEFT + PLOT_WIDTH * log(per_byte / c->x_low) / log(c->x_high / c->x_low);
}

static double y_of(const struct chart *c, double per_s)
{
	return TOP + c->height * log(c->y_high / per_s) / log(c->y_high / c->y_low);
}

/* ---- names --------------------------------------------------------------- */

static int by_height(const void *a, const void *b)
{
	const struct point *p = a, *q = b;

	if (p->y < q->y || p->y > q->y)
		return p->y < q->y ? -1 : 1;
	return p->x < q->x ? -1 : p->x > q->x;
}

/* Names are in one column next to the plot, in the order of the points and as
 * near to them as their heights allow. */
static void place_labels(struct chart *c)
{
	double bottom = TOP + c->height, y = TOP;

	for (int i = 0; i < c->count; i++) {
		c->points[i].x = x_of(c, c->points[i].per_byte);
		c->points[i].y = y_of(c, c->points[i].per_s);
	}
	qsort(c->points, (size_t)c->count, sizeof *c->points, by_height);
	for (int i = 0; i < c->count; i++) {
		y = fmax(y, c->points[i].y);
		c->points[i].label_y = y;
		y += LABEL_STEP;
	}
	for (int i = c->count - 1; i >= 0; i--) {
		c->points[i].label_y = fmin(c->points[i].label_y, bottom);
		bottom = c->points[i].label_y - LABEL_STEP;
	}
}

/* ---- drawing ------------------------------------------------------------- */

static void put_line(FILE *file, const char *class, double x1, double y1, double x2,
		     double y2)
{
	fprintf(file, "<line class=%s x1='%.1f' y1='%.1f' x2='%.1f' y2='%.1f'/>\n",
		class, x1, y1, x2, y2);
}

/* A number on each tick where there is space, else on powers of ten. */
static void put_axes(FILE *file, const struct chart *c)
{
	int first = tick_below(c->x_low), last = tick_above(c->x_high);
	int bottom = TOP + c->height;

	for (int n = first; n <= last; n++) {
		double x = x_of(c, tick(n));

		put_line(file, "grid", x, TOP, x, bottom);
		if (last - first <= 6 || n % 3 == 0)
			fprintf(file,
				"<text x='%.1f' y='%d' "
				"text-anchor=middle>%g</text>\n",
				x, bottom + 13, tick(n));
	}
	fprintf(file, "<text x='%d' y='%d' text-anchor=middle>FLOP per byte</text>\n",
		LEFT + PLOT_WIDTH / 2, bottom + 28);
	first = tick_below(c->y_low / c->unit);
	last = tick_above(c->y_high / c->unit);
	for (int n = first; n <= last; n++) {
		double y = y_of(c, tick(n) * c->unit);

		put_line(file, "grid", LEFT, y, LEFT + PLOT_WIDTH, y);
		if (last - first <= 18 || n % 3 == 0)
			fprintf(file,
				"<text x='%d' y='%.1f' "
				"text-anchor=end>%g</text>\n",
				LEFT - 4, y + 3, tick(n));
	}
	fprintf(file, "<text x='2' y='%d'>%s</text>\n", TOP - 8, c->unit_name);
}

static void put_roof(FILE *file, const struct chart *c)
{
	double ridge = c->flop_per_s / c->bytes_per_s;
	/* The slope enters from the left or from below. */
	double from = fmax(c->x_low, c->y_low / c->bytes_per_s);
	double x0 = x_of(c, from), y0 = y_of(c, from * c->bytes_per_s);
	double x1 = x_of(c, ridge), y1 = y_of(c, c->flop_per_s);

	put_line(file, "roof", x0, y0, x1, y1);
	put_line(file, "roof", x1, y1, LEFT + PLOT_WIDTH, y1);
	fprintf(file,
		"<text class=key x='%d' y='10'>flat: multiply instruction, "
		"%.0f %s</text>\n"
		"<text class=key x='%d' y='22'>slope: read bandwidth, %.*f "
		"GB/s</text>\n",
		LEFT, c->flop_per_s / c->unit, c->unit_name, LEFT,
		c->bytes_per_s < 1e11, c->bytes_per_s * 1e-9);
}

static void put_point(FILE *file, const struct chart *c, int i)
{
	const struct point *p = &c->points[i];

	html_put(file, "<g><title>", p->name, "");
	fprintf(file, " of its limit, %.4g %s at %.4g FLOP per byte</title>",
		p->per_s / c->unit, c->unit_name, p->per_byte);
	if (c->count <= MAX_LABELS)
		fprintf(file,
			"<path class=lead d='M%.1f %.1fL%d %.1fL%d %.1f'/>"
			"<text x='%d' y='%.1f'>%d</text>",
			p->x, p->y, LABEL_X - 14, p->label_y, LABEL_X - 2, p->label_y,
			LABEL_X, p->label_y + 3, i + 1);
	fprintf(file, "<circle class=s%d cx='%.1f' cy='%.1f' r=3.5 /></g>\n",
		p->is_bad ? 6 : 0, p->x, p->y);
}

static void put_names(FILE *file, const struct chart *c)
{
	fputs("<ol>\n", file);
	for (int i = 0; i < c->count; i++)
		html_put(file, "<li><span>", c->points[i].name, "</span></li>\n");
	fputs("</ol>\n", file);
}

static void put_chart(FILE *file, struct chart *c)
{
	set_scales(c);
	place_labels(c);
	html_put(file, "<section><h2>Roofline of ", c->backend, "");
	if (c->activations != ACT_NVFP4)
		html_put(file, ", A of ", cli_activations_names[c->activations], "");
	if (strncmp(c->backend, "cpu-", 4) == 0)
		fprintf(file, ", %.0f thread%s", c->threads,
			c->threads > 1.5 ? "s" : "");
	fputs("</h2>\n<p>Each dot is a row: how many operations it does for "
	      "each byte that it must move, and how many a second. The line is "
	      "what was measured in the same run with nothing else to do, as in "
	      "the table below. A dot above it was measured while the machine "
	      "was faster than in the rest of the run. Percent are of the "
	      "row's own limit, which its own rounds decide.</p>\n",
	      file);
	fprintf(file,
		"<div class=roofline><svg viewBox='0 0 %d %d' role=img "
		"aria-label='Roofline'>\n",
		WIDTH, TOP + c->height + BOTTOM);
	put_axes(file, c);
	put_roof(file, c);
	for (int i = 0; i < c->count; i++)
		put_point(file, c, i);
	fputs("</svg>\n", file);
	if (c->count <= MAX_LABELS)
		put_names(file, c);
	fputs("</div></section>\n", file);
}

void roofline_put_style(FILE *file)
{
	fputs(".roofline{display:flex;flex-wrap:wrap;gap:8px 28px;"
	      "font-size:13px}\n"
	      ".roofline ol{flex:1 1 300px;margin:0;padding-left:28px;"
	      "overflow-wrap:anywhere}\n"
	      "svg{flex:1 1 350px;width:100%;height:auto;max-width:560px}\n"
	      "svg text{font:10px system-ui,sans-serif;fill:var(--fg)}\n"
	      "svg .grid{stroke:var(--grid)}\n"
	      "svg .key{fill:var(--line)}\n"
	      "svg .roof{stroke:var(--line);stroke-width:2}\n"
	      "svg .lead{fill:none;stroke:var(--dim);stroke-width:.6;"
	      "opacity:.6}\n",
	      file);
}

/* Whether a row before this one has had its chart. */
static bool is_drawn(const json_t *rows, size_t i, const struct chart *chart)
{
	for (size_t j = 0; j < i; j++) {
		const json_t *row = json_array_get(rows, j);

		if (is_point(row) && belongs(row, chart))
			return true;
	}
	return false;
}

int roofline_put(FILE *file, const json_t *rows)
{
	size_t count = json_array_size(rows), i;
	struct chart c = {.points = calloc(count + 1, sizeof *c.points)};
	const json_t *row;

	if (!c.points)
		return cli_no_memory("charts");
	json_array_foreach(rows, i, row)
	{
		snprintf(c.backend, sizeof c.backend, "%s",
			 row_get_text(row, "backend"));
		c.threads = row_get_number(row, "threads");
		c.activations = activations_of(row);
		if (!is_point(row) || is_drawn(rows, i, &c))
			continue;
		c.count = 0;
		c.flop_per_s = c.bytes_per_s = 0;
		for (size_t j = i; j < count; j++) {
			row = json_array_get(rows, j);
			if (is_point(row) && belongs(row, &c))
				add_point(&c, row);
		}
		set_roof(&c, rows);
		put_chart(file, &c);
	}
	free(c.points);
	return CLI_OK;
}
