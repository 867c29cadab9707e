/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_bench.c - nib bench: the axes of a measurement (shapes, threads, backends,
 * layouts, outputs), all combinations, one table.  bench/ does the measuring.
 */
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "measure.h"
#include "progress.h"
#include "rows.h"
#include "shapes.h"

struct bench_args {
	struct shape_args shapes;
	struct format_args format;
	struct common_args common;
	const char *device, *threads, *isa, *layout, *out, *dtype;
	int packed, unpacked, baselines, peaks, plan, fill, check;
	double min_time_s;
	int64_t samples, seed;
};

enum check_rows { CHECK_SAMPLE, CHECK_ALL, CHECK_NONE };

#define MAX_AXIS 16
#define TOO_MANY 1 /* of add_*(), which return -1 for a wrong word */

/* One list of --threads, --isa, --layout, --out or --dtype. */
struct axis {
	const char *words; /* "a|b" of --layout, --out and --dtype */
	int values[MAX_AXIS];
	int count;
};

struct bench {
	const struct bench_args *args;
	struct measure_run run;
	struct shape_list list;
	struct axis threads, layout, out, dtype;
	const char *isas[MAX_AXIS];
	int n_isas;
	struct rows_table table;
	int64_t not_ok;
	double steps, done_steps; /* contests */
	char item[SHAPE_TEXT + 32];
};

/* ---- lists --------------------------------------------------------------- */

/*
 * Calls add for each word of "a,b,c", stops at the first nonzero.  words:
 * what there are.
 */
static int for_words(const char *option, const char *list, const char *words,
		     int (*add)(struct bench *bench, struct axis *axis,
				const char *word),
		     struct bench *bench, struct axis *axis)
{
	char word[32];

	if (axis)
		axis->words = words;
	while (*list) {
		size_t length = strcspn(list, ",");
		int code;

		if (length >= sizeof word)
			return cli_error(CLI_USAGE, "--%s %s: word too long",
					 option, list);
		memcpy(word, list, length);
		word[length] = '\0';
		code = add(bench, axis, word);
		if (code == TOO_MANY)
			return cli_error(CLI_USAGE, "--%s: more than %d values",
					 option, MAX_AXIS);
		if (code)
			return cli_error(CLI_USAGE, "--%s %s: not one of %s",
					 option, word, words);
		list += length + (list[length] == ',');
	}
	return CLI_OK;
}

static int add_value(struct axis *axis, int value)
{
	if (value < 0)
		return -1;
	if (axis->count == MAX_AXIS)
		return TOO_MANY;
	axis->values[axis->count++] = value;
	return 0;
}

static int add_threads(struct bench *bench, struct axis *axis, const char *word)
{
	int64_t n;

	(void)bench;
	if (cli_parse_int(word, &n) || n < 1 || n > PEAK_MAX_THREADS)
		return -1;
	return add_value(axis, (int)n);
}

static int add_choice(struct bench *bench, struct axis *axis, const char *word)
{
	(void)bench;
	return add_value(axis, cli_word_index(axis->words, word));
}

/* "all" = every backend that is open here. */
static int add_isa(struct bench *bench, struct axis *axis, const char *word)
{
	struct nib_backend_info backend = {.struct_bytes = sizeof backend};
	int found = 0;

	(void)axis;
	for (int i = 0; i < nib_backend_count(); i++) {
		const char *isa;

		if (nib_backend_get_info(i, &backend, NULL) != NIB_OK)
			continue;
		if (strncmp(backend.backend, "cpu-", 4) != 0)
			continue;
		isa = strchr(backend.backend, '-') + 1;
		if (strcmp(word, isa) &&
		    (strcmp(word, "all") || !backend.is_open))
			continue;
		if (bench->n_isas == MAX_AXIS)
			return TOO_MANY;
		bench->isas[bench->n_isas++] = isa;
		found = 1;
	}
	return found ? 0 : -1;
}

