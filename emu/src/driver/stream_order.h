/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stream_order.h - which work of a stream is before which work of another: vector
 * clocks of streams, events and the host.  Streams have numbers: 0 is the legacy
 * default stream, 1 that of the thread, the others in the order of their creation.
 * Branches of graphs have numbers as streams have.
 *
 * Accesses are compared only in programs with streams that may run at the same time:
 * two that were created, or one that does not wait for the default stream.
 */
#ifndef EMU_STREAM_ORDER_H
#define EMU_STREAM_ORDER_H

#include "check/streams.h"

struct emu_stream_order {
	struct emu_streams *streams; /* NULL: not compared */
	uint32_t clocks[EMU_STREAMS];
	uint32_t seen[EMU_STREAMS][EMU_STREAMS]; /* by stream, of each stream */
	uint32_t host[EMU_STREAMS];
	bool is_apart[EMU_STREAMS]; /* does not wait for the default stream */
	uint32_t count;		    /* streams that were created */
	/* Numbers of branches of graphs that no graph has now. */
	uint32_t spare[EMU_STREAMS], n_spare;
	bool is_short; /* there are too many streams, or too much work */
};

/* A new stream's number. */
uint32_t emu_stream_order_add(struct emu_stream_order *o, bool is_apart);
/* Work is added to a stream: what it has seen. */
void emu_stream_order_begin(struct emu_stream_order *o, uint32_t stream,
			    struct emu_stream_work *work);
/*
 * A number for a branch of a graph; *streams are compared from then on.  It must be
 * returned when no work of the branch is in the queue.
 */
uint32_t emu_stream_order_take(struct emu_stream_order *o);
void emu_stream_order_return(struct emu_stream_order *o, uint32_t number);
/* A node of a graph, in a stream or branch, after the work that seen has; adds it. */
void emu_stream_order_node(struct emu_stream_order *o, uint32_t number, uint32_t *seen,
			   struct emu_stream_work *work);
/* What the next work of a stream has seen. */
void emu_stream_order_seen(struct emu_stream_order *o, uint32_t stream, uint32_t *seen);
void emu_stream_order_merge(uint32_t *to, const uint32_t *from);
/* What an event that is recorded in a stream has seen, and a stream that waits. */
void emu_stream_order_record(struct emu_stream_order *o, uint32_t stream,
			     uint32_t *seen);
void emu_stream_order_wait(struct emu_stream_order *o, uint32_t stream,
			   const uint32_t *seen);
/* The host waits: for an event, a stream, or all of them. */
void emu_stream_order_host(struct emu_stream_order *o, const uint32_t *seen);
void emu_stream_order_host_stream(struct emu_stream_order *o, uint32_t stream);
void emu_stream_order_host_all(struct emu_stream_order *o);

#endif
