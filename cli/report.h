/* SPDX-License-Identifier: Apache-2.0 */
/* report.h - rows of nib bench as one HTML page with charts. */
#ifndef NIB_REPORT_H
#define NIB_REPORT_H

#include <jansson.h>

/*
 * Writes the page to path, which holds what it held before until all is
 * written.  rows: an array of rows (bench/README.md); how: the command that
 * measured them, may be NULL.  CLI_OK, or prints and returns.
 */
int report_write(const char *path, const json_t *rows, const char *how);

#endif
