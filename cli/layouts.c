/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layouts.c - classifies the tensors that belong to no NVFP4 layer: those of FP8
 * linears, of the kv cache, of layers that cannot be read, and quantised tensors
 * of an unknown layout.  See inspect.h.
 */
#include "cli.h"
#include "inspect.h"

#include <stdlib.h>
#include <string.h>

static int compare_names(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

int layouts_read(struct layouts *layouts, const struct nib_file *file)
{
	const int64_t n = nib_file_layer_defect_count(file);

	*layouts = (struct layouts){.file = file, .n_problems = (size_t)n};
	layouts->problems = calloc((size_t)n + 1, sizeof(*layouts->problems));
	if (!layouts->problems)
		return cli_no_memory("names of layers");
	for (int64_t i = 0; i < n; i++)
		layouts->problems[i] = nib_file_layer_defect_at(file, i)->name;
	qsort(layouts->problems, (size_t)n, sizeof(*layouts->problems), compare_names);
	return CLI_OK;
}

void layouts_free(struct layouts *layouts)
{
	free(layouts->problems);
	*layouts = (struct layouts){0};
}

/* Whether name without end, if it ends so, is a layer that cannot be read. */
static int is_broken(const struct layouts *l, const char *name, const char *end)
{
	const size_t n = strlen(name), m = strlen(end);
	char *stem;
	int found;

	if (n < m || strcmp(name + n - m, end))
		return 0;
	stem = strndup(name, n - m);
	if (!stem)
		cli_out_of_memory();
	found = stem && bsearch(&stem, l->problems, l->n_problems, sizeof(*l->problems),
				compare_names);
	free(stem);
	return found;
}

static int in_broken_layer(const struct layouts *l, const struct nib_file_tensor *t)
{
	const struct nib_layer_tensors *layer = nib_file_layer_tensors_of(l->file, t);
	const char *dot = strrchr(t->name, '.');

	return is_broken(l, t->name, "") || (layer && is_broken(l, layer->name, "")) ||
	       (dot && is_broken(l, t->name, dot));
}

/* What a tensor of an FP8 linear is; ROLE_PLAIN: it belongs to none. */
static enum tensor_role fp8_role(const struct layouts *l,
				 const struct nib_file_tensor *t)
{
	const struct nib_layer_tensors *layer = nib_file_layer_tensors_of(l->file, t);

	if (!layer || !layer->scales ||
	    (layer->naming != NIB_NAMING_FP8 && layer->naming != NIB_NAMING_FP8_BLOCKS))
		return ROLE_PLAIN;
	if (t != layer->codes)
		return ROLE_FP8_SCALE;
	return t->rank >= 2 ? ROLE_FP8 : ROLE_PLAIN;
}

enum tensor_role layouts_role(const struct layouts *l, const struct nib_file_tensor *t)
{
	static const char *const cache[] = {".k_scale", ".v_scale", ".q_scale",
					    ".kv_scale"};

	const enum tensor_role fp8 = fp8_role(l, t);

	if (in_broken_layer(l, t))
		return ROLE_BROKEN;
	if (fp8 != ROLE_PLAIN)
		return fp8;
	for (size_t i = 0; i < sizeof(cache) / sizeof(cache[0]); i++)
		if (tensor_name_ends(t->name, cache[i]))
			return ROLE_KV_SCALE;
	if (t->rank < 2)
		return ROLE_PLAIN;
	if (!strncmp(t->dtype, "F8_", 3) ||
	    (!strcmp(t->dtype, "U8") && (tensor_name_ends(t->name, "_scales") ||
					 tensor_name_ends(t->name, "_scale"))))
		return ROLE_SCALES;
	return strcmp(t->dtype, "U8") && strcmp(t->dtype, "F4") ? ROLE_PLAIN
								: ROLE_CODES;
}

void layouts_count(struct layouts *l)
{
	for (int64_t i = 0; i < nib_file_tensor_count(l->file); i++) {
		const struct nib_file_tensor *t = nib_file_tensor_at(l->file, i);

		if (!tensor_in_layer(l->file, t))
			l->count[layouts_role(l, t)]++;
	}
}

/* INT8, GPTQ, NF4 and others: integers under a weight's name. */
static int is_integer_weight(const struct nib_file_tensor *t)
{
	return t->rank >= 2 && (t->dtype[0] == 'I' || t->dtype[0] == 'U') &&
	       (tensor_name_ends(t->name, ".weight") ||
		tensor_name_ends(t->name, ".qweight"));
}

/*
 * Why a tensor is quantised and nothing known; NULL: it is not.  Bytes without
 * scales that are named as no weight may be anything, and so may 8-bit floats
 * that are not named as scales.
 */
static const char *why_unknown(const struct layouts *l, const struct nib_file_tensor *t)
{
	const enum tensor_role role = layouts_role(l, t);

	if (role != ROLE_BROKEN && is_integer_weight(t))
		return "and no NVFP4 layer";
	if (role == ROLE_CODES && (l->count[ROLE_SCALES] || !strcmp(t->dtype, "F4")))
		return "and no NVFP4 layer";
	if (role == ROLE_SCALES && !l->count[ROLE_CODES] &&
	    (tensor_name_ends(t->name, "_scale") ||
	     tensor_name_ends(t->name, "_scales")))
		return "scales without codes";
	return NULL;
}

void findings_of_layouts(struct findings *findings, const struct layouts *l)
{
	char shape[TENSOR_SHAPE_TEXT];

	for (int64_t i = 0; i < nib_file_tensor_count(l->file); i++) {
		const struct nib_file_tensor *t = nib_file_tensor_at(l->file, i);
		const char *why =
		    tensor_in_layer(l->file, t) ? NULL : why_unknown(l, t);

		if (why)
			findings_add(findings, FIND_UNKNOWN, t->name, "%s %s, %s",
				     t->dtype,
				     tensor_shape_text(t->shape, t->rank, shape), why);
	}
}
