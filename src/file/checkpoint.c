/* SPDX-License-Identifier: Apache-2.0 */
/*
 * checkpoint.c - finds the NVFP4 layers of a file by the names of its tensors:
 *
 *                  ModelOpt              compressed-tensors
 *   U8 [N, K/2]    X.weight              X.weight_packed
 *   F8_E4M3 [N, K/16]  X.weight_scale    X.weight_scale
 *   F32, 1 value   X.weight_scale_2      X.weight_global_scale  (reciprocal)
 *   F32, optional  X.input_scale         X.input_global_scale   (reciprocal)
 *
 * A stack of E matrices has E before both shapes, and one global scale or E.
 * ModelOpt names the stack of all experts without ".weight": X, X_weight_scale,
 * X_weight_scale_2, X_input_scale.  Layers that ComfyUI marks (comfy.h) have
 * ModelOpt's names and another order of codes and scales.
 *
 * Sizes, types and global scales are checked here; codes and block scales are
 * not looked at.
 */
#include "checkpoint.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/text.h"
#include "file/array.h"
#include "file/comfy.h"
#include "file/foreign.h"
#include "file/global_scale.h"
#include "file/little_endian.h"
#include "file/safetensors.h"
#include "format/half.h"
#include "format/scale_layout.h"

const struct nib_checkpoint_names nib_checkpoint_names[NIB_CHECKPOINTS] = {
    [NIB_CHECKPOINT_MODELOPT] =
	{
	    ".weight",
	    ".weight_scale",
	    ".weight_scale_2",
	    ".input_scale",
	    false,
	    0,
	},
    [NIB_CHECKPOINT_COMPRESSED_TENSORS] =
	{
	    ".weight_packed",
	    ".weight_scale",
	    ".weight_global_scale",
	    ".input_global_scale",
	    true,
	    1,
	},
};

/* ModelOpt's names of fused experts. */
static const struct nib_checkpoint_names fused_names = {
    "", "_weight_scale", "_weight_scale_2", "_input_scale", false, 0,
};

/* A layer with one of these has products that its weight alone does not give.
 * The first is read where it is one of a matrix of ModelOpt's. */
static const struct {
	const char *name, *meaning;
} extras[] = {
    {"pre_quant_scale", "AWQ multiplies the inputs by it"},
    {"svdquant_lora_a", "SVDQuant adds a product of low rank"},
    {"svdquant_lora_b", "SVDQuant adds a product of low rank"},
};
#define N_EXTRAS (sizeof(extras) / sizeof(extras[0]))

/* What a stored scale of zero is. */
enum zero {
	REFUSED,      /* weights: every product would be 0 or NaN */
	IS_NONE,      /* inputs, inf and NaN too: the calibration saw none */
	OF_NO_VALUES, /* weights without rows */
};

struct finder {
	struct nib_file *file;
	char *scratch;	  /* a tensor's name */
	char *names_free; /* the unused end of file->layer_names */
	int64_t layers_capacity, problems_capacity;
	struct nib_comfy comfy;
	int tiles; /* find_tiles(); 0: not asked */
	char reason[sizeof(((struct nib_layer_defect *)NULL)->reason)];
};

/* The tensors of one layer; NULL where there is none. */
struct parts {
	const struct nib_file_tensor *weight, *scale, *global, *input_global;
	const struct nib_file_tensor *pre_quant_scale;
	size_t extra; /* which of the other extras[]; N_EXTRAS: none */
	/* ComfyUI's mark of the layer; text NULL: none. */
	struct nib_comfy_mark mark;
};

/* Writes why a layer cannot be read into f->reason. */
__attribute__((format(printf, 2, 3))) static enum nib_status
refuse(struct finder *f, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(f->reason, sizeof(f->reason), format, args);
	va_end(args);
	return NIB_STATUS_BAD_FILE;
}

static const struct nib_file_tensor *find_part(struct finder *f, const char *layer,
					       size_t layer_bytes, const char *suffix)
{
	memcpy(f->scratch, layer, layer_bytes);
	memcpy(f->scratch + layer_bytes, suffix, strlen(suffix) + 1);
	return nib_file_find(f->file, f->scratch);
}

