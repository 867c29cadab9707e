/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_safetensors.c - opens any bytes as a safetensors file, reads all tensors that it
 * names, and compares its header with jansson's reading.
 *
 * Each input is read twice: unchanged, and with the header's length made to fit, so
 * that a mutation of the text need not also change the length correctly.
 */
#include <jansson.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "nibblas.h"

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t n_bytes);

#define CHECK(condition)                                                               \
	do {                                                                           \
		if (!(condition))                                                      \
			abort();                                                       \
	} while (0)

/* What is read ends here, so that no read can be left out. */
static volatile unsigned sink;

static void touch(const void *bytes, uint64_t n_bytes)
{
	const unsigned char *at = bytes;
	unsigned sum = 0;

	for (uint64_t i = 0; i < n_bytes; i++)
		sum += at[i];
	sink += sum;
}

static void touch_tensors(const struct nib_file *file, const uint8_t *end)
{
	const int64_t n = nib_file_tensor_count(file);
	const struct nib_file_tensor *last = NULL;

	for (int64_t i = 0; i < n; i++) {
		const struct nib_file_tensor *t = nib_file_tensor_at(file, i);

		CHECK(t->rank >= 0 && t->rank <= NIB_MAX_RANK);
		for (int d = 0; d < t->rank; d++)
			CHECK(t->shape[d] >= 0);
		CHECK(nib_file_find(file, t->name) == t);
		CHECK(!last || (const uint8_t *)last->data + last->bytes ==
				   (const uint8_t *)t->data);
		touch(t->dtype, strlen(t->dtype));
		touch(t->data, t->bytes);
		last = t;
	}
	CHECK(!last || (const uint8_t *)last->data + last->bytes == end);
}

/* The last rows that fit, in the library's order. */
static void read_rows(const struct nib_layer *layer, int64_t rows)
{
	static uint8_t codes[1 << 16], scales[1 << 13];
	const int64_t half = layer->weight.k / 2;
	int64_t n = (int64_t)sizeof(codes) / half;

	n = n < rows ? n : rows;
	CHECK(!nib_layer_read_rows(layer, rows - n, n, codes, scales, NULL));
	touch(codes, (uint64_t)(n * half));
	touch(scales, (uint64_t)(n * half / 8));
}

static void touch_layers(const struct nib_file *file)
{
	for (int64_t i = 0; i < nib_file_layer_count(file); i++) {
		const struct nib_layer *layer = nib_file_layer_at(file, i);
		const struct nib_fp4 *w = &layer->weight;
		uint64_t rows = (uint64_t)w->batch * (uint64_t)w->rows;

		CHECK(w->k > 0 && w->k % NIB_NVFP4_BLOCK == 0 && w->k <= NIB_MAX_K);
		CHECK(w->batch >= 1 && w->rows >= 0);
		CHECK(nib_file_find_layer(file, layer->name) == layer);
		touch(w->codes, rows * (uint64_t)(w->k / 2));
		touch(w->scales, rows * (uint64_t)(w->k / NIB_NVFP4_BLOCK));
		read_rows(layer, (int64_t)rows);
		if (layer->pre_quant_scale)
			CHECK(w->batch == 1 && layer->pre_quant_scale->rank == 1 &&
			      layer->pre_quant_scale->shape[0] == w->k);
		CHECK(!layer->globals == (w->rows == 0));
		for (int64_t b = 0; layer->globals && b < w->batch; b++)
			CHECK(layer->globals[b] > 0);
		for (int64_t b = 0; layer->input_globals && b < w->batch; b++)
			CHECK(layer->input_globals[b] >= 0);
	}
	for (int64_t i = 0; i < nib_file_layer_tensors_count(file); i++) {
		const struct nib_layer_tensors *tensors =
		    nib_file_layer_tensors_at(file, i);

		touch(tensors->name, strlen(tensors->name));
		CHECK(tensors->codes && nib_naming_suffixes(tensors->naming));
		CHECK(tensors->batch >= 0 && tensors->rows >= 0 && tensors->k >= 0);
		CHECK((tensors->block_k == 0) == (tensors->block_rows == 0));
		CHECK(nib_file_layer_tensors_of(file, tensors->codes));
	}
	for (int64_t i = 0; i < nib_file_layer_defect_count(file); i++) {
		const struct nib_layer_defect *problem =
		    nib_file_layer_defect_at(file, i);

		CHECK(problem->reason[0]);
		touch(problem->reason, strlen(problem->reason));
		touch(problem->name, strlen(problem->name));
	}
}

/* Whatever is accepted is JSON, with the same names and strings. */
static void compare_json(const struct nib_file *file, const uint8_t *header,
			 size_t header_bytes)
{
	json_t *root = json_loadb((const char *)header, header_bytes,
				  JSON_REJECT_DUPLICATES, NULL);
	const json_t *metadata;
	const char *key, *value;

	CHECK(root);
	metadata = json_object_get(root, "__metadata__");
	CHECK((int64_t)json_object_size(root) ==
	      nib_file_tensor_count(file) + (metadata ? 1 : 0));
	for (int64_t i = 0; i < nib_file_tensor_count(file); i++) {
		const struct nib_file_tensor *t = nib_file_tensor_at(file, i);
		const json_t *entry = json_object_get(root, t->name);
		const json_t *shape = json_object_get(entry, "shape");

		CHECK(strcmp(json_string_value(json_object_get(entry, "dtype")),
			     t->dtype) == 0);
		CHECK(json_array_size(shape) == (size_t)t->rank);
		for (int d = 0; d < t->rank; d++)
			CHECK(json_integer_value(json_array_get(shape, (size_t)d)) ==
			      t->shape[d]);
	}
	CHECK((int64_t)json_object_size(metadata) == nib_file_metadata_count(file));
	for (int64_t i = 0; i < nib_file_metadata_count(file); i++) {
		nib_file_metadata_at(file, i, &key, &value);
		CHECK(strcmp(json_string_value(json_object_get(metadata, key)),
			     value) == 0);
	}
	json_decref(root);
}

static uint64_t get_length(const uint8_t *bytes)
{
	uint64_t length = 0;

	for (int i = 7; i >= 0; i--)
		length = length << 8 | bytes[i];
	return length;
}

static void read_file(const uint8_t *bytes, size_t n_bytes)
{
	struct nib_error err;
	struct nib_file *file;
	enum nib_status status =
	    nib_file_open_memory(bytes, n_bytes, "input", &file, &err);

	if (status) {
		CHECK(status == NIB_STATUS_BAD_FILE ||
		      status == NIB_STATUS_UNSUPPORTED);
		CHECK(err.status == status && err.message[0] && !file);
		for (const char *c = err.message; *c; c++)
			CHECK((unsigned char)*c >= 0x20);
		return;
	}
	touch_tensors(file, bytes + n_bytes);
	touch_layers(file);
	compare_json(file, bytes + 8, (size_t)get_length(bytes));
	nib_file_close(file);
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t n_bytes)
{
	uint64_t length = n_bytes;
	uint8_t *copy;

	read_file(input, n_bytes);
	if (n_bytes < 8)
		return 0;
	while (length > 8 && input[length - 1] != '}')
		length--;
	length -= 8;
	copy = malloc(n_bytes);
	CHECK(copy);
	memcpy(copy, input, n_bytes);
	for (int i = 0; i < 8; i++)
		copy[i] = (uint8_t)(length >> 8 * i);
	read_file(copy, n_bytes);
	free(copy);
	return 0;
}
