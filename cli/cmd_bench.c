/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_bench.c - nib bench: the axes of a measurement (shapes, threads,
 * instruction sets, layouts, types), all combinations, one table.  bench/ does
 * the measuring.
 */
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "measure.h"
#include "predict.h"
#include "progress.h"
#include "shapes.h"

struct bench_args {
	struct cli_shared shared;
	struct shape_args shapes;
	/* lists, so not those of shared */
	const char *device, *threads, *isa, *layout, *out, *dtype;
	const char *activations;
	int packed, unpacked, baselines, peaks, plan;
	enum data_fill fill;
	enum { CHECK_SAMPLE, CHECK_ALL, CHECK_NONE } check;
	double min_time_s;
	int64_t samples, chain, seed;
};

#define MAX_AXIS 16

/* The values of --threads, --layout, --activations, --out or --dtype. */
struct axis {
	int values[MAX_AXIS];
	int count;
};

struct bench {
	const struct bench_args *args;
	struct measure_run run;
	struct shape_list list;
	struct axis threads, layout, activations, out, dtype;
	const char *isas[MAX_AXIS];
	int n_isas;
};

/* ---- lists --------------------------------------------------------------- */

/* Adds the value of each word of "a,b,c"; value is -1 for a wrong word. */
static int read_list(const char *option, const char *list, const char *words,
		     int (*value)(const char *words, const char *word),
		     struct axis *axis)
{
	char word[32];

	while (*list) {
		size_t length = strcspn(list, ",");
		int n;

		if (axis->count == MAX_AXIS)
			return cli_error(CLI_USAGE, "--%s: more than %d values", option,
					 MAX_AXIS);
		snprintf(word, sizeof word, "%.*s", (int)length, list);
		n = length < sizeof word ? value(words, word) : -1;
		if (n < 0)
			return cli_error(CLI_USAGE, "--%s %.*s: not one of %s", option,
					 (int)length, list, words);
		axis->values[axis->count++] = n;
		list += length + (list[length] == ',');
	}
	return CLI_OK;
}

static int threads_value(const char *words, const char *word)
{
	int64_t n;

	(void)words;
	if (cli_parse_int(word, &n) || n < 1 || n > PEAK_MAX_THREADS)
		return -1;
	return (int)n;
}

/* The instruction set of a backend of the CPU, else NULL. */
static const char *cpu_isa(int backend, bool *is_open)
{
	struct nib_backend_info info = {.struct_bytes = sizeof info};

	if (nib_backend_get_info(backend, &info, NULL) ||
	    strncmp(info.backend, "cpu-", 4))
		return NULL;
	*is_open = info.is_open;
	return strchr(info.backend, '-') + 1;
}

/* "all" = every instruction set that this machine has. */
static int read_isas(struct bench *bench, const char *list)
{
	/* avx512: an older name of avx512vnni. */
	static const char words[] = "scalar|avx2|avxvnni|avx512bw|avx512vnni|amx|neon|"
				    "neondot|neoni8mm|neonbf16|all|avx512";
	struct axis axis = {.count = 0};
	const int all = cli_word_index(words, "all");
	int code = read_list("isa", list, words, cli_word_index, &axis);
	bool is_open;

	for (int i = 0; i < axis.count; i++)
		for (int j = 0; j < nib_backend_count(); j++) {
			const char *isa = cpu_isa(j, &is_open);
			int wanted = axis.values[i];

			if (wanted == cli_word_index(words, "avx512"))
				wanted = cli_word_index(words, "avx512vnni");
			if (!isa || bench->n_isas == MAX_AXIS)
				continue;
			if (wanted == all ? is_open
					  : cli_word_index(words, isa) == wanted)
				bench->isas[bench->n_isas++] = isa;
		}
	return code;
}

