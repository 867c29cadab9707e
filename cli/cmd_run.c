/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_run.c - nib run: inputs of a file times a layer of another. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "activations.h"
#include "cli.h"
#include "progress.h"
#include "tensor.h"

struct run_args {
	struct cli_shared shared;
	const char *weights, *tensor, *tensor2, *input, *input_tensor;
	const char *output, *output_tensor;
	int64_t index;
	enum cli_activations activations;
	enum nib_dtype out;
	int force, saturate;
};

static const struct table_column columns[] = {
    {.key = "tensor", .title = "layer"},
    {.key = "tensor2"},
    {.key = "m", .title = "m"},
    {.key = "n", .title = "n"},
    {.key = "k", .title = "k"},
    {.key = "input", .title = "input"},
    {.key = "activations", .title = "A"},
    {.key = "input_global", .title = "input scale", .print = "%.4g"},
    {.key = "input_global_from", .title = "from"},
    {.key = "alpha", .title = "alpha", .print = "%.4g"},
    {.key = "out", .title = "out"},
    {.key = "backend", .title = "backend"},
    {.key = "threads", .title = "thr"},
    {.key = "quantize_s"},
    {.key = "pack_s"},
    {.key = "time_s", .title = "time", .print = TABLE_SECONDS},
    {.key = "gflops", .title = "GFLOP/s", .print = "%.1f"},
    {.key = "amax", .title = "amax of C", .print = "%.4g"},
    {.key = "output", .title = "output"},
    {0},
};

#define MAX_STAGED 8 /* codes and scales of a, b, b2, or x; alphas; c */

struct runner {
	const struct run_args *args;
	struct nib_file *weights, *inputs;
	struct nib_device *device;
	const struct nib_layer *layers[2]; /* the second for --tensor2 */
	float globals[2];
	/* The input: rank and shape as in its file. */
	int rank;
	int64_t shape[NIB_MAX_RANK];
	int64_t rows;
	float a_global; /* 1 where A is dense */
	const char *a_format, *a_global_from;
	void *codes, *scales; /* of a float input, quantised */
	void *copies[3];      /* of layers in another order: b, b2, a */
	void *rounded;	      /* a float input in another type */
	/* A float input times AWQ's scales of the layer. */
	struct nib_file_tensor smoothed;
	void *smoothed_data;
	/* problem: views of memory where the device computes; c: on the host. */
	struct nib_problem problem;
	struct nib_dense c;
	struct nib_packed *packed[2];
	struct staging staged[MAX_STAGED];
	int n_staged;
	double quantize_s, pack_s, run_s;
};

/* The device address of a copy of host bytes; NULL on failure, with err. */
static void *stage(struct runner *r, const void *host, size_t bytes,
		   struct nib_error *err)
{
	struct staging *staged = &r->staged[r->n_staged];

	if (staging_new_loaded(r->device, host, bytes, staged, err)) {
		staging_free(staged);
		return NULL;
	}
	r->n_staged++;
	return staged->data;
}

/* The same for a dense matrix with linear scales. */
static enum nib_status stage_view(struct runner *r, const struct nib_fp4 *q,
				  struct nib_fp4 *there, struct nib_error *err)
{
	const size_t elems = (size_t)(q->rows * q->k);

	*there = *q;
	if (!elems) {
		there->codes = there->scales = NULL;
		return NIB_STATUS_OK;
	}
	there->codes = stage(r, q->codes, elems / 2, err);
	if (there->codes)
		there->scales = stage(r, q->scales, elems / NIB_NVFP4_BLOCK, err);
	return there->codes && there->scales ? NIB_STATUS_OK : err->status;
}

/* ---- the weights --------------------------------------------------------- */

