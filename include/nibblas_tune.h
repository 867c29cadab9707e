/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nibblas_tune.h - measuring a GPU, and the costs by which its planner chooses.
 * Programs that multiply do not need it.  The rules at the top of nibblas.h hold here.
 */
#ifndef NIBBLAS_TUNE_H
#define NIBBLAS_TUNE_H

#include "nibblas.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Work that does one thing only, as fast as the device can: a limit to compare
 * measurements with.
 */
enum nib_probe {
	/* Reads amount bytes, a multiple of 16, at data, each once. */
	NIB_PROBE_READ = 0,
	/* amount FLOP on the tensor cores, with operands in registers and
	 * shared memory: of fp16 products on Hopper, of NVFP4 on Blackwell. */
	NIB_PROBE_MULTIPLY = 1,
	/* One multiprocessor counts amount cycles of its clock. */
	NIB_PROBE_CYCLES = 2,
};
/*
 * Enqueues a probe.  data: for NIB_PROBE_READ memory of the device at a
 * multiple of 16 bytes, else NULL.  *done (may be NULL) receives the amount of
 * the probe; FLOP are rounded up to whole steps of all multiprocessors.  An
 * amount of 0 does nothing.  "cpu" has no probes: NIB_STATUS_UNSUPPORTED.
 */
NIB_API enum nib_status nib_device_probe(struct nib_device *device,
					 enum nib_probe probe, const void *data,
					 int64_t amount, int64_t *done,
					 const struct nib_call_options *options,
					 struct nib_error *err);

/*
 * The costs, in cycles, by which a GPU's planner divides products into tiles.  Only
 * their ratios matter.  They change the bits of a result only if they change the split
 * of k (see nib_run()).
 */
#define NIB_MAX_TILE_SIZES 32
struct nib_costs {
	size_t struct_bytes;
	/* Kernel revision; costs of another revision are invalid. */
	int revision;
	int sizes;			     /* number of tile sizes */
	int tile_rows[NIB_MAX_TILE_SIZES];   /* rows of a tile, ascending */
	int step_cycles[NIB_MAX_TILE_SIZES]; /* of a step of k64, 1 to 10^6 */
	int tile_cycles;		     /* of a tile without its steps */
	int split_cycles; /* of adding two split-k slices of 128 rows */
	/* nib_device_set_costs() does not read these. */
	int tile_cols;	   /* columns of c of a tile */
	int tiles_at_once; /* on all multiprocessors together */
};
/*
 * The costs of a device; "cpu" has none: NIB_STATUS_UNSUPPORTED.  A device opens with
 * the built-in ones.  The library reads no file: `nib tune` measures costs and
 * keeps them, and the command and the Python package set them when they open a
 * device.
 */
NIB_API enum nib_status nib_device_get_costs(struct nib_device *device,
					     struct nib_costs *costs,
					     struct nib_error *err);
/*
 * Later plans use these costs (NULL = the built-in ones).  revision, sizes and
 * tile_rows must be those of nib_device_get_costs().  No other thread may make plans at
 * the same time.
 */
NIB_API enum nib_status nib_device_set_costs(struct nib_device *device,
					     const struct nib_costs *costs,
					     struct nib_error *err);

#ifdef __cplusplus
}
#endif

#endif
