/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run.h - nib run in parts: the layers (run_layers.c), the input (run_input.c), the
 * product and its output (cmd_run.c).
 */
#ifndef NIB_CLI_RUN_H
#define NIB_CLI_RUN_H

#include "activations.h"
#include "cli.h"

struct run_args {
	struct cli_shared shared;
	const char *weights, *tensor, *tensor2, *input, *input_tensor;
	const char *output, *output_tensor;
	int64_t index;
	enum cli_activations activations;
	enum nib_dtype out;
	int force, saturate;
};

#define MAX_STAGED 8 /* codes and scales of a, b, b2, or x; alphas; c */

struct runner {
	const struct run_args *args;
	struct nib_file *weights, *inputs;
	struct nib_device *device;
	const struct nib_layer *layers[2]; /* the second for --tensor2 */
	float globals[2];
	/* The input: rank and shape as in its file. */
	int rank;
	int64_t shape[NIB_MAX_RANK];
	int64_t rows;
	float a_global; /* 1 where A is dense */
	const char *a_format, *a_global_from;
	void *codes, *scales; /* of a float input, quantised */
	void *copies[3];      /* of layers in another order: b, b2, a */
	void *rounded;	      /* a float input in another type */
	/* A float input times AWQ's scales of the layer. */
	struct nib_file_tensor smoothed;
	void *smoothed_data;
	/* problem: views of memory where the device computes; c: on the host. */
	struct nib_problem problem;
	struct nib_dense c;
	struct nib_packed *packed[2];
	struct staging staged[MAX_STAGED];
	int n_staged;
	double quantize_s, pack_s, run_s;
};

/* The device address of a copy of host bytes; NULL on failure, with err. */
void *run_stage(struct runner *r, const void *host, size_t bytes,
		struct nib_error *err);
/* The same for a dense matrix with linear scales. */
enum nib_status run_stage_view(struct runner *r, const struct nib_fp4 *q,
			       struct nib_fp4 *there, struct nib_error *err);

/* The steps of nib run, in this order: CLI_OK, or the exit code after a message. */

/* Finds the layers of --tensor and --tensor2. */
int run_find_layers(struct runner *r);
/* Finds the input, and quantises or rounds it. */
int run_load_input(struct runner *r);
/* Packs the layers, or copies them to the device. */
int run_load_weights(struct runner *r);

#endif
