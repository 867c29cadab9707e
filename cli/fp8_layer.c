/* SPDX-License-Identifier: Apache-2.0 */
/* fp8_layer.c - FP8 layers of files as rows of fp32: see tensor.h. */
#include "inspect.h"

#include <string.h>

#include "parallel.h"

int tensor_from_fp8(const struct nib_file *file, const struct nib_file_tensor *t,
		    struct tensor_source *source)
{
	const struct nib_layer_tensors *layer = nib_file_layer_tensors_of(file, t);
	enum nib_dtype unused;

	if (!layer || layer->codes != t || layer->block_rows == 0 ||
	    (layer->naming != NIB_NAMING_FP8 &&
	     layer->naming != NIB_NAMING_FP8_BLOCKS) ||
	    strcmp(t->dtype, "F8_E4M3") != 0 ||
	    tensor_dtype(layer->scales->dtype, &unused))
		return -1;
	*source = (struct tensor_source){
	    .name = t->name,
	    .tensor = t,
	    .fp8 = layer,
	    .rank = 2,
	    .shape = {layer->rows, layer->k},
	    .rows = layer->rows,
	    .rows_each = layer->rows,
	    .k = layer->k,
	};
	return 0;
}

struct reading {
	const struct tensor_source *source;
	int64_t first;
	float *out;
	float values[256]; /* of the codes */
};

/* The scale of row r and block b of the row. */
static float stored_scale(const struct nib_layer_tensors *layer, int64_t r, int64_t b)
{
	const int64_t blocks = (layer->k + layer->block_k - 1) / layer->block_k;
	const int64_t i = r / layer->block_rows * blocks + b;
	enum nib_dtype dtype;
	float scale = 0;

	if (!tensor_dtype(layer->scales->dtype, &dtype))
		tensor_read_floats((const char *)layer->scales->data +
				       (size_t)i * nib_dtype_bytes(dtype),
				   dtype, 1, &scale);
	return scale;
}

static void read_rows(void *arg, int64_t begin, int64_t end)
{
	const struct reading *reading = arg;
	const struct nib_layer_tensors *layer = reading->source->fp8;
	const int64_t k = layer->k, block = layer->block_k;

	for (int64_t r = begin; r < end; r++) {
		const int64_t row = reading->first + r;
		const uint8_t *codes = (const uint8_t *)layer->codes->data + row * k;
		float *out = reading->out + r * k, scale = 0;

		for (int64_t i = 0; i < k; i++) {
			if (i % block == 0)
				scale = stored_scale(layer, row, i / block);
			out[i] = reading->values[codes[i]] * scale;
		}
	}
}

void tensor_read_fp8(const struct tensor_source *source, int64_t first, int64_t count,
		     float *out)
{
	struct reading reading = {.source = source, .first = first, .out = out};

	for (int i = 0; i < 256; i++)
		reading.values[i] = scan_scale_value((uint8_t)i);
	cli_parallel(count, cli_rows_of_loop(source->k), read_rows, &reading);
}
