/* SPDX-License-Identifier: Apache-2.0 */
/* writer_layer.c - writes NVFP4 layers in the formats of checkpoints. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/text.h"
#include "core/view.h"
#include "file/global_scale.h"
#include "file/layer_names.h"
#include "file/little_endian.h"
#include "file/writer.h"
#include "format/view.h"

#define CHUNK_SCALES 1024

/* What is declared: a matrix has batch 0, a stack has rank 3. */
struct layer_shape {
	int64_t batch, rows, k;
};

static enum nib_status check_sizes(int64_t rows, int64_t k, struct nib_error *err)
{
	if (rows < 0)
		return nib_fail_argument(err, NIB_STATUS_BAD_ARGUMENT, "rows",
					 " = %" PRId64 ": must not be negative", rows);
	if (k <= 0 || k % NIB_NVFP4_BLOCK != 0 || k > NIB_MAX_K)
		return nib_fail_argument(err, NIB_STATUS_BAD_ARGUMENT, "k",
					 " = %" PRId64
					 ": must be a multiple of %d, 1 .. %" PRId64,
					 k, NIB_NVFP4_BLOCK, NIB_MAX_K);
	return NIB_STATUS_OK;
}

static enum nib_status check_format(enum nib_checkpoint format, struct nib_error *err)
{
	if ((unsigned)format >= NIB_CHECKPOINTS)
		return nib_fail_argument(err, NIB_STATUS_BAD_ARGUMENT, "format",
					 " = %d: must be 0 .. %d", (int)format,
					 NIB_CHECKPOINTS - 1);
	return NIB_STATUS_OK;
}

/* Declares one tensor with last_size in the place of k. */
static enum nib_status declare_part(struct nib_writer *writer, char *name,
				    size_t name_bytes, const char *suffix,
				    const char *dtype, const struct layer_shape *layer,
				    int64_t last_size, struct nib_error *err)
{
	const int64_t shape[] = {layer->batch, layer->rows, last_size};
	const int skipped = layer->batch ? 0 : 1;

	memcpy(name + name_bytes, suffix, strlen(suffix) + 1);
	return nib_writer_declare(writer, name, dtype, 3 - skipped, shape + skipped,
				  err);
}

static enum nib_status declare_global(struct nib_writer *writer, char *name,
				      size_t name_bytes, const char *suffix, int rank,
				      struct nib_error *err)
{
	static const int64_t one[] = {1};

	memcpy(name + name_bytes, suffix, strlen(suffix) + 1);
	return nib_writer_declare(writer, name, "F32", rank, one, err);
}

/* name has space for the suffixes. */
static enum nib_status declare_parts(struct nib_writer *writer,
				     const struct nib_layer_suffixes *names, char *name,
				     const struct layer_shape *layer,
				     int has_input_global, struct nib_error *err)
{
	const size_t n = strlen(name);
	/* ModelOpt stores [], compressed-tensors [1]. */
	const int global_rank = names->is_reciprocal ? 1 : 0;
	enum nib_status status;

	status =
	    declare_part(writer, name, n, names->codes, "U8", layer, layer->k / 2, err);
	if (!status)
		status = declare_part(writer, name, n, names->scales, "F8_E4M3", layer,
				      layer->k / NIB_NVFP4_BLOCK, err);
	if (!status)
		status =
		    declare_global(writer, name, n, names->global, global_rank, err);
	if (!status && has_input_global)
		status = declare_global(writer, name, n, names->input_global,
					global_rank, err);
	return status;
}

static enum nib_status declare(struct nib_writer *writer, enum nib_checkpoint format,
			       const char *name, const struct layer_shape *layer,
			       int has_input_global, struct nib_error *err)
{
	enum nib_status status = check_sizes(layer->rows, layer->k, err);
	int64_t first;
	char *long_name;
	size_t name_bytes;

	if (!writer)
		return nib_fail_argument(err, NIB_STATUS_BAD_ARGUMENT, "writer",
					 " = NULL: must be a writer");
	if (!name || !name[0])
		return nib_fail_argument(err, NIB_STATUS_BAD_ARGUMENT, "name", " = %s",
					 name ? "''" : "NULL");
	if (!status)
		status = check_format(format, err);
	if (status)
		return status;
	name_bytes = strlen(name);
	long_name = malloc(name_bytes + NIB_LONGEST_SUFFIX + 1);
	if (!long_name)
		return nib_fail(err, NIB_STATUS_OUT_OF_MEMORY,
				"out of memory for a layer's name");
	memcpy(long_name, name, name_bytes + 1);
	first = writer->n_tensors;
	status = declare_parts(writer, &nib_layer_suffixes[format], long_name, layer,
			       has_input_global, err);
	free(long_name);
	if (status) {
		/* A call that is refused after the first write declares nothing. */
		nib_writer_undeclare(writer, first);
		return status;
	}
	writer->tensors[first].layer_tensors = has_input_global ? 4 : 3;
	writer->tensors[first].format = format;
	return NIB_STATUS_OK;
}