static int read_axes(struct bench *bench)
{
	const struct bench_args *args = bench->args;
	int code = read_list("layout", args->layout, CLI_LAYOUT_WORDS, cli_word_index,
			     &bench->layout);

	if (!code)
		code =
		    read_list("activations", args->activations, CLI_ACTIVATIONS_WORDS,
			      cli_word_index, &bench->activations);
	if (!code)
		code = read_list("out", args->out, CLI_DTYPE_WORDS, cli_word_index,
				 &bench->out);
	if (!code)
		code = read_list("dtype", args->dtype, CLI_DTYPE_WORDS, cli_word_index,
				 &bench->dtype);
	if (!code && args->threads)
		code = read_list("threads", args->threads, "1 to 1024", threads_value,
				 &bench->threads);
	if (!code && args->isa)
		code = read_isas(bench, args->isa);
	if (!bench->n_isas)
		bench->isas[bench->n_isas++] = NULL; /* the best */
	return code;
}

/* Opens the device, whose kind decides which options are allowed, and sets defaults. */
static int read_device(struct bench *bench)
{
	const struct bench_args *args = bench->args;
	const struct device_args device_args = {.device = args->device};
	struct nib_device *device;
	struct nib_error err;
	int code = CLI_OK, on_gpu;

	bench->run.predicts = args->device && cli_is_emu(args->device);
	if (bench->run.predicts && (args->peaks || args->plan))
		return cli_error(CLI_USAGE, "--peaks and --plan measure, and a GPU in "
					    "software cannot be timed");
	if (bench->run.predicts)
		code = predict_begin(args->device);
	if (!code)
		code = cli_open_device(&device_args, &device);
	if (code)
		return code;
	on_gpu = !cli_is_host(device);
	if (on_gpu)
		snprintf(bench->run.machine, sizeof bench->run.machine, "%.159s",
			 cli_machine(device));
	if (!bench->threads.count)
		bench->threads = (struct axis){{cli_threads(device)}, 1};
	nib_device_close(device);
	if (!on_gpu)
		return CLI_OK;
	if (args->baselines || args->isa)
		return cli_error(CLI_USAGE,
				 "--baselines and --isa are of the CPU, not of "
				 "--device %s",
				 args->device);
	if (bench->run.predicts) {
		bench->run.on_gpu = true;
		snprintf(bench->run.device, sizeof bench->run.device, "%s",
			 args->device);
		return CLI_OK;
	}
	if (measure_use_gpu(&bench->run, args->device, &err))
		return cli_fail(args->device, &err);
	return CLI_OK;
}

/* ---- measuring ----------------------------------------------------------- */

/* The oracle sums about 1e8 terms a second, so a check takes about 0.5 s. */
#define SAMPLE_TERMS 5e7

static int64_t rows_to_check(const struct bench_args *args, const struct shape *shape)
{
	if (args->check == CHECK_NONE || args->plan)
		return -1;
	return args->check == CHECK_ALL ? 0 : shape_sample_rows(shape, SAMPLE_TERMS);
}

/* The number of values of an axis: 1 if the operation does not have it. */
static int activations_count(const struct bench *bench, const struct shape *shape)
{
	return shape_is_multiply(shape) ? bench->activations.count : 1;
}

static int out_count(const struct bench *bench, const struct shape *shape)
{
	return shape_is_multiply(shape) ? bench->out.count : 1;
}

static int dtype_count(const struct bench *bench, const struct shape *shape)
{
	return shape_is_multiply(shape) || shape->op == OP_CONVERT ? 1
								   : bench->dtype.count;
}

/* The number of combinations of the axes for a shape. */
static int combinations(const struct bench *bench, const struct shape *shape)
{
	return bench->threads.count * bench->layout.count *
	       activations_count(bench, shape) * out_count(bench, shape) *
	       dtype_count(bench, shape);
}

/* The value of an axis in combination *i, of count values; divides *i by count. */
static int next_value(const struct axis *axis, int count, int *i)
{
	const int value = axis->values[*i % count];

	*i /= count;
	return value;
}

/* All threads, layouts, activations and types of one shape. */
static int measure_axes(struct bench *bench, const struct shape *shape,
			enum job_timed timed)
{
	const struct bench_args *args = bench->args;
	struct measure_options options = {
	    .shape = shape,
	    .data = {.fill = args->fill,
		     .values = DATA_NORMAL,
		     .seed = (uint64_t)args->seed},
	    .isas = bench->isas,
	    .n_isas = bench->n_isas,
	    .packed = args->packed || !args->unpacked,
	    .unpacked = args->unpacked,
	    .timed = timed,
	    .min_time_s = args->min_time_s > 1e-6 ? args->min_time_s : 1e-6,
	    .min_samples = (int)args->samples,
	    .chain = (int)args->chain,
	    .check_rows = rows_to_check(args, shape),
	};
	int code = CLI_OK;

