/* SPDX-License-Identifier: Apache-2.0 */
/*
 * findings_pairs.c - the rules of nib inspect that compare layers: those that
 * engines fuse, and those that read the same input.
 *
 * Exchanged nibbles leave every block's values and scale as they are, so one
 * layer alone cannot show them.  But columns of a weight belong to channels of
 * its input, and layers and norms on the same channels have columns of similar
 * size: when the columns match better after an exchange, that is a hint.
 */
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "findings.h"

static int are_siblings(const struct nib_layer *a, const struct nib_layer *b)
{
	size_t stem_a, stem_b;
	int set = tensor_sibling_set(a->name, &stem_a);

	return set >= 0 && set == tensor_sibling_set(b->name, &stem_b) &&
	       stem_a == stem_b && !strncmp(a->name, b->name, stem_a) &&
	       a->weight.k == b->weight.k;
}

/* Standard errors by which exchanged columns must match better. */
#define SIGMAS 6

static int matches_exchanged(double plain, double exchanged, int64_t k)
{
	return fabs(exchanged) > fabs(plain) + SIGMAS / sqrt((double)k);
}

static void compare_pair(struct findings *f, const struct scan_layer *a,
			 const struct scan_layer *b)
{
	double plain, exchanged;
	size_t stem;

	if (!are_siblings(a->layer, b->layer))
		return;
	if (fabsf(a->layer->global - b->layer->global) > 0 &&
	    tensor_sibling_set(a->layer->name, &stem) < TENSOR_FUSED_SETS)
		findings_add(f, FIND_NOT_SHARED, b->layer->name,
			     "global scale %.6g, and %.6g in %s",
			     (double)b->layer->global, (double)a->layer->global,
			     a->layer->name);
	scan_correlate(a->columns, b->columns, a->layer->weight.k, &plain,
		       &exchanged);
	if (matches_exchanged(plain, exchanged, a->layer->weight.k))
		findings_add(f, FIND_NIBBLES, b->layer->name,
			     "its columns match those of %s better with one of "
			     "the two exchanged (correlation %.2f, else %.2f)",
			     a->layer->name, exchanged, plain);
}

/* ---- norms --------------------------------------------------------------- */

static int is_norm(const struct nib_file_tensor *t, int64_t k)
{
	enum nib_dtype dtype;
	char lower[256];
	size_t i;

	if (t->rank != 1 || t->shape[0] != k || tensor_dtype(t->dtype, &dtype))
		return 0;
	for (i = 0; i < sizeof(lower) - 1 && t->name[i]; i++)
		lower[i] = (char)tolower((unsigned char)t->name[i]);
	lower[i] = '\0';
	return strstr(lower, "norm") && strstr(lower, ".weight");
}

static size_t common_prefix(const char *a, const char *b)
{
	size_t n = 0;

	while (a[n] && a[n] == b[n])
		n++;
	return n;
}

/* Does the number in "layers.1.", as far as both names have it, agree? */
static int same_block(const char *layer, const char *norm)
{
	size_t n = common_prefix(layer, norm);
	const char *digit = strpbrk(layer, "0123456789");

	while (digit && isdigit((unsigned char)*digit))
		digit++;
	return digit && layer + n >= digit && !isdigit((unsigned char)layer[n]);
}

static void read_squares(const struct nib_file_tensor *norm, int64_t k,
			 float *floats, double *squares)
{
	enum nib_dtype dtype;

	if (tensor_dtype(norm->dtype, &dtype))
		return;
	tensor_read_floats(norm->data, dtype, k, floats);
	for (int64_t i = 0; i < k; i++)
		squares[i] = (double)floats[i] * (double)floats[i];
}

static void compare_norms(struct findings *f, const struct nib_file *file,
			  const struct scan_layer *scan)
{
	const struct nib_layer *layer = scan->layer;
	int64_t k = layer->weight.k;
	float *floats = malloc((size_t)k * sizeof(*floats));
	double *squares = malloc((size_t)k * sizeof(*squares));
	int found = 0;

	f->failed |= !floats || !squares;
	for (int64_t i = 0;
	     i < nib_file_tensor_count(file) && !f->failed && !found; i++) {
		const struct nib_file_tensor *t = nib_file_tensor_at(file, i);
		double plain, exchanged;

		if (!is_norm(t, k) || !same_block(layer->name, t->name))
			continue;
		read_squares(t, k, floats, squares);
		scan_correlate(scan->columns, squares, k, &plain, &exchanged);
		found = matches_exchanged(plain, exchanged, k);
		if (found)
			findings_add(f, FIND_NIBBLES, layer->name,
				     "its columns match %s better when "
				     "exchanged (correlation %.2f, else %.2f)",
				     t->name, exchanged, plain);
	}
	free(floats);
	free(squares);
}

void findings_of_layers(struct findings *findings, const struct nib_file *file,
			const struct scan_layer *scans, int64_t count)
{
	for (int64_t i = 0; i < count; i++)
		compare_norms(findings, file, &scans[i]);
	/* Siblings stand near each other in every writer's order. */
	for (int64_t i = 0; i < count; i++)
		for (int64_t j = i + 1; j < count && j < i + 16; j++)
			compare_pair(findings, &scans[i], &scans[j]);
}
