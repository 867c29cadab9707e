/* SPDX-License-Identifier: Apache-2.0 */
/*
 * across.c - stacks of experts whose codes are packed along k, their second last
 * size, as ModelOpt stores Llama 4 and gpt-oss: see tensor.h.
 */
#include "inspect.h"

#include <math.h>
#include <string.h>

#include "parallel.h"

static const char *const companions[] = {"_weight_scale", "_weight_scale_2",
					 "_input_scale"};

/* The global scale of matrix i. */
static float global_of(const struct nib_file_tensor *globals, int64_t i)
{
	float value;

	tensor_read_floats((const char *)globals->data +
			       (globals->bytes > 4 ? 4 * i : 0),
			   NIB_DTYPE_FP32, 1, &value);
	return value;
}

static int are_globals(const struct nib_file_tensor *t, int64_t n)
{
	if (!t || strcmp(t->dtype, "F32") ||
	    (t->bytes != 4 && t->bytes != 4 * (uint64_t)n))
		return 0;
	for (int64_t i = 0; i < (t->bytes > 4 ? n : 1); i++)
		if (!(global_of(t, i) > 0) || isinf(global_of(t, i)))
			return 0;
	return 1;
}

int tensor_from_across(const struct nib_file *file, const struct nib_file_tensor *t,
		       struct tensor_source *source)
{
	const struct nib_file_tensor *scales, *globals;

	if (strcmp(t->dtype, "U8") || t->rank != 3 || t->shape[1] <= 0 ||
	    t->shape[1] % (NIB_NVFP4_BLOCK / 2))
		return -1;
	scales = tensor_beside(file, t->name, "", companions[0]);
	globals = tensor_beside(file, t->name, "", companions[1]);
	if (!scales || strcmp(scales->dtype, "F8_E4M3") || scales->rank != 3 ||
	    scales->shape[0] != t->shape[0] ||
	    scales->shape[1] != t->shape[1] / (NIB_NVFP4_BLOCK / 2) ||
	    scales->shape[2] != t->shape[2] || !are_globals(globals, t->shape[0]))
		return -1;
	*source = (struct tensor_source){
	    .name = t->name,
	    .tensor = t,
	    .scales = scales,
	    .globals = globals,
	    .rank = 3,
	    .shape = {t->shape[0], 2 * t->shape[1], t->shape[2]},
	    .rows = t->shape[0] * 2 * t->shape[1],
	    .rows_each = 2 * t->shape[1],
	    .k = t->shape[2],
	};
	return 0;
}

int tensor_in_across(const struct nib_file *file, const struct nib_file_tensor *tensor)
{
	struct tensor_source source;

	for (size_t i = 0; i < sizeof(companions) / sizeof(*companions); i++) {
		const struct nib_file_tensor *codes =
		    tensor_beside(file, tensor->name, companions[i], "");

		if (codes && !tensor_from_across(file, codes, &source))
			return 1;
	}
	return 0;
}

struct across {
	const struct tensor_source *source;
	int64_t first;
	float *out;
};

static void read_rows(void *arg, int64_t begin, int64_t end)
{
	const struct across *across = arg;
	const struct tensor_source *source = across->source;
	const uint8_t *codes = source->tensor->data;
	const uint8_t *scales = source->scales->data;
	const int64_t n = source->k;

	for (int64_t r = begin; r < end; r++) {
		const int64_t row = across->first + r; /* of all matrices */
		const uint8_t *c = codes + row / 2 * n;
		const uint8_t *s = scales + row / NIB_NVFP4_BLOCK * n;
		const float global =
		    global_of(source->globals, row / source->rows_each);

		for (int64_t i = 0; i < n; i++)
			across->out[r * n + i] =
			    scan_code_value(c[i] >> 4 * (row & 1)) *
			    scan_scale_value(s[i]) * global;
	}
}

void tensor_read_across(const struct tensor_source *source, int64_t first,
			int64_t count, float *out)
{
	struct across across = {source, first, out};

	cli_parallel(count, cli_rows_of_loop(source->k), read_rows, &across);
}