	for (int i = 0; i < combinations(bench, shape) && !code; i++) {
		int at = i;

		options.data.dtype = (enum nib_dtype)next_value(
		    &bench->dtype, dtype_count(bench, shape), &at);
		options.data.out = (enum nib_dtype)next_value(
		    &bench->out, out_count(bench, shape), &at);
		options.data.activations = (enum cli_activations)next_value(
		    &bench->activations, activations_count(bench, shape), &at);
		options.data.layout = (enum nib_scale_layout)next_value(
		    &bench->layout, bench->layout.count, &at);
		options.threads =
		    next_value(&bench->threads, bench->threads.count, &at);
		code = bench->run.predicts ? predict_shape(&bench->run, &options)
					   : measure_shape(&bench->run, &options);
	}
	return code;
}

/* ---- the table ----------------------------------------------------------- */

/* A table for people omits the columns that are equal in all rows. */
static void begin_table(struct bench *bench)
{
	const struct bench_args *args = bench->args;
	int n = 0, floats = 0;
	int width = shapes_width(&bench->list, (int)strlen("vpmaddubsw avx512"));
	const char *hidden[24];

	for (int64_t i = 0; i < bench->list.count; i++)
		floats |= bench->list.shapes[i].op == OP_QUANTIZE;
	if (args->plan) /* whose shapes begin with the operation */
		width += (int)strlen("group_gemm ");
	n = rows_hide_other_kind(bench->run.predicts, hidden);
	if (bench->layout.count < 2)
		hidden[n++] = "layout";
	if (bench->activations.count < 2 && bench->activations.values[0] == ACT_NVFP4)
		hidden[n++] = "activations";
	if (!floats)
		hidden[n++] = "dtype";
	if (bench->out.count < 2)
		hidden[n++] = "out";
	if (!args->unpacked || !args->packed)
		hidden[n++] = "packed";
	if (!args->baselines)
		hidden[n++] = "against_baselines";
	hidden[n] = NULL;
	rows_begin(&bench->run.rows, args->shared.format, hidden, width);
}

/* A table for people has the peaks as lines below it, because they have no time. */
static void note_peak(struct table *table, const json_t *row)
{
	bool bytes = row_get_number(row, "gbps") > 0;
	double threads = row_get_number(row, "threads");
	const char *pattern = row_get_text(row, "pattern");

	table_note(table, "  %-24s %4.0f thread%s %8.1f G%s/s%s%s",
		   row_get_text(row, "shape"), threads, threads > 1 ? "s" : " ",
		   row_get_number(row, bytes ? "gbps" : "gflops"),
		   row_get_text(row, "unit"), *pattern ? " by " : "", pattern);
}

/* "baselines: onednn-bf16 is oneDNN 3.6.2, ...". */
static void note_versions(const struct bench *bench)
{
	char text[512] = "";

	for (int i = 0; i < BASELINES; i++) {
		const struct baseline *baseline = bench->run.baselines[i];
		const char *version = baseline ? baseline_version(baseline) : "";
		const size_t used = strlen(text);

		if (*version)
			snprintf(text + used, sizeof text - used, "%s%s is %s",
				 used ? ", " : "",
				 baseline_engines[i]->backend + strlen("baseline:"),
				 version);
	}
	if (*text)
		table_note(bench->run.rows.table, "baselines: %s", text);
}

