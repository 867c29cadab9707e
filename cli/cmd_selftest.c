/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_selftest.c - nib selftest: runs info, check and bench as programs of their own,
 * so that a crash, a hang or a lost GPU stops one step, and writes what they print
 * as one file (selftest.h).  selftest_read.c says what it means.
 */
#include <errno.h>
#include <libgen.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "child.h"
#include "cli.h"
#include "out_file.h"
#include "progress.h"
#include "rows.h"
#include "selftest.h"

struct selftest_args {
	struct cli_shared shared;
	const char *device, *output, *read;
	struct cli_texts claims;
	int quick, force;
};

enum step_kind {
	STEP_ANY,
	STEP_CPU,   /* GPUs do not have its activations */
	STEP_TIMED, /* not with --quick, and not on a GPU in software */
	STEP_GPU,   /* another program's */
};

struct step {
	const char *name, *arguments;
	enum step_kind kind;
	double limit_s;
};

/* Bits are recorded by name: another step is another name. */
#define CHECK "check --preset small --format json --quiet --device "
#define BENCH "bench --packed --layout tiled --format json --quiet --device "
static const struct step steps[] = {
    {"info", "info --format json", STEP_ANY, 60},
    /* No serial numbers, and no programs of others. */
    {"clocks",
     "nvidia-smi --format=csv --query-gpu=name,driver_version,vbios_version,pstate,"
     "clocks.sm,clocks.mem,clocks.max.sm,clocks.max.mem,power.draw,power.limit,"
     "temperature.gpu,memory.total,ecc.mode.current,mig.mode.current,compute_mode",
     STEP_GPU, 60},
    {"check nvfp4", CHECK "% --activations nvfp4", STEP_ANY, 180},
    {"check nvfp4 again", CHECK "% --activations nvfp4", STEP_ANY, 180},
    {"check bf16", CHECK "% --activations bf16 --layout tiled", STEP_ANY, 180},
    {"check fp16", CHECK "% --activations fp16 --out fp16", STEP_ANY, 180},
    {"check fp32", CHECK "% --activations fp32 --out bf16", STEP_CPU, 180},
    {"check int8", CHECK "% --activations int8 --out bf16", STEP_CPU, 180},
    {"check sizes",
     "check --op gemm --m 1:81+16 --n 200 --k 528 --packed --format json --quiet "
     "--device %",
     STEP_ANY, 180},
    {"bench seeds", BENCH "% --preset seeds", STEP_TIMED, 240},
    {"bench decode", BENCH "% --preset decode --activations nvfp4,bf16", STEP_TIMED,
     240},
};
#define STEPS	      (sizeof(steps) / sizeof(*steps))
#define MAX_ARGUMENTS 24
#define MAX_TEXT      512

/* ---- one step ------------------------------------------------------------ */

/* The words of a step's arguments, with the device for "%"; text holds them. */
static void split(const struct step *step, const char *device, char text[MAX_TEXT],
		  const char *argv[MAX_ARGUMENTS + 1])
{
	int n = 0;
	char *next = NULL;

	if (step->kind != STEP_GPU)
		argv[n++] = CHILD_SELF;
	snprintf(text, MAX_TEXT, "%s", step->arguments);
	for (char *word = strtok_r(text, " ", &next); word && n < MAX_ARGUMENTS;
	     word = strtok_r(NULL, " ", &next))
		argv[n++] = strcmp(word, "%") ? word : device;
	argv[n] = NULL;
}

static json_t *command_of(const char *const argv[])
{
	char text[2 * MAX_TEXT] = "";
	size_t used = 0;

	for (int i = 0; argv[i] && used < sizeof(text); i++)
		used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%s",
					 i ? " " : "",
					 strcmp(argv[i], CHILD_SELF) ? argv[i] : "nib");
	return json_string(text);
}

/* JSON knows only UTF-8; what is not becomes "?". */
static json_t *text_json(char *text)
{
	json_t *string = json_string(text);

	for (char *c = text; !string && *c; c++)
		if ((unsigned char)*c >= 0x80)
			*c = '?';
	return string ? string : json_string(text);
}

/* Where files are says who the user is. */
static void remove_paths(json_t *info)
{
	json_t *gpu;
	size_t i;

	json_array_foreach(json_object_get(info, "gpus"), i, gpu)
	{
		json_object_del(gpu, "tuning_file");
		json_object_del(gpu, "untuned_reason");
	}
}

