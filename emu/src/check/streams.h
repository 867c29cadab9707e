/* SPDX-License-Identifier: Apache-2.0 */
/*
 * streams.h - the order of the work of streams: kernels, copies and fills of two
 * streams that access one byte, and one of which writes, must be ordered by an event,
 * by a wait of the host, or by the default stream.
 *
 * Each stream has a clock that counts its work, and each piece of work has the clocks
 * up to which it has seen other streams.  A word has its last writer and one reader
 * since.  Atomics are compared with plain accesses only, and are not kept.
 */
#ifndef EMU_STREAMS_H
#define EMU_STREAMS_H

#include "hardware/emu.h"

#define EMU_STREAMS	  64	     /* that are tracked */
#define EMU_STREAMS_NAMED 2	     /* the default stream, and that of each thread */
#define EMU_STREAM_MOST	  (1u << 20) /* pieces of work of one stream */

struct emu_streams;

struct emu_streams *emu_streams_open(uint64_t base, uint64_t bytes);
void emu_streams_close(struct emu_streams *s);
/* A stream's number is that of a branch of graphs, for reports. */
void emu_streams_mark_branch(struct emu_streams *s, uint32_t stream);

/* A piece of work. */
struct emu_stream_work {
	struct emu_streams *streams;
	uint32_t stream, clock;	    /* clock: from 1 */
	uint32_t seen[EMU_STREAMS]; /* by stream: up to which clock */
};

/*
 * "the default stream", "branch 3 of a graph", "created stream 1": the first that the
 * program created.
 */
void emu_stream_title(const struct emu_streams *s, uint32_t stream, char *text,
		      size_t size);

enum emu_stream_access { EMU_STREAM_READ, EMU_STREAM_WRITE, EMU_STREAM_ATOMIC };

/* False with a sentence in err if work of another stream is not ordered with it. */
bool emu_stream_access(const struct emu_stream_work *w, enum emu_stream_access access,
		       uint64_t address, uint64_t bytes, struct emu_error *err);
/* The bytes are allocated again: forgets who has accessed them. */
void emu_streams_forget(struct emu_streams *s, uint64_t address, uint64_t bytes);

#endif