/* The peaks that were sampled on the way, or all of them with --peaks. */
static void print_peaks(struct bench *bench)
{
	struct rows *rows = &bench->run.rows;
	json_t *peaks = json_array(), *row;
	size_t i;

	for (int t = 0; bench->args->peaks && t < bench->threads.count; t++)
		peaks_sample_all(bench->run.peaks, bench->threads.values[t],
				 (int)bench->args->samples);
	measure_peak_rows(&bench->run, peaks);
	if (json_array_size(peaks))
		table_note(rows->table, "\nmeasured in the same run:");
	json_array_foreach(peaks, i, row)
	{
		if (table_is_for_people(rows->table))
			note_peak(rows->table, row);
		else
			rows_add(rows, json_incref(row));
	}
	json_decref(peaks);
}

static int measure_all(struct bench *bench)
{
	/* On a GPU --plan also measures the time to enqueue a run. */
	const bool queues = bench->args->plan && bench->run.on_gpu;
	struct rows *rows = &bench->run.rows;
	int code = CLI_OK, end, steps = 0;

	for (int64_t i = 0; i < bench->list.count; i++)
		steps += combinations(bench, &bench->list.shapes[i]);
	progress_begin("measuring", (double)steps * (queues ? 2 : 1), 0);
	begin_table(bench);
	for (int64_t i = 0; i < bench->list.count && !code; i++) {
		const struct shape *shape = &bench->list.shapes[i];

		code =
		    measure_axes(bench, shape, bench->args->plan ? JOB_PLAN : JOB_RUN);
		if (!code && queues)
			code = measure_axes(bench, shape, JOB_QUEUE);
	}
	if (!code)
		print_peaks(bench);
	progress_end();
	if (!code)
		note_versions(bench);
	if (!code)
		table_note(rows->table, "%s, nib %s, %s", bench->run.machine,
			   nib_version(), bench->run.date);
	end = rows_end(rows);
	if (!code && !end && rows->not_ok)
		return cli_error(CLI_FOUND, "%lld row%s outside the error bound",
				 (long long)rows->not_ok,
				 rows->not_ok == 1 ? " is" : "s are");
	return code ? code : end;
}

static int run_bench(const void *args_)
{
	const struct bench_args *args = args_;
	struct bench bench = {.args = args};
	const struct data_options baseline_data = {.fill = args->fill,
						   .seed = (uint64_t)args->seed};
	int code = measure_begin(&bench.run);

	if (!code)
		code = shapes_parse(&args->shapes, &bench.list);
	if (!code && !bench.list.count && !args->peaks)
		code = shapes_add_preset(&bench.list, "seeds", -1);
	if (!code)
		code = read_axes(&bench);
	if (!code)
		code = read_device(&bench);
	if (!code && args->baselines)
		measure_start_baselines(&bench.run, &bench.list, &baseline_data);
	if (!code)
		code = measure_all(&bench);
	measure_end(&bench.run);
	shapes_free(&bench.list);
	return code;
}

