/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_demo.c - nib demo: a small model quantised and run (demo_block.c), then
 * every seed shape on the fastest backend, checked against the exact oracle,
 * timed next to other libraries and against this machine's limits, drawn as a
 * page.
 */
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "demo.h"
#include "measure.h"
#include "progress.h"
#include "report.h"

struct demo_args {
	struct cli_shared shared;
	const char *output, *preset, *model;
	int size; /* of the model: an index of demo_models */
	double min_time_s;
};

/* Rows of each matrix of C that are compared with the exact result. */
#define CHECK_ROWS 2
#define SEED	   1

static void print_end(const struct rows *rows, long long shapes, const char *output)
{
	char *path = realpath(output, NULL);

	table_note(rows->table,
		   "\n%lld of %lld shapes correct: %.0f elements compared with "
		   "the exact result, %d random",
		   (long long)rows->ok, shapes, rows->checked, CHECK_ROWS);
	table_note(rows->table,
		   "rows of every matrix of C.  Weights packed beforehand, "
		   "operands out of the caches.");
	table_note(rows->table, "report: %s", path ? path : output);
	free(path);
}

/* What the demo compares with: each library in its best type, if it is here. */
static bool is_wanted(const struct baseline_engine *engine)
{
	return engine->open && engine != &baseline_onednn_f32 &&
	       engine != &baseline_onednn_f32_avx2;
}

static bool has_baselines(const struct measure_run *run)
{
	for (int i = 0; i < BASELINES; i++) {
		if (run->baselines[i])
			return true;
	}
	return false;
}

/* Columns that say the same in every row, or nothing, are left out. */
static void begin_table(struct measure_run *run, const struct shape_list *list,
			const struct demo_args *args)
{
	static const char *const always[] = {"backend", "threads", "layout", "dtype",
					     "out",	"packed",  "error",  "bound"};
	const int n_always = sizeof always / sizeof *always;
	const char *hidden[ROWS_OTHER_KIND + 11];
	int n = n_always;

	memcpy(hidden, always, sizeof always);
	n += rows_hide_other_kind(false, hidden + n);
	if (!args->model)
		hidden[n++] = "activations";
	if (!has_baselines(run))
		hidden[n++] = "against_baselines";
	hidden[n] = NULL;
	run->rows.ours_only = true;
	rows_begin(&run->rows, args->shared.format, hidden, shapes_width(list, 0));
	if (!has_baselines(run))
		table_note(run->rows.table,
			   "No other library to compare with: install oneDNN or "
			   "OpenBLAS (tools/setup.sh baselines) and build again.");
}

/* Said before the numbers; the end says it of the whole run. */
static void warn_if_busy(struct measure_run *run)
{
	const struct machine_load *load = &run->load;

	measure_load(run);
	if (load->others < MACHINE_BUSY)
		return;
	table_note(run->rows.table,
		   "\nThe machine is busy: other programs use %.1f of %.0f "
		   "processors (load average %.1f).",
		   load->others, load->processors, load->average);
	table_note(run->rows.table,
		   "Times are too long, those of other libraries most: their "
		   "threads wait for each other.");
}

/* The first of_block shapes of the list are the block's. */
static int run_shapes(struct measure_run *run, const struct shape_list *list,
		      int64_t of_block, const struct demo_args *args, int threads)
{
	struct measure_options options = {
	    .threads = threads,
	    .data = {.fill = DATA_FULL, .seed = SEED},
	    .isas = &args->shared.device.isa,
	    .n_isas = 1,
	    .packed = true,
	    .timed = JOB_RUN,
	    .min_time_s = args->min_time_s > 1e-6 ? args->min_time_s : 1e-6,
	    .min_samples = 7,
	    .check_rows = CHECK_ROWS,
	};
	int code = CLI_OK, end;

	begin_table(run, list, args);
	warn_if_busy(run);
	if (of_block)
		table_note(run->rows.table, "\nThe layers of the block, W4A16:");
	progress_begin("running", (double)list->count, 0);
	for (int64_t i = 0; i < list->count && !code; i++) {
		options.shape = &list->shapes[i];
		options.data.activations = i < of_block ? ACT_BF16 : ACT_NVFP4;
		options.data.out = i < of_block ? NIB_DTYPE_BF16 : NIB_DTYPE_FP16;
		code = measure_shape(run, &options);
		if (code || i + 1 != of_block)
			continue;
		demo_add_blocks(&demo_models[args->size], list, &run->rows);
		table_note(run->rows.table,
			   "\nThe shapes of the preset %s, W4A4:", args->preset);
	}
	progress_end();
	if (!code) {
		measure_peak_rows(run, run->rows.all);
		code = report_write(args->output, run->rows.all, "nib demo");
	}
	if (!code)
		print_end(&run->rows, list->count, args->output);
	end = rows_end(&run->rows);
	return code ? code : end;
}