enum nib_status nib_writer_declare_layer(struct nib_writer *writer,
					 enum nib_checkpoint format, const char *name,
					 int64_t rows, int64_t k, int has_input_global,
					 struct nib_error *err)
{
	const struct layer_shape layer = {.rows = rows, .k = k};

	return declare(writer, format, name, &layer, has_input_global, err);
}

enum nib_status nib_writer_declare_stack(struct nib_writer *writer,
					 enum nib_checkpoint format, const char *name,
					 int64_t batch, int64_t rows, int64_t k,
					 int has_input_global, struct nib_error *err)
{
	const struct layer_shape layer = {batch, rows, k};

	if (batch <= 0)
		return nib_fail_argument(err, NIB_STATUS_BAD_ARGUMENT, "batch",
					 " = %" PRId64 ": must be positive", batch);
	return declare(writer, format, name, &layer, has_input_global, err);
}

/* The declared layer that the next byte begins, or NULL. */
static const struct nib_writer_tensor *next_layer(const struct nib_writer *writer)
{
	int64_t at = writer->at;

	/* writer->at advances from a full tensor with the next byte. */
	if (at < writer->n_tensors && writer->at_bytes > 0) {
		if (writer->at_bytes < writer->tensors[at].bytes)
			return NULL;
		at++;
	}
	while (at < writer->n_tensors && !writer->tensors[at].layer_tensors &&
	       writer->tensors[at].bytes == 0)
		at++;
	if (at >= writer->n_tensors || !writer->tensors[at].layer_tensors)
		return NULL;
	return &writer->tensors[at];
}

/* Resolves a view that the declared layer can be written from. */
static enum nib_status take_weight(const struct nib_writer_tensor *codes,
				   const struct nib_fp4 *given, struct nib_fp4 *w,
				   struct nib_error *err)
{
	const struct nib_label label = nib_label("weight");
	const int64_t *shape = codes->shape + codes->rank - 2;
	const int64_t batch = codes->rank == 3 ? codes->shape[0] : 1;
	char shown[NIB_SHOWN_BYTES];
	enum nib_status status;

	if (!given)
		return nib_fail_argument(err, NIB_STATUS_BAD_ARGUMENT, "weight",
					 " = NULL: must point to a view");
	status = nib_valid_fp4(given, w, label, err);
	if (status)
		return status;
	if (w->batch != batch)
		return nib_fail_argument(
		    err, NIB_STATUS_BAD_ARGUMENT, "weight.batch",
		    " = %" PRId64 ": '%s' was declared with %" PRId64, w->batch,
		    nib_show_name(shown, codes->name), batch);
	if (w->rows != shape[0] || w->k != 2 * shape[1])
		return nib_fail_argument(
		    err, NIB_STATUS_BAD_ARGUMENT, "weight",
		    " is [%" PRId64 ", %" PRId64 "]: '%s' was declared [%" PRId64
		    ", %" PRId64 "]",
		    w->rows, w->k, nib_show_name(shown, codes->name), shape[0],
		    2 * shape[1]);
	return nib_valid_fp4_data(w, label, err);
}

/* Whether a scale can be stored in the format and read again. */
static enum nib_status check_global(float global, bool reciprocal, const char *argument,
				    struct nib_error *err)
{
	if (!nib_is_global_scale(global))
		return nib_fail_argument(err, NIB_STATUS_BAD_ARGUMENT, argument,
					 " = %g: must be a positive number",
					 (double)global);
	if (reciprocal && !nib_is_global_scale(nib_reciprocal(global)))
		return nib_fail_argument(err, NIB_STATUS_BAD_ARGUMENT, argument,
					 " = %g: this format stores 1 / %s, "
					 "which must be finite",
					 (double)global, argument);
	return NIB_STATUS_OK;
}

static enum nib_status check_globals(const struct nib_writer_tensor *codes,
				     bool reciprocal, float global, float input_global,
				     struct nib_error *err)
{
	enum nib_status status = check_global(global, reciprocal, "global", err);

	if (status)
		return status;
	if (codes->layer_tensors == 4)
		return check_global(input_global, reciprocal, "input_global", err);
	if (input_global != 0)
		return nib_fail_argument(
		    err, NIB_STATUS_BAD_ARGUMENT, "input_global",
		    " = %g: must be 0, the layer was declared without",
		    (double)input_global);
	return NIB_STATUS_OK;
}

