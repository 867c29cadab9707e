/* SPDX-License-Identifier: Apache-2.0 */
/* moe_layer.h - checks of a layer of experts. */
#ifndef NIB_MOE_LAYER_H
#define NIB_MOE_LAYER_H

#include <stdbool.h>

#include "nibblas.h"

/* Sizes of a resolved layer. */
struct nib_moe_sizes {
	int64_t tokens, k, slots, experts, width; /* slots: top_k of each token */
	bool is_nvfp4, has_up;
};
struct nib_moe_sizes nib_moe_sizes_of(const struct nib_moe_layer *layer);

/*
 * Sizes, types and options.  out receives the layer with strides resolved; views
 * that are ignored become zero.
 */
enum nib_status nib_valid_moe_layer(const struct nib_device *device,
				    const struct nib_moe_layer *layer,
				    struct nib_moe_layer *out, struct nib_error *err);

/* Compares a run's resolved layer with the plan's. */
enum nib_status nib_same_moe_layer(const struct nib_moe_layer *plan,
				   const struct nib_moe_layer *run,
				   struct nib_error *err);

/* Pointers and overlaps of a resolved layer. */
enum nib_status nib_valid_moe_layer_data(const struct nib_moe_layer *layer,
					 struct nib_error *err);
/* Reads x_global and h_global, and with check_data scale signs: for host memory. */
enum nib_status nib_valid_moe_layer_values(const struct nib_moe_layer *layer,
					   bool check_data, struct nib_error *err);

#endif