/* Files are written: signals wait until what was begun is removed. */
static int show_model(const struct demo_args *args, bool for_people)
{
	int code;

	cli_catch_signals(1);
	code = demo_show_model(&demo_models[args->size], args->model, for_people,
			       args->shared.quiet);
	cli_catch_signals(0);
	return code ? code : cli_stopped();
}

static int run_demo(const void *args_)
{
	const struct demo_args *args = args_;
	const struct data_options baseline_data = {.fill = DATA_FULL, .seed = SEED};
	struct measure_run run;
	struct shape_list list = {0};
	struct nib_device *device = NULL;
	const bool for_people = args->shared.format <= TABLE_FORMAT_MD;
	int64_t of_block;
	int code = measure_begin(&run);

	/* Before the work, so that a place that cannot be written costs none. */
	if (!code)
		code = cli_check_output(args->output, NULL, 0, 1);
	if (!code && args->model)
		code = demo_add_shapes(&demo_models[args->size], &list);
	of_block = list.count;
	if (!code)
		code = shapes_add_preset(&list, args->preset, -1);
	if (!code) {
		measure_start_baselines(&run, &list, &baseline_data);
		measure_keep_baselines(&run, is_wanted);
		code = cli_open_device(&args->shared.device, &device);
	}
	if (!code && for_people)
		printf("%s on %s, %d threads\n\n", cli_backend(device), run.machine,
		       cli_threads(device));
	if (!code && args->model)
		code = show_model(args, for_people);
	if (!code)
		code = run_shapes(&run, &list, of_block, args, cli_threads(device));
	if (!code && run.rows.ok < list.count)
		code = CLI_FOUND;
	nib_device_close(device);
	measure_end(&run);
	shapes_free(&list);
	return code;
}

#define ARG(member) offsetof(struct demo_args, member)
static const struct cli_option options[] = {
    {"output", OPT_FILE, ARG(output), "FILE", "report.html", .letter = 'o',
     .help = "the page to write; an older one is replaced"},
    {"model", OPT_FILE, ARG(model), "DIR",
     .help = "first make a Llama of one block in the new folder DIR, quantise "
	     "and run it; it stays there"},
    {"size", OPT_CHOICE, ARG(size), DEMO_SIZE_WORDS, "1b",
     .help = "the sizes of that Llama's block: those of Llama 3.2 1B, or tiny"},
    {"preset", OPT_WORD, ARG(preset), SHAPE_PRESET_WORDS, "seeds",
     .help = "the shapes to run"},
    {"min-time", OPT_DOUBLE, ARG(min_time_s), "SECONDS", "0.4",
     .help = "least time of the timed runs of a shape, together"},
    {0},
};

const struct cli_command command_demo = {
    .name = "demo",
    .summary = "run a small model and every seed shape: checked, timed, drawn",
    .positional = "",
    .description =
	"With --model: writes a Llama of one decoder block with random weights in\n"
	"bf16, runs nib quantize, inspect, verify and run on it, and measures the\n"
	"linear layers of the block for one token and for 128.\n"
	"\n"
	"Then runs the shapes of the GPU MODE NVFP4 problems on the fastest backend of\n"
	"this machine's CPU, prints a row for each and draws them all as a page, next\n"
	"to oneDNN, OpenBLAS and ggml where nib was built with them.  Two random rows\n"
	"of every result are compared with the exact sum.  \"of limit\" is the least\n"
	"time that this machine could need, over the time taken.  nib exits with 1 if\n"
	"a result is outside its error bound.\n",
    .examples = "nib demo\n"
		"nib demo --model llama-demo\n"
		"nib demo --isa avx2 --output avx2.html\n",
    .groups = (const struct cli_group[]){{"Demo", options, 0},
					 CLI_CPU_GROUP,
					 CLI_LAST_GROUPS},
    .args_bytes = sizeof(struct demo_args),
    .run = run_demo,
};
