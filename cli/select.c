/* SPDX-License-Identifier: Apache-2.0 */
/* select.c - chooses the tensors to quantise: see quantize.h. */
#include "cli.h"
#include "quantize.h"

#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#include "experts.h"

static const char weight_suffix[] = ".weight";

/* Whether a glob of a list "a*, b*" matches name; which: the first that does. */
static int matches(const char *globs, const char *name, char *which, size_t which_bytes)
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

static int any_matches(const struct cli_texts *texts, const char *name, char *which,
		       size_t which_bytes)
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
				 const struct select_options *o, struct selected *item,
				 const struct experts *fused)
{
	item->is_across = experts_are_across(file, item->tensor, fused);
	if (!item->is_across)
		return experts_problem(file, item->tensor, fused);
	return o->checkpoint == NIB_CHECKPOINT_MODELOPT
		   ? NULL
		   : "fused experts [experts, k, n], which only ModelOpt's "
		     "format has";
}

/* Whether a tensor cannot be a layer; its reason then says why. */
static int refuse_kind(const struct nib_file *file, const struct select_options *o,
		       struct selected *item)
{
	const struct nib_file_tensor *t = item->tensor;
	const struct experts *fused = t->rank == 3 ? experts_find(t->name) : NULL;
	const char *problem = fused ? why_not_fused(file, o, item, fused) : NULL;
	const int64_t k = t->rank ? t->shape[t->rank - 1 - item->is_across] : 0;
	char *reason = item->reason;
	const size_t bytes = sizeof(item->reason);

	if (tensor_in_layer(file, t))
		snprintf(reason, bytes, "already NVFP4");
	else if (tensor_dtype(t->dtype, &item->dtype))
		snprintf(reason, bytes, "type %s is not a float type", t->dtype);
	else if (t->rank != 2 && t->rank != 3)
		snprintf(reason, bytes, "%d-D, not a matrix", t->rank);
	else if (!fused && !tensor_name_ends(t->name, weight_suffix))
		snprintf(reason, bytes, "the name does not end in .weight");
	else if (t->rank == 3 && !fused && !is_named_as_experts(o, t->name))
		snprintf(reason, bytes,
			 "3-D, and not named as experts: --include selects it");
	else if (!t->bytes)
		snprintf(reason, bytes, "empty");
	else if (problem)
		snprintf(reason, bytes, "%s", problem);
	else if (k % NIB_NVFP4_BLOCK)
		snprintf(reason, bytes, "k = %lld is not a multiple of 16",
			 (long long)k);
	else if (k > NIB_MAX_K)
		snprintf(reason, bytes, "k = %lld is more than %lld", (long long)k,
			 (long long)NIB_MAX_K);
	return *reason != '\0';
}

/* Whether transformers would not load a layer of the model's folder. */
static int refuse_model(const struct select_options *o, struct selected *item)
{
	const struct nib_file_tensor *t = item->tensor;
	char *reason = item->reason;
	const size_t bytes = sizeof(item->reason);

	if (!o->model)
		return 0;
	if (models_refuse(o->model, t->name, reason, bytes))
		return 1;
	if (o->model->is_known && t->rank == 3 && !experts_find(t->name))
		snprintf(reason, bytes,
			 "3-D, and not *.experts.gate_up_proj or down_proj");
	else if (o->ties_head && (!strcmp(t->name, "lm_head.weight") ||
				  tensor_name_ends(t->name, ".lm_head.weight")))
		snprintf(reason, bytes, "config.json ties it to the embedding");
	return *reason != '\0';
}

static int refuse_name(const struct select_options *o, struct selected *item)
{
	const char *name = item->tensor->name;
	const size_t bytes = sizeof(item->reason);
	char which[64];

	if (o->include.count && !any_matches(&o->include, name, which, sizeof(which)))
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
	item.layer =
	    strndup(t->name,
		    strlen(t->name) - (item.is_across ? 0 : sizeof(weight_suffix) - 1));
	if (!item.layer)
		return cli_no_memory("names of layers");
	return add_item(s, &item);
}

