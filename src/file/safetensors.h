/* SPDX-License-Identifier: Apache-2.0 */
/*
 * safetensors.h - what an open file holds; shared with checkpoint.c and
 * sharded.c.
 */
#ifndef NIB_FILE_SAFETENSORS_H
#define NIB_FILE_SAFETENSORS_H

#include <stdbool.h>

#include "file/mapped_file.h"
#include "nibblas.h"

struct nib_file_pair {
	const char *key, *value;
};

/* A file of a checkpoint in several. */
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
	/* They own what tensors point to; none: the file is one. */
	struct nib_shard *shards;
	int64_t n_shards;

	/* Filled by nib_file_find_layers(). */
	struct nib_layer *layers;
	const struct nib_layer **layers_by_name;
	int64_t n_layers;
	struct nib_layer_defect *problems;
	int64_t n_problems;
	char *layer_names;
};

/* Refuses NULL arguments of an open call and sets *file to NULL. */
enum nib_status nib_file_check_open(const void *bytes, const char *name,
				    struct nib_file **file, struct nib_error *err);
/* Maps one file and reads its tensors, but no layers. */
enum nib_status nib_file_open_shard(const char *path, struct nib_file **file,
				    struct nib_error *err);
/* Makes by_name, in which equal names are neighbours; false without memory. */
bool nib_file_index_names(struct nib_file *file);

/* Recognises the NVFP4 layers of a file whose tensors are all read. */
enum nib_status nib_file_find_layers(struct nib_file *file, const char *path,
				     struct nib_error *err);
/* Frees what nib_file_find_layers() made, also when it failed. */
void nib_file_free_layers(struct nib_file *file);

#endif
