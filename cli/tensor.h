/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tensor.h - matrices of files, float or NVFP4, read a few rows at a time as
 * fp32, and how far two of them are apart.
 */
#ifndef NIB_TENSOR_H
#define NIB_TENSOR_H

#include "cli.h"

/* Rows are handled in pieces of at most this many bytes of fp32 (one row at
 * least), so that tensors larger than memory can be. */
#define TENSOR_PIECE_BYTES (INT64_C(16) << 20)
int64_t tensor_piece_rows(int64_t k);

extern const char *const tensor_dtype_names[]; /* "F32", "F16", "BF16" */
/* 0 if it is one of these names. */
int tensor_dtype(const char *stored, enum nib_dtype *dtype);
/* "[128, 64]" into text. */
#define TENSOR_SHAPE_TEXT 96
const char *tensor_shape_text(const int64_t *shape, int rank,
			      char text[TENSOR_SHAPE_TEXT]);
/* Bytes of an NVFP4 layer in a file: codes, block scales, global scale. */
double tensor_layer_bytes(double elems);

/* The layer of file whose tensor with this suffix would have name; or NULL. */
const struct nib_layer *tensor_find_layer(const struct nib_file *file,
					  const char *name, const char *suffix);
/* Whether tensor is a part of one of file's NVFP4 layers. */
int tensor_in_layer(const struct nib_file *file,
		    const struct nib_file_tensor *tensor);

/*
 * Sets of layers that read the same input: q k v, gate up, w1 w3, and query key
 * value.  Engines for NVFP4 fuse those of the first TENSOR_FUSED_SETS.  Returns
 * the set of the last part of name, or -1; stem: the bytes before that part.
 */
#define TENSOR_FUSED_SETS 3
int tensor_sibling_set(const char *name, size_t *stem);

/* Gives the pages of a mapped file back to the system: they were read once. */
void tensor_drop(const void *data, size_t bytes);

/*
 * One weight of a file, whichever way it is stored.  Rows of a stack are
 * counted through: row r of matrix b is row b * rows_each + r.
 */
struct tensor_source {
	const char *name; /* the tensor's, or the layer's: without ".weight" */
	int is_nvfp4, rank;
	int64_t shape[NIB_MAX_RANK];
	int64_t rows, rows_each, k;
	/* float */
	const void *data;
	enum nib_dtype dtype;
	/* NVFP4 */
	const struct nib_layer *layer;
};

void tensor_from_layer(const struct nib_layer *layer,
		       struct tensor_source *source);
/* Rank 1 counts as one row; -1 if the type is no float or the rank is 0. */
int tensor_from_float(const struct nib_file_tensor *tensor,
		      struct tensor_source *source);
/* What stores source: "NVFP4 ModelOpt", "BF16". */
const char *tensor_format(const struct tensor_source *source);
/* A view of rows first .. first + count - 1, which lie in one matrix. */
struct nib_nvfp4 tensor_view(const struct tensor_source *source, int64_t first,
			     int64_t count, float *global);
/* Rows to take from first on: at most a piece, and of one matrix. */
int64_t tensor_next_rows(const struct tensor_source *source, int64_t first);
/* Reads rows as fp32 into out. */
enum nib_status tensor_read(struct nib_device *device,
			    const struct tensor_source *source, int64_t first,
			    int64_t count, float *out, struct nib_error *err);

/* count floats of a file, which need not be aligned, as fp32. */
void tensor_read_floats(const void *data, enum nib_dtype dtype, int64_t count,
			float *out);
/* The largest |value| of a dense matrix; NaN if one is. */
double tensor_largest(const struct nib_dense *c);

/* ---- comparison ---------------------------------------------------------- */

struct tensor_error {
	double signal, other, dot, noise; /* sums of a*a, b*b, a*b, (a-b)^2 */
	double worst;			  /* largest |a - b| */
	int64_t worst_row, worst_col;
	double worst_a, worst_b;
	int64_t not_finite; /* elements where a or b is inf or NaN */
};

/* Adds rows of a and b, which begin at row first of their tensor. */
void tensor_error_add(struct tensor_error *error, const float *a,
		      const float *b, int64_t rows, int64_t k, int64_t first);
/* 10 log10(signal / noise); inf when equal. */
double tensor_sqnr_db(const struct tensor_error *error);
double tensor_cosine(const struct tensor_error *error);

#endif
