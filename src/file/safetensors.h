/* SPDX-License-Identifier: Apache-2.0 */
/* safetensors.h - what an open file holds; shared with checkpoint.c. */
#ifndef NIB_FILE_SAFETENSORS_H
#define NIB_FILE_SAFETENSORS_H

#include "file/mapped_file.h"
#include "nibblas.h"

struct nib_file_pair {
	const char *key, *value;
};

struct nib_file {
	struct nib_mapped_file map;	 /* all zeros: the caller's bytes */
	char *strings;			 /* names and metadata, decoded */
	struct nib_file_tensor *tensors; /* in the order of their data */
	const struct nib_file_tensor **by_name;
	int64_t n_tensors;
	struct nib_file_pair *metadata;
	int64_t n_metadata;

	/* Filled by nib_file_find_layers(). */
	struct nib_layer *layers;
	const struct nib_layer **layers_by_name;
	int64_t n_layers;
	struct nib_layer_problem *problems;
	int64_t n_problems;
	char *layer_names;
};

/* Recognises the NVFP4 layers of a file whose tensors are all read. */
enum nib_status nib_file_find_layers(struct nib_file *file, const char *path,
				     struct nib_error *err);
/* Frees what nib_file_find_layers() made, also when it failed. */
void nib_file_free_layers(struct nib_file *file);

#endif
