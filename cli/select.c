/* SPDX-License-Identifier: Apache-2.0 */
/* select.c - chooses the tensors to quantise: see quantize.h. */
#include "quantize.h"

#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

static const char weight_suffix[] = ".weight";

/* Whether a glob of a comma list matches name; which is the first that does. */
static int matches(const char *globs, const char *name, char *which,
		   size_t which_bytes)
{
	while (*globs) {
		size_t n = strcspn(globs, ",");

		snprintf(which, which_bytes, "%.*s", (int)n, globs);
		if (n && !fnmatch(which, name, 0))
			return 1;
		globs += n + (globs[n] == ',');
	}
	return 0;
}

static int any_matches(const struct cli_texts *texts, const char *name,
		       char *which, size_t which_bytes)
{
	for (int i = 0; i < texts->count; i++)
		if (matches(texts->items[i], name, which, which_bytes))
			return 1;
	return 0;
}

/* Whether a tensor cannot be a layer; its reason then says why. */
static int refuse_kind(const struct nib_file *file, struct selected *item)
{
	const struct nib_file_tensor *t = item->tensor;
	size_t n = strlen(t->name), s = sizeof(weight_suffix) - 1;
	char *reason = item->reason;
	const size_t bytes = sizeof(item->reason);

	if (tensor_in_layer(file, t))
		snprintf(reason, bytes, "already NVFP4");
	else if (tensor_dtype(t->dtype, &item->dtype))
		snprintf(reason, bytes, "type %s is no float to quantise",
			 t->dtype);
	else if (t->rank != 2)
		snprintf(reason, bytes, "%d-D, not a matrix", t->rank);
	else if (n <= s || strcmp(t->name + n - s, weight_suffix))
		snprintf(reason, bytes, "the name does not end in .weight");
	else if (!t->shape[0] || !t->shape[1])
		snprintf(reason, bytes, "empty");
	else if (t->shape[1] % NIB_BLOCK)
		snprintf(reason, bytes, "k = %lld is not a multiple of 16",
			 (long long)t->shape[1]);
	else if (t->shape[1] > NIB_MAX_K)
		snprintf(reason, bytes, "k = %lld is more than %lld",
			 (long long)t->shape[1], (long long)NIB_MAX_K);
	return *reason != '\0';
}

static int refuse_name(const struct select_options *o, struct selected *item)
{
	const char *name = item->tensor->name;
	const size_t bytes = sizeof(item->reason);
	char which[64];

	if (o->include.count &&
	    !any_matches(&o->include, name, which, sizeof(which)))
		snprintf(item->reason, bytes, "not in --include");
	else if (any_matches(&o->exclude, name, which, sizeof(which)))
		snprintf(item->reason, bytes, "--exclude %s", which);
	else if (!o->include.count && !o->exclude.count && !o->all &&
		 matches(SELECT_DEFAULT_EXCLUDE, name, which, sizeof(which)))
		snprintf(item->reason, bytes, "default exclude %s", which);
	return *item->reason != '\0';
}

int select_tensors(const struct nib_file *file,
		   const struct select_options *options,
		   struct selection *selection)
{
	int64_t count = nib_file_tensor_count(file);

	*selection = (struct selection){.count = count};
	selection->items = calloc((size_t)count + 1, sizeof(*selection->items));
	if (!selection->items)
		return cli_no_memory("list of tensors");
	for (int64_t i = 0; i < count; i++) {
		struct selected *item = &selection->items[i];
		const char *name;

		item->tensor = nib_file_tensor_at(file, i);
		name = item->tensor->name;
		if (refuse_kind(file, item) || refuse_name(options, item))
			continue;
		item->layer =
		    strndup(name, strlen(name) - sizeof(weight_suffix) + 1);
		if (!item->layer)
			return cli_no_memory("names of layers");
		selection->quantised++;
	}
	return CLI_OK;
}

void select_free(struct selection *selection)
{
	for (int64_t i = 0; selection->items && i < selection->count; i++)
		free(selection->items[i].layer);
	free(selection->items);
	*selection = (struct selection){0};
}

/* ---- shared global scales ------------------------------------------------ */

static int compare(const void *a_, const void *b_)
{
	const struct selected *const *a = a_, *const *b = b_;

	return tensor_compare_siblings((*a)->layer, (*b)->layer);
}

void select_share_amax(struct selection *selection)
{
	struct selected **fused =
	    calloc((size_t)selection->quantised + 1, sizeof(*fused));
	int64_t n = 0;

	if (!fused) {
		cli_warn("not enough memory to share global scales");
		return;
	}
	for (int64_t i = 0; i < selection->count; i++) {
		struct selected *item = &selection->items[i];
		size_t stem;
		int set =
		    item->layer ? tensor_sibling_set(item->layer, &stem) : -1;

		if (set >= 0 && set < TENSOR_FUSED_SETS)
			fused[n++] = item;
	}
	qsort(fused, (size_t)n, sizeof(struct selected *), compare);
	for (int64_t i = 0, end; i < n; i = end) {
		float amax = 0;

		for (end = i; end < n && !compare(&fused[i], &fused[end]);
		     end++)
			if (fused[end]->amax > amax)
				amax = fused[end]->amax;
		for (; i < end; i++)
			fused[i]->amax = amax;
	}
	free(fused);
}
