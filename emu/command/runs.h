/* SPDX-License-Identifier: Apache-2.0 */
/* runs.h - the runs of the program, several at once, and the result of each. */
#ifndef NIBEMU_RUNS_H
#define NIBEMU_RUNS_H

#include "child.h"
#include "records.h"

enum result {
	RESULT_NONE, /* it was not begun */
	RESULT_CLEAN,
	RESULT_REPORT, /* a rule was broken */
	RESULT_TIMEOUT,
	RESULT_REFUSED, /* a module or a kernel was refused */
	RESULT_UNUSED,	/* no kernel ran */
	RESULT_FAILED,	/* by itself, with a status or a signal */
	RESULT_INTERRUPTED,
};

struct run {
	uint64_t seed;
	enum result result;
	int status; /* of waitpid */
	double seconds;
	struct records records;
	struct output output;
};

struct runs {
	struct run *list;
	size_t count;
	bool is_interrupted;
};

/*
 * Runs the program for each seed.  False with a message in error: it could not
 * be started.
 */
bool runs_do(struct runs *r, const struct job *job, char *error, size_t size);
void runs_free(struct runs *r);

#endif
