/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layers.c - finds the NVFP4 layers of a file by the names of its tensors:
 *
 *                  ModelOpt              compressed-tensors
 *   U8 [N, K/2]    X.weight              X.weight_packed
 *   F8_E4M3 [N, K/16]  X.weight_scale    X.weight_scale
 *   F32, 1 value   X.weight_scale_2      X.weight_global_scale  (reciprocal)
 *   F32, optional  X.input_scale         X.input_global_scale   (reciprocal)
 *
 * A stack of E matrices has E before both shapes, and one global scale or E.
 * Stacks of all experts have names without ".weight": X, X_weight_scale,
 * X_weight_scale_2 and X_input_scale in ModelOpt's format, X_packed, X_scale,
 * X_global_scale and X_input_global_scale in compressed-tensors'.  Layers that
 * ComfyUI marks (comfy.h) have ModelOpt's names and another order of codes and
 * scales.
 */
#include "layers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/text.h"
#include "file/array.h"
#include "file/foreign.h"
#include "file/layer_names.h"
#include "file/layer_read.h"

/* How many values of enum nib_naming, from the first, are NVFP4. */
#define NVFP4_NAMINGS 4

const struct nib_file_tensor *nib_layer_find_part(struct nib_layer_finder *f,
						  const char *layer, size_t layer_bytes,
						  const char *suffix)
{
	memcpy(f->scratch, layer, layer_bytes);
	memcpy(f->scratch + layer_bytes, suffix, strlen(suffix) + 1);
	return nib_file_find(f->file, f->scratch);
}

const char *nib_layer_add_name(struct nib_layer_finder *f, const char *name,
			       size_t name_bytes)
{
	char *copy = f->names_free;

	memcpy(copy, name, name_bytes);
	copy[name_bytes] = '\0';
	f->names_free += name_bytes + 1;
	return copy;
}

static const struct nib_file_tensor *find_extra(struct nib_layer_finder *f,
						const struct nib_layer_suffixes *names,
						const char *layer, size_t layer_bytes,
						size_t extra)
{
	char suffix[NIB_LONGEST_SUFFIX + 1];

	snprintf(suffix, sizeof(suffix), "%c%s", names->scales[0],
		 nib_layer_extras[extra].name);
	return nib_layer_find_part(f, layer, layer_bytes, suffix);
}

/* Finds ComfyUI's mark of a layer, which is a tensor or in the header. */
static void find_mark(struct nib_layer_finder *f,
		      const struct nib_layer_suffixes *names, const char *layer,
		      size_t layer_bytes, struct nib_comfy_mark *mark)
{
	const struct nib_comfy_mark *found;
	const struct nib_file_tensor *t;

	*mark = (struct nib_comfy_mark){0};
	if (names != &nib_layer_suffixes[NIB_NAMING_MODELOPT])
		return;
	t = nib_layer_find_part(f, layer, layer_bytes, NIB_COMFY_SUFFIX);
	if (t) {
		mark->text = t->data;
		mark->bytes = (size_t)t->bytes;
		return;
	}
	f->scratch[layer_bytes] = '\0';
	found = nib_comfy_find(&f->comfy, f->scratch);
	if (found)
		*mark = *found;
}

/*
 * Returns whether a layer looks like NVFP4 with these names.  Other formats share
 * names with it: FP8 has X.weight_scale; 4-bit integers and MXFP4 have
 * X.weight_packed.
 */
static bool find_parts(struct nib_layer_finder *f,
		       const struct nib_layer_suffixes *names, const char *layer,
		       size_t layer_bytes, struct nib_layer_parts *p)
{
	p->weight = nib_layer_find_part(f, layer, layer_bytes, names->codes);
	p->global = nib_layer_find_part(f, layer, layer_bytes, names->global);
	if (!p->global && !nib_has_dtype(p->weight, "U8"))
		return false;
	p->scale = nib_layer_find_part(f, layer, layer_bytes, names->scales);
	if (!p->global && !nib_has_dtype(p->scale, "F8_E4M3") &&
	    (p->scale || names != &nib_layer_suffixes[NIB_NAMING_COMPRESSED_TENSORS]))
		return false;
	p->input_global =
	    nib_layer_find_part(f, layer, layer_bytes, names->input_global);
	p->pre_quant_scale = find_extra(f, names, layer, layer_bytes, 0);
	p->extra = 1;
	while (p->extra < NIB_LAYER_EXTRAS &&
	       !find_extra(f, names, layer, layer_bytes, p->extra))
		p->extra++;
	find_mark(f, names, layer, layer_bytes, &p->mark);
	return true;
}