static json_t *output_of(char *text)
{
	json_t *output = json_loads(text, JSON_REJECT_DUPLICATES, NULL);

	if (!output)
		return text_json(text);
	remove_paths(output);
	return output;
}

static int run_step(const struct step *step, const char *device, json_t *list)
{
	const char *argv[MAX_ARGUMENTS + 1];
	char text[MAX_TEXT];
	struct child child;
	json_t *entry = json_object();
	int failed;

	split(step, device, text, argv);
	failed = child_run(argv, step->limit_s, &child);
	if (failed && step->kind != STEP_GPU) {
		failed = cli_error(CLI_FAILED, "%s: cannot run nib: %s", step->name,
				   strerror(errno));
		child_free(&child);
		json_decref(entry);
		return failed;
	}
	row_text(entry, "name", step->name);
	json_object_set_new(entry, "command", command_of(argv));
	row_integer(entry, "exit_code", failed ? -1 : child.exit_code);
	row_integer(entry, "signal", child.signal);
	row_bool(entry, "timed_out", child.timed_out);
	row_number(entry, "seconds", child.seconds);
	json_object_set_new(entry, "output", output_of(failed ? "" : child.out));
	json_object_set_new(entry, "messages",
			    failed ? json_string(strerror(errno))
				   : text_json(child.err));
	child_free(&child);
	return json_array_append_new(list, entry) ? cli_no_memory("steps") : CLI_OK;
}

/* ---- all of them --------------------------------------------------------- */

static bool is_wanted(const struct step *step, const struct selftest_args *args)
{
	const bool is_cpu = !strcmp(args->device, "cpu");

	switch (step->kind) {
	case STEP_ANY:
		break;
	case STEP_CPU:
		return is_cpu;
	case STEP_TIMED:
		return !args->quick && !cli_is_emu(args->device);
	case STEP_GPU:
		return !is_cpu && !cli_is_emu(args->device);
	}
	return true;
}

static int run_steps(const struct selftest_args *args, json_t *list)
{
	int code = CLI_OK;
	double wanted = 0;

	for (size_t i = 0; i < STEPS; i++)
		wanted += is_wanted(&steps[i], args);
	progress_begin("testing", wanted, 0);
	for (size_t i = 0; i < STEPS && !code; i++) {
		if (!is_wanted(&steps[i], args))
			continue;
		progress_advance(0, steps[i].name);
		code = run_step(&steps[i], args->device, list);
		code = code ? code : cli_stopped();
		progress_advance(1, NULL);
	}
	progress_end();
	return code;
}

static json_t *new_report(const struct selftest_args *args, json_t *list)
{
	const time_t now = time(NULL);
	char date[32] = "";
	struct tm utc;

	if (gmtime_r(&now, &utc))
		strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%SZ", &utc);
	return json_pack("{s:s, s:s, s:s, s:s, s:o, s:o}", "format", SELFTEST_FORMAT,
			 "version", nib_version(), "date", date, "device", args->device,
			 "command",
			 json_sprintf("nib selftest --device %s%s", args->device,
				      args->quick ? " --quick" : ""),
			 "steps", list);
}

static int write_report(const json_t *report, const char *path)
{
	struct out_file out = {0};

	if (out_file_open(&out, path) &&
	    !json_dumpf(report, out.stream, JSON_INDENT(1)) &&
	    fputc('\n', out.stream) != EOF && out_file_commit(&out))
		return CLI_OK;
	out_file_discard(&out);
	return cli_error(CLI_FAILED, "%s: %s", path, strerror(errno));
}

/* Refuses a report that cannot be written before the tests take their minutes. */
static int check_output(const struct selftest_args *args)
{
	int code = cli_check_output(args->output, NULL, 0, args->force);
	char *copy;

	if (code)
		return code;
	copy = strdup(args->output);
	if (!copy)
		return cli_no_memory("report");
	if (access(dirname(copy), W_OK | X_OK))
		code = cli_error(CLI_FAILED, "%s: %s", args->output, strerror(errno));
	free(copy);
	return code;
}

