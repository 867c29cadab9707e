/* SPDX-License-Identifier: Apache-2.0 */
/*
 * across.c - stacks of experts whose codes are packed along k, the second last
 * dimension, as ModelOpt stores Llama 4 and gpt-oss: see tensor.h.
 */
#include "inspect.h"

#include <math.h>
#include <string.h>

#include "parallel.h"

/* The global scale of matrix i. */
static float global_of(const struct nib_layer_tensors *stack, int64_t i)
{
	float value;

	tensor_read_floats((const char *)stack->global->data +
			       (stack->global->bytes > 4 ? 4 * i : 0),
			   NIB_DTYPE_FP32, 1, &value);
	return nib_naming_suffixes(stack->naming)->is_reciprocal ? 1 / value : value;
}

static int has_globals(const struct nib_layer_tensors *stack)
{
	const struct nib_file_tensor *t = stack->global;
	const int64_t n = stack->batch;

	if (!t || strcmp(t->dtype, "F32") ||
	    (t->bytes != 4 && t->bytes != 4 * (uint64_t)n))
		return 0;
	for (int64_t i = 0; i < (t->bytes > 4 ? n : 1); i++)
		if (!(global_of(stack, i) > 0) || isinf(global_of(stack, i)))
			return 0;
	return 1;
}

int tensor_from_across(const struct nib_file *file, const struct nib_file_tensor *t,
		       struct tensor_source *source)
{
	const struct nib_layer_tensors *stack = nib_file_layer_tensors_of(file, t);

	if (!stack || stack->codes != t || !stack->is_transposed || stack->k == 0 ||
	    stack->block_k == 0 || !has_globals(stack))
		return -1;
	*source = (struct tensor_source){
	    .name = stack->name,
	    .tensor = t,
	    .across = stack,
	    .rank = 3,
	    .shape = {stack->batch, stack->k, stack->rows},
	    .rows = stack->batch * stack->k,
	    .rows_each = stack->k,
	    .k = stack->rows,
	};
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
	const uint8_t *scales = source->across->scales->data;
	const int64_t n = source->k;

	for (int64_t r = begin; r < end; r++) {
		const int64_t row = across->first + r; /* of all matrices */
		const uint8_t *c = codes + row / 2 * n;
		const uint8_t *s = scales + row / NIB_NVFP4_BLOCK * n;
		const float global = global_of(source->across, row / source->rows_each);

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
