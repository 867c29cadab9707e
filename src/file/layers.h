/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layers.h - the quantised layers of a file, once all its tensors are known.
 * layer_tensors.c groups the tensors by layer, layers.c finds the NVFP4 layers, and
 * layer_read.c checks and reads each of those.
 */
#ifndef NIB_FILE_LAYERS_H
#define NIB_FILE_LAYERS_H

#include "file/safetensors.h"

/* Finds the layers and defects of a file. */
enum nib_status nib_file_find_layers(struct nib_file *file, const char *path,
				     struct nib_error *err);
/* Frees what nib_file_find_layers() made, also when it failed. */
void nib_file_free_layers(struct nib_file *file);

#endif