static const struct nib_file_tensor *
find_extra(struct finder *f, const struct nib_checkpoint_names *names,
	   const char *layer, size_t layer_bytes, size_t extra)
{
	char suffix[NIB_LONGEST_SUFFIX + 1];

	snprintf(suffix, sizeof(suffix), "%c%s", names->scale[0], extras[extra].name);
	return find_part(f, layer, layer_bytes, suffix);
}

static bool has_dtype(const struct nib_file_tensor *t, const char *dtype)
{
	return t && strcmp(t->dtype, dtype) == 0;
}

/* ComfyUI's mark of a layer, its own or the header's. */
static void find_mark(struct finder *f, const struct nib_checkpoint_names *names,
		      const char *layer, size_t layer_bytes,
		      struct nib_comfy_mark *mark)
{
	const struct nib_comfy_mark *found;
	const struct nib_file_tensor *t;

	*mark = (struct nib_comfy_mark){0};
	if (names != &nib_checkpoint_names[NIB_CHECKPOINT_MODELOPT])
		return;
	t = find_part(f, layer, layer_bytes, ".comfy_quant");
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
 * Says whether a layer looks like NVFP4 of these names.  Other formats share
 * them: FP8 has X.weight_scale, 4-bit integers and MXFP4 X.weight_packed.
 */
static bool find_parts(struct finder *f, const struct nib_checkpoint_names *names,
		       const char *layer, size_t layer_bytes, struct parts *p)
{
	p->weight = find_part(f, layer, layer_bytes, names->weight);
	p->global = find_part(f, layer, layer_bytes, names->global);
	if (!p->global && !has_dtype(p->weight, "U8"))
		return false;
	p->scale = find_part(f, layer, layer_bytes, names->scale);
	if (!p->global && !has_dtype(p->scale, "F8_E4M3") &&
	    (p->scale || !names->reciprocal))
		return false;
	p->input_global = find_part(f, layer, layer_bytes, names->input_global);
	p->pre_quant_scale = find_extra(f, names, layer, layer_bytes, 0);
	p->extra = 1;
	while (p->extra < N_EXTRAS &&
	       !find_extra(f, names, layer, layer_bytes, p->extra))
		p->extra++;
	find_mark(f, names, layer, layer_bytes, &p->mark);
	return true;
}

/* The name of a part in messages: its suffix as a word. */
static const char *word(const char *suffix)
{
	return *suffix ? suffix + 1 : "the tensor of codes";
}

/* "F32 [4, 8]", cut to fit. */
static const char *describe(char text[64], const struct nib_file_tensor *t)
{
	int used = snprintf(text, 64, "%s [", t->dtype);

	for (int i = 0; i < t->rank && used < 64; i++)
		used += snprintf(text + used, (size_t)(64 - used),
				 i ? ", %" PRId64 : "%" PRId64, t->shape[i]);
	if (used < 64)
		snprintf(text + used, (size_t)(64 - used), "]");
	return text;
}

/* The bytes of name before suffix; 0 if it does not end so. */
static size_t stem_bytes(const char *name, size_t name_bytes, const char *suffix)
{
	size_t n = strlen(suffix);

	if (name_bytes <= n || strcmp(name + name_bytes - n, suffix) != 0)
		return 0;
	return name_bytes - n;
}

static bool is_tiled_shape(const struct nib_file_tensor *scale, int64_t rows,
			   int64_t groups)
{
	return scale->rank == 2 && rows <= INT64_MAX - 127 &&
	       scale->shape[0] == (rows + 127) / 128 * 128 &&
	       scale->shape[1] == (groups + 3) / 4 * 4;
}

static bool is_linear_shape(const struct nib_file_tensor *scale,
			    const struct nib_file_tensor *weight, int64_t groups)
{
	const int last = weight->rank - 1;

	return scale->rank == weight->rank &&
	       memcmp(scale->shape, weight->shape,
		      (size_t)last * sizeof(*scale->shape)) == 0 &&
	       scale->shape[last] == groups;
}

static enum nib_status read_scale(struct finder *f,
				  const struct nib_file_tensor *weight,
				  const struct nib_file_tensor *scale, int64_t rows,
				  int64_t groups)
{
	char text[64];

	if (has_dtype(scale, "F8_E4M3") && is_linear_shape(scale, weight, groups))
		return NIB_STATUS_OK;
	if (has_dtype(scale, "F8_E4M3") && is_tiled_shape(scale, rows, groups))
		return refuse(f,
			      "weight_scale is %s, padded as 128x4 tiles are: "
			      "must be linear [%" PRId64 ", %" PRId64 "]",
			      describe(text, scale), rows, groups);
	return refuse(
	    f, "weight_scale is %s: must be F8_E4M3 [%s%" PRId64 ", %" PRId64 "]",
	    describe(text, scale), weight->rank == 3 ? "batch, " : "", rows, groups);
}

/* ---- ComfyUI ------------------------------------------------------------- */

/* 1 if the scales of a matrix are tiles, -1 if they are not; 0: its sizes do not
 * say. */
static int shows_tiles(const struct nib_file_tensor *weight,
		       const struct nib_file_tensor *scale)
{
	int64_t rows, groups;

	if (!has_dtype(weight, "U8") || weight->rank != 2 ||
	    !has_dtype(scale, "F8_E4M3"))
		return 0;
	rows = weight->shape[0];
	groups = weight->shape[1] / (NIB_NVFP4_BLOCK / 2);
	if (rows % 128 == 0 && groups % 4 == 0)
		return 0;
	if (is_tiled_shape(scale, rows, groups))
		return 1;
	return is_linear_shape(scale, weight, groups) ? -1 : 0;
}

/* ModelOpt puts the scales of all layers into tiles or of none: 1 if it did, -1
 * if not, -2 if no layer shows. */
static int find_tiles(struct finder *f)
{
	const struct nib_checkpoint_names *names = &nib_checkpoint_names[0];
	struct nib_file *file = f->file;

	for (int64_t i = 0; i < file->n_tensors && !f->tiles; i++) {
		const struct nib_file_tensor *t = &file->tensors[i];
		const size_t n = stem_bytes(t->name, strlen(t->name), names->weight);

		if (n)
			f->tiles =
			    shows_tiles(t, find_part(f, t->name, n, names->scale));
	}
	if (!f->tiles)
		f->tiles = -2;
	return f->tiles;
}

/* Applies a layer's mark to its view, which read_weight() made. */
static enum nib_status read_order(struct finder *f, const struct parts *p,
				  struct nib_fp4 *view)
{
	const int64_t groups = view->k / NIB_NVFP4_BLOCK;
	struct nib_comfy_order order;
	char text[64];
	int tiles = 1;

