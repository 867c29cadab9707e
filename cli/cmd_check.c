/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_check.c - nib check: runs multiplications of random operands and compares
 * them with the exact oracle under the bound of docs/numerics.md.
 */
#include <math.h>
#include <string.h>

#include "cli.h"
#include "data.h"
#include "progress.h"
#include "shapes.h"

struct check_args {
	struct cli_shared shared;
	struct shape_args shapes;
	enum nib_scale_layout layout;
	enum cli_activations activations;
	enum nib_dtype out;
	enum data_fill fill;
	int packed, unpacked;
	int64_t rows, seed;
};

/* The oracle does some 1e8 terms a second: about a second of them. */
#define QUICK_TERMS 2e8

static const struct table_column columns[] = {
    {.key = "op", .title = "op", .width = 10},
    {.key = "shape", .title = "shape", .width = 20},
    {.key = "backend", .title = "backend", .width = 10},
    {.key = "arithmetic"},
    {.key = "threads", .title = "thr"},
    {.key = "layout", .title = "layout"},
    {.key = "activations", .title = "A", .width = 5},
    {.key = "weights", .title = "weights", .width = 8},
    {.key = "out", .title = "out", .width = 4},
    {.key = "seed"},
    {.key = "sample_rows"},
    {.key = "checked", .title = "checked", .width = 9},
    {.key = "failed", .title = "failed"},
    {.key = "error", .title = "error", .print = "%.2e", .width = 8},
    {.key = "bound", .title = "bound", .print = "%.2e", .width = 8},
    {.key = "fraction", .title = "error/bound", .print = "%.3f"},
    {.key = "ok", .title = "ok", .width = 3},
    {.key = "worst_problem"},
    {.key = "worst_batch"},
    {.key = "worst_row"},
    {.key = "worst_col"},
    {.key = "worst_got"},
    {.key = "worst_want"},
    {.key = "digest"},
    {.key = "run_s"},
    {.key = "check_s"},
    {.key = "version"},
    {.key = "machine"},
    {.key = "repro", .title = "again with"},
    {0},
};

struct check {
	const struct check_args *args;
	struct nib_device *device;
	struct table *table;
	int64_t failed_rows, rows;
};

/* How many rows of each matrix of C to compare; 0 = all. */
static int64_t sample_rows(const struct check_args *args, const struct shape *shape)
{
	return args->rows >= 0 ? args->rows : shape_sample_rows(shape, QUICK_TERMS);
}

/* The command that gives this row again; defaults are left out. */
static void put_repro(const struct check *check, const struct shape *shape, int packed,
		      int64_t sample, char *text, size_t bytes)
{
	const struct check_args *args = check->args;
	int on_host = cli_is_host(check->device);
	char shape_args[4096], threads[32] = "", seed[32] = "", a[32] = "";

	if (args->shared.device.threads)
		snprintf(threads, sizeof(threads), " --threads %lld",
			 (long long)args->shared.device.threads);
	if (args->seed != 1)
		snprintf(seed, sizeof(seed), " --seed %lld", (long long)args->seed);
	if (args->activations != ACT_NVFP4)
		snprintf(a, sizeof(a), " --activations %s",
			 cli_activations_names[args->activations]);
	snprintf(text, bytes, "nib check %s --%s %.32s --%s%s%s%s%s%s%s --rows %lld%s",
		 shape_arguments(shape, shape_args, sizeof(shape_args)),
		 on_host ? "isa" : "device",
		 on_host ? strchr(cli_backend(check->device), '-') + 1
			 : args->shared.device.device,
		 packed ? "packed" : "unpacked", args->layout ? " --layout tiled" : "",
		 a, args->out == NIB_DTYPE_FP32 ? "" : " --out ",
		 args->out == NIB_DTYPE_FP32 ? "" : cli_dtype_names[args->out],
		 args->fill == DATA_CONTEST ? " --data contest" : "", threads,
		 (long long)sample, seed);
}