#define ARG(member) offsetof(struct bench_args, member)
static const struct cli_option options[] = {
    {"device", OPT_TEXT, ARG(device), "NAME", "cpu",
     .help = "where to compute: cpu, cuda:0, cuda:1, ... (nib info lists them); "
	     "emu:h200, emu:h100 and emu:b200 predict"},
    {"threads", OPT_TEXT, ARG(threads), "LIST",
     .help = "numbers of threads, as 1,2 (default: as many as processors that "
	     "this process may use)"},
    {"isa", OPT_TEXT, ARG(isa), "LIST",
     .help =
	 "instruction sets: some of scalar,avx2,avxvnni,avx512bw,avx512vnni,amx, "
	 "or scalar,neon,neondot,neoni8mm,neonbf16, or all that run here (default: the "
	 "best one)"},
    {"layout", OPT_TEXT, ARG(layout), "LIST", "linear",
     .help = "layouts of the block scales: linear,tiled"},
    {"activations", OPT_TEXT, ARG(activations), "LIST", "nvfp4",
     .help = "what A is: " CLI_ACTIVATIONS_HELP},
    {"out", OPT_TEXT, ARG(out), "LIST", CLI_OUT_DEFAULT,
     .help = "types of C: fp32,fp16,bf16"},
    {"dtype", OPT_TEXT, ARG(dtype), "LIST", "bf16",
     .help = "float types of quantize and dequantize: fp32,fp16,bf16"},
    {"packed", OPT_FLAG, ARG(packed),
     .help = "weights packed beforehand; the default unless --unpacked is given"},
    {"unpacked", OPT_FLAG, ARG(unpacked),
     .help = "weights as they are; with --packed: both, a row each"},
    {"baselines", OPT_FLAG, ARG(baselines),
     .help = "also oneDNN, OpenBLAS and ggml, in the same rounds, where "
	     "installed"},
    {"peaks", OPT_FLAG, ARG(peaks),
     .help = "also every peak of this machine; without a shape: only these"},
    {"plan", OPT_FLAG, ARG(plan),
     .help = "time making the plan instead of running it; on a GPU also what "
	     "enqueuing a run costs the host"},
    {"min-time", OPT_DOUBLE, ARG(min_time_s), "SECONDS", "0.3",
     .help = "least time of the timed runs of a row, together"},
    {"samples", OPT_INT, ARG(samples), "N", "11", .min = 1, .max = 100000,
     .help = "least number of timed runs of a row (fewer, but 3 or more, when "
	     "they take five times --min-time)"},
    {"chain", OPT_INT, ARG(chain), "N", "1", .min = 1, .max = 16,
     .help = "on a GPU in software: predict the last of N runs that are enqueued "
	     "one after the other, each with other operands"},
    {"check", OPT_CHOICE, ARG(check), "sample|all|none", "sample",
     .help = "rows of C to compare with the exact result"},
    {"seed", OPT_INT, ARG(seed), "N", "1", .max = INT64_MAX,
     .help = "seed of the random operands and of the rows to compare"},
    {"data", OPT_CHOICE, ARG(fill), DATA_FILL_WORDS, "full", .help = DATA_FILL_HELP},
    {0},
};

static const struct cli_group groups[] = {
    {"What to measure", shape_op_options, ARG(shapes)},
    {"", shape_options, ARG(shapes)},
    {"How", options, 0},
    CLI_LAST_GROUPS,
};

const struct cli_command command_bench = {
    .name = "bench",
    .summary = "measure speed against this machine's limits and other libraries",
    .positional = "",
    .description =
	"Times every combination of the shapes, threads, layouts, activations and\n"
	"types given and prints one row for each.  time is the median of the timed runs, with\n"
	"operands that are not in the caches; spread is what the middle half of the\n"
	"runs spans, over the median.  \"of limit\" is the least time that this\n"
	"machine could need, over the time taken.  That least time is the longer of\n"
	"two: the multiply-adds at the rate of the instruction named in \"limit\" (for\n"
	"up to 8 rows: at the rate of a GEMM), and the bytes at the bandwidth of\n"
	"memory.  On a GPU the rates are those of the tensor cores and of a long\n"
	"read.  They are measured in the same rounds as the rows and printed after\n"
	"them (op peak).  Rows above 100 % have the reason in limit_note of --format\n"
	"json: operands that are partly in caches, or a plain read that is slower.\n"
	"Otherwise the machine was busy with something else.\n"
	"\n"
	"Without a shape the shapes are those of --preset seeds.  A row of --format\n"
	"json has all its samples and the command that measures it again; nib report\n"
	"draws such rows.  nib exits with 1 when a result is outside its error bound.\n"
	"bench/README.md has the protocol.\n",
    .examples = "nib bench --preset seeds --baselines --threads 1,2\n"
		"nib bench --op gemm --shape 128x4096x7168 --isa all\n"
		"nib bench --op gemm --m 1:64+1 --n 4096 --k 7168   # cliffs?\n"
		"nib bench --preset decode --activations nvfp4,bf16,int8\n"
		"nib bench --preset amx --threads 1,4,16 --activations bf16,nvfp4 "
		"--baselines\n"
		"nib bench --op quantize --shape 4096x7168 --dtype fp32,bf16\n"
		"nib bench --op gemm --shape 128x4096x7168 --plan\n"
		"nib bench --peaks --threads 1,2\n"
		"nib bench --device cuda:0 --preset seeds\n"
		"nib bench --preset seeds --format json > rows.json\n",
    .groups = groups,
    .args_bytes = sizeof(struct bench_args),
    .run = run_bench,
};