/* The layer named so that cannot be read, with or without ".weight". */
static const struct nib_layer_defect *find_problem(const struct nib_file *file,
						   const char *name)
{
	for (int64_t i = 0; i < nib_file_layer_defect_count(file); i++) {
		const struct nib_layer_defect *problem =
		    nib_file_layer_defect_at(file, i);
		const size_t n = strlen(problem->name);

		if (!strncmp(name, problem->name, n) &&
		    (!name[n] || !strcmp(name + n, ".weight")))
			return problem;
	}
	return NULL;
}

/* The matrix named so, with or without ".weight", of another type than NVFP4. */
static const struct nib_file_tensor *find_other(const struct nib_file *file,
						const char *name)
{
	const struct nib_file_tensor *found = nib_file_find(file, name);
	char *whole;

	if (found)
		return found;
	if (asprintf(&whole, "%s.weight", name) < 0) {
		cli_out_of_memory();
		return NULL;
	}
	found = nib_file_find(file, whole);
	free(whole);
	return found;
}

static int other_type(const struct runner *r, const struct nib_file_tensor *t)
{
	const int is_fp8 = !strncmp(t->dtype, "F8_", 3);

	return cli_error(CLI_INPUT,
			 "%s: '%s' is %s: nib run multiplies by NVFP4 layers%s",
			 r->args->weights, t->name, t->dtype,
			 is_fp8 ? "; FP8 linears run in nibblas.transformers "
				  "(docs/transformers.md)"
				: " (nib inspect lists them)");
}

static int no_layer(const struct runner *r, const char *name)
{
	const struct nib_layer_defect *problem = find_problem(r->weights, name);
	const struct nib_file_tensor *other = find_other(r->weights, name);
	int64_t count = nib_file_layer_count(r->weights);
	char near[CLI_NEAREST_TEXT];

	if (problem)
		return cli_error(CLI_INPUT, "%s: the layer '%s' cannot be read: %s",
				 r->args->weights, problem->name, problem->reason);
	if (other)
		return other_type(r, other);
	if (!count)
		return cli_error(CLI_INPUT, "%s has no NVFP4 layers", r->args->weights);
	return cli_error(CLI_USAGE,
			 "%s has no NVFP4 layer '%s'; it has %lld, the first "
			 "is '%s' (nib inspect lists them)%s",
			 r->args->weights, name, (long long)count,
			 nib_file_layer_at(r->weights, 0)->name,
			 tensor_nearest_layer(r->weights, name, near));
}

/* Two layers of one input have the same AWQ scales of it, or none. */
static int same_pre_quant_scale(const struct nib_layer *const layers[2])
{
	const struct nib_file_tensor *a = layers[0]->pre_quant_scale;
	const struct nib_file_tensor *b = layers[1]->pre_quant_scale;

	return a == b || (a && b && !strcmp(a->dtype, b->dtype) &&
			  !memcmp(a->data, b->data, (size_t)a->bytes));
}

static int find_layers(struct runner *r)
{
	const char *const names[] = {r->args->tensor, r->args->tensor2};
	const struct nib_fp4 *w[2] = {0};

	for (int i = 0; i < 2 && names[i]; i++) {
		r->layers[i] = nib_file_find_layer(r->weights, names[i]);
		if (!r->layers[i])
			return no_layer(r, names[i]);
		w[i] = &r->layers[i]->weight;
		if (r->args->index >= w[i]->batch)
			return cli_error(CLI_USAGE,
					 "--index %lld: %s has %lld matrices",
					 (long long)r->args->index, names[i],
					 (long long)w[i]->batch);
	}
	if (w[0] && w[1] && (w[0]->rows != w[1]->rows || w[0]->k != w[1]->k))
		return cli_error(
		    CLI_USAGE,
		    "%s and %s differ in shape: in_features %lld and %lld, "
		    "out_features %lld and %lld",
		    names[0], names[1], (long long)w[0]->k, (long long)w[1]->k,
		    (long long)w[0]->rows, (long long)w[1]->rows);
	if (w[1] && !same_pre_quant_scale(r->layers))
		return cli_error(CLI_INPUT,
				 "%s and %s differ in pre_quant_scale, by which "
				 "their one input is multiplied",
				 names[0], names[1]);
	return CLI_OK;
}

