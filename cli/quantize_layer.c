/* SPDX-License-Identifier: Apache-2.0 */
/* quantize_layer.c - one layer from the mapped input to the writer. */
#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "device.h"
#include "fp8.h"
#include "progress.h"
#include "quantize.h"

struct quantizer {
	struct nib_device *device;
	struct quantizer_options options;
	float *before, *after; /* a piece each: as read, as quantised */
	float *turned;	       /* a piece of a stack across; else NULL */
	void *codes, *scales;
	/* The same where the device computes; input_there: NULL on "cpu". */
	struct staging after_there, codes_there, scales_there;
	void *input_there;
};

static enum nib_status no_memory(struct nib_error *err)
{
	*err = (struct nib_error){NIB_STATUS_OUT_OF_MEMORY,
				  .message = "no memory for buffers"};
	return err->status;
}

/* Buffers for this many values at a time, and for all scales of a layer. */
static enum nib_status allocate(struct quantizer *q, size_t piece, size_t scales,
				bool is_across, struct nib_error *err)
{
	struct nib_device *device = q->device;
	const size_t floats = piece * 4;
	const size_t codes = q->options.has_fp8 ? piece : (piece + 1) / 2;
	enum nib_status status;

	q->before = malloc(floats);
	q->after = malloc(floats);
	q->codes = malloc(codes);
	q->scales = malloc(scales);
	if (is_across && !(q->turned = malloc(floats)))
		return no_memory(err);
	if (!q->before || !q->after || !q->codes || !q->scales)
		return no_memory(err);
	status = staging_new(device, q->after, floats, &q->after_there, err);
	if (!status)
		status = staging_new(device, q->codes, codes, &q->codes_there, err);
	if (!status)
		status = staging_new(device, q->scales, scales, &q->scales_there, err);
	if (!status && !cli_is_host(device))
		status = nib_device_alloc(device, floats, &q->input_there, err);
	return status;
}

/* Most rows of a piece; a stack across has whole blocks of k in it. */
static int64_t piece_rows(const struct selected *item)
{
	const int64_t rows = tensor_piece_rows(item->k);

	if (!item->is_across)
		return rows;
	return rows < NIB_NVFP4_BLOCK ? NIB_NVFP4_BLOCK
				      : rows / NIB_NVFP4_BLOCK * NIB_NVFP4_BLOCK;
}

enum nib_status quantizer_new(struct nib_device *device,
			      const struct selection *selection,
			      const struct quantizer_options *options,
			      struct quantizer **out, struct nib_error *err)
{
	struct quantizer *q = calloc(1, sizeof(*q));
	int64_t piece = 1, scales = 1;
	bool is_across = false;
	enum nib_status status;

	*out = NULL;
	if (!q)
		return no_memory(err);
	for (int64_t i = 0; i < selection->count; i++) {
		const struct selected *item = &selection->items[i];
		int64_t rows, elems;

		if (!item->layer)
			continue;
		rows = piece_rows(item);
		rows = rows < item->rows_each ? rows : item->rows_each;
		elems = rows * item->k;
		piece = elems > piece ? elems : piece;
		elems = item->rows * item->k / NIB_NVFP4_BLOCK;
		if (options->has_fp8 && elems < 4 * item->rows)
			elems = 4 * item->rows; /* FP8's scales are fp32 */
		is_across = is_across || item->is_across;
		scales = elems > scales ? elems : scales;
	}
	q->device = device;
	q->options = *options;
	status = allocate(q, (size_t)piece, (size_t)scales, is_across, err);
	if (status)
		quantizer_free(q);
	else
		*out = q;
	return status;
}

void quantizer_free(struct quantizer *q)
{
	if (!q)
		return;
	staging_free(&q->after_there);
	staging_free(&q->codes_there);
	staging_free(&q->scales_there);
	nib_device_free(q->device, q->input_there);
	free(q->before);
	free(q->after);
	free(q->turned);
	free(q->codes);
	free(q->scales);
	free(q);
}