	if (!nib_comfy_parse(&p->mark, &order, f->reason, sizeof(f->reason)))
		return NIB_STATUS_BAD_FILE;
	if (order.scales_by_shape)
		tiles = find_tiles(f);
	if (tiles == -2)
		return refuse(f, "_quantization_metadata beside ModelOpt's "
				 "quantization_config does not say whether "
				 "scales are in 128x4 tiles: export without it");
	if (tiles < 0)
		return read_scale(f, p->weight, p->scale, view->rows, groups);
	if (p->weight->rank != 2)
		return refuse(f, "ComfyUI marks a stack: must be of rank 2");
	if (!(has_dtype(p->scale, "F8_E4M3") || has_dtype(p->scale, "U8")) ||
	    !is_tiled_shape(p->scale, view->rows, groups))
		return refuse(f,
			      "weight_scale is %s: must be 128x4 tiles "
			      "F8_E4M3 [%" PRId64 ", %" PRId64 "]",
			      describe(text, p->scale), (view->rows + 127) / 128 * 128,
			      (groups + 3) / 4 * 4);
	if (order.rows > view->rows || (order.k && order.k != view->k))
		return refuse(f,
			      "orig_shape is [%" PRId64 ", %" PRId64
			      "]: must be [.., %" PRId64 "], at most %" PRId64 " rows",
			      order.rows, order.k, view->k, view->rows);
	view->rows = order.k ? order.rows : view->rows;
	view->code_order = order.codes;
	view->scale_layout = NIB_SCALE_LAYOUT_TILED_128X4;
	return NIB_STATUS_OK;
}

/* Some exports of Llama 4 store [experts, k / 2, n], with scales alike. */
static bool is_packed_across(const struct nib_file_tensor *weight,
			     const struct nib_file_tensor *scale)
{
	return weight->rank == 3 && scale->rank == 3 &&
	       scale->shape[0] == weight->shape[0] &&
	       scale->shape[1] == weight->shape[1] / (NIB_NVFP4_BLOCK / 2) &&
	       scale->shape[2] == weight->shape[2] && weight->shape[1] > 0;
}

static enum nib_status read_weight(struct finder *f, const struct parts *p,
				   const char *name, struct nib_fp4 *view)
{
	const struct nib_file_tensor *w = p->weight;
	char text[64];
	int64_t rows, half_k;

	if (!has_dtype(w, "U8") || (w->rank != 2 && w->rank != 3))
		return refuse(f, "%s is %s: must be U8 of rank 2 or 3", name,
			      describe(text, w));
	if (is_packed_across(w, p->scale))
		return refuse(f,
			      "%s is %s, packed along the second last size, "
			      "which nibblas.transformers runs: must be "
			      "[batch, rows, k / 2]",
			      name, describe(text, w));
	rows = w->shape[w->rank - 2];
	half_k = w->shape[w->rank - 1];
	if (half_k <= 0 || half_k % (NIB_NVFP4_BLOCK / 2) != 0 ||
	    half_k > NIB_MAX_K / 2)
		return refuse(f,
			      "%s is %s: the last size must be a multiple of "
			      "%d, 1 .. %" PRId64,
			      name, describe(text, w), NIB_NVFP4_BLOCK / 2,
			      NIB_MAX_K / 2);
	if (w->rank == 3 && w->shape[0] == 0)
		return refuse(f, "%s is %s: a stack of no matrices", name,
			      describe(text, w));
	*view = (struct nib_fp4){
	    .codes = (void *)(uintptr_t)w->data,
	    .scales = (void *)(uintptr_t)p->scale->data,
	    .rows = rows,
	    .k = 2 * half_k,
	    .batch = w->rank == 3 ? w->shape[0] : 1,
	    .scale_layout = NIB_SCALE_LAYOUT_LINEAR,
	};
	return p->mark.text
		   ? read_order(f, p, view)
		   : read_scale(f, w, p->scale, rows, half_k / (NIB_NVFP4_BLOCK / 2));
}

/* One stored value to the meaning of the API; false if it is no scale. */
static bool read_value(const struct nib_file_tensor *t, int64_t index, bool reciprocal,
		       enum zero zero, float *value)
{
	const float stored = nib_load_fp32((const char *)t->data + index * 4);

