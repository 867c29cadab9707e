/* SPDX-License-Identifier: Apache-2.0 */
/* layer_names.h - how checkpoint formats name the tensors of a layer. */
#ifndef NIB_FILE_LAYER_NAMES_H
#define NIB_FILE_LAYER_NAMES_H

#include <stddef.h>

#include "nibblas.h"

/* The values of enum nib_checkpoint that can be written: ModelOpt and
 * compressed-tensors.  enum nib_naming has the same numbers for their layers. */
#define NIB_CHECKPOINTS 2
#define NIB_NAMINGS	6
/* ComfyUI's mark of a layer in ModelOpt's naming: comfy.h. */
#define NIB_COMFY_SUFFIX ".comfy_quant"
/* At least the length of every suffix. */
#define NIB_LONGEST_SUFFIX 24

/* By enum nib_naming. */
extern const struct nib_layer_suffixes nib_layer_suffixes[NIB_NAMINGS];

/* The bytes of name before suffix; 0 if name has no such end or nothing before it. */
size_t nib_stem_bytes(const char *name, size_t name_bytes, const char *suffix);

#endif
