/* SPDX-License-Identifier: Apache-2.0 */
/*
 * moe_steps_params.h - the parameters of the kernels of moe_steps.cuh.  Strides are
 * resolved; there is at least one slot and one column of y.
 */
#ifndef NIB_MOE_STEPS_PARAMS_H
#define NIB_MOE_STEPS_PARAMS_H

#include "quantize_params.h"

#define NIB_MOE_THREADS	      256
#define NIB_MOE_ROUTE_THREADS 1024
/* The most slots of a launch of nib_moe_begin, and of each token in it. */
#define NIB_MOE_BEGIN_SLOTS 2048
#define NIB_MOE_BEGIN_TOP_K 64

struct nib_moe_route_params {
	const void *ids;
	int32_t ids_bytes; /* 4 or 8 */
	int32_t experts;
	int64_t first_expert, slots;
	int32_t *row_offsets, *slot_rows;
};

/* Copies each piece of a token, 8 columns of 16 bits or a block of 16, to the rows of
 * the token's slots. */
struct nib_moe_gather_params {
	struct nib_quantize_dense x;  /* by token, if a.codes is NULL */
	struct nib_quantize_nvfp4 a;  /* by token */
	struct nib_quantize_nvfp4 to; /* codes NULL: to_dense, of x's type */
	void *to_dense;		      /* [slots, 8 pieces] */
	const float *global;	      /* if x is quantised */
	const int32_t *slot_rows;     /* -1: no row */
	int64_t tokens, top_k, pieces;
	uint8_t zero_scale;
};

/*
 * Route and gather in one launch.  The first offset_ctas CTAs write row_offsets; then
 * each token has token_ctas CTAs.
 */
struct nib_moe_begin_params {
	struct nib_moe_route_params route;
	struct nib_moe_gather_params gather;
	int32_t offset_ctas, token_ctas;
};

/* Quantises x to q, with one thread for a quarter of each block. */
struct nib_moe_quantize_params {
	struct nib_quantize_dense x;
	struct nib_quantize_nvfp4 q;
	const float *global;
	uint8_t zero_scale;
};

/* Each row has 16 * groups values. */
struct nib_moe_activate_params {
	const float *gate, *up; /* up is NULL if there is none */
	const int32_t *rows;	/* how many */
	int64_t most_rows, groups;
	struct nib_quantize_nvfp4 q; /* h; codes NULL: to dense */
	struct nib_quantize_dense dense;
	const float *global;
	/* enum nib_moe_activation; NIB_MOE_ACTIVATION_SWIGLU: gate is h already. */
	int32_t activation;
	float limit, swish, up_bias;
	uint8_t zero_scale;
};

struct nib_moe_combine_params {
	const void *rows; /* [slots, cols] of y's type */
	const int32_t *slot_rows;
	const float *weights;
	int64_t top_k;
	struct nib_quantize_dense y; /* is_aligned: 16 bytes at once */
};

#endif
