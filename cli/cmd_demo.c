/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_demo.c - nib demo: every seed shape on the fastest backend, checked
 * against the exact oracle, timed against this machine's limits, drawn as a
 * page.
 */
#include <stdlib.h>

#include "cli.h"
#include "measure.h"
#include "progress.h"
#include "report.h"

struct demo_args {
	struct cli_shared shared;
	const char *output, *preset;
	double min_time_s;
};

/* Rows of each matrix of C that are compared with the exact result. */
#define CHECK_ROWS 2
#define SEED	   1

static void print_end(const struct rows *rows, long long shapes,
		      const char *output)
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

static int run_shapes(struct measure_run *run, const struct shape_list *list,
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
	struct measure_options options = {
	    .threads = threads,
	    .data = {.out = NIB_FP16, .fill = DATA_FULL, .seed = SEED},
	    .isas = &args->shared.device.isa,
	    .n_isas = 1,
	    .packed = true,
	    .timed = JOB_RUN,
	    .min_time_s = args->min_time_s > 1e-6 ? args->min_time_s : 1e-6,
	    .min_samples = 7,
	    .check_rows = CHECK_ROWS,
	};
	int code = CLI_OK, end;

	rows_begin(&run->rows, args->shared.format, hidden,
		   shapes_width(list, 0));
	progress_begin("running", (double)list->count, 0);
	for (int64_t i = 0; i < list->count && !code; i++) {
		options.shape = &list->shapes[i];
		code = measure_shape(run, &options);
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

static int run_demo(const void *args_)
{
	const struct demo_args *args = args_;
	struct measure_run run;
	struct shape_list list = {0};
	struct nib_device *device = NULL;
	int code = measure_begin(&run);

	if (!code)
		code = shapes_add_preset(&list, args->preset, -1);
	if (!code)
		code = cli_open_device(&args->shared.device, &device);
	if (!code) {
		if (args->shared.format <= TABLE_FORMAT_MD)
			printf("%s on %s, %d threads\n\n", cli_backend(device),
			       run.machine, cli_threads(device));
		code = run_shapes(&run, &list, args, cli_threads(device));
	}
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
    {"preset", OPT_WORD, ARG(preset), SHAPE_PRESET_WORDS, "seeds",
     .help = "the shapes to run"},
    {"min-time", OPT_DOUBLE, ARG(min_time_s), "SECONDS", "0.4",
     .help = "least time of the timed runs of a shape, together"},
    {0},
};

const struct cli_command command_demo = {
    .name = "demo",
    .summary = "run every seed shape: checked, timed, drawn",
    .positional = "",
    .description =
	"Runs the shapes of the GPU MODE NVFP4 problems on the fastest backend of\n"
	"this machine's CPU, prints a row for each and draws them all as a page.  Two\n"
	"random rows of every result are compared with the exact sum.  \"of limit\" is\n"
	"the least time that this machine could need, over the time taken.  nib\n"
	"exits with 1 if a result is outside its error bound.\n",
    .examples = "nib demo\n"
		"nib demo --isa avx2 --output avx2.html\n",
    .groups = (const struct cli_group[]){{"Demo", options, 0},
					 CLI_CPU_GROUP,
					 CLI_LAST_GROUPS},
    .args_bytes = sizeof(struct demo_args),
    .run = run_demo,
};
