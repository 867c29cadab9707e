/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fake_cuda.h - what tests may set in the fake driver and read from it.  The
 * driver is opened by its path, FAKE_CUDA; its state is the symbol fake_cuda.
 */
#ifndef NIB_TESTS_FAKE_CUDA_H
#define NIB_TESTS_FAKE_CUDA_H

#include "backend/cuda/common/driver.h"

#define FAKE_MAX_GPUS	    4
#define FAKE_MAX_ATTRIBUTES 4
/* Launches that are remembered. */
#define FAKE_HISTORY 16

/*
 * A program that is run with this library in LD_PRELOAD has a clock on which
 * launches of GEMMs and of the clock's probe take as long as on a GPU whose
 * tiles cost this, whatever else the machine does; looking at it takes a little
 * (tests/cli/test_tune.py has the same numbers).
 */
#define FAKE_LOOK_NS	       20
#define FAKE_CYCLE_NS	       0.5
#define FAKE_TILE_CYCLES       40000
#define FAKE_SPLIT_CYCLES      30000
#define FAKE_STEP_CYCLES(rows) (1000 + 40 * (rows))

struct fake_launch {
	char kernel[64];
	CUstream stream;
};

struct fake_cuda {
	/* The GPUs that it pretends to have; the default is one H200. */
	CUresult init_result;
	int version, devices;
	int capability[FAKE_MAX_GPUS]; /* 90 is 9.0 */
	size_t memory_bytes;	       /* an allocation beyond it fails */
	CUresult cubin_result, ptx_result;
	/* Results of entering a context, of every call into one, and of every
	 * launch. */
	CUresult enter_result, context_result, launch_result;
	CUresult map_result; /* of encoding tensor maps */
	/* This many launches succeed before launch_result comes. */
	int launches_left;
	/* Memory pools are not supported, as on some virtual GPUs. */
	int no_pools;
	/* Pointers that the driver has never seen give this. */
	CUresult unknown_pointer_result;
	/* What kernels that look for inf and NaN find first: ~index, as
	 * quantize_params.h has it. */
	unsigned long long found_bad;
	/* Another thread captures a stream: calls that could wait are refused,
	 * and end its capture, unless this thread's mode is relaxed. */
	int captures;
	/* This stream is refused as a handle. */
	CUstream dead_stream;

	/* What happened. */
	int retained, depth; /* contexts */
	int modules, cubins, ptxs;
	int allocations;
	int broken_captures;
	int lookups;	     /* of functions */
	int misses;	     /* lookups of what a module does not have */
	int shared_bytes;    /* the last that a function was allowed */
	int pointer_queries; /* calls that ask about a pointer */
	int launches, waits;
	CUlaunchConfig before; /* the launch before the last; no attributes */
	CUlaunchConfig last;   /* launch, and its attributes */
	CUlaunchAttribute last_attributes[FAKE_MAX_ATTRIBUTES];
	char last_kernel[64];
	/* Launch i, counted from 0, is at i % FAKE_HISTORY. */
	struct fake_launch history[FAKE_HISTORY];
	/* Encoded; like the driver it refuses sizes, strides and addresses that are not
	 * valid. */
	int maps;
	/* Calls made with no context, or a wrong one, current. */
	int outside;
};

/* Registers memory: type CU_MEMORYTYPE_..., of a GPU; 0 forgets it. */
typedef void fake_cuda_register(const void *pointer, size_t bytes, int type,
				int ordinal, int is_managed);

#endif