static int load_weights(struct runner *r)
{
	struct nib_fp4 *const there[] = {&r->problem.b, &r->problem.b2};
	double begin_s = cli_now_s();
	struct nib_error err;

	for (int i = 0; i < 2 && r->layers[i]; i++) {
		struct tensor_source source;
		struct nib_fp4 b;

		tensor_from_layer(r->layers[i], &source);
		if (tensor_view(&source, r->args->index * source.rows_each,
				source.rows_each, &b, &r->globals[i], &r->copies[i],
				&err))
			return cli_fail(source.name, &err);
		/* A GPU reads them once: packing would cost more. */
		if (!cli_is_host(r->device)) {
			if (stage_view(r, &b, there[i], &err))
				return cli_fail(source.name, &err);
		} else if (nib_pack(r->device, &b, &r->packed[i], &err)) {
			return cli_fail_input(source.name, &err);
		}
	}
	r->problem.b_packed = r->packed[0];
	r->problem.b2_packed = r->packed[1];
	r->pack_s = cli_now_s() - begin_s;
	return CLI_OK;
}

/* ---- the input ----------------------------------------------------------- */

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
	    stage_view(r, &a, &r->problem.a, &err))
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
		status = stage_view(r, &a, &r->problem.a, &err);
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
		x->data = stage(r, data, elems * nib_dtype_bytes(dtype), &err);
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

static int load_input(struct runner *r)
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

/* ---- multiplication and output ------------------------------------------- */

static int allocate_output(struct runner *r, size_t *bytes)
{
	r->c = (struct nib_dense){
	    .dtype = r->args->out,
	    .rows = r->rows,
	    .cols = r->layers[0]->weight.rows,
	};
	if (!__builtin_mul_overflow((size_t)r->c.rows, (size_t)r->c.cols, bytes) &&
	    !__builtin_mul_overflow(*bytes, nib_dtype_bytes(r->c.dtype), bytes))
		r->c.data = malloc(*bytes ? *bytes : 1);
	return r->c.data ? CLI_OK : cli_no_memory("output");
}

/* Times the run alone, not its plan. */
static enum nib_status run_problem(struct runner *r, struct nib_error *err)
{
	enum nib_op op = r->layers[1] ? NIB_OP_DUAL_GEMM : NIB_OP_GEMM;
	struct nib_plan *plan;
	enum nib_status status =
	    nib_plan_create(r->device, op, &r->problem, 1, NULL, &plan, err);
	double begin_s = cli_now_s();

	if (status)
		return status;
	status = nib_run(plan, &r->problem, 1, NULL, err);
	if (!status)
		status = nib_device_wait(r->device, NULL, err);
	r->run_s = cli_now_s() - begin_s;
	nib_plan_free(plan);
	return status;
}

static int multiply(struct runner *r)
{
	const float alphas[2] = {r->a_global * r->globals[0],
				 r->a_global * r->globals[1]};
	const float *alpha;
	struct staging c = {0};
	struct nib_error err;
	enum nib_status status;
	size_t bytes;
	int code = allocate_output(r, &bytes);

	if (code)
		return code;
	alpha = stage(r, alphas, sizeof(alphas), &err);
	if (!alpha || staging_new(r->device, r->c.data, bytes, &c, &err))
		return cli_fail(NULL, &err);
	r->problem.alpha = alpha;
	r->problem.alpha2 = alpha + 1;
	r->problem.c = r->c;
	r->problem.c.data = c.data;
	status = run_problem(r, &err);
	if (!status)
		status = staging_fetch(&c, bytes, &err);
	staging_free(&c);
	if (status == NIB_STATUS_UNSUPPORTED)
		return cli_fail_activations(NULL, &err, r->args->activations,
					    !cli_is_host(r->device));
	return status ? cli_fail_input(NULL, &err) : CLI_OK;
}

