/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_check.c - nib check: runs multiplications of random operands and compares
 * them with the exact oracle under the bound of docs/numerics.md.
 */
#include <string.h>

#include "cli.h"
#include "data.h"
#include "progress.h"
#include "shapes.h"
#include "table.h"

struct check_args {
	struct shape_args shapes;
	struct device_args device;
	struct format_args format;
	struct common_args common;
	int layout, out, fill, packed, unpacked;
	int64_t rows, seed;
};

/* The oracle does some 1e8 terms a second: about a second of them. */
#define QUICK_TERMS 2e8

static const struct table_column columns[] = {
    {.key = "op", .title = "op", .width = 10},
    {.key = "shape", .title = "shape", .width = 20},
    {.key = "backend", .title = "backend", .width = 10},
    {.key = "threads", .title = "thr"},
    {.key = "layout", .title = "layout"},
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
    {.key = "run_s"},
    {.key = "check_s"},
    {.key = "version"},
    {.key = "machine"},
    {.key = "repro", .title = "again with"},
    {0},
};

#define COLUMNS (sizeof(columns) / sizeof(columns[0]))

struct check {
	const struct check_args *args;
	struct table_column columns[COLUMNS]; /* wide enough for the shapes */
	struct nib_device *device;
	struct table *table;
	int64_t failed_rows, rows;
	double terms, done_terms; /* of the oracle, for the bar */
};

static int64_t sample_rows(const struct check_args *args,
			   const struct shape *shape)
{
	return args->rows >= 0 ? args->rows
			       : shape_sample_rows(shape, QUICK_TERMS);
}

/* The command that gives this row again; defaults are left out. */
static void put_repro(const struct check *check, const struct shape *shape,
		      int packed, int64_t sample, char *text, size_t bytes)
{
	const struct check_args *args = check->args;
	const char *backend = cli_backend(check->device);
	char shape_args[4096], threads[32] = "", seed[32] = "", where[48];

	if (cli_is_host(check->device))
		snprintf(where, sizeof(where), "--isa %s",
			 strchr(backend, '-') + 1);
	else
		snprintf(where, sizeof(where), "--device %.32s",
			 args->device.device);

	if (args->device.threads)
		snprintf(threads, sizeof(threads), " --threads %lld",
			 (long long)args->device.threads);
	if (args->seed != 1)
		snprintf(seed, sizeof(seed), " --seed %lld",
			 (long long)args->seed);
	snprintf(text, bytes, "nib check %s %s --%s%s%s%s%s --rows %lld%s",
		 shape_arguments(shape, shape_args, sizeof(shape_args)), where,
		 packed ? "packed" : "unpacked",
		 args->layout ? " --layout tiled" : "",
		 args->out == NIB_FP16	 ? " --out fp16"
		 : args->out == NIB_BF16 ? " --out bf16"
					 : "",
		 args->fill == DATA_CONTEST ? " --data contest" : "", threads,
		 (long long)sample, seed);
}

static void put_row(struct check *check, const struct shape *shape, int packed,
		    int64_t sample, const struct nib_check_result *result,
		    double run_s, double check_s)
{
	const struct check_args *args = check->args;
	struct table *t = check->table;
	char text[SHAPE_TEXT], repro[8192];

	put_repro(check, shape, packed, sample, repro, sizeof(repro));
	table_text(t, "op", shape_op_names[shape->op]);
	table_text(t, "shape", shape_text(shape, text));
	table_text(t, "backend", cli_backend(check->device));
	table_int(t, "threads", cli_threads(check->device));
	table_text(t, "layout", cli_layout_names[args->layout]);
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
			   (long long)result->failed,
			   (long long)result->checked,
			   (long long)result->problem, (long long)result->batch,
			   (long long)result->row, (long long)result->col,
			   result->got, result->want);
}