/* Adds a problem with the reason f->reason.  codes may be NULL. */
static enum nib_status add_problem(struct nib_layer_finder *f, const char *name,
				   enum nib_checkpoint format,
				   const struct nib_file_tensor *codes)
{
	struct nib_file *file = f->file;
	struct nib_layer_defect *problem;

	if (!nib_array_grow(&file->problems, file->n_problems, &f->problems_capacity,
			    sizeof(*file->problems)))
		return NIB_STATUS_OUT_OF_MEMORY;
	problem = &file->problems[file->n_problems++];
	problem->name = name;
	problem->format = format;
	problem->tensors = nib_file_layer_tensors_of(file, codes);
	memcpy(problem->reason, f->reason, sizeof(problem->reason));
	return NIB_STATUS_OK;
}

/* Whether another naming has a layer of this name too. */
static bool has_other_naming(struct nib_layer_finder *f,
			     const struct nib_layer_suffixes *names, const char *name,
			     size_t name_bytes)
{
	struct nib_layer_parts other;

	for (int i = 0; i < NVFP4_NAMINGS; i++)
		if (names != &nib_layer_suffixes[i] &&
		    find_parts(f, &nib_layer_suffixes[i], name, name_bytes, &other))
			return true;
	return false;
}

/* Adds a layer that looks like NVFP4 to the layers or to the problems. */
static enum nib_status add_layer(struct nib_layer_finder *f,
				 const struct nib_layer_suffixes *names,
				 const char *name, size_t name_bytes,
				 const struct nib_layer_parts *p)
{
	struct nib_file *file = f->file;
	struct nib_layer layer = {.name = nib_layer_add_name(f, name, name_bytes)};
	enum nib_status status;

	layer.format = names->is_reciprocal ? NIB_CHECKPOINT_COMPRESSED_TENSORS
		       : p->mark.text && !p->mark.by_modelopt ? NIB_CHECKPOINT_COMFY
							      : NIB_CHECKPOINT_MODELOPT;
	if (!nib_array_grow(&file->layers, file->n_layers, &f->layers_capacity,
			    sizeof(*file->layers)))
		return NIB_STATUS_OUT_OF_MEMORY;
	if (has_other_naming(f, names, name, name_bytes))
		status = nib_layer_refuse(f, "the layer is stored in both formats");
	else
		status = nib_read_layer(f, names, p, &layer);
	if (!status) {
		layer.tensors = nib_file_layer_tensors_of(file, p->weight);
		file->layers[file->n_layers++] = layer;
		return NIB_STATUS_OK;
	}
	nib_free_layer(&layer);
	if (status == NIB_STATUS_BAD_FILE)
		return add_problem(f, layer.name, layer.format, p->weight);
	return status;
}

/* Adds the layer of these names that begins at the tensor name, if one does.  A layer
 * begins at its weight, or if that is missing, at its global scale. */
static enum nib_status visit_names(struct nib_layer_finder *f,
				   const struct nib_layer_suffixes *names,
				   const char *name)
{
	const size_t name_bytes = strlen(name);
	size_t at_weight = nib_stem_bytes(name, name_bytes, names->codes);
	size_t at_global = nib_stem_bytes(name, name_bytes, names->global);
	struct nib_layer_parts p;

	if (names == &nib_layer_suffixes[NIB_NAMING_COMPRESSED_TENSORS_STACK]) {
		/* X.weight_packed ends with "_packed", and X.input_global_scale with
		 * "_global_scale". */
		at_global = 0;
		if (nib_stem_bytes(
			name, name_bytes,
			nib_layer_suffixes[NIB_NAMING_COMPRESSED_TENSORS].codes))
			return NIB_STATUS_OK;
	}
	if (at_weight && find_parts(f, names, name, at_weight, &p))
		return add_layer(f, names, name, at_weight, &p);
	if (at_global && find_parts(f, names, name, at_global, &p) && !p.weight)
		return add_layer(f, names, name, at_global, &p);
	return NIB_STATUS_OK;
}

/* Adds a problem for a layer of an unsupported writer, at the tensor that marks it. */
static enum nib_status visit_foreign(struct nib_layer_finder *f,
				     const struct nib_file_tensor *t)
{
	for (int i = 0; i < NIB_FOREIGN; i++) {
		const struct nib_foreign *w = &nib_foreign[i];
		const size_t n = nib_stem_bytes(t->name, strlen(t->name), w->mark);
		const struct nib_file_tensor *codes =
		    n ? nib_layer_find_part(f, t->name, n, w->codes) : NULL;

		if (!codes || (w->mark_dtype && !nib_has_dtype(t, w->mark_dtype)) ||
		    (w->codes_dtype && !nib_has_dtype(codes, w->codes_dtype)))
			continue;
		nib_layer_refuse(f, "%s", w->reason);
		return add_problem(f, nib_layer_add_name(f, t->name, n),
				   NIB_CHECKPOINT_MODELOPT, codes);
	}
	return NIB_STATUS_OK;
}

static enum nib_status visit_tensor(struct nib_layer_finder *f,
				    const struct nib_file_tensor *t)
{
	enum nib_status status = visit_foreign(f, t);

	for (int i = 0; i < NVFP4_NAMINGS && !status; i++)
		status = visit_names(f, &nib_layer_suffixes[i], t->name);
	return status;
}

