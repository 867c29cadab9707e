/* SPDX-License-Identifier: Apache-2.0 */
/* quantize_layer.c - one layer from the mapped input to the writer. */
#include <float.h>
#include <stdlib.h>
#include <string.h>

#include "quantize.h"
#include "staging.h"

const char *const quantize_recipe_names[] = {"modelopt", "compressed-tensors",
					     "ggml"};

struct quantizer {
	struct nib_device *device;
	enum nib_recipe recipe;
	enum nib_checkpoint checkpoint;
	int saturate;
	float *before, *after; /* a piece each: as read, as quantised */
	void *codes, *scales;
	/* Where the device computes; input_there: only on a GPU. */
	struct staging after_there, codes_there, scales_there;
	void *input_there;
};

/* Buffers for pieces of so many values, and all scales of a layer. */
static enum nib_status allocate(struct quantizer *q, size_t piece,
				size_t scales, struct nib_error *err)
{
	enum nib_status status;

	q->before = malloc(piece * 4);
	q->after = malloc(piece * 4);
	q->codes = malloc((piece + 1) / 2);
	q->scales = malloc(scales);
	if (!q->before || !q->after || !q->codes || !q->scales) {
		*err = (struct nib_error){NIB_OUT_OF_MEMORY, "",
					  "no memory for buffers"};
		return NIB_OUT_OF_MEMORY;
	}
	status =
	    staging_new(q->device, q->after, piece * 4, &q->after_there, err);
	if (!status)
		status = staging_new(q->device, q->codes, (piece + 1) / 2,
				     &q->codes_there, err);
	if (!status)
		status = staging_new(q->device, q->scales, scales,
				     &q->scales_there, err);
	if (!status && !cli_is_host(q->device))
		status = nib_device_alloc(q->device, piece * 4, &q->input_there,
					  err);
	return status;
}

enum nib_status quantizer_new(struct nib_device *device,
			      const struct selection *selection,
			      enum nib_recipe recipe,
			      enum nib_checkpoint checkpoint, int saturate,
			      struct quantizer **out, struct nib_error *err)
{
	struct quantizer *q = calloc(1, sizeof(*q));
	int64_t piece = 1, scales = 1;
	enum nib_status status;

	*out = NULL;
	if (!q) {
		*err = (struct nib_error){NIB_OUT_OF_MEMORY, "",
					  "no memory for buffers"};
		return NIB_OUT_OF_MEMORY;
	}
	for (int64_t i = 0; i < selection->count; i++) {
		const int64_t *shape = selection->items[i].tensor->shape;
		int64_t rows, elems;

		if (!selection->items[i].layer)
			continue;
		rows = tensor_piece_rows(shape[1]);
		rows = rows < shape[0] ? rows : shape[0];
		elems = rows * shape[1];
		piece = elems > piece ? elems : piece;
		elems = shape[0] * (shape[1] / NIB_BLOCK);
		scales = elems > scales ? elems : scales;
	}
	q->device = device;
	q->recipe = recipe;
	q->checkpoint = checkpoint;
	q->saturate = saturate;
	status = allocate(q, (size_t)piece, (size_t)scales, err);
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
	free(q->codes);
	free(q->scales);
	free(q);
}

/* x where the device computes. */
static enum nib_status load_input(const struct quantizer *q,
				  const struct nib_dense *x,
				  struct nib_dense *there,
				  struct nib_error *err)
{
	const size_t bytes =
	    (size_t)(x->rows * x->cols) * nib_dtype_bytes(x->dtype);

	*there = *x;
	if (!q->input_there)
		return NIB_OK;
	there->data = q->input_there;
	return nib_device_copy(q->device, q->input_there, x->data, bytes, err);
}

enum nib_status quantizer_amax(struct quantizer *q, const struct nib_dense *x,
			       float *amax, struct nib_error *err)
{
	struct nib_dense there;
	enum nib_status status = load_input(q, x, &there, err);

	if (status)
		return status;
	return nib_amax(q->device, &there, q->saturate, amax, err);
}

