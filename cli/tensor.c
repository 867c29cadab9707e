/* SPDX-License-Identifier: Apache-2.0 */
/* tensor.c - rows of files' matrices as fp32: see tensor.h. */
#include "tensor.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cli.h"
#include "parallel.h"

int64_t tensor_piece_rows(int64_t k)
{
	int64_t rows = TENSOR_PIECE_BYTES / 4 / (k > 0 ? k : 1);

	return rows > 0 ? rows : 1;
}

const char *const tensor_dtype_names[] = {
    [NIB_DTYPE_FP32] = "F32", [NIB_DTYPE_FP16] = "F16", [NIB_DTYPE_BF16] = "BF16"};

int tensor_dtype(const char *stored, enum nib_dtype *dtype)
{
	for (int i = 0; i < 3; i++)
		if (!strcmp(stored, tensor_dtype_names[i])) {
			*dtype = (enum nib_dtype)i;
			return 0;
		}
	return -1;
}

const char *tensor_shape_text(const int64_t *shape, int rank,
			      char text[TENSOR_SHAPE_TEXT])
{
	size_t used = 1;

	text[0] = '[';
	text[1] = '\0';
	for (int i = 0; i < rank && used < TENSOR_SHAPE_TEXT - 24; i++)
		used += (size_t)snprintf(text + used, TENSOR_SHAPE_TEXT - used,
					 "%s%lld", i ? ", " : "", (long long)shape[i]);
	snprintf(text + used, TENSOR_SHAPE_TEXT - used, "]");
	return text;
}

double tensor_layer_bytes(double elems)
{
	return elems * 0.5625 + 4;
}

int tensor_name_ends(const char *name, const char *end)
{
	const size_t n = strlen(name), m = strlen(end);

	return n > m && !strcmp(name + n - m, end);
}

const struct nib_file_tensor *tensor_beside(const struct nib_file *file,
					    const char *name, const char *end,
					    const char *other)
{
	const struct nib_file_tensor *found = NULL;
	char *whole;

	if (!tensor_name_ends(name, end))
		return NULL;
	if (asprintf(&whole, "%.*s%s", (int)(strlen(name) - strlen(end)), name, other) <
	    0) {
		cli_out_of_memory();
		return NULL;
	}
	found = nib_file_find(file, whole);
	free(whole);
	return found;
}

const struct nib_layer *tensor_find_layer(const struct nib_file *file, const char *name,
					  const char *suffix)
{
	const size_t n = strlen(name), s = strlen(suffix);
	const struct nib_layer *found;
	char *layer;

	if (n <= s || strcmp(name + n - s, suffix))
		return NULL;
	layer = strndup(name, n - s);
	if (!layer)
		cli_out_of_memory();
	found = layer ? nib_file_find_layer(file, layer) : NULL;
	free(layer);
	return found;
}

int tensor_in_layer(const struct nib_file *file, const struct nib_file_tensor *tensor)
{
	const struct nib_layer_tensors *tensors =
	    nib_file_layer_tensors_of(file, tensor);
	const struct nib_layer *layer =
	    tensors ? nib_file_find_layer(file, tensors->name) : NULL;

	return layer && layer->tensors == tensors;
}

static const char *layer_name(const void *file, int64_t index)
{
	return nib_file_layer_at(file, index)->name;
}

const char *tensor_nearest_layer(const struct nib_file *file, const char *word,
				 char text[CLI_NEAREST_TEXT])
{
	return cli_nearest(word, layer_name, file, nib_file_layer_count(file), text);
}

static const char *tensor_name(const void *file, int64_t index)
{
	return nib_file_tensor_at(file, index)->name;
}

const char *tensor_nearest(const struct nib_file *file, const char *word,
			   char text[CLI_NEAREST_TEXT])
{
	return cli_nearest(word, tensor_name, file, nib_file_tensor_count(file), text);
}

