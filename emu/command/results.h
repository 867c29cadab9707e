/* SPDX-License-Identifier: Apache-2.0 */
/* results.h - the results of the runs, for people and for programs. */
#ifndef NIBEMU_RESULTS_H
#define NIBEMU_RESULTS_H

#include "runs.h"

/* "ended with status 3", "ended by signal 11 (Segmentation fault)", ... */
void result_describe(const struct run *r, const struct job *job, char *to, size_t size);
/*
 * Why no kernel ran or one was refused, or what else is known about a run that is
 * not clean and has no report; "" for nothing.
 */
void result_explain(const struct run *r, const struct job *job, char *to, size_t size);
/* The exit status: that of the worst run. */
int results_status(const struct runs *r);
/* Prints a line about a single run to stderr. */
void results_tell(const struct runs *r, const struct job *job);
/* Prints the table of all runs. */
void results_print(FILE *to, const struct runs *r, const struct job *job);
/* --json: false with errno set if the file cannot be written. */
bool results_write_json(const struct runs *r, const struct job *job, const char *path);
/* The name of the runs' device: the one they opened, or the one requested. */
const char *results_device(const struct runs *r, const struct job *job);

#endif