static enum nib_status check_scales(const struct nib_fp4 *w, int64_t b,
				    struct nib_error *err)
{
	const uint8_t *scales;

	if (w->rows == 0)
		return NIB_STATUS_OK;
	scales = nib_fp4_scales(w, b);
	for (int64_t r = 0; r < w->rows; r++) {
		for (int64_t g = 0; g < nib_fp4_groups(w); g++) {
			uint8_t s = scales[nib_fp4_scale_offset(w, r, g)];

			if (s & 0x80)
				return nib_fail_argument(err, NIB_STATUS_BAD_DATA,
							 "weight.scales",
							 ": (%" PRId64 ", %" PRId64
							 ") is 0x%02X: its sign bit "
							 "must be 0",
							 b * w->rows + r, g, s);
		}
	}
	return NIB_STATUS_OK;
}

static enum nib_status write_codes(struct nib_writer *writer, const struct nib_fp4 *w,
				   int64_t b, struct nib_error *err)
{
	enum nib_status status = NIB_STATUS_OK;

	if (w->rows > 0 && nib_fp4_row_stride_bytes(w) == w->k / 2)
		return nib_writer_write(writer, nib_fp4_row(w, b, 0),
					(size_t)(w->rows * (w->k / 2)), err);
	for (int64_t r = 0; r < w->rows && !status; r++)
		status = nib_writer_write(writer, nib_fp4_row(w, b, r),
					  (size_t)(w->k / 2), err);
	return status;
}

static enum nib_status write_scales(struct nib_writer *writer, const struct nib_fp4 *w,
				    int64_t b, struct nib_error *err)
{
	const int64_t groups = nib_fp4_groups(w);
	const uint8_t *scales;
	enum nib_status status = NIB_STATUS_OK;
	uint8_t chunk[CHUNK_SCALES];

	if (w->rows == 0)
		return NIB_STATUS_OK;
	scales = nib_fp4_scales(w, b);
	for (int64_t r = 0; r < w->rows && !status; r++) {
		for (int64_t g = 0; g < groups && !status; g += CHUNK_SCALES) {
			int64_t n = groups - g;

			n = n < CHUNK_SCALES ? n : CHUNK_SCALES;
			for (int64_t i = 0; i < n; i++)
				chunk[i] = scales[nib_fp4_scale_offset(w, r, g + i)];
			status = nib_writer_write(writer, chunk, (size_t)n, err);
		}
	}
	return status;
}

/* Checks all scales before the first byte is written. */
static enum nib_status write_matrices(struct nib_writer *writer,
				      const struct nib_fp4 *w, struct nib_error *err)
{
	enum nib_status status = NIB_STATUS_OK;

	for (int64_t b = 0; b < w->batch && !status; b++)
		status = check_scales(w, b, err);
	for (int64_t b = 0; b < w->batch && !status; b++)
		status = write_codes(writer, w, b, err);
	for (int64_t b = 0; b < w->batch && !status; b++)
		status = write_scales(writer, w, b, err);
	return status;
}

static enum nib_status write_global(struct nib_writer *writer, bool reciprocal,
				    float global, struct nib_error *err)
{
	uint8_t stored[4];

	nib_store_fp32(stored, reciprocal ? nib_reciprocal(global) : global);
	return nib_writer_write(writer, stored, sizeof(stored), err);
}

enum nib_status nib_writer_write_layer(struct nib_writer *writer,
				       enum nib_checkpoint format,
				       const struct nib_fp4 *weight, float global,
				       float input_global, struct nib_error *err)
{
	const struct nib_writer_tensor *codes;
	struct nib_fp4 w;
	enum nib_status status = check_format(format, err);
	bool has_input, reciprocal;

	if (status)
		return status;
	if (!writer)
		return nib_fail_argument(err, NIB_STATUS_BAD_ARGUMENT, "writer",
					 " = NULL: must be a writer");
	codes = next_layer(writer);
	if (!codes || codes->format != format)
		return nib_fail_argument(
		    err, NIB_STATUS_BAD_ARGUMENT, "writer",
		    ": the next declared tensor begins no layer of this format");
	has_input = codes->layer_tensors == 4;
	reciprocal = nib_layer_suffixes[format].is_reciprocal;
	status = take_weight(codes, weight, &w, err);
	if (!status)
		status = check_globals(codes, reciprocal, global, input_global, err);
	if (!status)
		status = write_matrices(writer, &w, err);
	if (!status)
		status = write_global(writer, reciprocal, global, err);
	if (!status && has_input)
		status = write_global(writer, reciprocal, input_global, err);
	return status;
}
