/* SPDX-License-Identifier: Apache-2.0 */
/* predict.c - predicted times of the GPU in software: see predict.h. */
#include "predict.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "message.h"
#include "progress.h"
#include "text.h"

int predict_begin(const char *device)
{
	if (strcmp(device, "emu:h200") && strcmp(device, "emu:h100") &&
	    strcmp(device, "emu:b200"))
		return cli_error(CLI_USAGE,
				 "--device %s: there is no table of times to "
				 "predict with; emu:h200, emu:h100 and emu:b200 have "
				 "one",
				 device);
	return setenv("NIBEMU_TIME", "1", 1) ? cli_no_memory("environment") : CLI_OK;
}

/* ---- the library's report ------------------------------------------------ */

/* The two functions of emu/src/driver/prediction.c. */
struct predictor {
	void *library;
	int (*begin)(void);
	char *(*report)(void);
};

static bool find_predictor(struct predictor *p)
{
	const char *path = secure_getenv("NIB_CUDA_LIBRARY");

	p->library = path ? dlopen(path, RTLD_NOW | RTLD_NOLOAD) : NULL;
	if (!p->library)
		return false;
	/* ISO C has no cast from an object's pointer to a function's. */
	*(void **)&p->begin = dlsym(p->library, "nibemu_prediction_begin");
	*(void **)&p->report = dlsym(p->library, "nibemu_prediction_report");
	return p->begin && p->report;
}

/* ---- rows ---------------------------------------------------------------- */

/* Writes the shares of at least 1 % as "a 31 %, b 8 %". */
static void add_shares(char *text, size_t bytes, const json_t *shares)
{
	const char *name;
	json_t *share;
	size_t used;

	json_object_foreach((json_t *)shares, name, share)
	{
		const double percent = 100 * json_number_value(share);

		used = strlen(text);
		if (percent >= 1)
			snprintf(text + used, bytes - used, "%s%s %.0f %%",
				 used ? ", " : "", name, percent);
	}
}

/* The grid that took longest.  The columns of the table describe only this one. */
static const json_t *longest_grid(const json_t *report)
{
	const json_t *grids = json_object_get(report, "grids"), *best = NULL;
	json_t *grid;
	size_t i;

	json_array_foreach((json_t *)grids, i, grid)
	{
		if (!best || row_get_number(grid, "us") > row_get_number(best, "us"))
			best = grid;
	}
	return best;
}

/* Leaves the kernels of the last of `chain` runs, and their time. */
static void keep_last_run(json_t *report, int chain)
{
	json_t *grids = json_object_get(report, "grids"), *grid;
	size_t earlier = json_array_size(grids);
	double us = 0;
	size_t i;

	for (earlier -= earlier / (size_t)chain; earlier > 0; earlier--)
		json_array_remove(grids, 0);
	json_array_foreach(grids, i, grid)
	{
		us += row_get_number(grid, "us");
	}
	json_object_set_new(report, "us", json_real(us));
}

static void set_prediction(json_t *row, json_t *report)
{
	const json_t *grid = longest_grid(report);
	const json_t *wait = json_object_get(grid, "longest_wait");
	char text[512] = "";

	row_bool(row, "predicted", true);
	row_number(row, "predicted_us", row_get_number(report, "us"));
	add_shares(text, sizeof text, json_object_get(grid, "busy"));
	row_text(row, "busy", text);
	*text = '\0';
	add_shares(text, sizeof text, json_object_get(grid, "last_warp"));
	row_text(row, "last_warp", text);
	snprintf(text, sizeof text, "%s, line %.0f", row_get_text(wait, "instruction"),
		 row_get_number(wait, "line"));
	row_text(row, "longest_wait", wait ? text : "");
	json_object_set(row, "grids", json_object_get(report, "grids"));
}

static void set_command(const struct measure_run *run, const struct measure_options *o,
			json_t *row)
{
	char arguments[4096], line[4608];

	shape_arguments(o->shape, arguments, sizeof arguments);
	snprintf(line, sizeof line,
		 "nib bench %s --device %s --layout %s --activations %s --out "
		 "%s --dtype %s --%s --data %s --seed %llu --chain %d",
		 arguments, run->device, cli_layout_names[o->data.layout],
		 cli_activations_names[o->data.activations],
		 cli_dtype_names[o->data.out], cli_dtype_names[o->data.dtype],
		 o->packed ? "packed" : "unpacked",
		 o->data.fill == DATA_FULL ? "full" : "contest",
		 (unsigned long long)o->data.seed, o->chain);
	row_text(row, "command", line);
}

static int add_row(struct measure_run *run, const struct measure_options *o,
		   const struct job_info *info, const char *report)
{
	json_error_t why;
	json_t *parsed = json_loads(report, 0, &why), *row;

	if (!parsed)
		return cli_error(CLI_FAILED, "the prediction is no JSON: %s", why.text);
	row = measure_start_row(run, o, info->backend);
	if (o->chain > 1)
		keep_last_run(parsed, o->chain);
	row_number(row, "chain", o->chain);
	set_prediction(row, parsed);
	set_command(run, o, row);
	row_number(row, "flop", info->flop);
	row_number(row, "bytes", info->bytes_read + info->bytes_written);
	row_text(row, "plan", info->explanation);
	if (shape_is_multiply(o->shape)) {
		row_bool(row, "packed", o->packed);
		row_text(row, "activations",
			 cli_activations_names[o->data.activations]);
	}
	rows_add(&run->rows, row);
	json_decref(parsed);
	return CLI_OK;
}

/* ---- one shape ----------------------------------------------------------- */

/* Runs the job `chain` times, with an empty L2.  The caller frees the report. */
static enum nib_status run_chain(struct job *job, int chain, char **report,
				 struct nib_error *err)
{
	struct predictor p;
	enum nib_status status;
	double seconds;

	*report = NULL;
	if (!find_predictor(&p) || p.begin()) {
		snprintf(err->message, sizeof err->message,
			 "the GPU in software is one that predicts no times");
		return NIB_STATUS_UNSUPPORTED;
	}
	status = job_sample(job, chain, &seconds, err);
	if (!status)
		*report = p.report();
	dlclose(p.library);
	return status;
}

int predict_shape(struct measure_run *run, const struct measure_options *o)
{
	struct job_options options = {.data = o->data,
				      .threads = o->threads,
				      .device = "cuda:0",
				      .timed = JOB_RUN,
				      .copies = o->chain};
	char text[SHAPE_TEXT], *report = NULL;
	struct nib_error err = {0};
	struct job *job = NULL;
	enum nib_status status;
	int code;

	options.data.packed = o->packed;
	progress_update(run->done, shape_text(o->shape, text));
	status = job_new(o->shape, &options, &job, &err);
	if (!status)
		status = run_chain(job, o->chain, &report, &err);
	run->done++;
	if (status)
		code = cli_fail_activations(text, &err, o->data.activations, 1);
	else if (!report)
		code = cli_no_memory("a prediction");
	else
		code = add_row(run, o, job_info(job), report);
	job_free(job);
	free(report);
	return code;
}