/* What the device says where the options say nothing. */
static int read_device(struct bench *bench)
{
	const struct device_args args = {.device = bench->args->device};
	struct nib_device *device;
	struct nib_error err;
	int code = cli_check_timed(args.device), on_gpu;

	if (!code)
		code = cli_open_device(&args, &device);
	if (code)
		return code;
	on_gpu = !cli_is_host(device);
	if (on_gpu)
		snprintf(bench->run.machine, sizeof bench->run.machine,
			 "%.159s", cli_machine(device));
	if (!bench->threads.count)
		add_value(&bench->threads, on_gpu ? 1 : cli_threads(device));
	nib_device_close(device);
	if (on_gpu && measure_use_gpu(&bench->run, bench->args->device, &err))
		return cli_fail(bench->args->device, &err);
	return CLI_OK;
}

static int read_axes(struct bench *bench)
{
	const struct bench_args *args = bench->args;
	int code = for_words("layout", args->layout, CLI_LAYOUT_WORDS,
			     add_choice, bench, &bench->layout);

	if (!code)
		code = for_words("out", args->out, CLI_DTYPE_WORDS, add_choice,
				 bench, &bench->out);
	if (!code)
		code = for_words("dtype", args->dtype, CLI_DTYPE_WORDS,
				 add_choice, bench, &bench->dtype);
	if (!code && args->isa)
		code = for_words("isa", args->isa,
				 "scalar|avx2|avx512bw|avx512|all", add_isa,
				 bench, NULL);
	if (!code && !bench->n_isas)
		bench->isas[bench->n_isas++] = NULL;
	if (!code && args->threads)
		code = for_words("threads", args->threads, "1 to 1024",
				 add_threads, bench, &bench->threads);
	return code;
}

/* ---- measuring ----------------------------------------------------------- */

/* The oracle does some 1e8 terms a second: about half a second of them. */
#define SAMPLE_TERMS 5e7

static int64_t rows_to_check(const struct bench *bench,
			     const struct shape *shape)
{
	double rows = 0, per_row;

	if (bench->args->check == CHECK_NONE || bench->args->plan)
		return -1;
	if (bench->args->check == CHECK_ALL)
		return 0;
	for (int64_t i = 0; i < shape->count; i++)
		rows += (double)(shape->sizes[i].m * shape->batch);
	if (shape_flop(shape) / 2 <= SAMPLE_TERMS || rows < 1)
		return 0;
	per_row = shape_flop(shape) / 2 / rows *
		  (double)(shape->count * shape->batch);
	return per_row < SAMPLE_TERMS ? (int64_t)(SAMPLE_TERMS / per_row) : 1;
}

static void tick(void *arg, double done)
{
	struct bench *bench = arg;

	progress_update(bench->done_steps + done, bench->item);
}

static void print_rows(struct bench *bench, const json_t *rows)
{
	size_t i;
	json_t *row;

	json_array_foreach(rows, i, row)
	{
		rows_table_add(&bench->table, row);
		bench->not_ok += json_is_false(json_object_get(row, "ok"));
	}
}

static int measure_one(struct bench *bench, int64_t shape,
		       const struct measure_options *options)
{
	const char *op = shape_op_names[bench->list.shapes[shape].op];
	char text[SHAPE_TEXT];
	json_t *rows = json_array();
	struct nib_error err = {0};
	int code = CLI_OK;

	shape_text(&bench->list.shapes[shape], text);
	snprintf(bench->item, sizeof bench->item, "%s %s, %d thread%s", op,
		 text, options->threads, options->threads == 1 ? "" : "s");
	progress_update(bench->done_steps, bench->item);
	if (measure_shape(&bench->run, options, rows, &err))
		code = cli_fail(bench->item, &err);
	else
		print_rows(bench, rows);
	json_decref(rows);
	bench->done_steps++;
	return code;
}

/* All threads, layouts and types of one shape. */
static int measure_axes(struct bench *bench, int64_t shape,
			enum job_timed timed)
{
	const struct bench_args *args = bench->args;
	const struct shape *s = &bench->list.shapes[shape];
	int multiply = shape_is_multiply(s), converts = s->op == OP_CONVERT;
	/* Axes that the operation does not have are walked once. */
	const struct axis *out = &bench->out, *dtype = &bench->dtype;
	int n_out = multiply ? out->count : 1;
	int n_dtype = multiply || converts ? 1 : dtype->count;
	struct measure_options options = {
	    .shape = s,
	    .shape_index = shape,
	    .data = {.fill = (enum data_fill)args->fill,
		     .seed = (uint64_t)args->seed},
	    .isas = bench->isas,
	    .n_isas = bench->n_isas,
	    .packed = args->packed || !args->unpacked,
	    .unpacked = args->unpacked,
	    .timed = timed,
	    .min_time_s = args->min_time_s > 1e-6 ? args->min_time_s : 1e-6,
	    .min_samples = (int)args->samples,
	    .check_rows = rows_to_check(bench, s),
	    .tick = tick,
	    .arg = bench,
	};
	int all = bench->threads.count * bench->layout.count * n_out * n_dtype;
	int code = CLI_OK;

