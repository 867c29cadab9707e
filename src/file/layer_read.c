/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layer_read.c - reads one NVFP4 layer from its tensors: checks sizes, types and
 * global scales.  Codes and block scales are not read.
 */
#include "layer_read.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "file/global_scale.h"
#include "file/layer_names.h"
#include "file/little_endian.h"
#include "format/half.h"
#include "format/scale_layout.h"

const struct nib_layer_extra nib_layer_extras[NIB_LAYER_EXTRAS] = {
    {"pre_quant_scale", "AWQ multiplies the inputs by it"},
    {"svdquant_lora_a", "SVDQuant adds a product of low rank"},
    {"svdquant_lora_b", "SVDQuant adds a product of low rank"},
};

/* The meaning of a stored scale of zero. */
enum zero {
	REFUSED,      /* of weights: every product would be 0 or NaN */
	IS_NONE,      /* of x, also inf and NaN: the calibration saw no input */
	OF_NO_VALUES, /* of weights without rows */
};

enum nib_status nib_layer_refuse(struct nib_layer_finder *f, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(f->reason, sizeof(f->reason), format, args);
	va_end(args);
	return NIB_STATUS_BAD_FILE;
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

static enum nib_status read_scale(struct nib_layer_finder *f,
				  const struct nib_file_tensor *weight,
				  const struct nib_file_tensor *scale, int64_t rows,
				  int64_t groups)
{
	char text[64];

	if (nib_has_dtype(scale, "F8_E4M3") && is_linear_shape(scale, weight, groups))
		return NIB_STATUS_OK;
	if (nib_has_dtype(scale, "F8_E4M3") && is_tiled_shape(scale, rows, groups))
		return nib_layer_refuse(
		    f,
		    "weight_scale is %s, padded as 128x4 tiles are: "
		    "must be linear [%" PRId64 ", %" PRId64 "]",
		    describe(text, scale), rows, groups);
	return nib_layer_refuse(
	    f, "weight_scale is %s: must be F8_E4M3 [%s%" PRId64 ", %" PRId64 "]",
	    describe(text, scale), weight->rank == 3 ? "batch, " : "", rows, groups);
}

/* ---- ComfyUI ------------------------------------------------------------- */

/* 1 if the scales of a matrix are in tiles, -1 if they are not, 0 if its sizes allow
 * both. */
static int shows_tiles(const struct nib_file_tensor *weight,
		       const struct nib_file_tensor *scale)
{
	int64_t rows, groups;

	if (!nib_has_dtype(weight, "U8") || weight->rank != 2 ||
	    !nib_has_dtype(scale, "F8_E4M3"))
		return 0;
	rows = weight->shape[0];
	groups = weight->shape[1] / (NIB_NVFP4_BLOCK / 2);
	if (rows % 128 == 0 && groups % 4 == 0)
		return 0;
	if (is_tiled_shape(scale, rows, groups))
		return 1;
	return is_linear_shape(scale, weight, groups) ? -1 : 0;
}

/* ModelOpt puts the scales of all layers into tiles, or of none.  1 if it did, -1 if
 * not, -2 if the sizes of all layers allow both. */
static int find_tiles(struct nib_layer_finder *f)
{
	const struct nib_layer_suffixes *names = &nib_layer_suffixes[0];
	struct nib_file *file = f->file;

	for (int64_t i = 0; i < file->n_tensors && !f->tiles; i++) {
		const struct nib_file_tensor *t = &file->tensors[i];
		const size_t n = nib_stem_bytes(t->name, strlen(t->name), names->codes);

		if (n)
			f->tiles = shows_tiles(
			    t, nib_layer_find_part(f, t->name, n, names->scales));
	}
	if (!f->tiles)
		f->tiles = -2;
	return f->tiles;
}

/* Applies a layer's mark to its view, which read_weight() made. */
static enum nib_status read_order(struct nib_layer_finder *f,
				  const struct nib_layer_parts *p, struct nib_fp4 *view)
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
		return nib_layer_refuse(f,
					"_quantization_metadata next to ModelOpt's "
					"quantization_config does not say whether "
					"scales are in 128x4 tiles: export without it");
	if (tiles < 0)
		return read_scale(f, p->weight, p->scale, view->rows, groups);
	if (p->weight->rank != 2)
		return nib_layer_refuse(f, "ComfyUI marks a stack: must be of rank 2");
	if (!(nib_has_dtype(p->scale, "F8_E4M3") || nib_has_dtype(p->scale, "U8")) ||
	    !is_tiled_shape(p->scale, view->rows, groups))
		return nib_layer_refuse(f,
					"weight_scale is %s: must be 128x4 tiles "
					"F8_E4M3 [%" PRId64 ", %" PRId64 "]",
					describe(text, p->scale),
					(view->rows + 127) / 128 * 128,
					(groups + 3) / 4 * 4);
	if (order.rows > view->rows || (order.k && order.k != view->k))
		return nib_layer_refuse(f,
					"orig_shape is [%" PRId64 ", %" PRId64
					"]: must be [.., %" PRId64 "], at most %" PRId64
					" rows",
					order.rows, order.k, view->k, view->rows);
	view->rows = order.k ? order.rows : view->rows;
	view->code_order = order.codes;
	view->scale_layout = NIB_SCALE_LAYOUT_TILED_128X4;
	return NIB_STATUS_OK;
}

/* Some exports of Llama 4 store codes [experts, k / 2, n] and scales
 * [experts, k / 16, n]. */
static bool is_packed_across(const struct nib_file_tensor *weight,
			     const struct nib_file_tensor *scale)
{
	return weight->rank == 3 && scale->rank == 3 &&
	       scale->shape[0] == weight->shape[0] &&
	       scale->shape[1] == weight->shape[1] / (NIB_NVFP4_BLOCK / 2) &&
	       scale->shape[2] == weight->shape[2] && weight->shape[1] > 0;
}

