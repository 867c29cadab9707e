/* SPDX-License-Identifier: Apache-2.0 */
/* fp8.c - rounds rows of fp32 to e4m3, and reads layers of it: see fp8.h. */
#include "fp8.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "inspect.h"
#include "parallel.h"

#define LARGEST	 448.0f
#define SMALLEST 0x1p-6f /* of the normal ones */

/* The magnitude of e4m3 nearest to size, which is 0 .. 448; *code: without a sign. */
static float round_size(float size, uint8_t *code)
{
	/* The last bit of this sum is 2^-9, which is that of the denormals. */
	const float small = size + 0x1p14f;
	uint32_t bits, low;
	float value;

	memcpy(&bits, &size, sizeof(bits));
	memcpy(&low, &small, sizeof(low));
	/* Of 23 bits 3 stay. */
	bits = (bits + 0x7FFFF + (bits >> 20 & 1)) & ~UINT32_C(0xFFFFF);
	memcpy(&value, &bits, sizeof(value));
	*code = (uint8_t)(size < SMALLEST ? low & 15 : (bits >> 20) - (120 << 3));
	return size < SMALLEST ? small - 0x1p14f : value;
}

static float scale_of(const float *x, int64_t k)
{
	float amax = 0;

	for (int64_t i = 0; i < k; i++) {
		const float size = fabsf(x[i]);

		/* False for NaN. */
		amax = size > amax && size <= FLT_MAX ? size : amax;
	}
	if (amax <= 0)
		return 1;
	return amax / LARGEST < FLT_MIN ? FLT_MIN : amax / LARGEST;
}

static void quantize_row(const float *x, int64_t k, float scale, uint8_t *codes,
			 float *values)
{
	for (int64_t i = 0; i < k; i++) {
		const float ratio = isnan(x[i]) ? 0 : x[i] / scale;
		const float size = fabsf(ratio);
		const float rounded =
		    round_size(size < LARGEST ? size : LARGEST, &codes[i]);

		codes[i] |= signbit(ratio) ? 0x80 : 0;
		values[i] = copysignf(rounded, ratio) * scale;
	}
}

struct rows {
	const float *x;
	int64_t k;
	uint8_t *codes;
	float *scales, *values;
};

static void quantize_rows(void *arg, int64_t begin, int64_t end)
{
	const struct rows *a = arg;

	for (int64_t r = begin; r < end; r++) {
		const float *x = a->x + r * a->k;

		a->scales[r] = scale_of(x, a->k);
		quantize_row(x, a->k, a->scales[r], a->codes + r * a->k,
			     a->values + r * a->k);
	}
}

void fp8_quantize(const float *x, int64_t rows, int64_t k, uint8_t *codes,
		  float *scales, float *values)
{
	struct rows all = {x, k, codes, scales, values};

	cli_parallel(rows, cli_rows_of_loop(k), quantize_rows, &all);
}

/* ---- layers of files ------------------------------------------------------ */

int fp8_source(const struct nib_file *file, const struct nib_file_tensor *t,
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

int fp8_has_scale(const struct nib_file *file, const struct nib_file_tensor *t)
{
	const struct nib_layer_tensors *layer = nib_file_layer_tensors_of(file, t);
	struct tensor_source source;

	return layer && layer->codes != t && !fp8_source(file, layer->codes, &source);
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

void fp8_read(const struct tensor_source *source, int64_t first, int64_t count,
	      float *out)
{
	struct reading reading = {.source = source, .first = first, .out = out};

	for (int i = 0; i < 256; i++)
		reading.values[i] = scan_scale_value((uint8_t)i);
	cli_parallel(count, cli_rows_of_loop(source->k), read_rows, &reading);
}
