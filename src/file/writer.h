/* SPDX-License-Identifier: Apache-2.0 */
/* writer.h - the contents of a nib_writer, for writer.c and writer_layer.c. */
#ifndef NIB_FILE_WRITER_H
#define NIB_FILE_WRITER_H

#include <stdbool.h>

#include "file/atomic_file.h"
#include "file/dtype.h"
#include "file/safetensors.h"
#include "nibblas.h"

struct nib_writer_tensor {
	char *name;
	const struct nib_file_dtype *dtype;
	int rank;
	int64_t shape[NIB_MAX_RANK];
	uint64_t bytes;
	uint64_t offset; /* in the data; set when the header is written */
	/* Tensors of the layer that begins with this one; 0: none begins. */
	int layer_tensors;
	enum nib_checkpoint format;
};

struct nib_writer {
	struct nib_atomic_file *file;
	/* In the order of declaration, which is the order of writing. */
	struct nib_writer_tensor *tensors;
	int64_t n_tensors, tensors_capacity;
	struct nib_file_pair *metadata;
	int64_t n_metadata, metadata_capacity;
	void *names, *keys; /* trees of <search.h>, to find duplicates */
	uint64_t total_bytes, written_bytes;
	/* The tensor of the next byte, and how many of its bytes are written. */
	int64_t at;
	uint64_t at_bytes;
	bool has_header;
	uint64_t data_begin; /* in the file */
};

/* Removes the tensors from index on, of which none is written yet. */
void nib_writer_undeclare(struct nib_writer *writer, int64_t index);

#endif
