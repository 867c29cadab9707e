/* SPDX-License-Identifier: Apache-2.0 */
/* select.c - chooses the tensors to quantise: see quantize.h. */
#include "quantize.h"

#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#include "experts.h"

static const char weight_suffix[] = ".weight";

/* Whether a glob of a list "a*, b*" matches name; which: the first that does. */
static int matches(const char *globs, const char *name, char *which,
		   size_t which_bytes)
{
	while (*globs) {
		size_t n = strcspn(globs, ",");

		snprintf(which, which_bytes, "%.*s", (int)n, globs);
		if (n && !fnmatch(which, name, 0))
			return 1;
		globs += n + strspn(globs + n, ", ");
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

/* ---- kinds of tensors ---------------------------------------------------- */

static int is_named_as_experts(const struct select_options *o, const char *name)
{
	char which[64];

	return matches("*expert*,*moe*", name, which, sizeof(which)) ||
	       any_matches(&o->include, name, which, sizeof(which));
}

/* Why fused experts are not quantised, or NULL; sets item->is_across. */
static const char *why_not_fused(const struct nib_file *file,
				 const struct select_options *o,
				 struct selected *item,
				 const struct experts *fused)
{
	item->is_across = experts_are_across(file, item->tensor, fused);
	if (!item->is_across)
		return experts_problem(file, item->tensor, fused);
	return o->checkpoint == NIB_CHECKPOINT_MODELOPT
		   ? NULL
		   : "fused experts [experts, k, n], which ModelOpt's format "
		     "alone has";
}

/* Whether a tensor cannot be a layer; its reason then says why. */
static int refuse_kind(const struct nib_file *file,
		       const struct select_options *o, struct selected *item)
{
	const struct nib_file_tensor *t = item->tensor;
	const struct experts *fused =
	    t->rank == 3 ? experts_find(t->name) : NULL;
	const char *problem =
	    fused ? why_not_fused(file, o, item, fused) : NULL;
	const int64_t k = t->rank ? t->shape[t->rank - 1 - item->is_across] : 0;
	char *reason = item->reason;
	const size_t bytes = sizeof(item->reason);

	if (tensor_in_layer(file, t))
		snprintf(reason, bytes, "already NVFP4");
	else if (tensor_dtype(t->dtype, &item->dtype))
		snprintf(reason, bytes, "type %s is no float to quantise",
			 t->dtype);
	else if (t->rank != 2 && t->rank != 3)
		snprintf(reason, bytes, "%d-D, not a matrix", t->rank);
	else if (!fused && !tensor_name_ends(t->name, weight_suffix))
		snprintf(reason, bytes, "the name does not end in .weight");
	else if (t->rank == 3 && !fused && !is_named_as_experts(o, t->name))
		snprintf(reason, bytes,
			 "3-D, and not named as experts: --include takes it");
	else if (!t->bytes)
		snprintf(reason, bytes, "empty");
	else if (problem)
		snprintf(reason, bytes, "%s", problem);
	else if (k % NIB_BLOCK)
		snprintf(reason, bytes, "k = %lld is not a multiple of 16",
			 (long long)k);
	else if (k > NIB_MAX_K)
		snprintf(reason, bytes, "k = %lld is more than %lld",
			 (long long)k, (long long)NIB_MAX_K);
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

/* ---- the selection ------------------------------------------------------- */

/* Adds item, which takes over its layer's name; CLI_OK, or prints. */
static int add_item(struct selection *s, const struct selected *item)
{
	if (s->count == s->capacity) {
		int64_t capacity = s->capacity ? 2 * s->capacity : 256;
		struct selected *items =
		    realloc(s->items, (size_t)capacity * sizeof(*s->items));

		if (!items) {
			free(item->layer);
			return cli_no_memory("list of tensors");
		}
		s->items = items;
		s->capacity = capacity;
	}
	s->items[s->count++] = *item;
	s->quantised += item->layer != NULL;
	return CLI_OK;
}

static int add_experts(struct selection *s, struct selected item,
		       const struct experts *fused)
{
	const struct nib_file_tensor *t = item.tensor;

	for (int64_t i = 0; i < t->shape[0] * fused->n_parts; i++) {
		struct nib_file_tensor part;
		int code;

		if (!experts_part(t, fused, i, "", &part, &item.layer))
			return cli_no_memory("names of layers");
		item.rows = item.rows_each = part.shape[0];
		item.k = part.shape[1];
		item.first = i * item.rows;
		code = add_item(s, &item);
		if (code)
			return code;
	}
	return CLI_OK;
}

static int add_layer(struct selection *s, struct selected item)
{
	const struct nib_file_tensor *t = item.tensor;

	item.is_stack = t->rank == 3;
	item.rows_each = t->shape[t->rank - 2];
	item.rows = item.rows_each * (item.is_stack ? t->shape[0] : 1);
	item.k = t->shape[t->rank - 1];
	item.layer = strndup(
	    t->name,
	    strlen(t->name) - (item.is_across ? 0 : sizeof(weight_suffix) - 1));
	if (!item.layer)
		return cli_no_memory("names of layers");
	return add_item(s, &item);
}

int select_tensors(const struct nib_file *file,
		   const struct select_options *options,
		   struct selection *selection)
{
	int code = CLI_OK;

	*selection = (struct selection){0};
	for (int64_t i = 0; i < nib_file_tensor_count(file) && !code; i++) {
		struct selected item = {.tensor = nib_file_tensor_at(file, i)};
		const struct experts *fused = experts_find(item.tensor->name);

		if (refuse_kind(file, options, &item) ||
		    refuse_name(options, &item)) {
			item.is_across = 0;
			code = add_item(selection, &item);
		} else if (item.tensor->rank == 3 && fused && !item.is_across) {
			code = add_experts(selection, item, fused);
		} else {
			code = add_layer(selection, item);
		}
	}
	return code;
}

void select_free(struct selection *selection)
{
	for (int64_t i = 0; i < selection->count; i++)
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

		if (item->layer && tensor_sibling_set(item->layer, &stem) >= 0)
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