int tensor_sibling_set(const char *name, size_t *stem)
{
	static const char *const sets[][3] = {
	    {"q_proj", "k_proj", "v_proj"},
	    {"gate_proj", "up_proj", ""},
	    {"w1", "w3", ""},
	    {"q_a_proj", "kv_a_proj_with_mqa", ""},
	    {"in_proj_qkv", "in_proj_z", ""},
	    {"in_proj_b", "in_proj_a", ""},
	    {"query", "key", "value"},
	    {"query_proj", "key_proj", "value_proj"},
	    {"to_q", "to_k", "to_v"},
	    {"add_q_proj", "add_k_proj", "add_v_proj"},
	    {"wq", "wk", "wv"},
	    {"q", "k", "v"},
	    {"q_lin", "k_lin", "v_lin"},
	    {"linear_q", "linear_k", "linear_v"},
	    {"gate", "up", ""},
	    {"wi_0", "wi_1", ""},
	};
	const char *dot = strrchr(name, '.'), *part = dot ? dot + 1 : name;

	*stem = (size_t)(part - name);
	for (int i = 0; i < (int)(sizeof(sets) / sizeof(sets[0])); i++)
		for (int j = 0; j < 3; j++)
			if (*part && !strcmp(part, sets[i][j]))
				return i;
	return -1;
}

int tensor_compare_siblings(const char *a, const char *b)
{
	size_t stem_a, stem_b;
	int order = tensor_sibling_set(a, &stem_a) - tensor_sibling_set(b, &stem_b);

	if (!order)
		order = (stem_a > stem_b) - (stem_a < stem_b);
	return order ? order : strncmp(a, b, stem_a);
}

void tensor_drop(const void *data, size_t bytes)
{
	const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	uintptr_t begin = ((uintptr_t)data + page - 1) / page * page;
	uintptr_t end = ((uintptr_t)data + bytes) / page * page;

	/* Only whole pages, which no other tensor shares. */
	if (end > begin)
		(void)madvise((void *)begin, end - begin, MADV_DONTNEED);
}

void tensor_from_layer(const struct nib_layer *layer, struct tensor_source *source)
{
	const struct nib_fp4 *w = &layer->weight;

	*source = (struct tensor_source){
	    .name = layer->name,
	    .rank = w->batch > 1 ? 3 : 2,
	    .shape = {w->rows, w->k},
	    .rows = w->rows * w->batch,
	    .rows_each = w->rows,
	    .k = w->k,
	    .layer = layer,
	};
	if (w->batch > 1) {
		source->shape[0] = w->batch;
		source->shape[1] = w->rows;
		source->shape[2] = w->k;
	}
}

int tensor_from_float(const struct nib_file_tensor *tensor,
		      struct tensor_source *source)
{
	enum nib_dtype dtype;

	*source = (struct tensor_source){
	    .name = tensor->name, .tensor = tensor, .rank = tensor->rank};
	memcpy(source->shape, tensor->shape, sizeof(source->shape));
	if (tensor->rank < 1 || tensor_dtype(tensor->dtype, &dtype))
		return -1;
	source->is_float = 1;
	source->dtype = dtype;
	source->k = tensor->shape[tensor->rank - 1];
	source->rows = 1;
	for (int i = 0; i < tensor->rank - 1; i++)
		source->rows *= tensor->shape[i];
	source->rows_each = source->rows;
	return 0;
}

int tensor_next(const struct nib_file *file, int64_t *at, struct tensor_source *source)
{
	const int64_t layers = nib_file_layer_count(file);

	if (*at < layers) {
		tensor_from_layer(nib_file_layer_at(file, (*at)++), source);
		return 1;
	}
	while (*at - layers < nib_file_tensor_count(file)) {
		const struct nib_file_tensor *tensor =
		    nib_file_tensor_at(file, (*at)++ - layers);

		if (tensor_in_layer(file, tensor))
			continue;
		tensor_from_float(tensor, source);
		return 1;
	}
	return 0;
}

/* Layers before tensors; each by name, where 9 comes before 10. */
static int compare_sources(const void *a_, const void *b_)
{
	const struct tensor_source *a = a_, *b = b_;

	if (!a->layer != !b->layer)
		return a->layer ? -1 : 1;
	return strverscmp(a->name, b->name);
}

int tensor_list(const struct nib_file *file, struct tensor_source **sources,
		int64_t *count)
{
	const int64_t most = nib_file_layer_count(file) + nib_file_tensor_count(file);
	int64_t at = 0;

	*count = 0;
	*sources = calloc((size_t)most + 1, sizeof(**sources));
	if (!*sources)
		return cli_no_memory("list of tensors");
	while (tensor_next(file, &at, &(*sources)[*count]))
		++*count;
	qsort(*sources, (size_t)*count, sizeof(**sources), compare_sources);
	return CLI_OK;
}

