/* SPDX-License-Identifier: Apache-2.0 */
/*
 * state.h - the state of the driver: one device, its memory, and its work in the
 * order in which it was queued.  One lock guards all of it.
 */
#ifndef EMU_STATE_H
#define EMU_STATE_H

#include <pthread.h>

#include "driver/cuda_api.h"
#include "driver/stream_order.h"
#include "hardware/memory.h"
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
	int carveout; /* of shared memory, in percent; it changes nothing */
};

struct emu_work;

/* Nodes after which the next node of a capture comes. */
struct emu_tails {
	CUgraphNode *nodes;
	size_t count;
};

struct CUstream_st {
	struct CUgraph_st *graph; /* that is being captured, also by other streams */
	bool is_origin;		  /* the capture began in this stream */
	bool is_kept;		  /* the graph is the program's, which it destroys */
	struct emu_tails tails;	  /* of the capture */
	uint32_t number;	  /* stream_order.h */
	uint64_t id;
	unsigned flags;
	int priority;
	struct CUstream_st *next;
};

struct emu_driver {
	pthread_mutex_t lock;
	bool is_begun;
	struct emu_machine machine;
	uint64_t wanted_bytes; /* of memory; the host may have fewer addresses */
	uint32_t sms;
	bool is_verbose; /* NIBEMU_VERBOSE: a line a launch */
	int retained;
	struct CUmod_st *modules;
	struct CUstream_st *streams;
	/* Kernels that have not run; each depends on the one before. */
	struct emu_work *queue, *queue_end;
	CUresult failed; /* for good */
	struct emu_stream_order order;
	uint64_t grids;
	char text[sizeof(struct emu_error) + 1000]; /* of cuGetErrorString */
	CUresult text_of;			    /* the result that it explains */
};

extern struct emu_driver emu_driver;

/* Begins a call: locks and returns the error of the context. */
CUresult emu_driver_enter(void);
static inline CUresult emu_driver_leave(CUresult result)
{
	pthread_mutex_unlock(&emu_driver.lock);
	return result;
}

/* Whether a module is loaded.  The lock must be held. */
bool emu_is_module(const struct CUmod_st *module);
/* True for a function of a loaded module. */
bool emu_is_function(const struct CUfunc_st *function);
/* True for live streams, NULL, and the two numbers of the default streams. */
bool emu_stream_is_valid(CUstream stream);
bool emu_stream_is_capturing(CUstream stream);
/* A stream's number in stream_order.h. */
uint32_t emu_stream_number(CUstream stream);
/* An address of device memory, and the state of its byte. */
bool emu_is_device(CUdeviceptr pointer);
uint8_t *emu_shadow_of(CUdeviceptr pointer);
/* Allocates device memory.  0 if there is none; the reason is kept. */
CUdeviceptr emu_driver_alloc(size_t bytes);
/* Keeps "0x7f... is not ..." for cuGetErrorString of the result. */
__attribute__((format(printf, 2, 3))) void emu_driver_tell(CUresult result,
							   const char *format, ...);
/* The same, and the result.  A macro, so that static analysis knows the result. */
#define emu_driver_fail(result, ...)                                                   \
	(emu_driver_tell(result, __VA_ARGS__), (CUresult)(result))

#endif