float quantizer_global(float amax, const struct quantizer_options *options)
{
	const float largest = options->scales == NIB_SCALES_AMAX ? 2688.0f : 1536.0f;
	float global = amax > 0 ? amax / largest : 1.0f;

	/* Below, 1 / global would be infinite. */
	if (global < FLT_MIN)
		global = FLT_MIN;
	if (options->checkpoint == NIB_CHECKPOINT_COMPRESSED_TENSORS)
		global = 1.0f / (1.0f / global);
	return global;
}

/* ---- pieces -------------------------------------------------------------- */

/* The tensor of item as rows of the item's matrices. */
static struct tensor_source source_of(const struct selected *item)
{
	struct tensor_source source;

	tensor_from_float(item->tensor, &source);
	source.rows_each = item->rows_each;
	return source;
}

/* The rows from first on that make a piece of the mapped input. */
static struct nib_dense piece_at(const struct selected *item,
				 const struct tensor_source *source, int64_t first)
{
	const int64_t most = piece_rows(item);
	const int64_t left = item->rows_each - first % item->rows_each;

	return (struct nib_dense){
	    .data = (char *)(uintptr_t)source->tensor->data +
		    (size_t)(first * source->k) * nib_dtype_bytes(source->dtype),
	    .dtype = source->dtype,
	    .rows = most < left ? most : left,
	    .cols = source->k,
	};
}

static size_t dense_bytes(const struct nib_dense *x)
{
	return (size_t)(x->rows * x->cols) * nib_dtype_bytes(x->dtype);
}

/* x where the device computes. */
static enum nib_status load_input(const struct quantizer *q, const struct nib_dense *x,
				  struct nib_dense *there, struct nib_error *err)
{
	*there = *x;
	if (!q->input_there)
		return NIB_STATUS_OK;
	there->data = q->input_there;
	return nib_device_copy(q->device, q->input_there, x->data, dense_bytes(x), NULL,
			       err);
}

/* A piece is done: its pages are not needed again. */
static void finish(const struct nib_dense *x, const char *layer)
{
	tensor_drop(x->data, dense_bytes(x));
	progress_advance((double)dense_bytes(x), layer);
}

int quantizer_amax(struct quantizer *q, struct selected *item)
{
	const struct tensor_source source = source_of(item);
	const int64_t end = item->first + item->rows;
	struct nib_dense x, there;
	struct nib_error err;
	float amax;
	char what[512];

	for (int64_t r = item->first; r < end; r += x.rows) {
		x = piece_at(item, &source, r);
		if (load_input(q, &x, &there, &err) ||
		    nib_amax(q->device, &there, q->options.saturate, NULL, &amax,
			     &err)) {
			snprintf(what, sizeof(what), "%s: %s, rows %lld to %lld",
				 q->options.path, source.name, (long long)r,
				 (long long)(r + x.rows - 1));
			return cli_fail_named(what, &err, cli_saturate_names);
		}
		item->amax = amax > item->amax ? amax : item->amax;
		finish(&x, item->layer);
		if (cli_must_stop())
			return cli_stopped();
	}
	return CLI_OK;
}

/* Quantises x, where the device computes; codes and values come back, scales go
 * to byte scales_at of the layer's. */
static enum nib_status quantize_piece(struct quantizer *q, float global,
				      const struct nib_dense *x, int64_t scales_at,
				      struct nib_error *err)
{
	const struct nib_quantize_options options = {
	    .struct_bytes = sizeof(options),
	    .zero_scale = q->options.zero_scale,
	    .global = global,
	    .saturate = q->options.saturate,
	    .scales = q->options.scales,
	};
	const size_t codes_bytes = (size_t)(x->rows * (x->cols / 2));
	const struct nib_fp4 piece = {
	    .codes = q->codes_there.data,
	    .scales = (char *)q->scales_there.data + scales_at,
	    .rows = x->rows,
	    .k = x->cols,
	};
	const struct nib_dense after = {
	    .data = q->after_there.data,
	    .dtype = NIB_DTYPE_FP32,
	    .rows = x->rows,
	    .cols = x->cols,
	};

