/* SPDX-License-Identifier: Apache-2.0 */
/*
 * linear.c - a linear layer as an engine runs it: the weights are quantised to
 * NVFP4 and packed once, and every step multiplies activations of bf16 (W4A16).
 * Compares y with the sums of the unquantised values, which NVFP4 represents
 * exactly here.
 *
 *	cc linear.c $(pkg-config --cflags --libs nibblas) -o linear && ./linear
 */
#include <nibblas.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 4, OUT = 8, IN = 64, STEPS = 3 };

/* A layer: y[rows, OUT] = x[rows, IN] * w[OUT, IN]^T. */
struct layer {
	struct nib_packed *weights;
	float global;
	struct nib_plan *plan; /* for ROWS rows */
	struct nib_problem problem;
};

static float w[OUT * IN], y[ROWS * OUT];
static uint16_t x[ROWS * IN]; /* bf16 */

static void check(enum nib_status status, const struct nib_error *err)
{
	if (status == NIB_STATUS_OK)
		return;
	fprintf(stderr, "%s\n", err->message);
	exit(1);
}

/* The upper half of a float: exact for values of at most 8 bits. */
static uint16_t bf16(float value)
{
	uint32_t bits;

	memcpy(&bits, &value, sizeof(bits));
	return (uint16_t)(bits >> 16);
}

static void quantize(struct nib_device *cpu, struct layer *layer)
{
	static unsigned char codes[OUT * IN / 2], scales[OUT * IN / NIB_NVFP4_BLOCK];
	const struct nib_dense dense = {.data = w, .rows = OUT, .cols = IN};
	const struct nib_fp4 b = {
	    .codes = codes, .scales = scales, .rows = OUT, .k = IN};
	/* A global scale of 1 keeps these values as they are; 0 would choose
	 * one. */
	const struct nib_quantize_options options = {.struct_bytes = sizeof(options),
						     .global = 1};
	struct nib_error err;

	check(nib_quantize(cpu, &dense, &b, &options, &layer->global, &err), &err);
	check(nib_pack(cpu, &b, NULL, &layer->weights, &err), &err);
}

/* The plan needs sizes and types; the data may change with each run. */
static void plan(struct nib_device *cpu, struct layer *layer)
{
	struct nib_error err;

	layer->problem = (struct nib_problem){
	    .x = {.data = x, .dtype = NIB_DTYPE_BF16, .rows = ROWS, .cols = IN},
	    .activations = NIB_ACTIVATIONS_DENSE,
	    .b_packed = layer->weights,
	    .alpha = &layer->global,
	    .c = {.data = y, .dtype = NIB_DTYPE_FP32, .rows = ROWS, .cols = OUT}};
	check(nib_plan_create(cpu, NIB_OP_GEMM, &layer->problem, 1, NULL, &layer->plan,
			      &err),
	      &err);
}

/* One step with other activations; returns the wrong elements of y. */
static int step(const struct layer *layer, int number)
{
	struct nib_error err;
	int wrong = 0;

	for (int i = 0; i < ROWS * IN; i++)
		x[i] = bf16((float)((i + number) % 17 - 8));
	check(nib_run(layer->plan, &layer->problem, 1, NULL, &err), &err);
	for (int i = 0; i < ROWS * OUT; i++) {
		float sum = 0;

		for (int k = 0; k < IN; k++)
			sum += (float)((i / OUT * IN + k + number) % 17 - 8) *
			       w[i % OUT * IN + k];
		wrong += y[i] != sum;
	}
	printf("step %d: y[0] = %g, %d wrong\n", number, (double)y[0], wrong);
	return wrong;
}

int main(void)
{
	/* The values of NVFP4's codes. */
	static const float e2m1[8] = {0, 0.5F, 1, 1.5F, 2, 3, 4, 6};
	struct layer layer;
	struct nib_device *cpu;
	struct nib_error err;
	int wrong = 0;

	for (int i = 0; i < OUT * IN; i++)
		w[i] = i % 3 ? e2m1[3 * i % 8] : -e2m1[5 * i % 8];
	check(nib_device_open("cpu", NULL, &cpu, &err), &err);
	quantize(cpu, &layer);
	plan(cpu, &layer);
	for (int i = 0; i < STEPS; i++)
		wrong += step(&layer, i);
	nib_plan_free(layer.plan);
	nib_packed_free(layer.weights);
	nib_device_close(cpu);
	return wrong > 0;
}