static int write_output(struct runner *r)
{
	static const struct cli_name names[] = {{"name", "--output-tensor", NULL}, {0}};
	const char *path = r->args->output;
	size_t bytes = (size_t)(r->c.rows * r->c.cols) * nib_dtype_bytes(r->c.dtype);
	struct nib_writer *writer;
	struct nib_error err;

	r->shape[r->rank - 1] = r->c.cols;
	if (nib_writer_open(path, &writer, &err))
		return cli_fail(path, &err);
	if (!nib_writer_declare(writer, r->args->output_tensor,
				tensor_dtype_names[r->c.dtype], r->rank, r->shape,
				&err) &&
	    !nib_writer_write(writer, r->c.data, bytes, &err) && !cli_must_stop())
		return nib_writer_commit(writer, &err) ? cli_fail(path, &err) : CLI_OK;
	nib_writer_discard(writer);
	return cli_fail_named(path, &err, names);
}

static int put_row(struct runner *r)
{
	struct table *t = table_new(columns, r->args->shared.format, 0);
	int64_t k = r->layers[0]->weight.k;
	double flop = 2 * (double)r->c.rows * (double)r->c.cols * (double)k *
		      (r->layers[1] ? 2 : 1);
	double amax = tensor_largest(&r->c);

	table_text(t, "tensor", r->layers[0]->name);
	if (r->layers[1])
		table_text(t, "tensor2", r->layers[1]->name);
	table_int(t, "m", r->c.rows);
	table_int(t, "n", r->c.cols);
	table_int(t, "k", k);
	table_text(t, "input", r->a_format);
	table_text(t, "activations", cli_activations_names[r->args->activations]);
	if (r->a_global_from) {
		table_number(t, "input_global", (double)r->a_global);
		table_text(t, "input_global_from", r->a_global_from);
		table_number(t, "quantize_s", r->quantize_s);
	}
	table_number(t, "alpha", (double)(r->a_global * r->globals[0]));
	table_text(t, "out", cli_dtype_names[r->args->out]);
	table_text(t, "backend", cli_backend(r->device));
	table_int(t, "threads", cli_threads(r->device));
	table_number(t, "pack_s", r->pack_s);
	table_number(t, "time_s", r->run_s);
	table_number(t, "gflops", flop / r->run_s * 1e-9);
	table_number(t, "amax", amax);
	table_text(t, "output", r->args->output);
	table_end_row(t);
	if (!isfinite(amax))
		cli_warn("the output holds inf or NaN%s",
			 r->args->out == NIB_DTYPE_FP16
			     ? "; fp16 ends at 65504, try --out bf16"
			     : "");
	return table_end(t);
}

/* ---- the command --------------------------------------------------------- */

static int run_all(struct runner *r)
{
	static int (*const steps[])(struct runner *) = {
	    find_layers, load_input, load_weights, multiply, write_output};
	int code = CLI_OK;

	progress_begin("running", 0, 1);
	for (size_t i = 0; i < sizeof(steps) / sizeof(*steps) && !code; i++)
		code = cli_must_stop() ? cli_stopped() : steps[i](r);
	progress_end();
	return code ? code : put_row(r);
}

static int run_run(const void *args_)
{
	const struct run_args *args = args_;
	const char *const inputs[] = {args->weights, args->input};
	struct runner r = {.args = args};
	struct nib_error err;
	int code = cli_check_output(args->output, inputs, 2, args->force);

	if (!code && args->saturate && args->activations != ACT_NVFP4)
		code = cli_error(CLI_USAGE,
				 "--saturate: A is quantised only with "
				 "--activations nvfp4, not %s",
				 cli_activations_names[args->activations]);
	if (!code && (nib_file_open(args->weights, &r.weights, &err) ||
		      nib_file_open(args->input, &r.inputs, &err)))
		code = cli_fail_input(NULL, &err);
	if (!code)
		code = cli_open_device(&args->shared.device, &r.device);
	if (!code)
		code = run_all(&r);
	for (int i = 0; i < r.n_staged; i++)
		staging_free(&r.staged[i]);
	nib_packed_free(r.packed[0]);
	nib_packed_free(r.packed[1]);
	nib_device_close(r.device);
	for (int i = 0; i < 3; i++)
		free(r.copies[i]);
	free(r.codes);
	free(r.scales);
	free(r.rounded);
	free(r.smoothed_data);
	free(r.c.data);
	nib_file_close(r.inputs);
	nib_file_close(r.weights);
	return code;
}