/* ---- experts that are loaded together ------------------------------------ */

size_t select_experts_stem(const char *name)
{
	static const char experts[] = ".experts.";
	const struct experts *fused = experts_find(name);
	const char *at = strstr(name, experts);

	if (fused)
		return experts_stem(name, fused);
	if (!at || !tensor_name_ends(name, weight_suffix))
		return 0;
	return (size_t)(at - name) + sizeof(experts) - 2;
}

/* Weights of experts that are copied: the first of each X.experts. */
struct kept {
	const char **names;
	int64_t count;
};

static const char *find_kept(const struct kept *kept, const char *name)
{
	const size_t n = select_experts_stem(name);

	/* From the last on: files store the experts of a layer together. */
	for (int64_t i = kept->count - 1; i >= 0 && n; i--)
		if (select_experts_stem(kept->names[i]) == n &&
		    !strncmp(kept->names[i], name, n))
			return kept->names[i];
	return NULL;
}

/* ---- all tensors --------------------------------------------------------- */

/* Whether a tensor is copied; its reason then says why. */
static int refuse(const struct nib_file *file, const struct select_options *o,
		  struct selected *item)
{
	return refuse_kind(file, o, item) || refuse_name(o, item) ||
	       refuse_model(o, item);
}

/* transformers stacks the experts of a layer, and a stack is all NVFP4 or not at
 * all.  Finds the first copied weight of each stack. */
static int find_all_kept(const struct nib_file *file, const struct select_options *o,
			 struct kept *kept)
{
	const int64_t n = nib_file_tensor_count(file);

	if (!o->model || !o->model->is_known)
		return CLI_OK;
	kept->names = calloc((size_t)n + 1, sizeof(*kept->names));
	if (!kept->names)
		return cli_no_memory("list of experts");
	for (int64_t i = 0; i < n; i++) {
		struct selected item = {.tensor = nib_file_tensor_at(file, i)};
		const char *name = item.tensor->name;

		if (select_experts_stem(name) && refuse(file, o, &item) &&
		    !find_kept(kept, name))
			kept->names[kept->count++] = name;
	}
	return CLI_OK;
}

static int refuse_incomplete(const struct kept *kept, struct selected *item)
{
	const char *other = find_kept(kept, item->tensor->name);

	if (other)
		snprintf(item->reason, sizeof(item->reason),
			 "experts load together, and %.*s%s is copied", 48,
			 other + select_experts_stem(other) + 1,
			 strlen(other + select_experts_stem(other) + 1) > 48 ? "..."
									     : "");
	return other != NULL;
}

static int add_tensor(struct selection *s, const struct nib_file *file,
		      const struct select_options *o, const struct kept *kept,
		      const struct nib_file_tensor *t)
{
	struct selected item = {.tensor = t};
	const struct experts *fused = experts_find(t->name);

	if (refuse(file, o, &item) || refuse_incomplete(kept, &item)) {
		item.is_across = 0;
		return add_item(s, &item);
	}
	return t->rank == 3 && fused && !item.is_across ? add_experts(s, item, fused)
							: add_layer(s, item);
}

int select_tensors(const struct nib_file *file, const struct select_options *options,
		   struct selection *selection)
{
	struct kept kept = {0};
	int code;

	*selection = (struct selection){0};
	code = find_all_kept(file, options, &kept);
	for (int64_t i = 0; i < nib_file_tensor_count(file) && !code; i++)
		code = add_tensor(selection, file, options, &kept,
				  nib_file_tensor_at(file, i));
	free(kept.names);
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
		cli_out_of_memory();
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

		for (end = i; end < n && !compare(&fused[i], &fused[end]); end++)
			if (fused[end]->amax > amax)
				amax = fused[end]->amax;
		for (; i < end; i++)
			fused[i]->amax = amax;
	}
	free(fused);
}
