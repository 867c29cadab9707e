/* SPDX-License-Identifier: Apache-2.0 */
/*
 * predict.h - rows of the GPU in software: predicted times (emu/docs/time.md),
 * which no row gives as measured.
 */
#ifndef NIB_BENCH_PREDICT_H
#define NIB_BENCH_PREDICT_H

#include "measure.h"

/*
 * Before the device is opened: the GPU in software predicts from now on.  CLI_OK,
 * or prints and returns: there is no table of times for it.
 */
int predict_begin(const char *device);
/*
 * Runs one shape options->chain times, with other operands each time, which are not in
 * the L2, and adds a row for the last run to run->rows.  CLI_OK, or prints and returns.
 */
int predict_shape(struct measure_run *run, const struct measure_options *options);

#endif