static enum nib_status run_data(struct check *check, struct data *data,
				struct nib_error *err)
{
	struct nib_plan *plan;
	enum nib_status status =
	    data_plan(check->device, data, NULL, &plan, err);

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

static int check_shape(struct check *check, const struct shape *shape,
		       int packed)
{
	const struct check_args *args = check->args;
	const struct data_options options = {
	    .layout = (enum nib_scale_layout)args->layout,
	    .out = (enum nib_dtype)args->out,
	    .fill = (enum data_fill)args->fill,
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
	struct data *data;

	shape_text(shape, text);
	progress_update(check->done_terms, text);
	if (data_new(shape, &options, check->device, &data, &err))
		return cli_fail(text, &err);
	begin_s = cli_now_s();
	status = run_data(check, data, &err);
	run_s = cli_now_s() - begin_s;
	if (!status)
		status = data_check(data, &how, &result, &err);
	data_free(data);
	if (status)
		return cli_fail(text, &err);
	put_row(check, shape, packed, how.sample_rows, &result, run_s,
		cli_now_s() - begin_s - run_s);
	check->rows++;
	check->failed_rows += result.failed != 0;
	return CLI_OK;
}

static double terms(const struct check_args *args, const struct shape *shape)
{
	double all = shape_flop(shape) / 2;

	return sample_rows(args, shape) && all > QUICK_TERMS ? QUICK_TERMS
							     : all;
}

static int check_all(struct check *check, const struct shape_list *list)
{
	const struct check_args *args = check->args;
	int both = args->packed == args->unpacked, code = CLI_OK;

	for (int64_t i = 0; i < list->count; i++)
		check->terms += terms(args, &list->shapes[i]) * (1 + both);
	progress_begin("checking", check->terms, 1);
	for (int64_t i = 0; i < list->count && !code; i++) {
		const struct shape *shape = &list->shapes[i];

		for (int packed = 0; packed < 2 && !code; packed++) {
			if (!both && packed != args->packed)
				continue;
			code = check_shape(check, shape, packed);
			check->done_terms += terms(args, shape);
		}
	}
	progress_end();
	return code;
}

/* Rows are printed as they come, so widths must be known before. */
static void set_widths(struct check *check, const struct shape_list *list)
{
	memcpy(check->columns, columns, sizeof(columns));
	for (size_t c = 0; c < COLUMNS - 1; c++)
		if (!strcmp(columns[c].key, "shape"))
			check->columns[c].width =
			    shapes_width(list, columns[c].width);
}

static int run_check(const void *args_, char *const *files, int n_files)
{
	const struct check_args *args = args_;
	struct check check = {.args = args};
	struct shape_list list;
	int code = shapes_parse(&args->shapes, &list), end;

	(void)files;
	(void)n_files;
	progress_set_quiet(args->common.quiet);
	if (!code && !list.count)
		code = cli_error(CLI_USAGE,
				 "needs shapes, as --preset small or --op gemm "
				 "--shape 128x4096x7168");
	if (!code)
		code = cli_open_device(&args->device, &check.device);
	if (!code) {
		set_widths(&check, &list);
		check.table = table_new(check.columns,
					(enum table_format)args->format.format,
					TABLE_STREAM);
		code = check_all(&check, &list);
		if (!code)
			table_note(check.table, "%lld of %lld passed",
				   (long long)(check.rows - check.failed_rows),
				   (long long)check.rows);
		end = table_end(check.table);
		code = code ? code : end;
		nib_device_close(check.device);
	}
	shapes_free(&list);
	return code ? code : check.failed_rows ? CLI_FOUND : CLI_OK;
}

static const struct cli_option options[] = {
    {.name = "layout",
     .kind = OPT_CHOICE,
     .offset = offsetof(struct check_args, layout),
     .value = CLI_LAYOUT_WORDS,
     .fallback = "linear",
     .help = "layout of the block scales"},
    {.name = "out",
     .kind = OPT_CHOICE,
     .offset = offsetof(struct check_args, out),
     .value = CLI_DTYPE_WORDS,
     .fallback = "fp32",
     .help = "type of C"},
    {.name = "packed",
     .kind = OPT_FLAG,
     .offset = offsetof(struct check_args, packed),
     .help = "only with packed weights (else with and without)"},
    {.name = "unpacked",
     .kind = OPT_FLAG,
     .offset = offsetof(struct check_args, unpacked),
     .help = "only with weights as they are"},
    {.name = "rows",
     .kind = OPT_INT,
     .offset = offsetof(struct check_args, rows),
     .value = "N",
     .fallback = "-1",
     .min = -1,
     .max = INT64_C(1) << 40,
     .help = "rows of each matrix of C to compare, chosen by the seed; 0 = "
	     "all, -1 = all that a second allows"},
    {.name = "seed",
     .kind = OPT_INT,
     .offset = offsetof(struct check_args, seed),
     .value = "N",
     .fallback = "1",
     .min = 0,
     .max = INT64_MAX,
     .help = "of the random operands and rows"},
    {.name = "data",
     .kind = OPT_CHOICE,
     .offset = offsetof(struct check_args, fill),
     .value = DATA_FILL_WORDS,
     .fallback = "full",
     .help = DATA_FILL_HELP},
    {0},
};

static const struct cli_group groups[] = {
    {"What to multiply", shape_product_options,
     offsetof(struct check_args, shapes)},
    {"", shape_options, offsetof(struct check_args, shapes)},
    {"How", options, 0},
    {"Device", any_device_options, offsetof(struct check_args, device)},
    {"Output", format_options, offsetof(struct check_args, format)},
    {"Messages", common_options, offsetof(struct check_args, common)},
    {0},
};

const struct cli_command command_check = {
    .name = "check",
    .summary = "compare multiplications with the exact result",
    .positional = "",
    .description =
	"Runs each shape on random operands and compares C with an exact\n"
	"integer sum.  error is |C - exact| over the sum of the absolute\n"
	"block products (GPUs: of all products); bound is what the device's\n"
	"arithmetic and rounding to C's type can do; error/bound above 1 is\n"
	"a failure, and nib exits with 1.\n"
	"Each row ends with the command that gives it again.\n",
    .examples = "nib check --preset small                  # every operation\n"
		"nib check --op gemm --shape 128x4096x7168 --out fp16\n"
		"nib check --op gemv --shape 7168x16384x1 --isa avx2\n"
		"nib check --op group_gemm --m 80,176,128 --n 4096 --k 7168\n"
		"nib check --op gemm --m 1:16+1 --n 64 --k 256 --rows 0\n"
		"nib check --preset seeds --format json > check.json\n",
    .groups = groups,
    .args_bytes = sizeof(struct check_args),
    .run = run_check,
};
