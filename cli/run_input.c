/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run_input.c - the input of nib run: found by name, quantised or rounded as
 * --activations says, and copied to the device.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "run.h"
#include "tensor.h"

/* The named tensor or layer of the input, or the only one. */
static int find_input(struct runner *r, struct tensor_source *source)
{
	const char *name = r->args->input_tensor, *file = r->args->input;
	const int64_t count = nib_file_tensor_count(r->inputs);
	const struct nib_layer *layer = NULL;
	const struct nib_file_tensor *tensor = NULL;
	char near[CLI_NEAREST_TEXT];

	if (name) {
		layer = nib_file_find_layer(r->inputs, name);
		tensor = nib_file_find(r->inputs, name);
	} else if (nib_file_layer_count(r->inputs) == 1 && count <= 4) {
		layer = nib_file_layer_at(r->inputs, 0);
	} else if (count == 1) {
		tensor = nib_file_tensor_at(r->inputs, 0);
	}
	if (layer) {
		tensor_from_layer(layer, source);
		return CLI_OK;
	}
	if (tensor && !tensor_from_float(tensor, source))
		return CLI_OK;
	if (tensor) {
		cli_error(CLI_INPUT,
			  "%s: '%s' is %s: must be F32, F16, BF16 or an "
			  "NVFP4 layer",
			  file, tensor->name, tensor->dtype);
		return CLI_INPUT;
	}
	if (name)
		cli_error(CLI_USAGE, "%s has no tensor '%s'%s", file, name,
			  tensor_nearest(r->inputs, name, near));
	else
		cli_error(CLI_USAGE, "%s has %lld tensors: choose with --input-tensor",
			  file, (long long)count);
	return CLI_USAGE;
}

static int use_layer(struct runner *r, const struct tensor_source *source)
{
	struct nib_fp4 a;
	struct nib_error err;

	if (tensor_view(source, 0, source->rows, &a, &r->a_global, &r->copies[2],
			&err) ||
	    run_stage_view(r, &a, &r->problem.a, &err))
		return cli_fail(source->name, &err);
	r->a_global_from = "input file";
	return CLI_OK;
}

static int quantize(struct runner *r, const struct tensor_source *source)
{
	/* NaN for a stack, whose matrices may have one each. */
	const float stored = tensor_input_global(r->layers[0]);
	const struct nib_quantize_options options = {
	    .struct_bytes = sizeof(options),
	    .global = isfinite(stored) ? stored : 0,
	    .saturate = r->args->saturate,
	};
	size_t elems = (size_t)(source->rows * source->k);
	struct nib_dense x = {
	    .dtype = source->dtype,
	    .rows = source->rows,
	    .cols = source->k,
	};
	struct nib_fp4 a = {.rows = source->rows, .k = source->k};
	struct staging staged = {0};
	double begin_s = cli_now_s();
	enum nib_status status;
	struct nib_error err;

	a.codes = r->codes = malloc(elems / 2 + 1);
	a.scales = r->scales = malloc(elems / NIB_NVFP4_BLOCK + 1);
	if (!a.codes || !a.scales)
		return cli_no_memory("quantised input");
	status = staging_new_loaded(r->device, source->tensor->data,
				    elems * nib_dtype_bytes(x.dtype), &staged, &err);
	x.data = staged.data;
	if (!status) /* r frees the codes.  NOLINTNEXTLINE(*Malloc) */
		status = run_stage_view(r, &a, &r->problem.a, &err);
	if (!status)
		status = nib_quantize(r->device, &x, &r->problem.a, &options,
				      &r->a_global, &err);
	staging_free(&staged);
	if (status)
		return cli_fail_named(r->args->input, &err, cli_saturate_names);
	r->a_global_from = options.global > 0 ? "weights file" : "data";
	r->quantize_s = cli_now_s() - begin_s;
	return CLI_OK;
}

/* Rounds the input to dtype, into memory of its own. */
static int round_input(struct runner *r, const struct tensor_source *source,
		       enum nib_dtype dtype)
{
	const int64_t elems = source->rows * source->k;
	const char *from = source->tensor->data;
	int64_t infinite = 0;
	float piece[1024];

	r->rounded = malloc((size_t)elems * nib_dtype_bytes(dtype) + 1);
	if (!r->rounded)
		return cli_no_memory("input");
	for (int64_t i = 0; i < elems; i += 1024) {
		int64_t n = elems - i < 1024 ? elems - i : 1024;

		tensor_read_floats(from + (size_t)i * nib_dtype_bytes(source->dtype),
				   source->dtype, n, piece);
		tensor_round_floats(piece, dtype, n,
				    (char *)r->rounded +
					(size_t)i * nib_dtype_bytes(dtype));
		for (int64_t j = 0; j < n && dtype == NIB_DTYPE_FP16; j++)
			infinite += isfinite(piece[j]) && fabsf(piece[j]) >= 65520;
	}
	if (infinite)
		cli_warn("%s: %lld value%s of '%s' %s infinite in fp16, which "
			 "ends at 65504; try --activations bf16",
			 r->args->input, (long long)infinite, cli_s(infinite),
			 source->name, infinite == 1 ? "is" : "are");
	return CLI_OK;
}

