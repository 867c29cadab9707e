/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_run.c - nib run: inputs of a file times a layer of another.  Read run.h first.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "progress.h"
#include "run.h"
#include "tensor.h"

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

/* The device address of a copy of host bytes; NULL on failure, with err. */
void *run_stage(struct runner *r, const void *host, size_t bytes, struct nib_error *err)
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
enum nib_status run_stage_view(struct runner *r, const struct nib_fp4 *q,
			       struct nib_fp4 *there, struct nib_error *err)
{
	const size_t elems = (size_t)(q->rows * q->k);

	*there = *q;
	if (!elems) {
		there->codes = there->scales = NULL;
		return NIB_STATUS_OK;
	}
	there->codes = run_stage(r, q->codes, elems / 2, err);
	if (there->codes)
		there->scales = run_stage(r, q->scales, elems / NIB_NVFP4_BLOCK, err);
	return there->codes && there->scales ? NIB_STATUS_OK : err->status;
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

/* Times only the run, not its plan. */
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
	alpha = run_stage(r, alphas, sizeof(alphas), &err);
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
	    run_find_layers, run_load_input, run_load_weights, multiply, write_output};
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
