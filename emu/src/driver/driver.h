/* SPDX-License-Identifier: Apache-2.0 */
/*
 * driver.h - the state behind the driver interface: one device, its memory, its
 * work in the order in which it was queued.  One lock guards all of it.
 */
#ifndef EMU_DRIVER_H
#define EMU_DRIVER_H

#include <pthread.h>

#include "driver/cuda_api.h"
#include "engine/memory.h"
#include "machine/grid.h"

struct CUmod_st {
	struct emu_module *module;
	struct CUfunc_st *functions;
	struct CUmod_st *next;
};

struct CUfunc_st {
	struct emu_kernel *kernel;
	int dynamic_bytes; /* allowed */
	bool any_cluster;
};

enum emu_work_kind {
	EMU_WORK_KERNEL,
	EMU_WORK_COPY,
	EMU_WORK_SET,
	EMU_WORK_ALLOC, /* of a graph: its bytes begin to exist, */
	EMU_WORK_FREE,	/* and end */
};

/* Memory that a graph allocates: its place is kept for all copies of it. */
struct emu_reservation {
	CUdeviceptr address;
	size_t bytes;
	size_t owners; /* nodes */
};

/* What was queued; kernels own their grid and a copy of their parameters. */
struct emu_work {
	enum emu_work_kind kind;
	struct emu_grid grid;
	uint8_t *parameters;
	bool is_dependent; /* may begin before the kernel before it ends */
	CUdeviceptr to, from;
	size_t bytes;
	unsigned char value;
	struct emu_reservation *reservation; /* of ALLOC and FREE */
	struct emu_work *next;
};

struct CUstream_st {
	struct CUgraph_st *graph; /* that is being captured */
	struct CUstream_st *next;
};

struct CUgraph_st {
	struct emu_work *first, *last;
	size_t count;
};

struct emu_driver {
	pthread_mutex_t lock;
	bool is_begun;
	struct emu_machine machine;
	uint32_t sms;
	bool is_verbose; /* NIBEMU_VERBOSE: a line a launch */
	int retained;
	struct CUmod_st *modules;
	struct CUstream_st *streams;
	/* Kernels that have not run: each depends on the one before. */
	struct emu_work *queue, *queue_end;
	CUresult failed; /* for good */
	uint64_t grids;
	char text[sizeof(struct emu_error)]; /* of cuGetErrorString */
};

extern struct emu_driver emu_driver;

/* With the lock: what every call begins with; the sticky error. */
CUresult emu_driver_enter(void);
CUresult emu_driver_leave(CUresult result);

/* Lock held.  Runs what is queued. */
CUresult emu_driver_flush(void);
/* To the stream's graph, or to the queue; takes work.  NULL stream: default. */
CUresult emu_driver_submit(CUstream stream, struct emu_work *work);
bool emu_stream_is_valid(CUstream stream);
void emu_work_free(struct emu_work *work);
void emu_reservation_leave(struct emu_reservation *r);
bool emu_stream_is_capturing(CUstream stream);
/* Runs a copy or a fill. */
CUresult emu_driver_move(const struct emu_work *work);
/* "0x7f... is not ..." kept for cuGetErrorString. */
__attribute__((format(printf, 2, 3))) CUresult
emu_driver_fail(CUresult result, const char *format, ...);

#endif
