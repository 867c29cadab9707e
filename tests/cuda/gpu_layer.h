/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_layer.h - layers of experts with random operands on the CPU and the GPU: slots of
 * experts on other devices, experts without slots, gaps after rows.
 */
#ifndef NIB_TESTS_GPU_LAYER_H
#define NIB_TESTS_GPU_LAYER_H

#include "gpu_problem.h"

struct gpu_layer_spec {
	enum nib_activations activations;
	enum nib_moe_activation activation;
	enum nib_dtype x_dtype, y_dtype;
	int64_t tokens, top_k, experts, offset;
	int64_t k, width, cols, gap; /* gap: of rows of x and y, elements */
	int ids_bytes;
	bool is_quantized, is_exact;
	bool is_tiled; /* scales of weights; else any, or if exact linear */
};

struct gpu_layer {
	struct gpu_layer_spec s;
	struct gpu_sizes a, x, y, gate, up, down;
	struct gpu_twin a_data[2], gate_data[2], up_data[2], down_data[2];
	struct gpu_twin x_data, y_data, ids, weights, alpha, in;
	struct nib_moe_layer_plan *plan;
	struct gpu_twin workspace;
};

bool gpu_layer_is_nvfp4(const struct gpu_layer_spec *s);
bool gpu_layer_is_dual(const struct gpu_layer_spec *s);
float *gpu_floats_of(const struct gpu_twin *t);
/* The expert of a slot; -1: elsewhere. */
int64_t gpu_layer_expert(const struct gpu_layer *b, int64_t slot);
/* Gives slots other experts and weights. */
void gpu_layer_fill_routes(const struct gpu_layer *b);
/* Without a plan; is_exact: products are exact, in whatever order. */
struct gpu_layer gpu_layer_new(const struct gpu_layer_spec *s);
void gpu_layer_free(struct gpu_layer *b);
/* at: gpu_host_of or gpu_device_of. */
struct nib_moe_layer gpu_layer_of(const struct gpu_layer *b,
				  void *(*at)(const struct gpu_twin *));
/* True if inputs and what is around them have not changed. */
bool gpu_layer_unchanged(const struct gpu_layer *b);

#endif
