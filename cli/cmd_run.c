/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_run.c - nib run: inputs of a file times a layer of another. */
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "progress.h"
#include "staging.h"
#include "table.h"
#include "tensor.h"

struct run_args {
	struct device_args device;
	struct format_args format;
	struct common_args common;
	const char *weights, *tensor, *tensor2, *input, *input_tensor;
	const char *output, *output_tensor;
	int64_t index;
	int out, force, saturate;
};

static const struct table_column columns[] = {
    {.key = "tensor", .title = "layer"},
    {.key = "tensor2"},
    {.key = "m", .title = "m"},
    {.key = "n", .title = "n"},
    {.key = "k", .title = "k"},
    {.key = "input", .title = "input"},
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

struct runner {
	const struct run_args *args;
	struct nib_file *weights, *inputs;
	struct nib_device *device;
	const struct nib_layer *layers[2]; /* the second for --tensor2 */
	float globals[2];
	struct nib_packed *packed[2];
	/* The input: rank and shape as in its file; then as NVFP4. */
	int rank;
	int64_t shape[NIB_MAX_RANK];
	struct nib_nvfp4 a;
	float a_global;
	const char *a_format, *a_global_from;
	void *owned_codes, *owned_scales;
	struct nib_dense c;
	/* Where the device computes: a, then the weights. */
	struct staging codes[3], scales[3];
	struct nib_nvfp4 weights_there[2];
	double quantize_s, pack_s, run_s;
};

/* ---- what to multiply ---------------------------------------------------- */

static int no_layer(const struct runner *r, const char *name)
{
	int64_t count = nib_file_layer_count(r->weights);

	if (!count)
		return cli_error(CLI_INPUT, "%s has no NVFP4 layers",
				 r->args->weights);
	return cli_error(
	    CLI_USAGE,
	    "%s has no NVFP4 layer '%s'; it has %lld, the first is "
	    "'%s' (nib inspect lists them)",
	    r->args->weights, name, (long long)count,
	    nib_file_layer_at(r->weights, 0)->name);
}

static int find_layers(struct runner *r)
{
	const char *const names[] = {r->args->tensor, r->args->tensor2};

	for (int i = 0; i < 2 && names[i]; i++) {
		const struct nib_layer *layer =
		    nib_file_find_layer(r->weights, names[i]);

		if (!layer)
			return no_layer(r, names[i]);
		if (r->args->index >= layer->weight.batch)
			return cli_error(CLI_USAGE,
					 "--index %lld: %s has %lld matrices",
					 (long long)r->args->index, names[i],
					 (long long)layer->weight.batch);
		r->layers[i] = layer;
	}
	if (r->layers[1] &&
	    (r->layers[1]->weight.rows != r->layers[0]->weight.rows ||
	     r->layers[1]->weight.k != r->layers[0]->weight.k))
		return cli_error(CLI_USAGE, "%s and %s differ in shape",
				 names[0], names[1]);
	return CLI_OK;
}

/* One matrix of layer i, and its global scale. */
static struct nib_nvfp4 weight_view(struct runner *r, int i)
{
	struct tensor_source source;

	tensor_from_layer(r->layers[i], &source);
	return tensor_view(&source, r->args->index * source.rows_each,
			   source.rows_each, &r->globals[i]);
}

/* The bytes of a dense view with linear scales: pair i, and its view there. */
static enum nib_status stage(struct runner *r, int i, const struct nib_nvfp4 *q,
			     struct nib_nvfp4 *there, struct nib_error *err)
{
	const size_t elems = (size_t)(q->rows * q->k);
	struct staging codes = {0}, scales = {0};
	enum nib_status status;

	status =
	    staging_new_loaded(r->device, q->codes, elems / 2, &codes, err);
	if (!status)
		status = staging_new_loaded(r->device, q->scales,
					    elems / NIB_BLOCK, &scales, err);
	r->codes[i] = codes;
	r->scales[i] = scales;
	*there = *q;
	there->codes = codes.data;
	there->scales = scales.data;
	return status;
}

/* A GPU reads them once, as they are: packing would cost more. */
static int load_weights(struct runner *r)
{
	double begin_s = cli_now_s();
	struct nib_error err;

	for (int i = 0; i < 2 && r->layers[i]; i++) {
		const struct nib_nvfp4 b = weight_view(r, i);

		if (!cli_is_host(r->device)) {
			if (stage(r, 1 + i, &b, &r->weights_there[i], &err))
				return cli_fail(r->layers[i]->name, &err);
			continue;
		}
		if (nib_pack(r->device, &b, &r->packed[i], &err))
			return cli_fail_input(r->layers[i]->name, &err);
	}
	r->pack_s = cli_now_s() - begin_s;
	return CLI_OK;
}

/* ---- the input ----------------------------------------------------------- */

/* The named tensor, or the only one. */
static int find_input(struct runner *r, const struct nib_layer **layer,
		      const struct nib_file_tensor **tensor)
{
	const char *name = r->args->input_tensor;
	int64_t count = nib_file_tensor_count(r->inputs);
	int64_t layers = nib_file_layer_count(r->inputs);

	*layer = NULL;
	*tensor = NULL;
	if (name) {
		*layer = nib_file_find_layer(r->inputs, name);
		*tensor = nib_file_find(r->inputs, name);
		if (*layer || *tensor)
			return CLI_OK;
		return cli_error(CLI_USAGE, "%s has no tensor '%s'",
				 r->args->input, name);
	}
	if (layers == 1 && count <= 4)
		*layer = nib_file_layer_at(r->inputs, 0);
	else if (count == 1)
		*tensor = nib_file_tensor_at(r->inputs, 0);
	if (*layer || *tensor)
		return CLI_OK;
	return cli_error(CLI_USAGE,
			 "%s has %lld tensors: choose with --input-tensor",
			 r->args->input, (long long)count);
}

static int set_shape(struct runner *r, const char *name, int rank,
		     const int64_t *shape)
{
	int64_t k = r->layers[0]->weight.k;

	if (rank < 1 || shape[rank - 1] != k)
		return cli_error(
		    CLI_INPUT,
		    "%s: the last size of '%s' is %lld, but %s has "
		    "k = %lld",
		    r->args->input, name,
		    (long long)(rank ? shape[rank - 1] : 0), r->args->tensor,
		    (long long)k);
	r->rank = rank;
	memcpy(r->shape, shape, (size_t)rank * sizeof(*shape));
	return CLI_OK;
}

static int use_layer(struct runner *r, const struct nib_layer *layer)
{
	const int64_t shape[] = {layer->weight.rows, layer->weight.k};
	struct nib_error err;

	if (layer->weight.batch > 1)
		return cli_error(CLI_INPUT, "%s: '%s' is a stack of matrices",
				 r->args->input, layer->name);
	if (stage(r, 0, &layer->weight, &r->a, &err))
		return cli_fail(layer->name, &err);
	r->a_global = layer->global;
	r->a_format = "NVFP4";
	r->a_global_from = "input file";
	return set_shape(r, layer->name, 2, shape);
}

static int quantize(struct runner *r, const struct tensor_source *source)
{
	struct nib_quantize_options options = {
	    .struct_bytes = sizeof(options),
	    .global = r->layers[0]->input_global,
	    .saturate = r->args->saturate,
	};
	const struct nib_dense x = {
	    .data = (void *)(uintptr_t)source->data,
	    .dtype = source->dtype,
	    .rows = source->rows,
	    .cols = source->k,
	};
	size_t elems = (size_t)(source->rows * source->k);
	size_t x_bytes = elems * nib_dtype_bytes(source->dtype);
	struct staging staged = {0};
	struct nib_dense x_there = x;
	struct nib_nvfp4 a_there;
	double begin_s = cli_now_s();
	enum nib_status status;
	struct nib_error err;

	/* A stack may have one each, of which reading says NaN. */
	if (!isfinite(options.global))
		options.global = 0;
	r->owned_codes = malloc(elems / 2 + 1);
	r->owned_scales = malloc(elems / NIB_BLOCK + 1);
	if (!r->owned_codes || !r->owned_scales)
		return cli_no_memory("quantised input");
	r->a = (struct nib_nvfp4){
	    .codes = r->owned_codes,
	    .scales = r->owned_scales,
	    .rows = source->rows,
	    .k = source->k,
	};
	status = staging_new_loaded(r->device, x.data, x_bytes, &staged, &err);
	x_there.data = staged.data;
	if (!status)
		status = stage(r, 0, &r->a, &a_there, &err);
	if (!status)
		status = nib_quantize(r->device, &x_there, &a_there, &options,
				      &r->a_global, &err);
	staging_free(&staged);
	if (status)
		return cli_fail_input(r->args->input, &err);
	r->a = a_there;
	r->a_format = tensor_format(source);
	r->a_global_from = options.global > 0 ? "weights file" : "data";
	r->quantize_s = cli_now_s() - begin_s;
	return CLI_OK;
}

static int load_input(struct runner *r)
{
	const struct nib_layer *layer;
	const struct nib_file_tensor *tensor;
	struct tensor_source source;
	int code = find_input(r, &layer, &tensor);

	if (code)
		return code;
	if (layer)
		return use_layer(r, layer);
	if (!tensor || tensor_from_float(tensor, &source))
		return cli_error(CLI_INPUT,
				 "%s: '%s' is %s: must be F32, F16, BF16 or an "
				 "NVFP4 layer",
				 r->args->input, tensor ? tensor->name : "",
				 tensor ? tensor->dtype : "nothing");
	code = set_shape(r, tensor->name, tensor->rank, tensor->shape);
	return code ? code : quantize(r, &source);
}

/* ---- multiplication and output ------------------------------------------- */

/* The output's memory on the host; its size in *bytes. */
static int allocate_output(struct runner *r, size_t *bytes)
{
	r->c = (struct nib_dense){
	    .dtype = (enum nib_dtype)r->args->out,
	    .rows = r->a.rows,
	    .cols = r->layers[0]->weight.rows,
	};
	if (__builtin_mul_overflow((size_t)r->c.rows, (size_t)r->c.cols,
				   bytes) ||
	    __builtin_mul_overflow(*bytes, nib_dtype_bytes(r->c.dtype), bytes))
		return cli_no_memory("output");
	r->c.data = malloc(*bytes ? *bytes : 1);
	return r->c.data ? CLI_OK : cli_no_memory("output");
}

/* Plans and runs problem, whose data is where the device computes. */
static enum nib_status run_problem(struct runner *r,
				   const struct nib_problem *problem,
				   struct nib_error *err)
{
	enum nib_op op = r->layers[1] ? NIB_DUAL_GEMM : NIB_GEMM;
	struct nib_plan *plan;
	enum nib_status status;
	double begin_s;

	status = nib_plan_create(r->device, op, problem, 1, NULL, &plan, err);
	if (status)
		return status;
	begin_s = cli_now_s();
	status = nib_run(plan, problem, 1, NULL, err);
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
	struct staging alpha = {0}, c = {0};
	struct nib_problem problem = {
	    .a = r->a,
	    .b = r->weights_there[0],
	    .b2 = r->weights_there[1],
	    .b_packed = r->packed[0],
	    .b2_packed = r->packed[1],
	};
	struct nib_error err;
	enum nib_status status;
	size_t bytes;
	int code = allocate_output(r, &bytes);

	if (code)
		return code;
	status =
	    staging_new_loaded(r->device, alphas, sizeof(alphas), &alpha, &err);
	if (!status)
		status = staging_new(r->device, r->c.data, bytes, &c, &err);
	if (!status) {
		problem.alpha = alpha.data;
		problem.alpha2 = problem.alpha + 1;
		problem.c = r->c;
		problem.c.data = c.data;
		status = run_problem(r, &problem, &err);
	}
	if (!status)
		status = staging_fetch(&c, bytes, &err);
	staging_free(&alpha);
	staging_free(&c);
	return status ? cli_fail_input(NULL, &err) : CLI_OK;
}

static int write_output(struct runner *r)
{
	static const char *const dtypes[] = {"F32", "F16", "BF16"};
	const char *path = r->args->output;
	size_t bytes =
	    (size_t)(r->c.rows * r->c.cols) * nib_dtype_bytes(r->c.dtype);
	struct nib_writer *writer;
	struct nib_error err;
	enum nib_status status;

	r->shape[r->rank - 1] = r->c.cols;
	if (nib_writer_open(path, &writer, &err))
		return cli_fail(path, &err);
	status =
	    nib_writer_declare(writer, r->args->output_tensor,
			       dtypes[r->c.dtype], r->rank, r->shape, &err);
	if (!status)
		status = nib_writer_write(writer, r->c.data, bytes, &err);
	if (status || cli_interrupted()) {
		nib_writer_discard(writer);
		return status ? cli_fail(path, &err)
			      : cli_error((enum cli_exit)(CLI_SIGNAL +
							  cli_interrupted()),
					  "interrupted; nothing was written");
	}
	return nib_writer_commit(writer, &err) ? cli_fail(path, &err) : CLI_OK;
}

static int put_row(struct runner *r)
{
	struct table *t =
	    table_new(columns, (enum table_format)r->args->format.format, 0);
	double flop = 2 * (double)r->c.rows * (double)r->c.cols *
		      (double)r->a.k * (r->layers[1] ? 2 : 1);
	double amax = tensor_largest(&r->c);

	table_text(t, "tensor", r->layers[0]->name);
	if (r->layers[1])
		table_text(t, "tensor2", r->layers[1]->name);
	table_int(t, "m", r->c.rows);
	table_int(t, "n", r->c.cols);
	table_int(t, "k", r->a.k);
	table_text(t, "input", r->a_format);
	table_number(t, "input_global", (double)r->a_global);
	table_text(t, "input_global_from", r->a_global_from);
	table_number(t, "alpha", (double)(r->a_global * r->globals[0]));
	table_text(t, "out", cli_dtype_names[r->args->out]);
	table_text(t, "backend", cli_backend(r->device));
	table_int(t, "threads", cli_threads(r->device));
	table_number(t, "quantize_s", r->quantize_s);
	table_number(t, "pack_s", r->pack_s);
	table_number(t, "time_s", r->run_s);
	table_number(t, "gflops", flop / r->run_s * 1e-9);
	table_number(t, "amax", amax);
	table_text(t, "output", r->args->output);
	table_end_row(t);
	if (!isfinite(amax))
		cli_warn("the output holds inf or NaN%s",
			 r->args->out == NIB_FP16
			     ? "; fp16 ends at 65504, try --out bf16"
			     : "");
	return table_end(t);
}

/* ---- the command --------------------------------------------------------- */

static int check_arguments(const struct run_args *args)
{
	const char *const inputs[] = {args->weights, args->input};
	const char *missing = !args->weights  ? "weights W.safetensors"
			      : !args->tensor ? "tensor NAME"
			      : !args->input  ? "input X.safetensors"
			      : !args->output ? "output Y.safetensors"
					      : NULL;

	if (missing)
		return cli_error(CLI_USAGE, "needs --%s; see nib run --help",
				 missing);
	return cli_check_output(args->output, inputs, 2, args->force);
}

static int run_all(struct runner *r)
{
	int code = find_layers(r);

	progress_begin("running", 0, 1);
	if (!code)
		code = load_input(r);
	if (!code)
		code = load_weights(r);
	if (!code)
		code = multiply(r);
	if (!code)
		code = write_output(r);
	progress_end();
	return code ? code : put_row(r);
}

static int run_run(const void *args_, char *const *files, int n_files)
{
	const struct run_args *args = args_;
	struct runner r = {.args = args};
	struct nib_error err;
	int code = check_arguments(args);

	(void)files;
	(void)n_files;
	progress_set_quiet(args->common.quiet);
	if (!code && (nib_file_open(args->weights, &r.weights, &err) ||
		      nib_file_open(args->input, &r.inputs, &err)))
		code = cli_fail_input(NULL, &err);
	if (!code)
		code = cli_open_device(&args->device, &r.device);
	if (!code) {
		cli_catch_signals();
		code = run_all(&r);
	}
	nib_packed_free(r.packed[0]);
	nib_packed_free(r.packed[1]);
	for (int i = 0; i < 3; i++) {
		staging_free(&r.codes[i]);
		staging_free(&r.scales[i]);
	}
	nib_device_close(r.device);
	free(r.owned_codes);
	free(r.owned_scales);
	free(r.c.data);
	nib_file_close(r.inputs);
	nib_file_close(r.weights);
	return code;
}

static const struct cli_option options[] = {
    {.name = "weights",
     .kind = OPT_FILE,
     .offset = offsetof(struct run_args, weights),
     .value = "FILE",
     .help = "safetensors with NVFP4 layers (required)"},
    {.name = "tensor",
     .kind = OPT_TEXT,
     .offset = offsetof(struct run_args, tensor),
     .value = "NAME",
     .help = "the layer B, with or without .weight (required)"},
    {.name = "tensor2",
     .kind = OPT_TEXT,
     .offset = offsetof(struct run_args, tensor2),
     .value = "NAME",
     .help = "a second layer B2: C = silu(A B^T) * (A B2^T)"},
    {.name = "index",
     .kind = OPT_INT,
     .offset = offsetof(struct run_args, index),
     .value = "N",
     .fallback = "0",
     .min = 0,
     .max = INT64_MAX,
     .help = "which matrix of a layer that is a stack"},
    {.name = "input",
     .kind = OPT_FILE,
     .offset = offsetof(struct run_args, input),
     .value = "FILE",
     .help = "safetensors with A: float, quantised here, or NVFP4 (required)"},
    {.name = "input-tensor",
     .kind = OPT_TEXT,
     .offset = offsetof(struct run_args, input_tensor),
     .value = "NAME",
     .help = "which tensor of it (default: the only one)"},
    {.name = "output",
     .kind = OPT_FILE,
     .letter = 'o',
     .offset = offsetof(struct run_args, output),
     .value = "FILE",
     .help = "safetensors to write C to (required)"},
    {.name = "output-tensor",
     .kind = OPT_TEXT,
     .offset = offsetof(struct run_args, output_tensor),
     .value = "NAME",
     .fallback = "output",
     .help = "what C is called there"},
    {.name = "out",
     .kind = OPT_CHOICE,
     .offset = offsetof(struct run_args, out),
     .value = CLI_DTYPE_WORDS,
     .fallback = "fp32",
     .help = "type of C"},
    {.name = "saturate",
     .kind = OPT_FLAG,
     .offset = offsetof(struct run_args, saturate),
     .help = "take inf as the largest value and NaN as zero, rather than stop"},
    {.name = "force",
     .kind = OPT_FLAG,
     .offset = offsetof(struct run_args, force),
     .help = "replace the output file if it exists"},
    {0},
};

static const struct cli_group groups[] = {
    {"Running", options, 0},
    {"Device", any_device_options, offsetof(struct run_args, device)},
    {"Output", format_options, offsetof(struct run_args, format)},
    {"Messages", common_options, offsetof(struct run_args, common)},
    {0},
};

const struct cli_command command_run = {
    .name = "run",
    .summary = "multiply inputs by a layer of a checkpoint",
    .positional = "",
    .description =
	"C = A B^T: A from one file, the NVFP4 layer B from another.  A float\n"
	"A is quantised first, with the layer's input scale if the file has\n"
	"one, else by its largest value.  All sizes of A but the last are\n"
	"rows; C has them too.  The output appears whole or not at all.\n",
    .examples =
	"nib run --weights nvfp4.safetensors --tensor model.layers.0.mlp.up_proj "
	"\\\n"
	"    --input x.safetensors --output y.safetensors\n"
	"nib run --weights w.safetensors --tensor gate --tensor2 up \\\n"
	"    --input x.safetensors --output y.safetensors --out bf16\n",
    .groups = groups,
    .args_bytes = sizeof(struct run_args),
    .run = run_run,
};
