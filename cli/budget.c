/* SPDX-License-Identifier: Apache-2.0 */
/*
 * budget.c - nib quantize --budget: which layers stay FP8 or as they are, so that the
 * errors are small and the mean bits of a weight at most the budget.  See quantize.h.
 *
 * A group of layers that engines fuse or stack has one format.  Its formats are points
 * (bits, error), and the steps between those of the lower convex hull remove less and
 * less error a bit.  The steps of all groups are made in that order, without those that
 * the rest of the budget does not cover.  This is the greedy solution of a knapsack
 * problem with several choices for each item; the first step that does not fit, made in
 * part, gives the optimum of its linear relaxation, which no choice is below.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "quantize.h"

struct point {
	double bits, error;
};

/* Layers that must have the same format: items first .. end - 1. */
struct group {
	int64_t first, end;
	struct point points[SELECT_FORMATS];
	int has_fp8;
	enum select_format format;
};

struct step {
	int64_t group;
	enum select_format from, to;
	double bits, error; /* which are added, and removed */
};

struct knapsack {
	struct selected **items;
	struct group *groups;
	struct step *steps;
	int64_t n_items, n_groups, n_steps;
};

int budget_read(const char *text, double *bits)
{
	if (cli_parse_double(text, bits))
		return cli_error(CLI_USAGE, "--budget %s: not a number", text);
	if (*bits < BUDGET_LEAST)
		return cli_error(CLI_USAGE,
				 "--budget %s: less than %g, the bits of a weight if "
				 "all layers are NVFP4",
				 text, BUDGET_LEAST);
	if (*bits > BUDGET_MOST)
		return cli_error(CLI_USAGE,
				 "--budget %s: more than %g, the bits of a weight if "
				 "no layer is quantised",
				 text, BUDGET_MOST);
	return CLI_OK;
}

/* ---- groups -------------------------------------------------------------- */

/* nibblas.transformers runs no FP8 experts, and vLLM none with these scales. */
int budget_allows_fp8(const struct selected *item)
{
	return !item->is_stack && !select_experts_stem(item->tensor->name);
}

static int compare_groups(const struct selected *a, const struct selected *b)
{
	const size_t stem = select_experts_stem(a->tensor->name);
	const size_t other = select_experts_stem(b->tensor->name);
	size_t unused;
	int order;

	if (stem || other)
		return stem != other ? (stem > other) - (stem < other)
				     : strncmp(a->tensor->name, b->tensor->name, stem);
	order = tensor_compare_siblings(a->layer, b->layer);
	/* Those of no set are equal if only the last part of their names differs. */
	return order || tensor_sibling_set(a->layer, &unused) >= 0
		   ? order
		   : strcmp(a->layer, b->layer);
}

static int compare_items(const void *a_, const void *b_)
{
	const struct selected *a = *(struct selected *const *)a_;
	const struct selected *b = *(struct selected *const *)b_;
	const int order = compare_groups(a, b);

	return order ? order : (a > b) - (a < b);
}

static double bits_of(const struct selected *item, enum select_format format)
{
	const double rows = (double)item->rows, elems = rows * (double)item->k;

	switch (format) {
	case SELECT_NVFP4:
		return elems * BUDGET_LEAST;
	case SELECT_FP8:
		return elems * 8 + rows * 32;
	default:
		return elems * 8 * (double)nib_dtype_bytes(item->dtype);
	}
}

static void add_group(struct knapsack *k, int64_t first, int64_t end)
{
	struct group *g = &k->groups[k->n_groups++];

	*g = (struct group){.first = first, .end = end, .has_fp8 = 1};
	for (int64_t i = first; i < end; i++) {
		const struct selected *item = k->items[i];

		g->has_fp8 &= budget_allows_fp8(item);
		for (int f = 0; f < SELECT_FORMATS; f++) {
			g->points[f].bits += bits_of(item, (enum select_format)f);
			g->points[f].error += item->errors[f];
		}
	}
}

static void add_step(struct knapsack *k, enum select_format from, enum select_format to)
{
	const int64_t last = k->n_groups - 1;
	const struct point *p = k->groups[last].points;

	if (p[from].error > p[to].error)
		k->steps[k->n_steps++] =
		    (struct step){last, from, to, p[to].bits - p[from].bits,
				  p[from].error - p[to].error};
}

