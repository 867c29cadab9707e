/* SPDX-License-Identifier: Apache-2.0 */
/* child.h - one run of the program, in a process group of its own. */
#ifndef NIBEMU_CHILD_H
#define NIBEMU_CHILD_H

#include <stdio.h>
#include <sys/types.h>

#include "options.h"
#include "program.h"

/* The end of what a run printed, standard output and error together. */
#define OUTPUT_BYTES (64 << 10)
struct output {
	char *text;	/* OUTPUT_BYTES, a ring; NULL: nothing is kept */
	uint64_t bytes; /* that were printed */
};

struct child {
	pid_t pid;	       /* 0: none */
	int pipe;	       /* of its output; -1: it has the terminal's */
	size_t run;	       /* its number */
	double begin_s, end_s; /* end: when it is told to end; 0: never */
	bool is_told, is_late; /* it was told to end; the reason is the timeout */
};

/* The settings that all runs share. */
struct job {
	const struct options *options;
	const struct program *program;
	const char *cuda;    /* folder for LD_LIBRARY_PATH */
	const char *records; /* folder of their records */
	uint32_t jobs;	     /* at once */
};

double now_s(void);
/* The file of a run's records. */
void record_path(const struct job *job, uint64_t seed, char *to, size_t size);
/*
 * Starts a run.  takes_output: its output goes through a pipe, and its standard
 * input is empty.  False with a message in error.
 */
bool child_start(struct child *c, const struct job *job, uint64_t seed,
		 bool takes_output, char *error, size_t size);
/* Reads what is in the pipe, and closes it at its end. */
void child_read(struct child *c, struct output *to);
/* Ends the process and its children: first by SIGTERM, then by SIGKILL. */
void child_end(struct child *c);
/* True once it has ended; *status is that of waitpid. */
bool child_has_ended(struct child *c, int *status);
/* Writes the kept part of an output, at most its last `most` lines. */
void output_print(FILE *to, const struct output *o, unsigned most);

#endif