static void put_row(struct check *check, const struct shape *shape, int packed,
		    int64_t sample, const struct nib_check_result *result,
		    uint64_t digest, double run_s, double check_s)
{
	const struct check_args *args = check->args;
	struct table *t = check->table;
	char text[SHAPE_TEXT], repro[8192], hex[17];

	put_repro(check, shape, packed, sample, repro, sizeof(repro));
	table_text(t, "op", shape_op_names[shape->op]);
	table_text(t, "shape", shape_text(shape, text));
	table_text(t, "backend", cli_backend(check->device));
	table_text(t, "arithmetic", cli_arithmetic_name(cli_arithmetic(check->device)));
	table_int(t, "threads", cli_threads(check->device));
	table_text(t, "layout", cli_layout_names[args->layout]);
	table_text(t, "activations", cli_activations_names[args->activations]);
	table_text(t, "weights", packed ? "packed" : "view");
	table_text(t, "out", cli_dtype_names[args->out]);
	table_int(t, "seed", args->seed);
	table_int(t, "sample_rows", sample);
	table_int(t, "checked", result->checked);
	table_int(t, "failed", result->failed);
	table_number(t, "error", result->worst_error);
	table_number(t, "bound", result->worst_bound);
	table_number(t, "fraction", result->worst_fraction);
	table_bool(t, "ok", !result->failed);
	table_int(t, "worst_problem", result->problem);
	table_int(t, "worst_batch", result->batch);
	table_int(t, "worst_row", result->row);
	table_int(t, "worst_col", result->col);
	table_number(t, "worst_got", result->got);
	table_number(t, "worst_want", result->want);
	snprintf(hex, sizeof(hex), "%016llx", (unsigned long long)digest);
	table_text(t, "digest", hex);
	table_number(t, "run_s", run_s);
	table_number(t, "check_s", check_s);
	table_text(t, "version", nib_version());
	table_text(t, "machine", cli_machine(check->device));
	table_text(t, "repro", repro);
	table_end_row(t);
	if (result->failed)
		table_note(t,
			   "   FAILED: %lld of %lld elements; the worst is "
			   "problem %lld, batch %lld, row %lld, column %lld: "
			   "got %.9g, exact %.9g",
			   (long long)result->failed, (long long)result->checked,
			   (long long)result->problem, (long long)result->batch,
			   (long long)result->row, (long long)result->col, result->got,
			   result->want);
}

static enum nib_status run_data(struct check *check, struct data *data,
				struct nib_error *err)
{
	struct nib_plan *plan;
	enum nib_status status = data_plan(check->device, data, NULL, &plan, err);

	if (status)
		return status;
	status = data_poison(data, err);
	if (!status)
		status = data_run(plan, data, NULL, err);
	if (!status)
		status = data_fetch(data, err);
	nib_plan_free(plan);
	return status;
}

static int check_shape(struct check *check, const struct shape *shape, int packed)
{
	const struct check_args *args = check->args;
	const struct data_options options = {
	    .layout = args->layout,
	    .out = args->out,
	    .fill = args->fill,
	    .activations = args->activations,
	    .seed = (uint64_t)args->seed,
	    .packed = packed,
	};
	struct nib_check_options how = {
	    .struct_bytes = sizeof(how),
	    .sample_rows = sample_rows(args, shape),
	    .seed = (uint64_t)args->seed,
	    .arithmetic = cli_arithmetic(check->device),
	};
	struct nib_check_result result = {.struct_bytes = sizeof(result)};
	double begin_s, run_s = 0;
	char text[SHAPE_TEXT];
	struct nib_error err;
	enum nib_status status;
	uint64_t digest;
	struct data *data;

	progress_advance(0, shape_text(shape, text));
	if (data_new(shape, &options, check->device, &data, &err))
		return cli_fail(text, &err);
	begin_s = cli_now_s();
	status = run_data(check, data, &err);
	run_s = cli_now_s() - begin_s;
	if (!status)
		status = data_check(data, &how, &result, &err);
	digest = data_digest(data);
	data_free(data);
	if (status)
		return cli_fail_activations(text, &err, args->activations,
					    !cli_is_host(check->device));
	put_row(check, shape, packed, how.sample_rows, &result, digest, run_s,
		cli_now_s() - begin_s - run_s);
	check->rows++;
	check->failed_rows += result.failed != 0;
	return CLI_OK;
}

/* How many terms the oracle adds up: the unit of the progress. */
static double terms(const struct check_args *args, const struct shape *shape)
{
	double all = shape_flop(shape) / 2;

	return sample_rows(args, shape) ? fmin(all, QUICK_TERMS) : all;
}