/* The steps of the last group. */
static void add_steps(struct knapsack *k)
{
	const struct group *g = &k->groups[k->n_groups - 1];
	const struct point *p = g->points;
	const double first = (p[SELECT_NVFP4].error - p[SELECT_FP8].error) /
			     (p[SELECT_FP8].bits - p[SELECT_NVFP4].bits);
	const double second =
	    p[SELECT_FP8].error / (p[SELECT_KEPT].bits - p[SELECT_FP8].bits);

	if (!g->has_fp8 || first <= second) {
		add_step(k, SELECT_NVFP4, SELECT_KEPT);
		return;
	}
	add_step(k, SELECT_NVFP4, SELECT_FP8);
	add_step(k, SELECT_FP8, SELECT_KEPT);
}

static int compare_steps(const void *a_, const void *b_)
{
	const struct step *a = a_, *b = b_;
	const double x = a->error * b->bits, y = b->error * a->bits;

	if (x < y || x > y)
		return x > y ? -1 : 1;
	if (a->group != b->group)
		return a->group > b->group ? 1 : -1;
	return (int)a->from - (int)b->from;
}

static int fill(struct knapsack *k, struct selection *s)
{
	const size_t n = (size_t)s->quantised + 1;

	k->items = calloc(n, sizeof(*k->items));
	k->groups = calloc(n, sizeof(*k->groups));
	k->steps = calloc(2 * n, sizeof(*k->steps));
	if (!k->items || !k->groups || !k->steps)
		return cli_no_memory("formats of layers");
	for (int64_t i = 0; i < s->count; i++)
		if (s->items[i].layer)
			k->items[k->n_items++] = &s->items[i];
	qsort(k->items, (size_t)k->n_items, sizeof(struct selected *), compare_items);
	for (int64_t i = 0, end; i < k->n_items; i = end) {
		for (end = i + 1;
		     end < k->n_items && !compare_groups(k->items[i], k->items[end]);)
			end++;
		add_group(k, i, end);
		add_steps(k);
	}
	qsort(k->steps, (size_t)k->n_steps, sizeof(*k->steps), compare_steps);
	return CLI_OK;
}

/* ---- the choice ---------------------------------------------------------- */

static void choose(struct knapsack *k, struct budget *b)
{
	double elems = 0, used = 0, left;
	int is_tight = 0;

	b->error = 0;
	for (int64_t i = 0; i < k->n_items; i++) {
		elems += (double)k->items[i]->rows * (double)k->items[i]->k;
		used += bits_of(k->items[i], SELECT_NVFP4);
		b->error += k->items[i]->errors[SELECT_NVFP4];
	}
	b->bound = b->error;
	for (int64_t i = 0; i < k->n_steps; i++) {
		const struct step *step = &k->steps[i];
		struct group *g = &k->groups[step->group];

		left = b->bits * elems - used;
		if (step->bits > left && !is_tight) {
			is_tight = 1;
			b->bound = b->error - step->error * left / step->bits;
		}
		if (step->bits > left || g->format != step->from)
			continue;
		g->format = step->to;
		used += step->bits;
		b->error -= step->error;
	}
	/* The sums again, without the rounding of differences. */
	b->error = 0;
	for (int64_t i = 0; i < k->n_groups; i++)
		b->error += k->groups[i].points[k->groups[i].format].error;
	if (!is_tight || b->bound > b->error)
		b->bound = b->error;
	b->mean_bits = elems > 0 ? used / elems : 0;
}

/* Makes copies of the layers that stay as they are; the rows of a tensor of fused
 * experts become one tensor again. */
static void keep(struct selection *s)
{
	const struct nib_file_tensor *last = NULL;
	int64_t n = 0;

	for (int64_t i = 0; i < s->count; i++) {
		struct selected *item = &s->items[i];

		if (item->layer && item->format == SELECT_KEPT) {
			free(item->layer);
			s->quantised--;
			if (item->tensor == last)
				continue;
			last = item->tensor;
			*item = (struct selected){.tensor = last,
						  .format = SELECT_KEPT,
						  .reason = "kept by --budget"};
		}
		s->items[n++] = *item;
	}
	s->count = n;
}

int budget_choose(struct selection *selection, struct budget *budget)
{
	struct knapsack k = {0};
	int code = fill(&k, selection);

	if (!code) {
		choose(&k, budget);
		for (int64_t i = 0; i < k.n_groups; i++)
			for (int64_t j = k.groups[i].first; j < k.groups[i].end; j++)
				k.items[j]->format = k.groups[i].format;
		keep(selection);
	}
	free(k.items);
	free(k.groups);
	free(k.steps);
	return code;
}
