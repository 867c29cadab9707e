/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_tune.c - nib tune: the costs of tiles on a GPU, measured on this
 * machine and kept in a file (tuning.h).
 */
#include <stdbool.h>
#include <stdio.h>

#include "cli.h"
#include "progress.h"
#include "table.h"
#include "tile_costs.h"
#include "tuning.h"

/* Costs are kept unless groups are slower with them than noise explains. */
#define LEAST_GAIN 0.99

struct tune_args {
	struct cli_shared shared;
	const char *device;
	double min_time_s;
	int64_t samples;
	int dry_run, reset, keep;
};

static const struct table_column columns[] = {
    {.key = "cost", .title = "cost"},
    {.key = "rows", .title = "tile rows"},
    {.key = "before_cycles", .title = "before", .print = "%.0f cycles"},
    {.key = "cycles", .title = "now", .print = "%.0f cycles"},
    {.key = "change", .title = "change", .print = "%+.1f %%", .scale = 100},
    {.key = "device"},
    {.key = "version"},
    {.key = "machine"},
    {0},
};

static void put_cost(struct table *table, const struct nib_device *device,
		     const char *cost, int rows, int before, int now)
{
	table_text(table, "cost", cost);
	if (rows)
		table_int(table, "rows", rows);
	table_number(table, "before_cycles", before);
	table_number(table, "cycles", now);
	table_number(table, "change", (double)now / before - 1);
	table_text(table, "device", cli_backend(device));
	table_text(table, "version", nib_version());
	table_text(table, "machine", cli_machine(device));
	table_end_row(table);
}

static int print_costs(const struct tune_args *args, const struct nib_device *device,
		       const struct nib_costs *before, const struct nib_costs *now,
		       const char *note)
{
	struct table *table = table_new(columns, args->shared.format, 0);

	for (int i = 0; i < now->sizes; i++)
		put_cost(table, device, "k64 step", now->tile_rows[i],
			 before->step_cycles[i], now->step_cycles[i]);
	put_cost(table, device, "tile", 0, before->tile_cycles, now->tile_cycles);
	put_cost(table, device, "split-k", 0, before->split_cycles, now->split_cycles);
	table_note(table, "%s", note);
	return table_end(table);
}

/*
 * The costs of this machine in place of *costs; *gain below 1: they would make
 * groups slower.
 */
static int measure(const struct tune_args *args, struct nib_costs *costs,
		   bool *has_split, double *gain)
{
	const struct tile_costs_options options = {
	    .device = args->device,
	    .min_time_s = args->min_time_s > 1e-6 ? args->min_time_s : 1e-6,
	    .min_samples = (int)args->samples,
	};
	struct nib_error err = {0};
	struct tile_costs out;
	enum nib_status status;

	progress_begin("measuring", tile_costs_steps(costs), 0);
	status = tile_costs_measure(&options, costs, &out, &err);
	progress_end();
	if (status)
		return cli_fail(args->device, &err);
	/* Half a table would compare what was measured with what was not. */
	if (out.missed)
		return cli_error(CLI_FAILED,
				 "%s: %d of %d costs are lost in the noise, so "
				 "nothing is changed: is it busy? try "
				 "--min-time 1",
				 args->device, out.missed, costs->sizes + 1);
	*costs = out.costs;
	*has_split = out.has_split;
	*gain = out.gain;
	return CLI_OK;
}

/* Measures, or takes the built-in costs; note says what was done. */
static int tune(const struct tune_args *args, struct nib_device *device,
		struct tuning *tuning, struct nib_costs *costs, char *note,
		size_t note_bytes)
{
	struct nib_error err = {0};
	bool has_split = true;
	double gain = 1;
	enum nib_status status;
	int code = args->reset ? CLI_OK : measure(args, costs, &has_split, &gain);

	if (code)
		return code;
	if (gain < LEAST_GAIN && !args->keep) {
		snprintf(note, note_bytes,
			 "not written: with the measured costs groups of eight "
			 "take %.0f %% longer than with those in use, which "
			 "stay (--keep writes them all the same)",
			 100 * (1 / gain - 1));
		return CLI_OK;
	}
	status = nib_device_set_costs(device, args->reset ? NULL : costs, &err);
	if (!status)
		status = nib_device_get_costs(device, costs, &err);
	if (!status && !args->dry_run)
		status = tuning_save(device, tuning, &err);
	if (status)
		return cli_fail(args->device, &err);
	snprintf(note, note_bytes, "%s%s%s",
		 has_split ? "" : "the cost of split-k could not be measured; ",
		 args->dry_run ? "not written" : "written to ",
		 args->dry_run ? "" : tuning->path);
	return CLI_OK;
}