	*value = reciprocal ? nib_reciprocal(stored) : stored;
	if (nib_is_global_scale(stored) && nib_is_global_scale(*value))
		return true;
	*value = 0;
	/* The largest of no values is 0. */
	if (zero == OF_NO_VALUES && reciprocal)
		return nib_fp32_bits(stored) == nib_fp32_bits(INFINITY);
	if (zero == IS_NONE)
		return nib_fp32_bits(fabsf(stored)) >= 0x7F800000 ||
		       nib_fp32_bits(fabsf(stored)) == 0;
	return zero != REFUSED && nib_fp32_bits(stored) == 0;
}

/*
 * Reads 1 or batch values.  *globals receives batch of them; NULL if the weight
 * has no rows, or if no value is a scale.
 */
static enum nib_status read_globals(struct finder *f, const struct nib_file_tensor *t,
				    const char *name, bool reciprocal,
				    const struct nib_fp4 *weight, enum zero zero,
				    const float **globals)
{
	bool has_scale = false;
	char text[64];
	float value, *values;
	int64_t n;

	if (!has_dtype(t, "F32") || t->bytes % 4 != 0 ||
	    (t->bytes != 4 && t->bytes / 4 != (uint64_t)weight->batch))
		return refuse(f, "%s is %s: must be one F32%s", name, describe(text, t),
			      weight->batch > 1 ? ", or one for each matrix" : "");
	n = (int64_t)(t->bytes / 4);
	for (int64_t i = 0; i < n; i++) {
		if (!read_value(t, i, reciprocal, zero, &value)) {
			value = nib_load_fp32((const char *)t->data + i * 4);
			return refuse(f, "%s is %g: must be a positive number", name,
				      (double)value);
		}
		has_scale |= nib_fp32_bits(value) != 0;
	}
	/* Without rows a stack may have more matrices than memory holds. */
	if (!has_scale || weight->rows == 0)
		return NIB_STATUS_OK;
	values = malloc((size_t)weight->batch * sizeof(*values));
	if (!values)
		return NIB_STATUS_OUT_OF_MEMORY;
	for (int64_t i = 0; i < weight->batch; i++)
		read_value(t, n == 1 ? 0 : i, reciprocal, zero, &values[i]);
	*globals = values;
	return NIB_STATUS_OK;
}

static bool is_float(const struct nib_file_tensor *t)
{
	return has_dtype(t, "F32") || has_dtype(t, "F16") || has_dtype(t, "BF16");
}

/* AWQ's scales of the columns of x, if the layer has some. */
static enum nib_status read_pre_quant_scale(struct finder *f, const struct parts *p,
					    struct nib_layer *layer)
{
	const struct nib_file_tensor *t = p->pre_quant_scale;
	char text[64];