static int test_device(const struct selftest_args *args)
{
	json_t *list = json_array(), *report = NULL;
	int code = check_output(args), found = CLI_OK;

	if (!code)
		code = run_steps(args, list);
	if (!code) {
		report = new_report(args, json_incref(list));
		code = report ? write_report(report, args->output)
			      : cli_no_memory("report");
	}
	if (!code) {
		json_t *none = json_array();

		found = selftest_print(report, none, args->shared.format);
		json_decref(none);
	}
	if (!code && args->shared.format <= TABLE_FORMAT_MD)
		printf("\nreport: %s: one JSON file without names of files or users; "
		       "attach it to an issue\n",
		       args->output);
	json_decref(report);
	json_decref(list);
	return code ? code : found;
}

/* ---- reading ------------------------------------------------------------- */

static int add_claims(json_t *claims, const char *path)
{
	json_error_t error;
	json_t *rows = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
	int code = CLI_OK;

	if (!rows)
		return cli_error(CLI_INPUT, "%s: %s", path, error.text);
	if (!json_is_array(rows))
		code =
		    cli_error(CLI_INPUT, "%s: not an array of rows of nib bench", path);
	else if (json_array_extend(claims, rows))
		code = cli_no_memory("claims");
	json_decref(rows);
	return code;
}

static int read_report(const struct selftest_args *args)
{
	json_t *claims = json_array(), *report = NULL;
	int code = selftest_load(args->read, &report);

	for (int i = 0; i < args->claims.count && !code; i++)
		code = add_claims(claims, args->claims.items[i]);
	if (!code)
		code = selftest_print(report, claims, args->shared.format);
	json_decref(report);
	json_decref(claims);
	return code;
}

static int run_selftest(const void *args_)
{
	const struct selftest_args *args = args_;

	if (args->claims.count && !args->read)
		return cli_error(CLI_USAGE, "--claims FILE compares a report: it needs "
					    "--read");
	/* Without opening it: this process outlives a GPU that fails. */
	if (strcmp(args->device, "cpu") && strncmp(args->device, "cuda:", 5) &&
	    strncmp(args->device, "emu:", 4))
		return cli_error(CLI_USAGE,
				 "--device '%s': must be cpu, cuda:N or emu:NAME",
				 args->device);
	return args->read ? read_report(args) : test_device(args);
}

#define ARG(member) offsetof(struct selftest_args, member)
static const struct cli_option options[] = {
    {"device", OPT_TEXT, ARG(device), "NAME", "cpu",
     .help = "what to test: cpu, cuda:0, cuda:1, ... (nib info lists them)"},
    {"output", OPT_FILE, ARG(output), "FILE", "nibblas-report.json", .letter = 'o',
     .help = "the report to write"},
    {"force", OPT_FLAG, ARG(force), .letter = 'f',
     .help = "replace an existing report"},
    {"quick", OPT_FLAG, ARG(quick), .help = "only results, no times"},
    {"read", OPT_FILE, ARG(read), "FILE",
     .help = "test nothing: print what a report says"},
    {"claims", OPT_TEXTS, ARG(claims), "FILE",
     .help = "with --read: also compare its times with the rows of FILE, a file of "
	     "docs/results or of nib bench --format json; may be given several times"},
    {0},
};

const struct cli_command command_selftest = {
    .name = "selftest",
    .summary = "test this machine, and write a report that can be sent",
    .positional = "",
    .description =
	"Takes about two minutes.  Compares every operation with the exact result on\n"
	"small and odd sizes, runs some twice, compares their bits with those that\n"
	"were recorded for this kind of machine, and measures the presets seeds and\n"
	"decode.  Each step is a program of its own: what crashes or hangs is in the\n"
	"report, and the next step runs.\n"
	"\n"
	"The report is one JSON file: what nib info says, clocks and driver of the\n"
	"GPU, and the rows of nib check and nib bench.  It has no serial numbers, no\n"
	"names of files, hosts or users.  nib exits with 1 if a step failed.\n",
    .examples = "nib selftest                            # this machine's CPU\n"
		"nib selftest --device cuda:0 -o rtx5090.json\n"
		"nib selftest --device cuda:0 --quick    # results only: 20 seconds\n"
		"nib selftest --read rtx5090.json\n"
		"nib selftest --read b200.json --claims "
		"docs/results/2026-11-25-b200-predicted.json\n",
    .groups = (const struct cli_group[]){{"Test", options, 0}, CLI_LAST_GROUPS},
    .args_bytes = sizeof(struct selftest_args),
    .defers_signals = 1,
    .run = run_selftest,
};
