/* SPDX-License-Identifier: Apache-2.0 */
/* layer_read.h - the tensors of one NVFP4 layer, and reading it from them. */
#ifndef NIB_FILE_LAYER_READ_H
#define NIB_FILE_LAYER_READ_H

#include <string.h>

#include "file/comfy.h"
#include "file/safetensors.h"

/* The state of reading the layers of a file. */
struct nib_layer_finder {
	struct nib_file *file;
	char *scratch;	  /* a tensor's name */
	char *names_free; /* the unused end of file->layer_names */
	int64_t tensors_capacity, layers_capacity, problems_capacity;
	struct nib_comfy comfy;
	int tiles; /* the result of find_tiles(); 0: not called yet */
	char reason[sizeof(((struct nib_layer_defect *)NULL)->reason)];
};

/* The tensors of one layer; NULL where the file has none. */
struct nib_layer_parts {
	const struct nib_file_tensor *weight, *scale, *global, *input_global;
	const struct nib_file_tensor *pre_quant_scale;
	size_t extra; /* the first other extra; NIB_LAYER_EXTRAS: none */
	/* ComfyUI's mark of the layer; text NULL: none. */
	struct nib_comfy_mark mark;
};

/* Tensors that change the product of a layer.  The first, AWQ's, is supported for a
 * matrix in ModelOpt's format; layers with the others are refused. */
#define NIB_LAYER_EXTRAS 3
struct nib_layer_extra {
	const char *name, *meaning;
};
extern const struct nib_layer_extra nib_layer_extras[NIB_LAYER_EXTRAS];

static inline bool nib_has_dtype(const struct nib_file_tensor *t, const char *dtype)
{
	return t && strcmp(t->dtype, dtype) == 0;
}

/* The tensor whose name is the layer's followed by suffix, or NULL. */
const struct nib_file_tensor *nib_layer_find_part(struct nib_layer_finder *f,
						  const char *layer, size_t layer_bytes,
						  const char *suffix);
/* Copies the name of a layer to file->layer_names. */
const char *nib_layer_add_name(struct nib_layer_finder *f, const char *name,
			       size_t name_bytes);
/* Fills file->layer_tensors (layer_tensors.c). */
enum nib_status nib_file_group_tensors(struct nib_layer_finder *f);
/* Writes to f->reason why a layer cannot be read; returns NIB_STATUS_BAD_FILE. */
__attribute__((format(printf, 2, 3))) enum nib_status
nib_layer_refuse(struct nib_layer_finder *f, const char *format, ...);
/* The caller calls nib_free_layer(), also after a failure. */
enum nib_status nib_read_layer(struct nib_layer_finder *f,
			       const struct nib_layer_suffixes *names,
			       const struct nib_layer_parts *p,
			       struct nib_layer *layer);
/* Frees its global scales. */
void nib_free_layer(const struct nib_layer *layer);

#endif
