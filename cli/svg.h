/* SPDX-License-Identifier: Apache-2.0 */
/*
 * svg.h - charts of horizontal bars, written into an HTML page, and what other
 * charts of it share.
 */
#ifndef NIB_SVG_H
#define NIB_SVG_H

#include <stdio.h>

#define SVG_TEXT 96

struct svg_bar {
	char group[SVG_TEXT]; /* a line above the bar; "" = none */
	char label[SVG_TEXT]; /* left of the bar; cut to fit */
	char value_text[48];  /* right of the bar */
	char hint[256];	      /* shown by the browser on hovering */
	double value;
	double mark; /* a tick of its own on the bar's line; 0 = none */
	int series;  /* 0..SVG_SERIES-1: colour */
};

/* 0: ours; 1..: others.  6: something is wrong. */
#define SVG_SERIES 7

struct svg_chart {
	const char *title, *note; /* note: a sentence below the title */
	const char *unit;	  /* of the axis: "%" */
	double line;		  /* a line through all bars; 0 = none */
	const char *line_label;
	const char *mark_label; /* what the marks are; NULL = no marks */
};

/* Writes text with &, <, > and quotes escaped. */
void svg_put_text(FILE *file, const char *text);
/* The same, cut to most bytes with an ellipsis; text is below SVG_TEXT. */
void svg_put_cut(FILE *file, const char *text, size_t most);
/* The style sheet's part for charts: colours come from its variables. */
void svg_put_style(FILE *file);
/* Nothing at all when there are no bars. */
void svg_put_bars(FILE *file, const struct svg_chart *chart,
		  const struct svg_bar *bars, int count);

#endif
