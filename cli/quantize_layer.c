/* SPDX-License-Identifier: Apache-2.0 */
/* quantize_layer.c - one layer from the mapped input to the writer. */
#include <float.h>
#include <stdlib.h>
#include <string.h>

#include "quantize.h"

const char *const quantize_recipe_names[] = {"modelopt", "compressed-tensors",
					     "ggml"};

struct quantizer {
	struct nib_device *device;
	enum nib_recipe recipe;
	enum nib_checkpoint checkpoint;
	int saturate;
	float *before, *after; /* a piece each: as read, as quantised */
	void *codes, *scales;
};

struct quantizer *quantizer_new(struct nib_device *device,
				const struct selection *selection,
				enum nib_recipe recipe,
				enum nib_checkpoint checkpoint, int saturate)
{
	struct quantizer *q = calloc(1, sizeof(*q));
	int64_t piece = 1, scales = 1;

	if (!q)
		return NULL;
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
	q->before = malloc((size_t)piece * 4);
	q->after = malloc((size_t)piece * 4);
	q->codes = malloc((size_t)(piece + 1) / 2);
	q->scales = malloc((size_t)scales);
	if (!q->before || !q->after || !q->codes || !q->scales) {
		quantizer_free(q);
		return NULL;
	}
	return q;
}

void quantizer_free(struct quantizer *q)
{
	if (!q)
		return;
	free(q->before);
	free(q->after);
	free(q->codes);
	free(q->scales);
	free(q);
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
	const struct nib_nvfp4 piece = {
	    .codes = q->codes,
	    .scales = (char *)q->scales + first * (source->k / NIB_BLOCK),
	    .rows = rows,
	    .k = source->k,
	};
	const struct nib_dense after = {
	    .data = q->after,
	    .dtype = NIB_FP32,
	    .rows = rows,
	    .cols = source->k,
	};
	enum nib_status status;

	status = nib_quantize(q->device, &x, &piece, &options, NULL, err);
	if (!status)
		status = nib_dequantize(q->device, &piece, item->global, &after,
					NULL, err);
	if (!status)
		status =
		    tensor_read(q->device, source, first, rows, q->before, err);
	if (status)
		return status;
	tensor_error_add(error, q->before, q->after, rows, source->k, first);
	tensor_drop(x.data, (size_t)rows * row_bytes);
	return nib_writer_write(writer, q->codes,
				(size_t)(rows * (source->k / 2)), err);
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
	status = nib_writer_write(
	    writer, q->scales, (size_t)(source.rows * (source.k / NIB_BLOCK)),
	    err);
	if (q->checkpoint == NIB_CHECKPOINT_COMPRESSED_TENSORS)
		stored = 1.0f / stored;
	if (!status)
		status = nib_writer_write(writer, &stored, sizeof(stored), err);
	return status;
}
