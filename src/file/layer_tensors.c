/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layer_tensors.c - groups the tensors of a file by quantised layer: NVFP4 of both
 * formats, stacks of either order, and FP8.  Only names, types and shapes decide.
 * Also finds the sizes of each layer and the block of values with one scale.
 * layers.c reads the layers that are NVFP4.
 */
#include "layers.h"

#include <stdlib.h>
#include <string.h>

#include "file/array.h"
#include "file/layer_names.h"
#include "file/layer_read.h"

/* Rows and k of a block of FP8 values with one scale, as DeepSeek stores it. */
#define FP8_BLOCK 128

static const struct nib_file_tensor *find(struct nib_layer_finder *f, const char *layer,
					  size_t layer_bytes, const char *suffix)
{
	return suffix ? nib_layer_find_part(f, layer, layer_bytes, suffix) : NULL;
}

/* Whether t holds the codes of a layer of this naming, whose name has layer_bytes. */
static bool is_codes(struct nib_layer_finder *f, const struct nib_file_tensor *t,
		     enum nib_naming naming, size_t layer_bytes)
{
	const bool is_u8 = strcmp(t->dtype, "U8") == 0;
	const bool has_scales =
	    find(f, t->name, layer_bytes, nib_layer_suffixes[naming].scales) != NULL;

	switch (naming) {
	case NIB_NAMING_COMPRESSED_TENSORS:
		return true;
	case NIB_NAMING_MODELOPT:
		return is_u8;
	case NIB_NAMING_MODELOPT_STACK:
	case NIB_NAMING_COMPRESSED_TENSORS_STACK:
		return is_u8 && has_scales;
	case NIB_NAMING_FP8:
		return strcmp(t->dtype, "F8_E4M3") == 0 ||
		       (strcmp(t->dtype, "F8_E5M2") == 0 && has_scales);
	default:
		return strncmp(t->dtype, "F8_E", 4) == 0 && has_scales;
	}
}

static bool is_fp8(const struct nib_layer_tensors *layer)
{
	return layer->naming == NIB_NAMING_FP8 ||
	       layer->naming == NIB_NAMING_FP8_BLOCKS;
}

static bool is_stack(const struct nib_layer_tensors *layer)
{
	return layer->naming == NIB_NAMING_MODELOPT_STACK ||
	       layer->naming == NIB_NAMING_COMPRESSED_TENSORS_STACK;
}

/* Stacks of compressed-tensors have both orders under the same names. */
static int is_transposed(const struct nib_layer_tensors *layer)
{
	const struct nib_file_tensor *codes = layer->codes, *scales = layer->scales;

	if (!is_stack(layer))
		return 0;
	return codes->rank < 2 || scales->rank < 2 ||
	       codes->shape[0] != scales->shape[0] ||
	       codes->shape[1] != scales->shape[1];
}

/* The sizes of the matrices; all 0 if the codes have another type or rank. */
static void find_sizes(struct nib_layer_tensors *layer)
{
	const struct nib_file_tensor *codes = layer->codes;
	const int values = is_fp8(layer) ? 1 : 2; /* in a byte */
	int row_axis = codes->rank - 2, k_axis = codes->rank - 1;

	if (codes->rank != 3 && (codes->rank != 2 || is_stack(layer)))
		return;
	if (!is_fp8(layer) && strcmp(codes->dtype, "U8") != 0)
		return;
	if (layer->is_transposed) {
		row_axis = codes->rank - 1;
		k_axis = codes->rank - 2;
	}
	if (codes->shape[k_axis] > INT64_MAX / 2)
		return;
	layer->batch = codes->rank == 3 ? codes->shape[0] : 1;
	layer->rows = codes->shape[row_axis];
	layer->k = values * codes->shape[k_axis];
}

/* NVFP4: scales have the shape of the codes, with k / 16 in the place of k / 2. */
static void find_nvfp4_block(struct nib_layer_tensors *layer)
{
	const struct nib_file_tensor *codes = layer->codes, *scales = layer->scales;
	const int k_axis = codes->rank - (layer->is_transposed ? 2 : 1);

	if (strcmp(scales->dtype, "F8_E4M3") != 0 || scales->rank != codes->rank ||
	    layer->k % NIB_NVFP4_BLOCK != 0)
		return;
	for (int i = 0; i < codes->rank; i++)
		if (scales->shape[i] !=
		    (i == k_axis ? layer->k / NIB_NVFP4_BLOCK : codes->shape[i]))
			return;
	layer->block_rows = 1;
	layer->block_k = NIB_NVFP4_BLOCK;
}

static bool has_shape(const struct nib_file_tensor *t, int rank, const int64_t *shape)
{
	return t->rank == rank &&
	       memcmp(t->shape, shape, (size_t)rank * sizeof(*shape)) == 0;
}

