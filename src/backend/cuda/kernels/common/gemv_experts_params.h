/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemv_experts_params.h - the parameters of the vector kernels for experts
 * (gemv_experts.cuh), and constants shared by host and device.
 */
#ifndef NIB_GEMV_EXPERTS_PARAMS_H
#define NIB_GEMV_EXPERTS_PARAMS_H

#include "gemv_params.h"

/*
 * A product of a layer of experts, whose rows are slots (struct nib_moe_layer).  If
 * weights are given, c gets the rows of slots, and the last CTA of a token's columns
 * adds them to y.  Otherwise c gets h, computed from one or two products.
 */
struct nib_gemv_layer {
	const void *ids; /* NULL: not a layer; the rest is unused */
	int32_t ids_bytes, experts;
	int64_t first_expert;
	int32_t top_k;
	int32_t a_is_by_token; /* else by slot */
	/* For h: enum nib_moe_activation, and its constants. */
	int32_t activation;
	float limit, swish, up_bias;
	/*
	 * If not NULL, codes of A are fp32 values, which are quantised as they are
	 * loaded (NVFP4, one matrix).
	 */
	const float *global;
	int32_t zero_scale; /* of a block of zeros */
	/* The number of arrivals: one counter of CTAs for each token and each CTA of a
	 * matrix.  The kernel that computes h sets the counters to 0. */
	int32_t n_arrivals;
	uint32_t *arrivals;
	const float *weights;
	void *y; /* of c's type */
	int64_t y_row_stride;
};

/*
 * Grid: x = CTAs of one matrix, y = rows of A, or slots.  p.m is 1.  For a layer,
 * p.b_is_constant means that the kernels before the layer have ended when this one
 * begins.
 */
struct nib_gemv_experts_params {
	struct nib_gemv_params p;
	struct nib_gemv_experts moe;
	/* The second matrix of weights of a dual product, with the strides of p.b. */
	struct nib_gemv_operand b2;
	const float *alpha2;
	struct nib_gemv_layer layer;
};

#endif