/* A float input as it is, or in the type asked for. */
static int use_floats(struct runner *r, const struct tensor_source *source)
{
	const enum cli_activations activations = r->args->activations;
	/* The library rounds any type to int8. */
	const enum nib_dtype dtype = activations == ACT_INT8
					 ? source->dtype
					 : cli_activations_dtype(activations);
	const size_t elems = (size_t)(source->rows * source->k);
	struct nib_dense *x = &r->problem.x;
	struct nib_error err;
	const void *data = source->tensor->data;
	int code = CLI_OK;

	if (dtype != source->dtype) {
		code = round_input(r, source, dtype);
		data = r->rounded;
	}
	if (code)
		return code;
	r->problem.activations = cli_activations_kind(activations);
	*x =
	    (struct nib_dense){.dtype = dtype, .rows = source->rows, .cols = source->k};
	if (elems) /* r frees what was rounded.  NOLINTNEXTLINE(*Malloc) */
		x->data = run_stage(r, data, elems * nib_dtype_bytes(dtype), &err);
	if (elems && !x->data)
		return cli_fail(source->name, &err);
	r->a_global = 1;
	return CLI_OK;
}

/* x times the layer's scales of its columns, both and the result in x's type. */
static int smooth_input(struct runner *r, struct tensor_source *source,
			const struct nib_file_tensor *scales)
{
	const size_t bytes = nib_dtype_bytes(source->dtype);
	const int64_t k = source->k;
	float *row = malloc(2 * (size_t)k * sizeof(*row));
	char *out = r->smoothed_data = malloc((size_t)(source->rows * k) * bytes + 1);
	enum nib_dtype dtype = NIB_DTYPE_FP32;

	if (!row || !out) {
		free(row);
		return cli_no_memory("input");
	}
	(void)tensor_dtype(scales->dtype, &dtype);
	tensor_read_floats(scales->data, dtype, k, row);
	/* Rounded to x's type and back. */
	tensor_round_floats(row, source->dtype, k, row + k);
	tensor_read_floats(row + k, source->dtype, k, row);
	for (int64_t r0 = 0; r0 < source->rows; r0++) {
		const size_t at = (size_t)(r0 * k) * bytes;

		tensor_read_floats((const char *)source->tensor->data + at,
				   source->dtype, k, row + k);
		for (int64_t c = 0; c < k; c++)
			row[k + c] *= row[c];
		tensor_round_floats(row + k, source->dtype, k, out + at);
	}
	free(row);
	r->smoothed = *source->tensor;
	r->smoothed.data = out;
	source->tensor = &r->smoothed;
	return CLI_OK;
}

/* What AWQ does to the input, if the layer is of it. */
static int apply_awq(struct runner *r, struct tensor_source *source)
{
	const struct nib_file_tensor *scales = r->layers[0]->pre_quant_scale;

	if (!scales)
		return CLI_OK;
	if (source->layer)
		return cli_error(CLI_INPUT,
				 "%s: '%s' is NVFP4, but %s has a "
				 "pre_quant_scale, by which x is multiplied "
				 "before it is quantised",
				 r->args->input, source->name, r->args->tensor);
	return smooth_input(r, source, scales);
}

int run_load_input(struct runner *r)
{
	const int64_t k = r->layers[0]->weight.k;
	struct tensor_source source;
	int code = find_input(r, &source);

	if (code)
		return code;
	if (source.layer && source.layer->weight.batch > 1)
		return cli_error(CLI_INPUT, "%s: '%s' is a stack of matrices",
				 r->args->input, source.name);
	if (source.k != k)
		return cli_error(CLI_INPUT,
				 "%s: the last size of '%s' is %lld: must be "
				 "in_features = %lld of the layer '%s'",
				 r->args->input, source.name, (long long)source.k,
				 (long long)k, r->layers[0]->name);
	if (source.layer && r->args->activations != ACT_NVFP4)
		return cli_error(CLI_USAGE,
				 "--activations %s: '%s' of %s is NVFP4: must be nvfp4",
				 cli_activations_names[r->args->activations],
				 source.name, r->args->input);
	code = apply_awq(r, &source);
	if (code)
		return code;
	r->rank = source.rank;
	r->rows = source.rows;
	memcpy(r->shape, source.shape, sizeof(r->shape));
	r->a_format = source.layer ? "NVFP4" : tensor_format(&source);
	if (source.layer)
		return use_layer(r, &source);
	return r->args->activations == ACT_NVFP4 ? quantize(r, &source)
						 : use_floats(r, &source);
}