static enum nib_status read_weight(struct nib_layer_finder *f,
				   const struct nib_layer_parts *p, const char *name,
				   struct nib_fp4 *view)
{
	const struct nib_file_tensor *w = p->weight;
	char text[64];
	int64_t rows, half_k;

	if (!nib_has_dtype(w, "U8") || (w->rank != 2 && w->rank != 3))
		return nib_layer_refuse(f, "%s is %s: must be U8 of rank 2 or 3", name,
					describe(text, w));
	if (is_packed_across(w, p->scale))
		return nib_layer_refuse(f,
					"%s is %s, packed along the second last size, "
					"which nibblas.transformers runs: must be "
					"[batch, rows, k / 2]",
					name, describe(text, w));
	rows = w->shape[w->rank - 2];
	half_k = w->shape[w->rank - 1];
	if (half_k <= 0 || half_k % (NIB_NVFP4_BLOCK / 2) != 0 ||
	    half_k > NIB_MAX_K / 2)
		return nib_layer_refuse(f,
					"%s is %s: the last size must be a multiple of "
					"%d, 1 .. %" PRId64,
					name, describe(text, w), NIB_NVFP4_BLOCK / 2,
					NIB_MAX_K / 2);
	if (w->rank == 3 && w->shape[0] == 0)
		return nib_layer_refuse(f, "%s is %s: a stack of no matrices", name,
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

/* Converts a stored value to the scale that the API returns; false if it is none. */
static bool read_value(const struct nib_file_tensor *t, int64_t index, bool reciprocal,
		       enum zero zero, float *value)
{
	const float stored = nib_load_fp32((const char *)t->data + index * 4);

	*value = reciprocal ? nib_reciprocal(stored) : stored;
	if (nib_is_global_scale(stored) && nib_is_global_scale(*value))
		return true;
	*value = 0;
	/* The largest of no values is 0, whose reciprocal is inf. */
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
static enum nib_status read_globals(struct nib_layer_finder *f,
				    const struct nib_file_tensor *t, const char *name,
				    bool reciprocal, const struct nib_fp4 *weight,
				    enum zero zero, const float **globals)
{
	bool has_scale = false;
	char text[64];
	float value, *values;
	int64_t n;

	if (!nib_has_dtype(t, "F32") || t->bytes % 4 != 0 ||
	    (t->bytes != 4 && t->bytes / 4 != (uint64_t)weight->batch))
		return nib_layer_refuse(
		    f, "%s is %s: must be one F32%s", name, describe(text, t),
		    weight->batch > 1 ? ", or one for each matrix" : "");
	n = (int64_t)(t->bytes / 4);
	for (int64_t i = 0; i < n; i++) {
		if (!read_value(t, i, reciprocal, zero, &value)) {
			value = nib_load_fp32((const char *)t->data + i * 4);
			return nib_layer_refuse(f,
						"%s is %g: must be a positive number",
						name, (double)value);
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
	return nib_has_dtype(t, "F32") || nib_has_dtype(t, "F16") ||
	       nib_has_dtype(t, "BF16");
}

/* AWQ's scales of the columns of x, if the layer has some. */
static enum nib_status read_pre_quant_scale(struct nib_layer_finder *f,
					    const struct nib_layer_parts *p,
					    struct nib_layer *layer)
{
	const struct nib_file_tensor *t = p->pre_quant_scale;
	char text[64];

	layer->pre_quant_scale = t;
	if (!t || (p->weight->rank == 2 && t->rank == 1 && is_float(t) &&
		   t->shape[0] == layer->weight.k))
		return NIB_STATUS_OK;
	return nib_layer_refuse(f,
				"pre_quant_scale is %s: must be F32, F16 or BF16 "
				"[%" PRId64 "], of one matrix",
				describe(text, t), layer->weight.k);
}

enum nib_status nib_read_layer(struct nib_layer_finder *f,
			       const struct nib_layer_suffixes *names,
			       const struct nib_layer_parts *p, struct nib_layer *layer)
{
	const bool is_awq = p->pre_quant_scale != NULL;
	const size_t extra =
	    is_awq && names != &nib_layer_suffixes[NIB_NAMING_MODELOPT] ? 0 : p->extra;
	enum nib_status status;

	if (f->comfy.is_broken)
		return nib_layer_refuse(f,
					"the header's _quantization_metadata, which "
					"defines how layers are stored, is not JSON");
	if (!p->weight)
		return nib_layer_refuse(f, "%s is missing", word(names->codes));
	if (!p->scale)
		return nib_layer_refuse(f, "%s is missing", word(names->scales));
	if (!p->global)
		return nib_layer_refuse(f, "%s is missing", word(names->global));
	if (extra < NIB_LAYER_EXTRAS)
		return nib_layer_refuse(f, "it has a %s: %s, which is not supported",
					nib_layer_extras[extra].name,
					nib_layer_extras[extra].meaning);
	status = read_weight(f, p, word(names->codes), &layer->weight);
	if (!status)
		status = read_pre_quant_scale(f, p, layer);
	if (status)
		return status;
	if (p->input_global)
		status = read_globals(f, p->input_global, word(names->input_global),
				      names->is_reciprocal, &layer->weight, IS_NONE,
				      &layer->input_globals);
	if (status)
		return status;
	return read_globals(f, p->global, word(names->global), names->is_reciprocal,
			    &layer->weight, layer->weight.rows ? REFUSED : OF_NO_VALUES,
			    &layer->globals);
}

void nib_free_layer(const struct nib_layer *layer)
{
	free((void *)(uintptr_t)layer->globals);
	free((void *)(uintptr_t)layer->input_globals);
}
