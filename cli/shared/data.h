/* SPDX-License-Identifier: Apache-2.0 */
/*
 * data.h - operands of a shape: seeded random NVFP4 matrices, packed weights
 * and outputs, ready to plan, run and check.
 */
#ifndef NIB_DATA_H
#define NIB_DATA_H

#include "activations.h"
#include "device.h"
#include "nibblas.h"
#include "random.h"
#include "shapes.h"

enum data_fill {
	/* All 16 codes and all 127 finite scales, equally likely. */
	DATA_FULL,
	/* The contest's: codes up to +-1.5, scales 1 and 2, alpha 1. */
	DATA_CONTEST,
};
/* The values of x where A is dense; the contest's are those of its codes. */
enum data_values {
	/* Many magnitudes, subnormals and zeros: what a check should meet. */
	DATA_WIDE,
	/* About standard normal: what a model has, and no slow subnormals. */
	DATA_NORMAL,
};

#define DATA_FILL_WORDS "full|contest"
#define DATA_FILL_HELP                                                                 \
	"full: every code and every finite scale; contest: codes up to 1.5, "          \
	"scales 1 and 2"

struct data_options {
	enum nib_scale_layout layout;
	enum nib_dtype out;
	enum data_fill fill;
	enum cli_activations activations;
	enum data_values values;
	uint64_t seed;
	/* Nonzero: weights are also packed for device; run_* then use them. */
	int packed;
	/*
	 * Nonzero: for planning only; all operands are zero pages, which take
	 * no memory unless they are packed.
	 */
	int empty;
	/* quantize, dequantize: type of the float side. */
	enum nib_dtype dtype;
};

struct data {
	enum nib_op op;
	int is_moe;
	int64_t count;
	/*
	 * views: as the oracle takes them.  problems: the same buffers as a
	 * plan takes them, with packed weights if asked for.
	 */
	struct nib_problem *problems, *views;
	struct nib_moe_problem moe, moe_views;
	/* Where in memory all c lie, one after the other. */
	size_t c_at, c_bytes;
	/*
	 * quantize: x -> q.  dequantize: q -> x.  convert: q -> to, which has
	 * the other layout.  global belongs to q.
	 */
	struct nib_dense x;
	struct nib_fp4 q, to;
	float global;

	/* Owned.  On a GPU problems, moe, x, q and to are in its copy of
	 * memory, views in memory itself. */
	void *memory;
	size_t memory_bytes;
	int is_reserved; /* memory: addresses, with pages where written */
	struct staging staging;
	struct nib_packed **packed;
	int64_t n_packed;
};

/*
 * Makes the operands of shape where device computes; NULL is the CPU, without
 * packing.  On failure *data is NULL.
 */
enum nib_status data_new(const struct shape *shape, const struct data_options *options,
			 struct nib_device *device, struct data **data,
			 struct nib_error *err);
void data_free(struct data *data); /* NULL is fine */
/* Fills every c with 0xFF bytes: NaN, so that a missed element is seen. */
enum nib_status data_poison(struct data *data, struct nib_error *err);
/* Waits, and brings every c to where the views have it. */
enum nib_status data_fetch(struct data *data, struct nib_error *err);
/*
 * FNV-1a (64 bits) of the bytes of every c, which was fetched after data_poison():
 * the same for the same results.
 */
uint64_t data_digest(const struct data *data);
/* Plans, or runs, whichever of the calls the shape needs. */
enum nib_status data_plan(struct nib_device *device, const struct data *data,
			  const struct nib_plan_options *options,
			  struct nib_plan **plan, struct nib_error *err);
enum nib_status data_run(struct nib_plan *plan, const struct data *data,
			 const struct nib_run_options *options, struct nib_error *err);
/* Compares every c, which was fetched, with the oracle. */
enum nib_status data_check(const struct data *data,
			   const struct nib_check_options *options,
			   struct nib_check_result *result, struct nib_error *err);

/* ---- data_fill.c --------------------------------------------------------- */

void data_fill_codes(void *codes, size_t bytes, enum data_fill fill, uint64_t *seed);
void data_fill_scales(void *scales, size_t bytes, enum data_fill fill, uint64_t *seed);
/*
 * Numbers with 8 significant bits, exact in every dtype, whose size differs
 * from block to block; one block in 64 is zero.
 */
void data_fill_floats(void *x, enum nib_dtype dtype, int64_t count, uint64_t *seed);
/*
 * x, whose strides are dense.  Every row of DATA_WIDE has a size of its own,
 * below 2^data_top_exponent(); one in eight is near the least normal number.
 * Within a row values lose up to 14 bits, one in 16 is zero, and so is one
 * block in 16.
 */
void data_fill_x(const struct nib_dense *x, enum data_fill fill,
		 enum data_values values, uint64_t *seed);
/* The exponent above that of every value of DATA_WIDE. */
int data_top_exponent(enum nib_dtype dtype);

#endif
