/* SPDX-License-Identifier: Apache-2.0 */
/* roofline.h - the report's rooflines: one chart a backend and thread count. */
#ifndef NIB_ROOFLINE_H
#define NIB_ROOFLINE_H

#include <jansson.h>
#include <stdio.h>

/*
 * Writes a chart for every backend and number of threads of the array rows whose
 * rows say what they are held against (peak_gflops, peak_gbps).  CLI_OK, or
 * prints and returns its code.
 */
int roofline_put(FILE *file, const json_t *rows);
void roofline_put_style(FILE *file);

#endif
