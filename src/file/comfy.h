/* SPDX-License-Identifier: Apache-2.0 */
/*
 * comfy.h - the marks by which ComfyUI recognises the quantised layers of a file,
 * and the order of codes and scales of NVFP4 that they define.
 *
 *   X.comfy_quant             U8, the text {"format": "nvfp4"}
 *   _quantization_metadata    of the header, the text
 *                             {"layers": {"X": {"format": "nvfp4"}}}
 *
 * ComfyUI (comfy/utils.py, convert_old_quants) converts the second to the first.
 * comfy-kitchen, which quantises for it (comfy_kitchen/tensor/nvfp4.py), uses
 * ModelOpt's names.  It writes the even value of a byte to the high nibble, and
 * scales in the 128x4 tiles of cuBLAS.
 *
 * ModelOpt writes the second mark too when it exports diffusers' models
 * (modelopt/torch/export/unified_export_hf.py), with a "quantization_config" in
 * the same header.  Nibbles are then in ModelOpt's order, and scales are in
 * tiles only if an option of the export was set.
 */
#ifndef NIB_FILE_COMFY_H
#define NIB_FILE_COMFY_H

#include <stdbool.h>
#include <stddef.h>

#include "nibblas.h"

/* A JSON text in the file that describes one layer. */
struct nib_comfy_mark {
	const char *name; /* of the layer; NULL if the mark is X.comfy_quant */
	const char *text;
	size_t bytes;
	bool by_modelopt; /* the header has a quantization_config too */
};

struct nib_comfy {
	struct nib_comfy_mark *marks; /* of the headers, by name */
	int64_t n_marks, capacity;
	char **strings; /* names of the marks */
	int64_t n_strings, strings_capacity;
	/* _quantization_metadata is not JSON of that form. */
	bool is_broken;
};

/* How the codes and scales of a layer are stored. */
struct nib_comfy_order {
	enum nib_code_order codes;
	enum nib_scale_layout scales;
	bool scales_by_shape; /* the shape shows whether they are in tiles */
	int64_t rows;	      /* of the weight; 0: all that are stored */
	int64_t k;	      /* that it must have; 0: any */
};

/* Reads the marks of the headers of a file and its shards. */
enum nib_status nib_comfy_read(struct nib_comfy *comfy, const struct nib_file *file);
void nib_comfy_free(struct nib_comfy *comfy);

/*
 * Returns the mark that a header has for a layer, or NULL.  Headers may omit the
 * first parts of a name ("model.diffusion_model.").
 */
const struct nib_comfy_mark *nib_comfy_find(const struct nib_comfy *comfy,
					    const char *layer);
/* Parses the mark of an NVFP4 layer.  Returns false and writes reason if the layer
 * cannot be read. */
bool nib_comfy_parse(const struct nib_comfy_mark *mark, struct nib_comfy_order *order,
		     char *reason, size_t reason_bytes);

#endif
