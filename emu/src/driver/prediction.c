/* SPDX-License-Identifier: Apache-2.0 */
/*
 * prediction.c - two functions that CUDA does not have, for programs that print
 * predictions (NIBEMU_TIME) and look them up by name.
 */
#include "driver/state.h"
#include "machine/time.h"

/* Predicts from here on, with an empty L2.  0, or 1 without NIBEMU_TIME. */
__attribute__((visibility("default"))) int nibemu_prediction_begin(void);
/*
 * What was predicted since, as JSON (docs/time.md), for free().  NULL: without
 * NIBEMU_TIME, or no memory.
 */
__attribute__((visibility("default"))) char *nibemu_prediction_report(void);

int nibemu_prediction_begin(void)
{
	if (!emu_driver.machine.time)
		return 1;
	emu_time_mark(emu_driver.machine.time);
	return 0;
}

char *nibemu_prediction_report(void)
{
	return emu_driver.machine.time ? emu_time_report(emu_driver.machine.time)
				       : NULL;
}