#define ARG(member) offsetof(struct run_args, member)
static const struct cli_option options[] = {
    {"weights", OPT_FILE, ARG(weights), "PATH", .is_required = 1,
     .help = "NVFP4 layers: a safetensors file, a folder of shards, an index"},
    {"tensor", OPT_TEXT, ARG(tensor), "NAME", .is_required = 1,
     .help = "the layer B, with or without .weight"},
    {"tensor2", OPT_TEXT, ARG(tensor2), "NAME",
     .help = "a second layer B2: C = silu(A B^T) * (A B2^T)"},
    {"index", OPT_INT, ARG(index), "N", "0", .max = INT64_MAX,
     .help = "which matrix of a layer that is a stack, from 0"},
    {"input", OPT_FILE, ARG(input), "FILE", .is_required = 1,
     .help = "safetensors file with A: float or NVFP4"},
    {"input-tensor", OPT_TEXT, ARG(input_tensor), "NAME",
     .help = "which tensor of it (default: the only one)"},
    {"activations", OPT_CHOICE, ARG(activations), CLI_ACTIVATIONS_WORDS, "nvfp4",
     .help = "what a float A becomes: nvfp4, quantised (W4A4); bf16, fp16 or "
	     "fp32, rounded if the file has another type (W4A16); int8 (W4A8)"},
    {"output", OPT_FILE, ARG(output), "FILE", .letter = 'o', .is_required = 1,
     .help = "safetensors file to write C to"},
    {"output-tensor", OPT_TEXT, ARG(output_tensor), "NAME", "output",
     .help = "what C is called there"},
    {"out", OPT_CHOICE, ARG(out), CLI_DTYPE_WORDS, CLI_OUT_DEFAULT,
     .help = "type of C"},
    {"saturate", OPT_FLAG, ARG(saturate),
     .help = "take inf as the largest value and NaN as zero, rather than stop"},
    {"force", OPT_FLAG, ARG(force), .help = "replace the output file if it exists"},
    {0},
};

const struct cli_command command_run = {
    .name = "run",
    .summary = "multiply inputs by a layer of a checkpoint",
    .positional = "",
    .description =
	"Computes C = A B^T, as an engine would: A from one file, the NVFP4\n"
	"layer B from another.  A float A is quantised first, with the layer's\n"
	"input scale if the file has one, else by its largest value; with\n"
	"--activations bf16, fp16 or fp32 its floats are multiplied as they are.\n"
	"All sizes of A but the last are rows; C has them too.  The output file\n"
	"appears whole or not at all.\n",
    .examples =
	"nib run --weights nvfp4.safetensors --tensor model.layers.0.mlp.up_proj "
	"\\\n"
	"    --input x.safetensors --output y.safetensors\n"
	"nib run --weights w.safetensors --tensor gate --tensor2 up \\\n"
	"    --input x.safetensors --output y.safetensors --out fp32\n"
	"nib run --weights w.safetensors --tensor up --activations bf16 \\\n"
	"    --input x.safetensors --output y.safetensors      # W4A16\n",
    .groups = (const struct cli_group[]){{"Running", options, 0},
					 CLI_DEVICE_GROUPS,
					 CLI_LAST_GROUPS},
    .args_bytes = sizeof(struct run_args),
    .defers_signals = 1,
    .run = run_run,
};
