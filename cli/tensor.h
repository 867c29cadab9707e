/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tensor.h - matrices of files, float or NVFP4, read a few rows at a time as
 * fp32.  tensor_error.h compares two of them.
 */
#ifndef NIB_TENSOR_H
#define NIB_TENSOR_H

#include "cli.h"
#include "tensor_error.h"

/* Rows are handled in pieces of at most this many bytes of fp32 (one row at
 * least), so that a tensor may be larger than memory. */
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

/* The layer whose name is name without suffix; NULL if there is none.  A layer
 * of fused experts has no ".weight": there name and layer are the same. */
const struct nib_layer *tensor_find_layer(const struct nib_file *file, const char *name,
					  const char *suffix);
/* Whether name is longer than end and ends so. */
int tensor_name_ends(const char *name, const char *end);
/* The tensor whose name has other where name has its end; NULL if there is none.
 */
const struct nib_file_tensor *tensor_beside(const struct nib_file *file,
					    const char *name, const char *end,
					    const char *other);
/* Whether tensor is a part of one of file's NVFP4 layers. */
int tensor_in_layer(const struct nib_file *file, const struct nib_file_tensor *tensor);

/* cli_nearest() of the names of layers, or of tensors. */
const char *tensor_nearest_layer(const struct nib_file *file, const char *word,
				 char text[CLI_NEAREST_TEXT]);
const char *tensor_nearest(const struct nib_file *file, const char *word,
			   char text[CLI_NEAREST_TEXT]);

/*
 * The set of siblings that a layer belongs to by the last part of its name, or
 * -1; *stem: the bytes before that part.  Siblings read the same input: q k v,
 * gate up, w1 w3, the low ranks of latent attention, the inputs of gated delta
 * nets, and the same under other names (query key value, to_q to_k to_v).  nib
 * quantize gives siblings one global scale.  nib inspect expects that of the first
 * TENSOR_FUSED_SETS, which engines for NVFP4 fuse.
 *
 * python/nibblas/torch/_siblings.py has the same sets for models without files;
 * tests/python/test_torch_weight.py compares them.
 */
#define TENSOR_FUSED_SETS 6
int tensor_sibling_set(const char *name, size_t *stem);
/* An order of names in which siblings of one input are equal. */
int tensor_compare_siblings(const char *a, const char *b);

/* Gives pages of a mapped file that will not be read again to the system. */
void tensor_drop(const void *data, size_t bytes);

/*
 * One weight of a file, whichever way it is stored: a layer, which is NVFP4, or
 * a tensor.  The rows of a stack have one count: row r of matrix b is row b *
 * rows_each + r.
 */
struct tensor_source {
	const char *name; /* the tensor's, or the layer's: without ".weight" */
	const struct nib_layer *layer;	      /* or NULL */
	const struct nib_file_tensor *tensor; /* or NULL */
	int rank;
	int64_t shape[NIB_MAX_RANK];
	/* 0 unless it is a layer, or a tensor of floats. */
	int64_t rows, rows_each, k;
	int is_float; /* a tensor of */
	enum nib_dtype dtype;
	/* A stack packed across (across.c), or NULL. */
	const struct nib_layer_tensors *across;
	const struct nib_layer_tensors *fp8; /* a layer of FP8, or NULL */
};

void tensor_from_layer(const struct nib_layer *layer, struct tensor_source *source);
/*
 * The global scale of the weights, or of x, that all matrices of a layer share:
 * NaN if they differ, 0 if the file has none.
 */
float tensor_global(const struct nib_layer *layer);
float tensor_input_global(const struct nib_layer *layer);
/*
 * Rank 1 counts as one row.  -1 if the type is no float or the rank is 0: there
 * are then no rows to read.
 */
int tensor_from_float(const struct nib_file_tensor *tensor,
		      struct tensor_source *source);
/* ---- across.c: stacks of codes U8 [experts, k / 2, n] --------------------- */

/* Rows of n values, k for each expert, as the original [experts, k, n] has them.
 * -1 if tensor is not the codes of such a stack. */
int tensor_from_across(const struct nib_file *file,
		       const struct nib_file_tensor *tensor,
		       struct tensor_source *source);
/* Rows of any of its matrices as fp32; tensor_read() calls it. */
void tensor_read_across(const struct tensor_source *source, int64_t first,
			int64_t count, float *out);

/* ---- fp8_layer.c ---------------------------------------------------------- */

/* Rows of an FP8 layer with one scale, one a row or one a block.  -1 if tensor is not
 * the codes of such a layer. */
int tensor_from_fp8(const struct nib_file *file, const struct nib_file_tensor *tensor,
		    struct tensor_source *source);
/* tensor_read() calls it. */
void tensor_read_fp8(const struct tensor_source *source, int64_t first, int64_t count,
		     float *out);

/* ---- tensor.c ------------------------------------------------------------- */

/*
 * The weights of a file one after the other: its layers, then the tensors that
 * are no part of one.  *at is 0 for the first, the number of layers for the
 * first tensor, and moves on; 0 after the last.
 */
int tensor_next(const struct nib_file *file, int64_t *at, struct tensor_source *source);
/* All of them, in memory that the caller frees: layers before tensors, each in the
 * order of strverscmp().  CLI_OK or CLI_FAILED. */
int tensor_list(const struct nib_file *file, struct tensor_source **sources,
		int64_t *count);
/* The format of source, for people: "NVFP4 modelopt", "BF16". */
const char *tensor_format(const struct tensor_source *source);
/*
 * A view of a layer's rows first .. first + count - 1, which are in one matrix:
 * of the file where its bytes are in the library's order, else of *copy, which
 * the caller frees.
 */
enum nib_status tensor_view(const struct tensor_source *source, int64_t first,
			    int64_t count, struct nib_fp4 *view, float *global,
			    void **copy, struct nib_error *err);
/* Whether the bytes of a layer are in the library's order. */
int tensor_is_plain(const struct nib_layer *layer);
/* How many rows the piece from first on has; all are of one matrix. */
int64_t tensor_next_rows(const struct tensor_source *source, int64_t first);
/* Reads rows as fp32 into out; of a layer of AWQ what x itself is multiplied by,
 * with its pre_quant_scale. */
enum nib_status tensor_read(struct nib_device *device,
			    const struct tensor_source *source, int64_t first,
			    int64_t count, float *out, struct nib_error *err);

/* count floats of a file, which need not be aligned, as fp32. */
void tensor_read_floats(const void *data, enum nib_dtype dtype, int64_t count,
			float *out);
/* count floats as dtype, rounded to nearest even. */
void tensor_round_floats(const float *x, enum nib_dtype dtype, int64_t count,
			 void *out);
/* The largest |value| of a dense matrix; NaN if one is. */
double tensor_largest(const struct nib_dense *c);

/* ---- diagnose.c ---------------------------------------------------------- */

/*
 * Writes into text which of the usual mistakes, undone, makes b like a ("B fits
 * at 20.1 dB with nibbles exchanged"), or "" if none does.  error is that of
 * the whole of a and b; only the first 128 rows are tried.
 */
void diagnose(struct nib_device *device, const struct tensor_source *a,
	      const struct tensor_source *b, const struct tensor_error *error,
	      char *text, size_t bytes);

#endif