	layer->pre_quant_scale = t;
	if (!t || (p->weight->rank == 2 && t->rank == 1 && is_float(t) &&
		   t->shape[0] == layer->weight.k))
		return NIB_STATUS_OK;
	return refuse(f,
		      "pre_quant_scale is %s: must be F32, F16 or BF16 "
		      "[%" PRId64 "], of one matrix",
		      describe(text, t), layer->weight.k);
}

/* The caller calls free_globals(), also on failure. */
static enum nib_status read_layer(struct finder *f,
				  const struct nib_checkpoint_names *names,
				  const struct parts *p, struct nib_layer *layer)
{
	const bool is_awq = p->pre_quant_scale != NULL;
	const size_t extra =
	    is_awq && names != &nib_checkpoint_names[NIB_CHECKPOINT_MODELOPT]
		? 0
		: p->extra;
	enum nib_status status;

	if (f->comfy.is_broken)
		return refuse(f, "the header's _quantization_metadata, which "
				 "says how layers are stored, is no JSON");
	if (!p->weight)
		return refuse(f, "%s is missing", word(names->weight));
	if (!p->scale)
		return refuse(f, "%s is missing", word(names->scale));
	if (!p->global)
		return refuse(f, "%s is missing", word(names->global));
	if (extra < N_EXTRAS)
		return refuse(f, "there is a %s: %s, which is not done here",
			      extras[extra].name, extras[extra].meaning);
	status = read_weight(f, p, word(names->weight), &layer->weight);
	if (!status)
		status = read_pre_quant_scale(f, p, layer);
	if (status)
		return status;
	if (p->input_global)
		status = read_globals(f, p->input_global, word(names->input_global),
				      names->reciprocal, &layer->weight, IS_NONE,
				      &layer->input_globals);
	if (status)
		return status;
	return read_globals(f, p->global, word(names->global), names->reciprocal,
			    &layer->weight, layer->weight.rows ? REFUSED : OF_NO_VALUES,
			    &layer->globals);
}

static void free_globals(const struct nib_layer *layer)
{
	free((void *)(uintptr_t)layer->globals);
	free((void *)(uintptr_t)layer->input_globals);
}

/* Adds a name to the file's, of which there is at most one a tensor. */
static const char *add_name(struct finder *f, const char *name, size_t name_bytes)
{
	char *copy = f->names_free;

	memcpy(copy, name, name_bytes);
	copy[name_bytes] = '\0';
	f->names_free += name_bytes + 1;
	return copy;
}

/* Adds a problem, whose reason f->reason is. */
static enum nib_status add_problem(struct finder *f, const char *name,
				   enum nib_checkpoint format)
{
	struct nib_file *file = f->file;
	struct nib_layer_defect *problem;

