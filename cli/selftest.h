/* SPDX-License-Identifier: Apache-2.0 */
/*
 * selftest.h - the report of nib selftest: one JSON object.
 *
 *	format      SELFTEST_FORMAT
 *	version     of nibblas
 *	date        UTC
 *	device      "cpu", "cuda:0"
 *	command     that made it
 *	steps       an array of:
 *	  name       "check nvfp4"
 *	  command    "nib check --preset small ..."
 *	  exit_code  -1: it did not exit
 *	  signal     that ended it; 0: none
 *	  timed_out  whether it was killed because its time was over
 *	  seconds    that it took
 *	  output     the JSON that it printed; a string if it printed something else
 *	  messages   what it wrote to standard error
 */
#ifndef NIB_SELFTEST_H
#define NIB_SELFTEST_H

#include <jansson.h>

#include "table.h"

#define SELFTEST_FORMAT "nibblas selftest 1"

/* ---- selftest_read.c ----------------------------------------------------- */

/* CLI_OK; or CLI_INPUT after a message that begins with path. */
int selftest_load(const char *path, json_t **report);
/*
 * Prints a row for each step, then the rows of claims (an array of rows of nib bench
 * or of docs/results, may be empty) that the report measured too.  CLI_OK; CLI_FOUND
 * if a step failed.
 */
int selftest_print(const json_t *report, const json_t *claims, enum table_format);

/* ---- selftest_recorded.c ------------------------------------------------- */

enum selftest_match { SELFTEST_UNRECORDED, SELFTEST_SAME, SELFTEST_OTHER };

/*
 * Whether a digest of a step's results is recorded for a machine ("cpu", "cuda-sm90").
 * Processors of one backend may have several.
 */
enum selftest_match selftest_match(const char *machine, const char *step,
				   const char *digest);

#endif
