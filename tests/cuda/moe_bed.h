/* SPDX-License-Identifier: Apache-2.0 */
/*
 * moe_bed.h - helpers of tests of layers of experts on the fake driver: layers whose
 * arrays are only addresses, their plans, workspaces and runs.
 */
#ifndef NIB_TESTS_CUDA_MOE_BED_H
#define NIB_TESTS_CUDA_MOE_BED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fake_bed.h"
#include "nibblas.h"

/* The first of a layer's experts. */
#define OFFSET 20

struct spec {
	enum nib_activations activations;
	enum nib_moe_activation activation;
	enum nib_dtype dtype;
	int64_t tokens, top_k, k, cols;
	int ids_bytes;
	bool is_quantized, is_tiled;
	const char *launches; /* for a test that says what it expects */
};

struct bed {
	struct fake_cuda *fake;
	struct nib_device *device;
	int64_t width, experts;
	const struct spec *spec;
	struct nib_moe_layer layer;
	struct nib_moe_layer_plan *plan;
	uintptr_t next;
	char *workspace;
	size_t workspace_bytes;
	int first; /* launch of the last run */
	struct nib_error err;
};

bool is_nvfp4(const struct spec *s);
int64_t slots_of(const struct spec *s);
int64_t size_of(enum nib_dtype dtype);

/* For layers of so many experts of so many rows. */
void open_bed(struct bed *bed, int64_t width, int64_t experts);
/* Nothing of the driver's is left. */
void close_bed(struct bed *bed);

/* A layer, its plan, and a workspace for it. */
void use(struct bed *bed, const struct spec *s);
enum nib_status make_plan(struct bed *bed, int caller_workspace);
enum nib_status run(struct bed *bed);

/* Launch i of the last run. */
const struct fake_launch *launch_of(const struct bed *bed, int i);
int launches_of(const struct bed *bed);

#endif