	if (!nib_array_grow(&file->problems, file->n_problems, &f->problems_capacity,
			    sizeof(*file->problems)))
		return NIB_STATUS_OUT_OF_MEMORY;
	problem = &file->problems[file->n_problems++];
	problem->name = name;
	problem->format = format;
	memcpy(problem->reason, f->reason, sizeof(problem->reason));
	return NIB_STATUS_OK;
}

/* Adds a layer that looks like NVFP4 to the layers or to the problems. */
static enum nib_status add_layer(struct finder *f,
				 const struct nib_checkpoint_names *names,
				 const char *name, size_t name_bytes,
				 const struct parts *p)
{
	struct nib_file *file = f->file;
	struct nib_layer layer = {.name = add_name(f, name, name_bytes)};
	struct parts twin;
	enum nib_status status;

	layer.format = names->reciprocal ? NIB_CHECKPOINT_COMPRESSED_TENSORS
		       : p->mark.text && !p->mark.by_modelopt ? NIB_CHECKPOINT_COMFY
							      : NIB_CHECKPOINT_MODELOPT;
	if (!nib_array_grow(&file->layers, file->n_layers, &f->layers_capacity,
			    sizeof(*file->layers)))
		return NIB_STATUS_OUT_OF_MEMORY;
	if (names != &fused_names &&
	    find_parts(f, &nib_checkpoint_names[!names->reciprocal], name, name_bytes,
		       &twin))
		status = refuse(f, "the layer is stored in both formats");
	else
		status = read_layer(f, names, p, &layer);
	if (!status) {
		file->layers[file->n_layers++] = layer;
		return NIB_STATUS_OK;
	}
	free_globals(&layer);
	return status == NIB_STATUS_BAD_FILE ? add_problem(f, layer.name, layer.format)
					     : status;
}

/* Adds the layer of these names that begins at the tensor name, if one does:
 * at its weight, or if that is missing, at its global scale. */
static enum nib_status visit_names(struct finder *f,
				   const struct nib_checkpoint_names *names,
				   const char *name)
{
	const size_t name_bytes = strlen(name);
	size_t at_weight = stem_bytes(name, name_bytes, names->weight);
	size_t at_global = stem_bytes(name, name_bytes, names->global);
	struct parts p;

	if (at_weight && find_parts(f, names, name, at_weight, &p))
		return add_layer(f, names, name, at_weight, &p);
	if (at_global && find_parts(f, names, name, at_global, &p) && !p.weight)
		return add_layer(f, names, name, at_global, &p);
	return NIB_STATUS_OK;
}

/* Adds a problem for a layer of another writer, at the tensor that marks it. */
static enum nib_status visit_foreign(struct finder *f, const struct nib_file_tensor *t)
{
	for (int i = 0; i < NIB_FOREIGN; i++) {
		const struct nib_foreign *w = &nib_foreign[i];
		const size_t n = stem_bytes(t->name, strlen(t->name), w->mark);
		const struct nib_file_tensor *codes =
		    n ? find_part(f, t->name, n, w->codes) : NULL;

		if (!codes || (w->mark_dtype && !has_dtype(t, w->mark_dtype)) ||
		    (w->codes_dtype && !has_dtype(codes, w->codes_dtype)))
			continue;
		refuse(f, "%s", w->reason);
		return add_problem(f, add_name(f, t->name, n), NIB_CHECKPOINT_MODELOPT);
	}
	return NIB_STATUS_OK;
}

static enum nib_status visit_tensor(struct finder *f, const struct nib_file_tensor *t)
{
	enum nib_status status = visit_foreign(f, t);

	for (int i = 0; i < NIB_CHECKPOINTS && !status; i++)
		status = visit_names(f, &nib_checkpoint_names[i], t->name);
	return status ? status : visit_names(f, &fused_names, t->name);
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

static enum nib_status find_layers(struct finder *f)
{
	struct nib_file *file = f->file;
	size_t longest = 0, total = 1;
	enum nib_status status = nib_comfy_read(&f->comfy, file);

	for (int64_t i = 0; i < file->n_tensors; i++) {
		size_t n = strlen(file->tensors[i].name);

		total += n + 1;
		longest = n > longest ? n : longest;
	}
	file->layer_names = f->names_free = malloc(total);
	f->scratch = malloc(longest + NIB_LONGEST_SUFFIX + 1);
	if (status || !file->layer_names || !f->scratch)
		return NIB_STATUS_OUT_OF_MEMORY;
	for (int64_t i = 0; i < file->n_tensors; i++) {
		status = visit_tensor(f, &file->tensors[i]);
		if (status)
			return status;
	}
	return index_layers(file);
}

enum nib_status nib_file_find_layers(struct nib_file *file, const char *path,
				     struct nib_error *err)
{
	struct finder f = {.file = file};
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
		free_globals(&file->layers[i]);
	free(file->layers);
	free(file->layers_by_name);
	free(file->problems);
	free(file->layer_names);
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

/* name need not end behind name_bytes. */
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
			high = middle; /* also if ours is only its beginning */
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
	for (int i = 0; !layer && i < NIB_CHECKPOINTS; i++) {
		size_t stem =
		    stem_bytes(name, name_bytes, nib_checkpoint_names[i].weight);

		if (!stem)
			continue;
		layer = find_layer(file, name, stem);
		/* ComfyUI has ModelOpt's names. */
		if (layer && (layer->format == NIB_CHECKPOINT_COMPRESSED_TENSORS) !=
				 nib_checkpoint_names[i].reciprocal)
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