static int run_tune(const void *args_)
{
	const struct tune_args *args = args_;
	const struct device_args device_args = {.device = args->device};
	struct nib_costs before = {.struct_bytes = sizeof(before)}, now;
	struct nib_device *device;
	struct tuning tuning;
	struct nib_error err;
	char note[1200];
	int code = cli_check_timed(args->device);

	if (!code)
		code = cli_open_device(&device_args, &device);
	if (code)
		return code;
	if (nib_device_get_costs(device, &before, &err))
		code = cli_fail(NULL, &err);
	now = before;
	tuning_load(device, &tuning);
	if (!code && !args->dry_run && !*tuning.path)
		code = cli_error(CLI_FAILED, "%s: its costs cannot be kept: %s",
				 args->device, tuning.reason);
	if (!code)
		code = tune(args, device, &tuning, &now, note, sizeof(note));
	if (!code)
		code = print_costs(args, device, &before, &now, note);
	nib_device_close(device);
	return code;
}

#define ARG(member) offsetof(struct tune_args, member)
static const struct cli_option options[] = {
    {"device", OPT_TEXT, ARG(device), "NAME", "cuda:0",
     .help = "the GPU: cuda:0, cuda:1, ... (nib info lists them)"},
    {"dry-run", OPT_FLAG, ARG(dry_run), .letter = 'n',
     .help = "measure and print, write nothing"},
    {"reset", OPT_FLAG, ARG(reset),
     .help = "measure nothing: back to the costs that are built in"},
    {"keep", OPT_FLAG, ARG(keep),
     .help = "write what was measured even where groups are slower with it"},
    {"min-time", OPT_DOUBLE, ARG(min_time_s), "SECONDS", "0.1",
     .help = "least time of the timed runs of a product"},
    {"samples", OPT_INT, ARG(samples), "N", "15", .min = 1, .max = 100000,
     .help = "least number of timed runs of a product"},
    {0},
};

static const struct cli_group groups[] = {
    {"Tuning", options, 0},
    CLI_LAST_GROUPS,
};

const struct cli_command command_tune = {
    .name = "tune",
    .summary = "measure the costs of tiles on a GPU, and store them",
    .positional = "",
    .description =
	"The planner of a GPU divides a product into tiles, and chooses their size\n"
	"by the cost of a tile of each size.  The costs of an H200 are built in.\n"
	"nib tune measures the costs on this machine, by about 50 products in half\n"
	"a minute.  It prints them next to those in use, and writes them to a file\n"
	"that nib and the Python package read when they open the device.  Programs\n"
	"in C set the costs of a device by nib_device_set_costs().\n"
	"\n"
	"The time of a tile is the time of two tiles on every multiprocessor minus\n"
	"the time of one, in cycles of the clock that is measured meanwhile.  Two\n"
	"lengths of k give the cost of a k64 step (64 values of k) and the fixed\n"
	"cost of a tile; split-k is the cost of adding two slices of k.\n"
	"Then two groups of products are timed with both tables.  If the measured\n"
	"costs make them slower, those in use stay.  The bits of results depend on\n"
	"the costs only with split-k (docs/numerics.md).\n"
	"\n"
	"The file is nibblas/tune-GPU-MULTIPROCESSORS-VERSION.json in\n"
	"$XDG_CACHE_HOME or ~/.cache.  NIB_TUNING names another one; NIB_TUNING=off\n"
	"reads none.  A file that is damaged, or of another GPU or version, is not\n"
	"used; nib info reports which costs are used, and why.\n",
    .examples =
	"nib tune\n"
	"nib tune --device cuda:1 --dry-run\n"
	"nib tune --min-time 0.5               # a machine that is busy\n"
	"nib tune --reset\n"
	"NIB_TUNING=off nib bench --device cuda:0   # with the built-in costs\n",
    .groups = groups,
    .args_bytes = sizeof(struct tune_args),
    .run = run_tune,
};
