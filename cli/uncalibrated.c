/* SPDX-License-Identifier: Apache-2.0 */
/*
 * uncalibrated.c - layers without an input scale where others have one: experts
 * that the calibration never reached.  See inspect.h.
 */
#include "cli.h"
#include "inspect.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Layers of one block that are compared with one of it. */
#define MOST_EXPERTS 8192

/* The bytes of "X.experts." in the name of an expert, and where its number ends;
 * 0: it is none. */
static size_t stem_of(const char *name, const char **rest)
{
	static const char part[] = ".experts.";
	const char *at = strstr(name, part);

	if (!at)
		return 0;
	at += sizeof(part) - 1;
	*rest = at;
	while (isdigit((unsigned char)**rest))
		(*rest)++;
	return *rest > at ? (size_t)(at - name) : 0;
}

/* Whether b is the same layer of another expert as a. */
static int is_twin(const char *a, const char *b, size_t stem, const char *rest)
{
	const char *other;

	return stem_of(b, &other) == stem && !strncmp(a, b, stem) &&
	       !strcmp(rest, other);
}

/* The largest input scale of the same layer of the other experts, or 0; those of
 * one block are next to each other. */
double findings_largest_of_others(const struct scan_layer *scans, int64_t count,
				  int64_t index)
{
	const char *name = scans[index].layer->name, *rest = NULL;
	const size_t stem = stem_of(name, &rest);
	double most = 0;

	for (int step = -1; step < 2 && stem; step += 2)
		for (int64_t i = index;
		     i >= 0 && i < count && llabs(i - index) < MOST_EXPERTS;
		     i += step) {
			const struct nib_layer *layer = scans[i].layer;
			const double scale = (double)tensor_input_global(layer);

			if (strncmp(name, layer->name, stem) != 0)
				break;
			if (is_twin(name, layer->name, stem, rest) && scale > most)
				most = scale;
		}
	return most;
}

/* "is 0", or how many of a stack's are what the first bad one is; 0: none. */
static int describe(const struct nib_file_tensor *t, char text[128])
{
	const int64_t n = (int64_t)(t->bytes / 4);
	int64_t bad = 0, first = 0;
	float value, shown = 0;

	if (strcmp(t->dtype, "F32") != 0)
		return 0;
	for (int64_t i = 0; i < n; i++) {
		tensor_read_floats((const char *)t->data + 4 * i, NIB_DTYPE_FP32, 1,
				   &value);
		if (value > 0 && value < INFINITY)
			continue;
		if (!bad++) {
			first = i;
			shown = value;
		}
	}
	if (n == 1)
		snprintf(text, 128, "is %g", (double)shown);
	else
		snprintf(text, 128,
			 "has %lld of %lld that are %g (the first: "
			 "%lld)",
			 (long long)bad, (long long)n, (double)shown, (long long)first);
	return bad > 0;
}

static void find_one(struct findings *f, const struct scan_layer *scans, int64_t count,
		     int64_t index)
{
	const struct nib_layer *layer = scans[index].layer;
	const struct nib_file_tensor *t = layer->tensors->input_global;
	const double most = findings_largest_of_others(scans, count, index);
	char what[128] = "has no input scale", others[96] = "";

	/* A model may have layers of W4A16 as well as W4A4. */
	if (t ? !describe(t, what) : most <= 0)
		return;
	if (most > 0)
		snprintf(others, sizeof(others),
			 "; the largest of the other experts, %.4g, stands in", most);
	findings_add(f, FIND_NO_INPUT, t ? t->name : layer->name, "%s%s", what, others);
}

void findings_of_inputs(struct findings *f, const struct scan_layer *scans,
			int64_t count)
{
	int64_t given = 0;

	for (int64_t i = 0; i < count; i++)
		given += scans[i].layer->input_globals != NULL;
	for (int64_t i = 0; i < count && given; i++)
		if (!(tensor_input_global(scans[i].layer) > 0))
			find_one(f, scans, count, i);
}
