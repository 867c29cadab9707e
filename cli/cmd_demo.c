/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_demo.c - nib demo: every seed shape on the fastest backend, checked against
 * the exact oracle, timed against this machine's limits, drawn as a page.
 */
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "measure.h"
#include "progress.h"
#include "report.h"
#include "rows.h"

struct demo_args {
	struct device_args device;
	struct format_args format;
	struct common_args common;
	const char *output, *preset;
	double min_time_s;
};

/* Rows of each matrix of C that are compared with the exact result. */
#define CHECK_ROWS 2
#define SEED	   1

struct demo {
	struct measure_run run;
	struct rows_table table;
	json_t *rows;
	int64_t done, failed;
	double checked;
	char item[SHAPE_TEXT + 16];
};

static void tick(void *arg, double done)
{
	struct demo *demo = arg;

	progress_update((double)demo->done + done, demo->item);
}

/* The rows that one shape appended: prints and counts them. */
static void take_rows(struct demo *demo, size_t first)
{
	for (size_t i = first; i < json_array_size(demo->rows); i++) {
		const json_t *row = json_array_get(demo->rows, i);

		rows_table_add(&demo->table, row);
		demo->failed += !json_is_true(json_object_get(row, "ok"));
		demo->checked += row_get_number(row, "checked");
	}
}

static int run_shape(struct demo *demo, const struct shape *shape,
		     const struct demo_args *args, int threads)
{
	const struct measure_options options = {
	    .shape = shape,
	    .threads = threads,
	    .data = {.out = NIB_FP16, .fill = DATA_FULL, .seed = SEED},
	    .isas = &args->device.isa,
	    .n_isas = 1,
	    .packed = true,
	    .timed = JOB_RUN,
	    .min_time_s = args->min_time_s > 1e-6 ? args->min_time_s : 1e-6,
	    .min_samples = 7,
	    .check_rows = CHECK_ROWS,
	    .tick = tick,
	    .arg = demo,
	};
	size_t first = json_array_size(demo->rows);
	struct nib_error err = {0};
	char text[SHAPE_TEXT];

	snprintf(demo->item, sizeof demo->item, "%s %s",
		 shape_op_names[shape->op], shape_text(shape, text));
	progress_update((double)demo->done, demo->item);
	if (measure_shape(&demo->run, &options, demo->rows, &err))
		return cli_fail(demo->item, &err);
	take_rows(demo, first);
	demo->done++;
	return CLI_OK;
}

static void print_end(struct demo *demo, const char *output)
{
	char *path = realpath(output, NULL);
	struct table *table = demo->table.table;

	table_note(table,
		   "\n%lld of %lld shapes correct: %.0f elements compared with "
		   "the exact result, %d random",
		   (long long)(demo->done - demo->failed),
		   (long long)demo->done, demo->checked, CHECK_ROWS);
	table_note(table,
		   "row%s of every matrix of C.  Weights packed beforehand, "
		   "operands out of the caches.",
		   CHECK_ROWS == 1 ? "" : "s");
	table_note(table, "report: %s", path ? path : output);
	free(path);
}

static int widest_shape(const struct shape_list *list)
{
	char text[SHAPE_TEXT];
	size_t width = 0;

	for (int64_t i = 0; i < list->count; i++) {
		size_t n = strlen(shape_text(&list->shapes[i], text));

		width = n > width ? n : width;
	}
	return (int)width;
}

static int run_shapes(struct demo *demo, const struct shape_list *list,
		      const struct demo_args *args, int threads)
{
	static const char *const hidden[] = {"layout",
					     "dtype",
					     "out",
					     "packed",
					     "threads",
					     "backend",
					     "against_baselines",
					     NULL};
	int code = CLI_OK, end;

	rows_table_begin(&demo->table, (enum table_format)args->format.format,
			 hidden, widest_shape(list));
	progress_begin("running", (double)list->count, 0);
	for (int64_t i = 0; i < list->count && !code; i++)
		code = run_shape(demo, &list->shapes[i], args, threads);
	progress_end();
	if (!code) {
		measure_peak_rows(&demo->run, demo->rows);
		code = report_write(args->output, demo->rows, "nib demo");
	}
	if (!code)
		print_end(demo, args->output);
	end = rows_table_end(&demo->table);
	return code ? code : end;
}

static int run_demo(const void *args_, char *const *files, int n_files)
{
	const struct demo_args *args = args_;
	struct demo demo = {.rows = json_array()};
	struct shape_list list = {0};
	struct nib_device *device = NULL;
	int code = shapes_add_preset(&list, args->preset, -1);

	(void)files;
	(void)n_files;
	progress_set_quiet(args->common.quiet);
	if (!code)
		code = cli_open_device(&args->device, &device);
	if (!code && (!measure_begin(&demo.run) || !demo.rows))
		code = cli_no_memory("measurement");
	if (!code) {
		if (args->format.format <= TABLE_FORMAT_MD)
			printf("%s on %s, %d threads\n\n", cli_backend(device),
			       demo.run.machine, cli_threads(device));
		code = run_shapes(&demo, &list, args, cli_threads(device));
	}
	nib_device_close(device);
	measure_end(&demo.run);
	json_decref(demo.rows);
	shapes_free(&list);
	return code ? code : demo.failed ? CLI_FOUND : CLI_OK;
}

static const struct cli_option options[] = {
    {.name = "output",
     .letter = 'o',
     .kind = OPT_FILE,
     .offset = offsetof(struct demo_args, output),
     .value = "FILE",
     .fallback = "report.html",
     .help = "the page to write, over what is there"},
    {.name = "preset",
     .kind = OPT_WORD,
     .offset = offsetof(struct demo_args, preset),
     .value = "seeds|cpu|small",
     .fallback = "seeds",
     .help = "the set of shapes"},
    {.name = "min-time",
     .kind = OPT_DOUBLE,
     .offset = offsetof(struct demo_args, min_time_s),
     .value = "SECONDS",
     .fallback = "0.4",
     .help = "least time of the timed runs of a shape"},
    {0},
};

static const struct cli_group groups[] = {
    {"Demo", options, 0},
    {"Device", device_options, offsetof(struct demo_args, device)},
    {"Output", format_options, offsetof(struct demo_args, format)},
    {"Messages", common_options, offsetof(struct demo_args, common)},
    {0},
};

const struct cli_command command_demo = {
    .name = "demo",
    .summary = "run every seed shape: checked, timed, drawn",
    .positional = "",
    .description =
	"Runs the shapes of the GPU MODE NVFP4 problems on the fastest backend of\n"
	"this machine.  Each result is compared with the exact oracle on a\n"
	"random row of every matrix, timed, and put beside the least time that\n"
	"this machine could need.  nib exits with 1 if a result is outside its\n"
	"error bound.\n",
    .examples = "nib demo\n"
		"nib demo --isa avx2 --output avx2.html\n",
    .groups = groups,
    .args_bytes = sizeof(struct demo_args),
    .run = run_demo,
};
