/* SPDX-License-Identifier: Apache-2.0 */
/* vector_layer.h - a layer of experts of few slots by the vector kernels. */
#ifndef NIB_SM90_VECTOR_LAYER_H
#define NIB_SM90_VECTOR_LAYER_H

#include "backend/cuda/common/cuda.h"

/*
 * Computes the layer in two or three launches (kernels/common/gemv_experts.cuh).  If it
 * cannot, *taken is false and nothing is launched.  With the context entered.
 */
enum nib_status sm90_vector_layer(struct cuda_device *device,
				  const struct nib_moe_few *few, void *stream,
				  bool *taken, struct nib_error *err);

#endif