	for (int i = 0; i < all && !code; i++) {
		int j = i;

		options.data.dtype = (enum nib_dtype)dtype->values[j % n_dtype];
		j /= n_dtype;
		options.data.out = (enum nib_dtype)out->values[j % n_out];
		j /= n_out;
		options.data.layout =
		    (enum nib_scale_layout)
			bench->layout.values[j % bench->layout.count];
		j /= bench->layout.count;
		options.threads = bench->threads.values[j];
		code = measure_one(bench, shape, &options);
	}
	return code;
}

/* A GPU's calls have a host's part of their own. */
static bool queues(const struct bench *bench)
{
	return bench->args->plan && bench->run.on_gpu;
}

static double count_steps(const struct bench *bench)
{
	double per_shape = (double)bench->threads.count * bench->layout.count *
			   (queues(bench) ? 2 : 1);
	double steps = 0;

	for (int64_t i = 0; i < bench->list.count; i++) {
		const struct shape *s = &bench->list.shapes[i];
		int n = shape_is_multiply(s)  ? bench->out.count
			: s->op == OP_CONVERT ? 1
					      : bench->dtype.count;

		steps += per_shape * n;
	}
	return steps;
}

/* ---- the table ----------------------------------------------------------- */

/* Plans are named with their operation. */
static int shape_width(const struct bench *bench)
{
	size_t width = strlen("vpmaddubsw avx512");
	char text[SHAPE_TEXT];

	for (int64_t i = 0; i < bench->list.count; i++) {
		const struct shape *s = &bench->list.shapes[i];
		size_t n = strlen(shape_text(s, text));

		if (bench->args->plan)
			n += strlen(shape_op_names[s->op]) + 1;
		width = n > width ? n : width;
	}
	return (int)width;
}

/* Columns that say the same in every row are left out for people. */
static void begin_table(struct bench *bench)
{
	const struct bench_args *args = bench->args;
	const char *hidden[8];
	int n = 0, floats = 0;

	for (int64_t i = 0; i < bench->list.count; i++)
		floats |= bench->list.shapes[i].op == OP_QUANTIZE;
	if (bench->layout.count < 2)
		hidden[n++] = "layout";
	if (!floats)
		hidden[n++] = "dtype";
	if (bench->out.count < 2)
		hidden[n++] = "out";
	if (!args->unpacked || !args->packed)
		hidden[n++] = "packed";
	if (!args->baselines)
		hidden[n++] = "against_baselines";
	hidden[n] = NULL;
	rows_table_begin(&bench->table, (enum table_format)args->format.format,
			 hidden, shape_width(bench));
}

/* For people peaks are not rows: they have no time. */
static void print_peak_notes(struct bench *bench, const json_t *rows)
{
	size_t i;
	json_t *row;

	if (!json_array_size(rows))
		return;
	table_note(bench->table.table, "\nmeasured in the same run:");
	json_array_foreach(rows, i, row)
	{
		bool bytes = row_get_number(row, "gbps") > 0;

		table_note(
		    bench->table.table, "  %-18s %4.0f thread%s %8.1f G%s/s",
		    row_get_text(row, "shape"), row_get_number(row, "threads"),
		    row_get_number(row, "threads") > 1 ? "s" : " ",
		    row_get_number(row, bytes ? "gbps" : "gflops"),
		    row_get_text(row, "unit"));
	}
}

