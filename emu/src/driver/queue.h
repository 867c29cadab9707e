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

struct emu_reservation; /* driver/graph_memory.h */

/* The rows of a copy or a fill: how many, and the bytes from one to the next. */
struct emu_rows {
	size_t rows, slices; /* rows of a slice; at least 1 */
	size_t to_pitch, to_slice, from_pitch, from_slice;
};

/* Queued work.  A kernel owns its grid and a copy of its parameters. */
struct emu_work {
	enum emu_work_kind kind;
	struct emu_grid grid;
	uint8_t *parameters;
	bool is_dependent; /* may begin before the kernel before it ends */
	/* What the node of a kernel in a graph returns and changes. */
	CUfunction kernel;
	CUlaunchAttribute *attributes;
	uint32_t n_attributes;
	CUdeviceptr to, from;
	size_t bytes; /* of a row */
	struct emu_rows rows;
	uint32_t value, value_bytes;	     /* of SET: 1, 2 or 4 */
	struct emu_reservation *reservation; /* of ALLOC and FREE */
	void (*function)(void *);	     /* of HOST */
	void *argument;
	struct emu_stream_work order; /* among the work of all streams */
	struct emu_work *next;
};

/* Runs the queued work.  The lock must be held. */
CUresult emu_driver_flush(void);
/* Adds work, which has its place in the order of streams, to the queue, which then owns
 * it.  Streams add theirs by emu_stream_submit. */
CUresult emu_driver_submit(struct emu_work *work);
/* NULL: no memory. */
struct emu_work *emu_work_copy(const struct emu_work *work);
void emu_work_free(struct emu_work *work);

#endif
