/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemv_experts_params.h - what the host hands to the vector kernels for experts
 * (gemv_experts.cuh), and the numbers that both sides must agree on.
 */
#ifndef NIB_GEMV_EXPERTS_PARAMS_H
#define NIB_GEMV_EXPERTS_PARAMS_H

#include "gemv_params.h"

/*
 * Products of a layer of experts, whose rows are slots (struct nib_moe_layer).
 * With weights c gets rows of slots, and the last CTA of a token's columns adds
 * them up into y; else c gets h of what one matrix or two give.
 */
struct nib_gemv_layer {
	const void *ids; /* NULL: no layer, none of the others */
	int32_t ids_bytes, experts;
	int64_t first_expert;
	int32_t top_k;
	int32_t a_is_by_token; /* else by slot */
	/* h: enum nib_moe_activation, and its constants. */
	int32_t activation;
	float limit, swish, up_bias;
	/*
	 * A is fp32 in the place of codes, and quantised as it is loaded (NVFP4, one
	 * matrix); else NULL.
	 */
	const float *global;
	int32_t zero_scale; /* of a block of zeros */
	/* CTAs that have arrived, for each token and each CTA of a matrix: h's
	 * kernel sets these to 0. */
	int32_t n_arrivals;
	uint32_t *arrivals;
	const float *weights;
	void *y; /* of c's type */
	int64_t y_row_stride;
};

/*
 * Grid: x = CTAs of one matrix, y = rows of A, or slots.  p.m is 1; p.b_is_constant
 * of a layer: the kernels before the layer have ended when this one begins.
 */
struct nib_gemv_experts_params {
	struct nib_gemv_params p;
	struct nib_gemv_experts moe;
	/* The second weights of a dual product, with the strides of p.b. */
	struct nib_gemv_operand b2;
	const float *alpha2;
	struct nib_gemv_layer layer;
};

#endif