/* The peaks that were sampled on the way, or all of them with --peaks. */
static void print_peaks(struct bench *bench)
{
	json_t *rows = json_array();

	if (bench->args->peaks) {
		for (int i = 0; i < bench->threads.count; i++)
			measure_peaks(&bench->run, bench->threads.values[i],
				      (int)bench->args->samples);
	}
	measure_peak_rows(&bench->run, rows);
	if (table_is_for_people(bench->table.table))
		print_peak_notes(bench, rows);
	else
		print_rows(bench, rows);
	json_decref(rows);
}

static int run_all(struct bench *bench)
{
	int code = CLI_OK, end;

	progress_begin("measuring", count_steps(bench), 0);
	begin_table(bench);
	for (int64_t i = 0; i < bench->list.count && !code; i++) {
		code = measure_axes(bench, i,
				    bench->args->plan ? JOB_PLAN : JOB_RUN);
		if (!code && queues(bench))
			code = measure_axes(bench, i, JOB_QUEUE);
	}
	if (!code)
		print_peaks(bench);
	progress_end();
	if (!code)
		table_note(bench->table.table, "%s, nib %s, %s",
			   bench->run.machine, nib_version(), bench->run.date);
	end = rows_table_end(&bench->table);
	if (!code && !end && bench->not_ok)
		return cli_error(CLI_FOUND,
				 "%lld row%s outside the error bound",
				 (long long)bench->not_ok,
				 bench->not_ok == 1 ? " is" : "s are");
	return code ? code : end;
}

static int run_bench(const void *args_, char *const *files, int n_files)
{
	const struct bench_args *args = args_;
	struct bench bench = {.args = args};
	const struct data_options baseline_data = {
	    .fill = (enum data_fill)args->fill, .seed = (uint64_t)args->seed};
	int code = shapes_parse(&args->shapes, &bench.list);

	(void)files;
	(void)n_files;
	progress_set_quiet(args->common.quiet);
	if (!code && !bench.list.count && !args->peaks)
		code = shapes_add_preset(&bench.list, "seeds", -1);
	if (!code)
		code = read_axes(&bench);
	if (!code && !measure_begin(&bench.run))
		code = cli_no_memory("measurement");
	if (!code)
		code = read_device(&bench);
	if (!code && bench.run.on_gpu && (args->baselines || args->isa))
		code = cli_error(CLI_USAGE,
				 "--baselines and --isa are of the CPU, not of "
				 "--device %s",
				 args->device);
	if (!code && args->baselines)
		measure_start_baselines(&bench.run, &bench.list,
					&baseline_data);
	if (!code)
		code = run_all(&bench);
	measure_end(&bench.run);
	shapes_free(&bench.list);
	return code;
}

