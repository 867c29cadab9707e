/* SPDX-License-Identifier: Apache-2.0 */
/*
 * findings.h - what looks wrong in a file: rules over the statistics of scan.h.
 * A problem is certain or nearly so; a note is a hint, and says so.
 */
#ifndef NIB_FINDINGS_H
#define NIB_FINDINGS_H

#include "cli.h"
#include "scan.h"

enum finding_kind {
	FIND_HALF_LAYER,
	FIND_SCALE_SIGN,
	FIND_SCALE_NAN,
	FIND_ALL_ZERO,
	FIND_RECIPROCAL,
	FIND_TILED,
	FIND_INT4,
	FIND_NOT_FINITE,
	FIND_NIBBLES,
	FIND_WEAK_BLOCKS,
	FIND_SMALL_SCALES,
	FIND_NOT_SHARED,
	FIND_INPUT_SCALE,
	FIND_KINDS,
};

struct finding_rule {
	const char *code;   /* "scale-sign" */
	int is_problem;	    /* else a note */
	const char *title;  /* what is wrong, in a few words */
	const char *advice; /* what to do, a sentence */
};
extern const struct finding_rule finding_rules[FIND_KINDS];

struct finding {
	enum finding_kind kind;
	const char *name; /* of the layer or tensor; lives with the file */
	char text[240];	  /* the evidence */
};

struct findings {
	struct finding *items;
	int64_t count;
	int64_t of_kind[FIND_KINDS];
	int failed; /* no memory for one */
};

__attribute__((format(printf, 4, 5))) void
findings_add(struct findings *findings, enum finding_kind kind,
	     const char *name, const char *format, ...);
void findings_free(struct findings *findings);

/* Rules that look at one layer, or one float tensor. */
void findings_of_layer(struct findings *findings,
		       const struct scan_layer *scan);
void findings_of_float(struct findings *findings, const char *name,
		       const struct scan_float *scan);
/* Rules that compare the layers of a file with each other and with its norms.
 */
void findings_of_layers(struct findings *findings, const struct nib_file *file,
			const struct scan_layer *scans, int64_t count);

#endif