	if (nib_quantize(q->device, x, &piece, &options, NULL, err) ||
	    nib_dequantize(q->device, &piece, global, &after, NULL, err) ||
	    staging_fetch(&q->after_there, 8 * codes_bytes, err) ||
	    staging_fetch(&q->codes_there, codes_bytes, err))
		return err->status;
	return NIB_STATUS_OK;
}

/* ---- stacks across ------------------------------------------------------- */

/* to [cols, rows] = from [rows, cols], of elements of 1 or 4 bytes; in squares
 * that stay in the first cache. */
static void transpose(const void *from, int64_t rows, int64_t cols, size_t bytes,
		      void *to)
{
	for (int64_t r0 = 0; r0 < rows; r0 += 32)
		for (int64_t c = 0; c < cols; c++)
			for (int64_t r = r0; r < rows && r < r0 + 32; r++)
				if (bytes == 1)
					((char *)to)[c * rows + r] =
					    ((const char *)from)[r * cols + c];
				else
					((float *)to)[c * rows + r] =
					    ((const float *)from)[r * cols + c];
}

/* Transposes bytes in place, by way of q->turned. */
static void turn_bytes(struct quantizer *q, void *bytes, int64_t rows, int64_t cols)
{
	transpose(bytes, rows, cols, 1, q->turned);
	memcpy(bytes, q->turned, (size_t)(rows * cols));
}

/* The piece x [k, n] of a stack: its blocks go down the columns. */
static enum nib_status write_across(struct quantizer *q, const struct selected *item,
				    const struct tensor_source *source,
				    const struct nib_dense *x, int64_t first,
				    struct tensor_error *error, struct nib_error *err)
{
	const int64_t k = x->rows, n = x->cols;
	const struct nib_dense turned = {
	    .data = q->turned, .dtype = NIB_DTYPE_FP32, .rows = n, .cols = k};
	struct nib_dense there;

	if (tensor_read(q->device, source, first, k, q->before, err))
		return err->status;
	transpose(q->before, k, n, 4, q->turned);
	if (load_input(q, &turned, &there, err) ||
	    quantize_piece(q, item->global, &there, first / NIB_NVFP4_BLOCK * n, err))
		return err->status;
	transpose(q->after, n, k, 4, q->turned);
	tensor_error_add(error, q->before, q->turned, k, n, first);
	turn_bytes(q, q->codes, n, k / 2);
	return NIB_STATUS_OK;
}

/* The scales of all pieces, each [n, k / 16] until now. */
static void turn_scales(struct quantizer *q, const struct selected *item,
			const struct tensor_source *source)
{
	struct nib_dense x;

	for (int64_t r = 0; r < item->rows; r += x.rows) {
		x = piece_at(item, source, r);
		turn_bytes(q, (char *)q->scales + r / NIB_NVFP4_BLOCK * x.cols, x.cols,
			   x.rows / NIB_NVFP4_BLOCK);
	}
}

/* ---- a layer ------------------------------------------------------------- */

/* Quantises the piece x at row first of the tensor and adds its error. */
static enum nib_status write_piece(struct quantizer *q, const struct selected *item,
				   const struct tensor_source *source,
				   const struct nib_dense *x, int64_t first,
				   struct tensor_error *error, struct nib_error *err)
{
	const int64_t at = first - item->first;
	struct nib_dense there;

	if (item->is_across)
		return write_across(q, item, source, x, first, error, err);
	if (load_input(q, x, &there, err) ||
	    quantize_piece(q, item->global, &there, at * (x->cols / NIB_NVFP4_BLOCK),
			   err) ||
	    tensor_read(q->device, source, first, x->rows, q->before, err))
		return err->status;
	tensor_error_add(error, q->before, q->after, x->rows, x->cols, at);
	return NIB_STATUS_OK;
}