float quantizer_global(float amax, enum nib_checkpoint checkpoint)
{
	float global = amax > 0 ? amax / 2688.0f : 1.0f;

	/* Below, 1 / global would be infinite. */
	if (global < FLT_MIN)
		global = FLT_MIN;
	if (checkpoint == NIB_CHECKPOINT_COMPRESSED_TENSORS)
		global = 1.0f / (1.0f / global);
	return global;
}

/* Quantises rows from first on, writes their codes and adds their error. */
static enum nib_status
run_piece(struct quantizer *q, const struct selected *item,
	  const struct tensor_source *source, int64_t first, int64_t rows,
	  struct nib_writer *writer, struct tensor_error *error,
	  struct nib_error *err)
{
	const struct nib_quantize_options options = {
	    .struct_bytes = sizeof(options),
	    .recipe = q->recipe,
	    .global = item->global,
	    .saturate = q->saturate,
	};
	size_t row_bytes = (size_t)source->k * nib_dtype_bytes(item->dtype);
	const struct nib_dense x = {
	    .data = (char *)(uintptr_t)source->data + (size_t)first * row_bytes,
	    .dtype = item->dtype,
	    .rows = rows,
	    .cols = source->k,
	};
	const size_t codes_bytes = (size_t)(rows * (source->k / 2));
	const struct nib_nvfp4 piece = {
	    .codes = q->codes_there.data,
	    .scales =
		(char *)q->scales_there.data + first * (source->k / NIB_BLOCK),
	    .rows = rows,
	    .k = source->k,
	};
	const struct nib_dense after = {
	    .data = q->after_there.data,
	    .dtype = NIB_FP32,
	    .rows = rows,
	    .cols = source->k,
	};
	struct nib_dense there;
	enum nib_status status = load_input(q, &x, &there, err);

	if (!status)
		status = nib_quantize(q->device, &there, &piece, &options, NULL,
				      err);
	if (!status)
		status = nib_dequantize(q->device, &piece, item->global, &after,
					NULL, err);
	if (!status)
		status = staging_fetch(&q->after_there, 8 * codes_bytes, err);
	if (!status)
		status = staging_fetch(&q->codes_there, codes_bytes, err);
	if (!status)
		status =
		    tensor_read(q->device, source, first, rows, q->before, err);
	if (status)
		return status;
	tensor_error_add(error, q->before, q->after, rows, source->k, first);
	tensor_drop(x.data, (size_t)rows * row_bytes);
	return nib_writer_write(writer, q->codes, codes_bytes, err);
}

enum nib_status
quantizer_run(struct quantizer *q, const struct selected *item,
	      struct nib_writer *writer,
	      int (*on_piece)(void *arg, double bytes, const char *name),
	      void *arg, struct tensor_error *error, struct nib_error *err)
{
	struct tensor_source source;
	enum nib_status status = NIB_OK;
	float stored = item->global;
	size_t scales_bytes;
	int64_t rows;

	tensor_from_float(item->tensor, &source);
	for (int64_t r = 0; r < source.rows; r += rows) {
		rows = tensor_next_rows(&source, r);
		status =
		    run_piece(q, item, &source, r, rows, writer, error, err);
		if (status || on_piece(arg,
				       (double)(rows * source.k) *
					   (double)nib_dtype_bytes(item->dtype),
				       item->layer))
			return status;
	}
	scales_bytes = (size_t)(source.rows * (source.k / NIB_BLOCK));
	status = staging_fetch(&q->scales_there, scales_bytes, err);
	if (!status)
		status = nib_writer_write(writer, q->scales, scales_bytes, err);
	if (q->checkpoint == NIB_CHECKPOINT_COMPRESSED_TENSORS)
		stored = 1.0f / stored;
	if (!status)
		status = nib_writer_write(writer, &stored, sizeof(stored), err);
	return status;
}
