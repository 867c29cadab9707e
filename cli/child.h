/* SPDX-License-Identifier: Apache-2.0 */
/*
 * child.h - runs a program and keeps what it prints.  A crash, a hang or an exit of
 * the program is a result, not an error.
 */
#ifndef NIB_CHILD_H
#define NIB_CHILD_H

#include <stdbool.h>

struct child {
	int exit_code; /* -1: it ended by signal, or was killed */
	int signal;    /* 0: it exited */
	bool timed_out;
	double seconds;
	/* What it wrote to standard output and error, at most CHILD_BYTES each. */
	char *out, *err;
};

#define CHILD_BYTES (16 << 20)

/* The program of this process, for argv[0]. */
#define CHILD_SELF "/proc/self/exe"

/*
 * Runs argv[0], found in PATH, with the arguments of argv (NULL-terminated) and an
 * empty standard input.  Kills it after limit_s seconds, or when cli_must_stop().
 * CLI_OK; or CLI_FAILED with errno, and child is then zeroed.  child_free() in every
 * case.
 */
int child_run(const char *const argv[], double limit_s, struct child *child);
void child_free(struct child *child);

#endif