/* Rounds the piece x, which is before, to FP8. */
static void round_piece(struct quantizer *q, const struct nib_dense *x, int64_t at,
			struct tensor_error *error)
{
	fp8_quantize(q->before, x->rows, x->cols, q->codes, (float *)q->scales + at,
		     q->after);
	tensor_error_add(error, q->before, q->after, x->rows, x->cols, at);
}

int quantizer_errors(struct quantizer *q, struct selected *item)
{
	const struct tensor_source source = source_of(item);
	const int64_t end = item->first + item->rows;
	struct tensor_error nvfp4 = {0}, fp8 = {0};
	struct nib_error err;
	struct nib_dense x;

	for (int64_t r = item->first; r < end; r += x.rows) {
		x = piece_at(item, &source, r);
		if (write_piece(q, item, &source, &x, r, &nvfp4, &err))
			return cli_fail_input(source.name, &err);
		if (budget_allows_fp8(item))
			round_piece(q, &x, r - item->first, &fp8);
		finish(&x, item->layer);
		if (cli_must_stop())
			return cli_stopped();
	}
	item->errors[SELECT_NVFP4] = pow(tensor_relative(&nvfp4), 2);
	item->errors[SELECT_FP8] = pow(tensor_relative(&fp8), 2);
	return CLI_OK;
}

/* quantizer_write() for FP8. */
static int write_fp8(struct quantizer *q, const struct selected *item,
		     struct nib_writer *writer, const char *out_path,
		     struct tensor_error *error)
{
	const struct tensor_source source = source_of(item);
	const int64_t end = item->first + item->rows;
	struct nib_error err;
	struct nib_dense x;

	for (int64_t r = item->first; r < end; r += x.rows) {
		x = piece_at(item, &source, r);
		if (tensor_read(q->device, &source, r, x.rows, q->before, &err))
			return cli_fail_input(source.name, &err);
		round_piece(q, &x, r - item->first, error);
		if (nib_writer_write(writer, q->codes, (size_t)(x.rows * x.cols), &err))
			return cli_fail(out_path, &err);
		finish(&x, item->layer);
		if (cli_must_stop())
			return cli_stopped();
	}
	if (nib_writer_write(writer, q->scales, (size_t)item->rows * 4, &err))
		return cli_fail(out_path, &err);
	return CLI_OK;
}

int quantizer_write(struct quantizer *q, const struct selected *item,
		    struct nib_writer *writer, const char *out_path,
		    struct tensor_error *error)
{
	int inverse = q->options.checkpoint == NIB_CHECKPOINT_COMPRESSED_TENSORS;
	float stored = inverse ? 1.0f / item->global : item->global;
	const struct tensor_source source = source_of(item);
	const size_t scales_bytes = (size_t)(item->rows * item->k / NIB_NVFP4_BLOCK);
	const int64_t end = item->first + item->rows;
	struct nib_error err;
	struct nib_dense x;

	if (item->format == SELECT_FP8)
		return write_fp8(q, item, writer, out_path, error);
	for (int64_t r = item->first; r < end; r += x.rows) {
		x = piece_at(item, &source, r);
		if (write_piece(q, item, &source, &x, r, error, &err))
			return cli_fail_input(source.name, &err);
		if (nib_writer_write(writer, q->codes, (size_t)(x.rows * (x.cols / 2)),
				     &err))
			return cli_fail(out_path, &err);
		finish(&x, item->layer);
		if (cli_must_stop())
			return cli_stopped();
	}
	if (staging_fetch(&q->scales_there, scales_bytes, &err))
		return cli_fail(out_path, &err);
	if (item->is_across)
		turn_scales(q, item, &source);
	if (nib_writer_write(writer, q->scales, scales_bytes, &err) ||
	    nib_writer_write(writer, &stored, sizeof(stored), &err))
		return cli_fail(out_path, &err);
	return CLI_OK;
}
