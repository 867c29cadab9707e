/* SPDX-License-Identifier: Apache-2.0 */
/* stream.h - the functions of streams that other calls need. */
#ifndef EMU_STREAM_H
#define EMU_STREAM_H

#include "driver/state.h"

/* Priorities of streams, as on GPUs.  They change nothing. */
#define EMU_LEAST_PRIORITY    0
#define EMU_GREATEST_PRIORITY (-5)

struct emu_work;

struct CUevent_st {
	uint64_t instructions;
	double ns;		    /* predicted */
	uint64_t capture;	    /* that it is recorded in; 0: none */
	struct emu_tails tails;	    /* of that capture, when it was recorded */
	uint32_t seen[EMU_STREAMS]; /* by stream: work before it */
};

/* Records an event after the work that `seen` has; what is queued has run. */
void emu_event_set(CUevent event, const uint32_t *seen);
/* An event of a capture, and a stream that waits for it. */
CUresult emu_capture_record(CUevent event, CUstream stream, bool is_node);
CUresult emu_capture_wait(CUstream stream, CUevent event, bool is_node);
/* The stream is destroyed: ends what it captures. */
void emu_capture_leave(CUstream stream);
/*
 * Adds work to the stream's graph or to the queue, which then owns it.  stream NULL:
 * the default stream.
 */
CUresult emu_stream_submit(CUstream stream, struct emu_work *work);
/* Compares the accesses of streams from now on, if they may run at the same time. */
void emu_streams_compare(bool is_apart);
/* Runs what is queued, if the stream may be waited for. */
CUresult emu_stream_flush(CUstream stream);

#endif