const char *tensor_format(const struct tensor_source *source)
{
	static const char *const names[] = {
	    [NIB_CHECKPOINT_MODELOPT] = "NVFP4 modelopt",
	    [NIB_CHECKPOINT_COMPRESSED_TENSORS] = "NVFP4 compressed-tensors",
	    [NIB_CHECKPOINT_COMFY] = "NVFP4 comfy",
	};

	if (source->layer)
		return names[source->layer->format];
	if (!source->across)
		return source->tensor->dtype;
	return names[source->across->naming == NIB_NAMING_MODELOPT_STACK
			 ? NIB_CHECKPOINT_MODELOPT
			 : NIB_CHECKPOINT_COMPRESSED_TENSORS];
}

int tensor_is_plain(const struct nib_layer *layer)
{
	return layer->weight.code_order == NIB_CODE_ORDER_LOW_FIRST &&
	       layer->weight.scale_layout == NIB_SCALE_LAYOUT_LINEAR;
}

/* Copies codes and then scales into memory that the caller frees. */
static enum nib_status copy_rows(const struct nib_layer *layer, int64_t first,
				 struct nib_fp4 *view, void **copy,
				 struct nib_error *err)
{
	const size_t elems = (size_t)(view->rows * view->k);
	enum nib_status status;

	*copy = malloc(elems / 2 + elems / NIB_NVFP4_BLOCK + 1);
	if (!*copy) {
		*err = (struct nib_error){NIB_STATUS_OUT_OF_MEMORY,
					  .message = "no memory for a layer"};
		return err->status;
	}
	view->codes = *copy;
	view->scales = (char *)*copy + elems / 2;
	status = nib_layer_read_rows(layer, first, view->rows, view->codes,
				     view->scales, err);
	if (status) {
		free(*copy);
		*copy = NULL;
	}
	return status;
}

static float shared(const float *globals, int64_t count)
{
	if (!globals)
		return 0;
	for (int64_t i = 1; i < count; i++)
		if (globals[i] != *globals)
			return NAN;
	return *globals;
}

float tensor_global(const struct nib_layer *layer)
{
	return shared(layer->globals, layer->weight.batch);
}

float tensor_input_global(const struct nib_layer *layer)
{
	return shared(layer->input_globals, layer->weight.batch);
}

enum nib_status tensor_view(const struct tensor_source *source, int64_t first,
			    int64_t count, struct nib_fp4 *view, float *global,
			    void **copy, struct nib_error *err)
{
	const struct nib_layer *layer = source->layer;
	const struct nib_fp4 *w = &layer->weight;

	*copy = NULL;
	*global = layer->globals ? layer->globals[first / source->rows_each] : 0;
	/* Files have no gaps here, so rows of a stack follow each other. */
	*view = (struct nib_fp4){
	    .codes = (char *)w->codes + first * (source->k / 2),
	    .scales = (char *)w->scales + first * (source->k / NIB_NVFP4_BLOCK),
	    .rows = count,
	    .k = source->k,
	    .batch = 1,
	};
	return tensor_is_plain(layer) ? NIB_STATUS_OK
				      : copy_rows(layer, first, view, copy, err);
}

int64_t tensor_next_rows(const struct tensor_source *source, int64_t first)
{
	int64_t rows = tensor_piece_rows(source->k);
	int64_t left = source->rows_each - first % source->rows_each;

	return rows < left ? rows : left;
}

static float half_to_float(uint16_t half)
{
	uint32_t sign = (uint32_t)(half & 0x8000) << 16;
	uint32_t magnitude = half & 0x7FFF, bits;
	float x;

	if (magnitude < 0x0400) {
		x = (float)magnitude * 0x1p-24f;
		return sign ? -x : x;
	}
	bits = magnitude >= 0x7C00 ? 0x7F800000 | (magnitude & 0x3FF) << 13
				   : (magnitude << 13) + ((127 - 15) << 23);
	bits |= sign;
	memcpy(&x, &bits, 4);
	return x;
}

struct halves {
	const char *in;
	enum nib_dtype dtype;
	float *out;
};

static void widen(void *arg, int64_t begin, int64_t end)
{
	const struct halves *halves = arg;

	for (int64_t i = begin; i < end; i++) {
		uint16_t half;
		uint32_t bits;

		/* A file's data need not be aligned. */
		memcpy(&half, halves->in + 2 * i, 2);
		bits = (uint32_t)half << 16;
		if (halves->dtype == NIB_DTYPE_BF16)
			memcpy(halves->out + i, &bits, 4);
		else
			halves->out[i] = half_to_float(half);
	}
}