static const struct cli_option options[] = {
    {.name = "device",
     .kind = OPT_TEXT,
     .offset = offsetof(struct bench_args, device),
     .value = "NAME",
     .fallback = "cpu",
     .help =
	 "where to compute: cpu, cuda:0, cuda:1, ... (nib info lists them)"},
    {.name = "threads",
     .kind = OPT_TEXT,
     .offset = offsetof(struct bench_args, threads),
     .value = "LIST",
     .help = "threads, as 1,2; else every processor this process may use"},
    {.name = "isa",
     .kind = OPT_TEXT,
     .offset = offsetof(struct bench_args, isa),
     .value = "LIST",
     .help = "instruction sets of scalar,avx2,avx512bw,avx512, or all that "
	     "run here; else the best one"},
    {.name = "layout",
     .kind = OPT_TEXT,
     .offset = offsetof(struct bench_args, layout),
     .value = "LIST",
     .fallback = "linear",
     .help = "layouts of the block scales: linear,tiled"},
    {.name = "out",
     .kind = OPT_TEXT,
     .offset = offsetof(struct bench_args, out),
     .value = "LIST",
     .fallback = CLI_OUT_DEFAULT,
     .help = "types of C: fp32,fp16,bf16"},
    {.name = "dtype",
     .kind = OPT_TEXT,
     .offset = offsetof(struct bench_args, dtype),
     .value = "LIST",
     .fallback = "bf16",
     .help = "float types of quantize and dequantize: fp32,fp16,bf16"},
    {.name = "packed",
     .kind = OPT_FLAG,
     .offset = offsetof(struct bench_args, packed),
     .help = "weights packed beforehand (this is so unless --unpacked)"},
    {.name = "unpacked",
     .kind = OPT_FLAG,
     .offset = offsetof(struct bench_args, unpacked),
     .help = "weights as they are; with --packed both are measured"},
    {.name = "baselines",
     .kind = OPT_FLAG,
     .offset = offsetof(struct bench_args, baselines),
     .help = "also oneDNN and OpenBLAS, in turns, where they are installed"},
    {.name = "peaks",
     .kind = OPT_FLAG,
     .offset = offsetof(struct bench_args, peaks),
     .help = "also every peak of this machine; alone: only these"},
    {.name = "plan",
     .kind = OPT_FLAG,
     .offset = offsetof(struct bench_args, plan),
     .help = "time making the plan instead of running it; on a GPU also what "
	     "queuing a run costs the host"},
    {.name = "min-time",
     .kind = OPT_DOUBLE,
     .offset = offsetof(struct bench_args, min_time_s),
     .value = "SECONDS",
     .fallback = "0.3",
     .help = "least time of the timed runs of a row"},
    {.name = "samples",
     .kind = OPT_INT,
     .offset = offsetof(struct bench_args, samples),
     .value = "N",
     .fallback = "11",
     .min = 1,
     .max = 100000,
     .help = "least number of timed runs of a row (fewer, but 3 or more, when "
	     "they take five times --min-time)"},
    {.name = "check",
     .kind = OPT_CHOICE,
     .offset = offsetof(struct bench_args, check),
     .value = "sample|all|none",
     .fallback = "sample",
     .help = "rows of C to compare with the exact result"},
    {.name = "seed",
     .kind = OPT_INT,
     .offset = offsetof(struct bench_args, seed),
     .value = "N",
     .fallback = "1",
     .min = 0,
     .max = INT64_MAX,
     .help = "of the random operands and of the rows to compare"},
    {.name = "data",
     .kind = OPT_CHOICE,
     .offset = offsetof(struct bench_args, fill),
     .value = DATA_FILL_WORDS,
     .fallback = "full",
     .help = DATA_FILL_HELP},
    {0},
};

static const struct cli_group groups[] = {
    {"What to measure", shape_op_options, offsetof(struct bench_args, shapes)},
    {"", shape_options, offsetof(struct bench_args, shapes)},
    {"How", options, 0},
    {"Output", format_options, offsetof(struct bench_args, format)},
    {"Messages", common_options, offsetof(struct bench_args, common)},
    {0},
};

const struct cli_command command_bench = {
    .name = "bench",
    .summary =
	"measure speed against this machine's limits and other libraries",
    .positional = "",
    .description =
	"Measures every combination of shapes, threads, layouts and types, on\n"
	"one or more backends, with operands that are not in the caches.  A time\n"
	"is the median of its samples, spread what their middle half spans, over\n"
	"the median.  \"of limit\" is the least time that this machine could need\n"
	"over the time taken: the multiply-adds at the rate of the instruction\n"
	"named in \"limit\" (of a GEMM for up to 8 rows), or the bytes at the\n"
	"bandwidth of memory, whichever is slower; on a GPU, the tensor cores'\n"
	"rate and the bandwidth of a long read.  These rates are measured in the\n"
	"same run, in turns with the rows, and are printed as rows themselves\n"
	"(op peak).  Above 100 % the machine was busy when they were.\n"
	"\n"
	"A row of --format json has its samples and the command that gives it again;\n"
	"nib report draws them.  Without a shape: --preset seeds.  nib exits with 1\n"
	"when a result is outside its error bound.\n",
    .examples = "nib bench --preset seeds --baselines --threads 1,2\n"
		"nib bench --op gemm --shape 128x4096x7168 --isa all\n"
		"nib bench --op gemm --m 1:64+1 --n 4096 --k 7168   # cliffs?\n"
		"nib bench --op quantize --shape 4096x7168 --dtype fp32,bf16\n"
		"nib bench --op gemm --shape 128x4096x7168 --plan\n"
		"nib bench --peaks --threads 1,2\n"
		"nib bench --device cuda:0 --preset seeds\n"
		"nib bench --preset seeds --format json > rows.json\n",
    .groups = groups,
    .args_bytes = sizeof(struct bench_args),
    .run = run_bench,
};
