/* SPDX-License-Identifier: Apache-2.0 */
/*
 * safetensors.h - the contents of an open file, and opening one safetensors file.
 * sharded.c, which opens checkpoints, and layers.c use it.
 */
#ifndef NIB_FILE_SAFETENSORS_H
#define NIB_FILE_SAFETENSORS_H

#include <stdbool.h>

#include "file/mapped_file.h"
#include "nibblas.h"

struct nib_file_pair {
	const char *key, *value;
};

/* One of several files of a checkpoint. */
struct nib_shard {
	char *name;	       /* in the folder of the index */
	struct nib_file *file; /* without layers; NULL if it was refused */
};

struct nib_file {
	struct nib_mapped_file map;	 /* all zeros: the caller's bytes */
	char *strings;			 /* names and metadata, decoded */
	struct nib_file_tensor *tensors; /* in the order of their data */
	const struct nib_file_tensor **by_name;
	int64_t n_tensors;
	struct nib_file_pair *metadata;
	int64_t n_metadata;
	/* They own what tensors point to.  None if the checkpoint is one file. */
	struct nib_shard *shards;
	int64_t n_shards;

	/* Filled by nib_file_find_layers(). */
	struct nib_layer *layers;
	const struct nib_layer **layers_by_name;
	int64_t n_layers;
	struct nib_layer_defect *problems;
	int64_t n_problems;
	char *layer_names;
	struct nib_layer_tensors *layer_tensors;
	int64_t n_layer_tensors;
	int64_t *layer_of_tensor; /* by tensor: index + 1, or 0 for none */
};

/* Refuses NULL arguments of an open call and sets *file to NULL. */
enum nib_status nib_file_check_open(const void *bytes, const char *name,
				    struct nib_file **file, struct nib_error *err);
/* Maps one file and reads its tensors, but no layers. */
enum nib_status nib_file_open_shard(const char *path, struct nib_file **file,
				    struct nib_error *err);
/* The same for bytes in memory. */
enum nib_status nib_file_open_bytes(const void *bytes, size_t n_bytes, const char *path,
				    struct nib_file **file, struct nib_error *err);
/* Closes what the two functions above opened. */
void nib_file_close_shard(struct nib_file *file);
/* Makes by_name, in which equal names are neighbours; false without memory. */
bool nib_file_index_names(struct nib_file *file);

#endif
