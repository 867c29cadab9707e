/* SPDX-License-Identifier: Apache-2.0 */
/*
 * time_trace.h - a timeline of predicted time in the Chrome trace format: a row
 * for each warp and engine of chosen SMs, and for the L2 and HBM. Without a
 * trace (NULL) every call does nothing.
 */
#ifndef EMU_MACHINE_TIME_TRACE_H
#define EMU_MACHINE_TIME_TRACE_H

#include "machine/machine.h"
#include "machine/time_spent.h"

struct emu_trace;

extern const char *const emu_spent_names[EMU_SPENTS];

enum emu_trace_engine {
	EMU_TRACE_TENSOR, /* the four quarters as one row */
	EMU_TRACE_TMA,
	EMU_TRACE_SHARED,
	EMU_TRACE_SCALES, /* tcgen05.cp */
	EMU_TRACE_TMEM,	  /* its loads and stores, of the four quarters */
	EMU_TRACE_L2,	  /* of the GPU, as HBM */
	EMU_TRACE_HBM,
};

/*
 * sms: numbers as "0,5", NULL for SM 0.  ghz: of the clock.  NULL with an error
 * where the file cannot be written or the list is none.
 */
struct emu_trace *emu_trace_open(const char *path, const char *sms, double ghz,
				 struct emu_error *err);
/* Completes the file. */
void emu_trace_flush(struct emu_trace *trace);
void emu_trace_close(struct emu_trace *trace);
/* Records that the warp's clock advances from one time to another. */
void emu_trace_warp(struct emu_trace *trace, struct emu_warp *w, enum emu_spent kind,
		    double from, double to);
void emu_trace_warp_end(struct emu_trace *trace, struct emu_warp *w);
/* Records that an engine of an SM is busy.  For L2 and HBM sm is not used. */
void emu_trace_engine(struct emu_trace *trace, uint32_t sm,
		      enum emu_trace_engine engine, double from, double to);

#endif