void tensor_read_floats(const void *data, enum nib_dtype dtype, int64_t count,
			float *out)
{
	struct halves halves = {data, dtype, out};

	if (count <= 0)
		return; /* out may be NULL */
	if (dtype == NIB_DTYPE_FP32)
		memcpy(out, data, (size_t)count * 4);
	else
		cli_parallel(count, CLI_LOOP_ELEMS, widen, &halves);
}

static uint16_t float_to_bf16(uint32_t bits)
{
	if ((bits & 0x7FFFFFFF) > 0x7F800000)
		return (uint16_t)(bits >> 16 | 0x40);
	return (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

static uint16_t float_to_half(uint32_t bits)
{
	const uint32_t sign = bits >> 16 & 0x8000;
	uint32_t half, magnitude = bits & 0x7FFFFFFF;
	float x;

	memcpy(&x, &magnitude, 4);
	if (magnitude > 0x7F800000)
		half = 0x7E00;
	else if (x >= 65520)
		half = 0x7C00;
	else if (x < 0x1p-14f)
		half = (uint32_t)lrintf(x * 0x1p24f);
	else
		half =
		    (magnitude + 0xFFF + (magnitude >> 13 & 1) - ((127 - 15) << 23)) >>
		    13;
	return (uint16_t)(sign | half);
}

void tensor_round_floats(const float *x, enum nib_dtype dtype, int64_t count, void *out)
{
	uint16_t *halves = out;

	if (dtype == NIB_DTYPE_FP32) {
		memcpy(out, x, (size_t)count * 4);
		return;
	}
	for (int64_t i = 0; i < count; i++) {
		uint32_t bits;

		memcpy(&bits, &x[i], 4);
		halves[i] =
		    dtype == NIB_DTYPE_BF16 ? float_to_bf16(bits) : float_to_half(bits);
	}
}

double tensor_largest(const struct nib_dense *c)
{
	const char *data = c->data;
	size_t bytes = nib_dtype_bytes(c->dtype);
	int64_t elems = c->rows * c->cols;
	double most = 0;
	float x[1024];

	for (int64_t i = 0; i < elems; i += 1024) {
		int64_t n = elems - i < 1024 ? elems - i : 1024;

		tensor_read_floats(data + (size_t)i * bytes, c->dtype, n, x);
		for (int64_t j = 0; j < n; j++) {
			if (isnan(x[j]))
				return NAN;
			most = fmax(most, fabs((double)x[j]));
		}
	}
	return most;
}

/* Multiplies columns of w [rows, k] by AWQ's scales: the weights of x itself. */
static void multiply_columns(float *w, int64_t rows, int64_t k,
			     const struct nib_file_tensor *scales)
{
	enum nib_dtype dtype = NIB_DTYPE_FP32;
	float piece[1024];

	(void)tensor_dtype(scales->dtype, &dtype);
	for (int64_t c = 0; c < k; c += 1024) {
		const int64_t n = k - c < 1024 ? k - c : 1024;

		tensor_read_floats((const char *)scales->data +
				       (size_t)c * nib_dtype_bytes(dtype),
				   dtype, n, piece);
		for (int64_t r = 0; r < rows; r++)
			for (int64_t i = 0; i < n; i++)
				w[r * k + c + i] *= piece[i];
	}
}

enum nib_status tensor_read(struct nib_device *device,
			    const struct tensor_source *source, int64_t first,
			    int64_t count, float *out, struct nib_error *err)
{
	struct nib_dense y = {
	    .data = out,
	    .dtype = NIB_DTYPE_FP32,
	    .rows = count,
	    .cols = source->k,
	};
	size_t bytes = nib_dtype_bytes(source->dtype);
	struct nib_fp4 view;
	float global;
	enum nib_status status;
	void *copy;

	if (source->layer) {
		status = tensor_view(source, first, count, &view, &global, &copy, err);
		if (!status)
			status = nib_dequantize(device, &view, global, &y, NULL, err);
		free(copy);
		if (!status && source->layer->pre_quant_scale)
			multiply_columns(out, count, source->k,
					 source->layer->pre_quant_scale);
		return status;
	}
	if (source->across) {
		tensor_read_across(source, first, count, out);
		return NIB_STATUS_OK;
	}
	if (source->fp8) {
		tensor_read_fp8(source, first, count, out);
		return NIB_STATUS_OK;
	}
	tensor_read_floats((const char *)source->tensor->data +
			       (size_t)(first * source->k) * bytes,
			   source->dtype, count * source->k, out);
	return NIB_STATUS_OK;
}
