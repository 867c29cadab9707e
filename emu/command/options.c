/* SPDX-License-Identifier: Apache-2.0 */
/* options.c - see options.h. */
#include "options.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "machine/device.h"
#include "machine/findings.h"

static const char help[] =
    "usage: nibemu run [options] [--] ./program [arguments]\n"
    "\n"
    "Runs a CUDA program on an emulated GPU, and reports the rules of PTX that\n"
    "its kernels break.  The program needs PTX and the shared runtime library:\n"
    "  nvcc -cudart shared -lineinfo \\\n"
    "       -gencode arch=compute_90a,code=compute_90a k.cu -o k\n"
    "\n"
    "  --device NAME    h200 (default), h100, b200, a100, rtx4090 or rtx5090\n"
    "                   (`nibemu devices`)\n"
    "  --seed N         the schedule (default: 0); a seed always selects the\n"
    "                   same one\n"
    "  --seeds A..B     run each of these schedules, and print a table\n"
    "  --jobs N         runs at the same time (default: one per processor)\n"
    "  --timeout S      time limit of a run in seconds; 0: none (default: 600)\n"
    "  --continue       continue after a report, to see all reports\n"
    "  --waive RULES    continue after reports of these rules, and do not count\n"
    "                   them: rule,rule:kernel (`nibemu rules`)\n"
    "  --strict         also report what PTX forbids and production kernels do\n"
    "  --time           predict times (h200, b200; seed 0); the order of\n"
    "                   accesses is not checked\n"
    "  --verbose        print size and time of each launch; with --seeds the\n"
    "                   output of every run\n"
    "  --json FILE      also write the results to FILE; -: to standard output,\n"
    "                   and all other output to standard error\n"
    "\n"
    "Exit status: 0 if every run was clean: the program ended with 0, a kernel\n"
    "ran, and no rule was broken.  Otherwise the first of these that applies:\n"
    "  130  interrupted\n"
    "  1    a rule was broken\n"
    "  4    a run took longer than --timeout\n"
    "  5    no kernel ran on the software GPU, or one was refused\n"
    "  3    the program failed by itself\n"
    "  2    wrong command line, or the program could not be started\n";

enum {
	DEVICE = 256,
	SEED,
	SEEDS,
	JOBS,
	TIMEOUT,
	CONTINUE,
	WAIVE,
	STRICT,
	TIME,
	VERBOSE,
	JSON,
	HELP,
};

static const struct option names[] = {
    {"device", required_argument, NULL, DEVICE},
    {"seed", required_argument, NULL, SEED},
    {"seeds", required_argument, NULL, SEEDS},
    {"jobs", required_argument, NULL, JOBS},
    {"timeout", required_argument, NULL, TIMEOUT},
    {"continue", no_argument, NULL, CONTINUE},
    {"waive", required_argument, NULL, WAIVE},
    {"strict", no_argument, NULL, STRICT},
    {"time", no_argument, NULL, TIME},
    {"verbose", no_argument, NULL, VERBOSE},
    {"json", required_argument, NULL, JSON},
    {"help", no_argument, NULL, HELP},
    {NULL, 0, NULL, 0},
};

static int wrong(const char *option, const char *value, const char *rule)
{
	fprintf(stderr, "nibemu: %s %s: %s\n", option, value, rule);
	return STATUS_USAGE;
}

/* Reads digits up to *end, or with end NULL all of the text. */
static bool read_number(const char *text, const char **end, uint64_t *to)
{
	char *behind = NULL;

	if (*text < '0' || *text > '9')
		return false;
	errno = 0;
	*to = strtoull(text, &behind, 10);
	if (end)
		*end = behind;
	return !errno && (end || !*behind);
}

static bool read_small(const char *text, uint32_t most, uint32_t *to)
{
	uint64_t number;

	if (!read_number(text, NULL, &number) || number > most)
		return false;
	*to = (uint32_t)number;
	return true;
}

static int read_seeds(struct options *o, const char *text)
{
	const char *at = text;

	o->has_seeds = true;
	if (!read_number(text, &at, &o->first_seed) || strncmp(at, "..", 2) != 0 ||
	    !read_number(at + 2, NULL, &o->last_seed) || o->last_seed < o->first_seed)
		return wrong("--seeds", text, "two numbers, as in 0..19");
	if (o->last_seed - o->first_seed >= MOST_SEEDS)
		return wrong("--seeds", text, "at most 100000 at once");
	return -1;
}

static int check_waive(const char *waive)
{
	struct emu_error err = {{0}};
	struct emu_findings *f = emu_findings_open(waive, false, &err);

	emu_findings_close(f);
	if (f)
		return -1;
	/* It begins with the variable's name. */
	fprintf(stderr, "nibemu: --waive%s\n",
		strchr(err.text, ':') ? strchr(err.text, ':') : err.text);
	return STATUS_USAGE;
}

static int read_one(struct options *o, int name)
{
	switch (name) {
	case DEVICE:
		o->device = optarg;
		return emu_device_find(optarg)
			   ? -1
			   : wrong("--device", optarg, EMU_DEVICE_NAMES);
	case SEED:
		if (!read_number(optarg, NULL, &o->first_seed))
			return wrong("--seed", optarg, "a number");
		o->last_seed = o->first_seed;
		o->has_seeds = false;
		return -1;
	case SEEDS:
		return read_seeds(o, optarg);
	case JOBS:
		return read_small(optarg, 1024, &o->jobs) && o->jobs
			   ? -1
			   : wrong("--jobs", optarg, "1 to 1024");
	case TIMEOUT:
		return read_small(optarg, 10000000, &o->timeout_s)
			   ? -1
			   : wrong("--timeout", optarg,
				   "seconds, at most 10000000; 0: none");
	case WAIVE:
		o->waive = optarg;
		return check_waive(optarg);
	case JSON:
		o->json = optarg;
		return -1;
	case HELP:
		fputs(help, stdout);
		return STATUS_CLEAN;
	default: /* getopt has printed what is wrong */
		fputs("nibemu: `nibemu run --help` lists the options\n", stderr);
		return STATUS_USAGE;
	}
}

static bool read_switch(struct options *o, int name)
{
	bool *const to = name == CONTINUE  ? &o->continues
			 : name == STRICT  ? &o->is_strict
			 : name == TIME	   ? &o->has_time
			 : name == VERBOSE ? &o->is_verbose
					   : NULL;

	if (to)
		*to = true;
	return to;
}

/* The seed of the environment is used unless an option gives another. */
static int begin(struct options *o)
{
	const char *seed = getenv("NIBEMU_SEED");

	*o = (struct options){.timeout_s = DEFAULT_TIMEOUT_S};
	if (seed && *seed && !read_number(seed, NULL, &o->first_seed))
		return wrong("NIBEMU_SEED", seed, "a number");
	o->last_seed = o->first_seed;
	return -1;
}

int options_read(struct options *o, int count, char **arguments)
{
	int name, status = begin(o);

	if (status != -1)
		return status;
	/* "+": the first word that is no option is the program. */
	while ((name = getopt_long(count, arguments, "+h", names, NULL)) != -1) {
		if (name == 'h')
			name = HELP;
		if (read_switch(o, name))
			continue;
		status = read_one(o, name);
		if (status != -1)
			return status;
	}
	if (optind == count) {
		fputs("nibemu: run: no program: nibemu run ./program\n", stderr);
		return STATUS_USAGE;
	}
	if (o->has_time && (o->has_seeds || o->first_seed))
		return wrong("--time", "with a seed",
			     "times are predicted only for seed 0");
	o->program = arguments + optind;
	return -1;
}
