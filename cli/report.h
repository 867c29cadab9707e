/* SPDX-License-Identifier: Apache-2.0 */
/*
 * report.h - rows of nib bench as one HTML page (report.c) with charts:
 * horizontal bars (bars.c), and operations a byte against operations a second
 * (roofline.c).
 *
 * Bars are HTML, not SVG: texts keep their size and wrap on a narrow screen.  A
 * bar has its label before it and its value after it, in columns of their own,
 * so that no text lies over a bar or a line.
 */
#ifndef NIB_REPORT_H
#define NIB_REPORT_H

#include <jansson.h>
#include <stdio.h>

/*
 * Writes the page to path, which holds what it held before until all is
 * written.  rows: an array of rows (bench/README.md); how: the command that
 * measured them, may be NULL.  CLI_OK, or prints and returns.
 */
int report_write(const char *path, const json_t *rows, const char *how);

/* ---- bars.c -------------------------------------------------------------- */

/* Writes before, text with &, <, > and quotes escaped, and after. */
void html_put(FILE *file, const char *before, const char *text, const char *after);

#define BAR_TEXT 256

struct bar {
	char group[BAR_TEXT]; /* a line above the bar; "" = none */
	char label[BAR_TEXT];
	char value_text[64];
	double value;
	double mark; /* a tick of its own on the bar's line; 0 = none */
	int series;  /* 0..BAR_SERIES-1: colour */
};

/* 0: ours; 1..: others.  6: something is wrong. */
#define BAR_SERIES 7

struct bar_chart {
	const char *title, *note; /* note: a sentence below the title */
	const char *unit;	  /* of the axis: "GB/s" */
	const char *larger_unit;  /* a thousand of them; may be NULL */
	double line;		  /* a line through all bars; 0 = none */
	const char *line_label;
	const char *mark_label; /* what the marks are; NULL = no marks */
};

/* The style sheet's part for bars, with the colours of all charts. */
void bars_put_style(FILE *file);
/* Nothing at all when there are no bars. */
void bars_put(FILE *file, const struct bar_chart *chart, const struct bar *bars,
	      int count);

/* ---- roofline.c ---------------------------------------------------------- */

/*
 * Writes a roofline for every backend and number of threads of the array rows
 * whose rows say what they are compared with (peak_gflops, peak_gbps).  CLI_OK,
 * or prints and returns its code.
 */
int roofline_put(FILE *file, const json_t *rows);
void roofline_put_style(FILE *file);

#endif
