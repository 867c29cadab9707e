/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bars.h - charts of horizontal bars in an HTML page.
 *
 * They are HTML, not SVG: texts keep their size and wrap on a narrow screen.  A
 * bar has its label before it and its value behind it, in columns of their own,
 * so that no text lies over a bar or a line.
 */
#ifndef NIB_BARS_H
#define NIB_BARS_H

#include <stdio.h>

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

/* Writes text with &, <, > and quotes escaped. */
void html_put_text(FILE *file, const char *text);
/* The style sheet's part for charts: colours come from its variables. */
void bars_put_style(FILE *file);
/* Nothing at all when there are no bars. */
void bars_put(FILE *file, const struct bar_chart *chart, const struct bar *bars,
	      int count);

#endif
