/* SPDX-License-Identifier: Apache-2.0 */
/* report.h - the report that ends a launch: the place, the threads, the reason. */
#ifndef EMU_REPORT_H
#define EMU_REPORT_H

#include "machine/machine.h"

/* Ends the launch with a report: the place, the thread (lane < 0: the warp) and
 * the reason. */
__attribute__((format(printf, 4, 5))) void emu_fault(struct emu_warp *w,
						     const struct emu_instr *i,
						     int lane, const char *format, ...);

/*
 * Reports a broken rule.  True if the launch continues, because the rule is waived
 * or NIBEMU_CONTINUE collects reports.  Otherwise the same as emu_fault().
 */
__attribute__((format(printf, 4, 5))) bool emu_object(struct emu_warp *w,
						      const struct emu_instr *i,
						      int lane, const char *format,
						      ...);

/* "kernel k, cluster 0, CTA (0,0,0), warp 3" */
void emu_describe_warp(const struct emu_warp *w, char *text, size_t size);
/* "PTX line 17, gemm.cuh:31" */
void emu_describe_place(const struct emu_warp *w, const struct emu_instr *i, char *text,
			size_t size);
/* The first such place in a report, of *length characters; "" for none. */
const char *emu_place_in(const char *report, size_t *length);

#endif
