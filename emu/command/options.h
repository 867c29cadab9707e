/* SPDX-License-Identifier: Apache-2.0 */
/* options.h - the command line of `nibemu run`. */
#ifndef NIBEMU_OPTIONS_H
#define NIBEMU_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#define DEFAULT_TIMEOUT_S 600
#define MOST_SEEDS	  100000

/* Statuses with which nibemu ends. */
enum {
	STATUS_CLEAN = 0,	  /* every run was clean */
	STATUS_REPORT = 1,	  /* a kernel broke a rule */
	STATUS_USAGE = 2,	  /* nothing could be started */
	STATUS_FAILED = 3,	  /* the program failed without a report */
	STATUS_TIMEOUT = 4,	  /* a run took too long */
	STATUS_UNUSED = 5,	  /* no kernel ran here, or one was refused */
	STATUS_INTERRUPTED = 130, /* Ctrl-C */
};

struct options {
	const char *device; /* NULL: that of the environment, or h200 */
	bool has_seeds;	    /* --seeds: a run for each, and a table */
	uint64_t first_seed, last_seed;
	uint32_t jobs;	    /* 0: as many as there are processors */
	uint32_t timeout_s; /* of a run; 0: none */
	bool is_strict, continues, has_time, is_verbose;
	const char *waive; /* rule,rule:kernel; NULL: none */
	const char *json;  /* file, "-": standard output; NULL: none */
	char **program;	   /* its name and arguments, and NULL */
};

/*
 * Reads the arguments after "run".  -1: continue; otherwise the exit status, after a
 * message or the help.
 */
int options_read(struct options *o, int count, char **arguments);

#endif