static int check_all(struct check *check, const struct shape_list *list)
{
	const struct check_args *args = check->args;
	int both = args->packed == args->unpacked, code = CLI_OK;
	double total = 0;

	for (int64_t i = 0; i < list->count; i++)
		total += terms(args, &list->shapes[i]) * (1 + both);
	progress_begin("checking", total, 1);
	for (int64_t i = 0; i < list->count * 2 && !code; i++) {
		const struct shape *shape = &list->shapes[i / 2];
		int packed = (int)(i % 2);

		if (!both && packed != args->packed)
			continue;
		code = check_shape(check, shape, packed);
		progress_advance(terms(args, shape), NULL);
	}
	progress_end();
	if (!code)
		table_note(check->table, "%lld of %lld passed",
			   (long long)(check->rows - check->failed_rows),
			   (long long)check->rows);
	return code;
}

static int run_check(const void *args_)
{
	const struct check_args *args = args_;
	struct check check = {.args = args};
	struct shape_list list;
	int code = shapes_parse_some(&args->shapes, "small", &list), end;

	if (!code)
		code = cli_open_device(&args->shared.device, &check.device);
	if (!code) {
		check.table = table_new(columns, args->shared.format, TABLE_STREAM);
		/* Rows are printed before all of them are known. */
		table_widen(check.table, "shape", shapes_width(&list, 0));
		code = check_all(&check, &list);
		end = table_end(check.table);
		code = code ? code : end;
		nib_device_close(check.device);
	}
	shapes_free(&list);
	return code ? code : check.failed_rows ? CLI_FOUND : CLI_OK;
}

#define ARG(member) offsetof(struct check_args, member)
static const struct cli_option options[] = {
    {"layout", OPT_CHOICE, ARG(layout), CLI_LAYOUT_WORDS, "linear",
     .help = "layout of the block scales"},
    {"activations", OPT_CHOICE, ARG(activations), CLI_ACTIVATIONS_WORDS, "nvfp4",
     .help = "what A is: " CLI_ACTIVATIONS_HELP},
    /* Not CLI_OUT_DEFAULT: here the bound is the narrowest. */
    {"out", OPT_CHOICE, ARG(out), CLI_DTYPE_WORDS, "fp32",
     .help = "type of C; the bound of fp32 is the narrowest"},
    {"packed", OPT_FLAG, ARG(packed),
     .help = "only with packed weights (else with and without)"},
    {"unpacked", OPT_FLAG, ARG(unpacked), .help = "only with weights as they are"},
    {"rows", OPT_INT, ARG(rows), "N", "-1", .min = -1, .max = INT64_C(1) << 40,
     .help = "rows of each matrix of C to compare, chosen by the seed; 0 = "
	     "all, -1 = as many as take about a second"},
    {"seed", OPT_INT, ARG(seed), "N", "1", .max = INT64_MAX,
     .help = "seed of the random operands and rows"},
    {"data", OPT_CHOICE, ARG(fill), DATA_FILL_WORDS, "full", .help = DATA_FILL_HELP},
    {0},
};

static const struct cli_group groups[] = {
    {"What to multiply", shape_product_options, ARG(shapes)},
    {"", shape_options, ARG(shapes)},
    {"How", options, 0},
    CLI_DEVICE_GROUPS,
    CLI_LAST_GROUPS,
};

const struct cli_command command_check = {
    .name = "check",
    .summary = "compare multiplications with the exact result",
    .positional = "",
    .description =
	"Shows that this machine multiplies correctly: runs each shape on\n"
	"random operands and compares C with an exact sum.  error is |C - exact|\n"
	"over the sum of the absolute block products (Hopper, and A of bf16, fp16\n"
	"or fp32: of all products); bound is the error that the device's\n"
	"arithmetic and the rounding to C's type allow.  error/bound above 1 is a\n"
	"failure, and nib exits with 1.  Each row ends with the command that gives\n"
	"it again.\n"
	"\n"
	"Weights are NVFP4, and so is A unless --activations says otherwise.  Floats\n"
	"of A then have magnitudes from subnormal to large, and zeros.\n",
    .examples = "nib check --preset small                  # every operation\n"
		"nib check --op gemm --shape 128x4096x7168 --out fp16\n"
		"nib check --op gemv --shape 7168x16384x1 --isa avx2\n"
		"nib check --op group_gemm --m 80,176,128 --n 4096 --k 7168\n"
		"nib check --preset small --activations bf16   # W4A16\n"
		"nib check --op gemm --m 1:16+1 --n 64 --k 256 --rows 0\n"
		"nib check --preset seeds --format json > check.json\n",
    .groups = groups,
    .args_bytes = sizeof(struct check_args),
    .run = run_check,
};