/* FP8: one scale for a matrix, for a row or for 128 x 128 values. */
static void find_fp8_block(struct nib_layer_tensors *layer)
{
	const struct nib_file_tensor *t = layer->scales;
	const int64_t rows = layer->rows, k = layer->k;
	const int64_t row[2] = {rows, 1};
	/* ModelOpt keeps a 1 for each dimension that it has reduced. */
	const int64_t tile[2] = {rows / FP8_BLOCK + (rows % FP8_BLOCK != 0),
				 k / FP8_BLOCK + (k % FP8_BLOCK != 0)};
	const int64_t tile_4[4] = {tile[0], 1, tile[1], 1};
	int64_t count = 1;

	if (layer->codes->rank != 2 || rows == 0 || k == 0 ||
	    (strcmp(t->dtype, "F32") != 0 && strcmp(t->dtype, "F16") != 0 &&
	     strcmp(t->dtype, "BF16") != 0))
		return;
	for (int i = 0; i < t->rank && count == 1; i++)
		count = t->shape[i];
	if (count == 1) {
		layer->block_rows = rows;
		layer->block_k = k;
	} else if (has_shape(t, 1, row) || has_shape(t, 2, row)) {
		layer->block_rows = 1;
		layer->block_k = k;
	} else if (has_shape(t, 2, tile) || has_shape(t, 4, tile_4)) {
		layer->block_rows = layer->block_k = FP8_BLOCK;
	}
}

static void find_block(struct nib_layer_tensors *layer)
{
	if (!layer->scales || layer->batch == 0)
		return;
	if (is_fp8(layer))
		find_fp8_block(layer);
	else
		find_nvfp4_block(layer);
}

static void own(struct nib_file *file, const struct nib_file_tensor *t, int64_t layer)
{
	if (t)
		file->layer_of_tensor[t - file->tensors] = layer + 1;
}

static enum nib_status add(struct nib_layer_finder *f,
			   const struct nib_file_tensor *codes, enum nib_naming naming,
			   size_t layer_bytes)
{
	const struct nib_layer_suffixes *s = &nib_layer_suffixes[naming];
	struct nib_file *file = f->file;
	const int64_t index = file->n_layer_tensors;
	struct nib_layer_tensors layer = {
	    .name = nib_layer_add_name(f, codes->name, layer_bytes),
	    .naming = naming,
	    .codes = codes,
	    .scales = find(f, codes->name, layer_bytes, s->scales),
	    .global = find(f, codes->name, layer_bytes, s->global),
	    .input_global = find(f, codes->name, layer_bytes, s->input_global),
	    .pre_quant_scale = find(f, codes->name, layer_bytes, s->pre_quant_scale),
	    .comfy_quant = naming == NIB_NAMING_MODELOPT
			       ? find(f, codes->name, layer_bytes, NIB_COMFY_SUFFIX)
			       : NULL,
	};

	layer.is_transposed = is_transposed(&layer);
	find_sizes(&layer);
	find_block(&layer);
	if (!nib_array_grow(&file->layer_tensors, index, &f->tensors_capacity,
			    sizeof(layer)))
		return NIB_STATUS_OUT_OF_MEMORY;
	file->layer_tensors[file->n_layer_tensors++] = layer;
	own(file, layer.codes, index);
	own(file, layer.scales, index);
	own(file, layer.global, index);
	own(file, layer.input_global, index);
	own(file, layer.pre_quant_scale, index);
	own(file, layer.comfy_quant, index);
	return NIB_STATUS_OK;
}

static enum nib_status visit(struct nib_layer_finder *f,
			     const struct nib_file_tensor *t)
{
	/* Longer suffixes first: ".weight_packed" ends with "_packed" too. */
	static const enum nib_naming order[] = {
	    NIB_NAMING_COMPRESSED_TENSORS, NIB_NAMING_MODELOPT,
	    NIB_NAMING_FP8_BLOCKS,	   NIB_NAMING_FP8,
	    NIB_NAMING_MODELOPT_STACK,	   NIB_NAMING_COMPRESSED_TENSORS_STACK,
	};

	for (int i = 0; i < NIB_NAMINGS; i++) {
		const size_t n = nib_stem_bytes(t->name, strlen(t->name),
						nib_layer_suffixes[order[i]].codes);

		if (n && is_codes(f, t, order[i], n))
			return add(f, t, order[i], n);
	}
	return NIB_STATUS_OK;
}

enum nib_status nib_file_group_tensors(struct nib_layer_finder *f)
{
	struct nib_file *file = f->file;
	enum nib_status status = NIB_STATUS_OK;

	file->layer_of_tensor =
	    calloc((size_t)file->n_tensors + 1, sizeof(*file->layer_of_tensor));
	if (!file->layer_of_tensor)
		return NIB_STATUS_OUT_OF_MEMORY;
	for (int64_t i = 0; i < file->n_tensors && !status; i++)
		status = visit(f, &file->tensors[i]);
	return status;
}

int64_t nib_file_layer_tensors_count(const struct nib_file *file)
{
	return file ? file->n_layer_tensors : 0;
}

const struct nib_layer_tensors *nib_file_layer_tensors_at(const struct nib_file *file,
							  int64_t index)
{
	if (!file || index < 0 || index >= file->n_layer_tensors)
		return NULL;
	return &file->layer_tensors[index];
}

const struct nib_layer_tensors *
nib_file_layer_tensors_of(const struct nib_file *file,
			  const struct nib_file_tensor *tensor)
{
	if (!file || !tensor || !file->layer_of_tensor)
		return NULL;
	return nib_file_layer_tensors_at(
	    file, file->layer_of_tensor[tensor - file->tensors] - 1);
}
