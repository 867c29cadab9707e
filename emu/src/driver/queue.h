/* SPDX-License-Identifier: Apache-2.0 */
/*
 * queue.h - work that is enqueued and has not run: kernels, copies, fills, and
 * the memory of graphs.
 */
#ifndef EMU_QUEUE_H
#define EMU_QUEUE_H

#include "driver/state.h"

enum emu_work_kind {
	EMU_WORK_KERNEL,
	EMU_WORK_COPY,
	EMU_WORK_SET,
	EMU_WORK_ALLOC, /* memory of a graph */
	EMU_WORK_FREE,
	EMU_WORK_HOST, /* a function of the host, only in graphs */
};

/* Memory that a graph allocates.  Its address is kept for all copies of the graph. */
struct emu_reservation {
	CUdeviceptr address;
	size_t bytes;
	size_t owners; /* nodes */
};

/* Queued work.  A kernel owns its grid and a copy of its parameters. */
struct emu_work {
	enum emu_work_kind kind;
	struct emu_grid grid;
	uint8_t *parameters;
	bool is_dependent; /* may begin before the kernel before it ends */
	CUdeviceptr to, from;
	size_t bytes;
	uint32_t value, value_bytes;	     /* of SET: 1, 2 or 4 */
	struct emu_reservation *reservation; /* of ALLOC and FREE */
	void (*function)(void *);	     /* of HOST */
	void *argument;
	struct emu_stream_work order; /* among the work of all streams */
	struct emu_work *next;
};

/* Runs the queued work.  The lock must be held. */
CUresult emu_driver_flush(void);
/*
 * Adds work to the stream's graph or to the queue, which then owns it.  stream NULL:
 * the default stream.
 */
CUresult emu_driver_submit(CUstream stream, struct emu_work *work);
void emu_work_free(struct emu_work *work);
void emu_reservation_leave(struct emu_reservation *r);

#endif