static int compare_layers(const void *a, const void *b)
{
	const struct nib_layer *const *s = a, *const *t = b;

	return strcmp((*s)->name, (*t)->name);
}

static enum nib_status index_layers(struct nib_file *file)
{
	size_t n = (size_t)file->n_layers;

	if (n == 0)
		return NIB_STATUS_OK;
	file->layers_by_name = malloc(n * sizeof(*file->layers_by_name));
	if (!file->layers_by_name)
		return NIB_STATUS_OUT_OF_MEMORY;
	for (size_t i = 0; i < n; i++)
		file->layers_by_name[i] = &file->layers[i];
	qsort(file->layers_by_name, n, sizeof(*file->layers_by_name), compare_layers);
	return NIB_STATUS_OK;
}

static enum nib_status find_layers(struct nib_layer_finder *f)
{
	struct nib_file *file = f->file;
	size_t longest = 0, total = 1;
	enum nib_status status;

	for (int64_t i = 0; i < file->n_tensors; i++) {
		size_t n = strlen(file->tensors[i].name);

		total += n + 1;
		longest = n > longest ? n : longest;
	}
	/* A tensor adds at most three names: one as codes of nib_layer_tensors, one of
	 * a layer or problem by its ending, and one as a stack by its whole name. */
	file->layer_names = f->names_free = malloc(3 * total);
	f->scratch = malloc(longest + NIB_LONGEST_SUFFIX + 1);
	if (!file->layer_names || !f->scratch)
		return NIB_STATUS_OUT_OF_MEMORY;
	status = nib_comfy_read(&f->comfy, file);
	if (!status)
		status = nib_file_group_tensors(f);
	for (int64_t i = 0; i < file->n_tensors && !status; i++)
		status = visit_tensor(f, &file->tensors[i]);
	return status ? status : index_layers(file);
}

enum nib_status nib_file_find_layers(struct nib_file *file, const char *path,
				     struct nib_error *err)
{
	struct nib_layer_finder f = {.file = file};
	char shown[NIB_SHOWN_BYTES];
	enum nib_status status = find_layers(&f);

	free(f.scratch);
	nib_comfy_free(&f.comfy);
	if (status)
		return nib_fail(err, status, "%s: out of memory for its layers",
				nib_show_path(shown, path));
	return NIB_STATUS_OK;
}

void nib_file_free_layers(struct nib_file *file)
{
	for (int64_t i = 0; i < file->n_layers; i++)
		nib_free_layer(&file->layers[i]);
	free(file->layers);
	free(file->layers_by_name);
	free(file->problems);
	free(file->layer_names);
	free(file->layer_tensors);
	free(file->layer_of_tensor);
}

int64_t nib_file_layer_count(const struct nib_file *file)
{
	return file ? file->n_layers : 0;
}

const struct nib_layer *nib_file_layer_at(const struct nib_file *file, int64_t index)
{
	if (!file || index < 0 || index >= file->n_layers)
		return NULL;
	return &file->layers[index];
}

/* Reads name_bytes of name, which may be longer. */
static const struct nib_layer *find_layer(const struct nib_file *file, const char *name,
					  size_t name_bytes)
{
	int64_t low = 0, high = file->n_layers;

	while (low < high) {
		int64_t middle = low + (high - low) / 2;
		const struct nib_layer *layer = file->layers_by_name[middle];
		int order = strncmp(name, layer->name, name_bytes);

		if (order == 0 && layer->name[name_bytes] == '\0')
			return layer;
		if (order > 0)
			low = middle + 1;
		else
			high = middle; /* also if its name begins with ours */
	}
	return NULL;
}

const struct nib_layer *nib_file_find_layer(const struct nib_file *file,
					    const char *name)
{
	const struct nib_layer *layer;
	size_t name_bytes;

	if (!file || !name)
		return NULL;
	name_bytes = strlen(name);
	layer = find_layer(file, name, name_bytes);
	for (int i = 0; !layer && i < NVFP4_NAMINGS; i++) {
		size_t stem =
		    nib_stem_bytes(name, name_bytes, nib_layer_suffixes[i].codes);

		if (!stem)
			continue;
		layer = find_layer(file, name, stem);
		/* ComfyUI has ModelOpt's names. */
		if (layer && (layer->format == NIB_CHECKPOINT_COMPRESSED_TENSORS) !=
				 nib_layer_suffixes[i].is_reciprocal)
			layer = NULL;
	}
	return layer;
}

int64_t nib_file_layer_defect_count(const struct nib_file *file)
{
	return file ? file->n_problems : 0;
}

const struct nib_layer_defect *nib_file_layer_defect_at(const struct nib_file *file,
							int64_t index)
{
	if (!file || index < 0 || index >= file->n_problems)
		return NULL;
	return &file->problems[index];
}
