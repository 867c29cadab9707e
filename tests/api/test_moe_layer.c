/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_moe_layer.c - compares a layer of experts with its definition, bit by bit:
 * every slot separately, by nib_quantize() and nib_multiply() of one row.  Where h has
 * no product of its own, it is compared with double.  Covers every instruction set,
 * kind of A, packing and width of ids, experts of other devices, and empty sizes.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/data.h"
#include "common/unit.h"
#include "format/view.h"

enum { EXPERTS = 5, WIDTH = 48, K = 64, COLS = 33, MOST_TOKENS = 40 };

/* A layer with the memory of its operands. */
struct bed {
	struct nib_moe_layer layer;
	struct test_nvfp4 gate, up, down;
	struct test_dense x, y;
	struct test_nvfp4 a;
	uint8_t *ids;
	float *weights;
	float alpha[3][EXPERTS], x_global, h_global;
	struct nib_packed *packed[3];
};

struct spec {
	enum nib_activations activations;
	enum nib_moe_activation activation;
	enum nib_dtype dtype;
	int64_t tokens, top_k;
	int ids_bytes;
	bool is_quantized, is_packed;
	int64_t offset;
};

static void set(const struct nib_dense *v, int64_t row, int64_t col, double x)
{
	nib_dense_set_bits(v, 0, row, col, nib_fp64_to_dtype(x, v->dtype));
}

static void put_id(struct bed *bed, int64_t slot, int64_t id)
{
	const int32_t narrow = (int32_t)id;

	if (bed->layer.ids_bytes == 8)
		memcpy(bed->ids + 8 * slot, &id, 8);
	else
		memcpy(bed->ids + 4 * slot, &narrow, 4);
}

static int64_t get_id(const struct bed *bed, int64_t slot)
{
	int64_t id;
	int32_t narrow;

	if (bed->layer.ids_bytes == 8) {
		memcpy(&id, bed->ids + 8 * slot, 8);
		return id;
	}
	memcpy(&narrow, bed->ids + 4 * slot, 4);
	return narrow;
}

static struct nib_packed *pack(struct nib_device *device, const struct nib_fp4 *v)
{
	struct nib_packed *packed;
	struct nib_error err;

	assert_ok_err(nib_pack(device, v, NULL, &packed, &err), &err);
	return packed;
}

static struct nib_moe_layer layer_of(struct nib_device *device, const struct spec *s,
				     struct bed *bed)
{
	if (s->is_packed) {
		bed->packed[0] = pack(device, &bed->gate.view);
		bed->packed[1] = pack(device, &bed->up.view);
		bed->packed[2] = pack(device, &bed->down.view);
	}
	return (struct nib_moe_layer){
	    .x = bed->x.view,
	    .a = bed->a.view,
	    .is_quantized = s->is_quantized,
	    .activations = s->activations,
	    .ids = bed->ids,
	    .ids_bytes = s->ids_bytes,
	    .top_k = s->top_k,
	    .expert_offset = s->offset,
	    .weights = bed->weights,
	    .gate = bed->gate.view,
	    .up = bed->up.view,
	    .down = bed->down.view,
	    .gate_packed = bed->packed[0],
	    .up_packed = bed->packed[1],
	    .down_packed = bed->packed[2],
	    .gate_alpha = bed->alpha[0],
	    .up_alpha = bed->alpha[1],
	    .down_alpha = bed->alpha[2],
	    .x_global = &bed->x_global,
	    .h_global = &bed->h_global,
	    .activation = s->activation,
	    .limit = 1.5f,
	    .swiglu_alpha = 1.702f,
	    .up_bias = 1.0f,
	    .y = bed->y.view,
	};
}

static struct bed *bed_new(struct rng *rng, struct nib_device *device,
			   const struct spec *s)
{
	const enum test_scales middle = TEST_SCALES_MIDDLE;
	const int64_t slots = s->tokens * s->top_k;
	struct bed *bed = calloc(1, sizeof(*bed));

	assert_non_null(bed);
	bed->x_global = 0.01f;
	bed->h_global = 0.02f;
	bed->gate = test_nvfp4_new(rng, WIDTH, K, EXPERTS, NIB_SCALE_LAYOUT_LINEAR,
				   middle, 5, 3);
	bed->up = test_nvfp4_new(rng, WIDTH, K, EXPERTS, NIB_SCALE_LAYOUT_TILED_128X4,
				 middle, 0, 0);
	bed->down = test_nvfp4_new(rng, COLS, WIDTH, EXPERTS, NIB_SCALE_LAYOUT_LINEAR,
				   middle, 0, 0);
	bed->a =
	    test_nvfp4_new(rng, s->tokens, K, 1, NIB_SCALE_LAYOUT_LINEAR, middle, 1, 2);
	bed->x = test_dense_new(s->dtype, s->tokens, K, 1, 8);
	bed->y = test_dense_new(s->dtype, s->tokens, COLS, 1, 7);
	for (int64_t i = 0; i < s->tokens * K; i++)
		set(&bed->x.view, i / K, i % K, rng_normal(rng));
	for (int i = 0; i < 3 * EXPERTS; i++)
		bed->alpha[i / EXPERTS][i % EXPERTS] =
		    (i < 2 * EXPERTS ? 0.02f : 0.002f) * (float)(1 + rng_uniform(rng));
	bed->ids = guard_new((size_t)(slots * s->ids_bytes));
	bed->weights = guard_new((size_t)slots * sizeof(float));
	bed->layer.ids_bytes = s->ids_bytes;
	for (int64_t i = 0; i < slots; i++) {
		/* Some lie outside, on both sides. */
		put_id(bed, i, s->offset - 1 + rng_below(rng, EXPERTS + 3));
		bed->weights[i] = (float)rng_normal(rng);
	}
	if (s->ids_bytes == 8 && slots > 2) {
		put_id(bed, 0, INT64_MIN);
		put_id(bed, 1, INT64_MAX);
		put_id(bed, 2, s->offset + (INT64_C(1) << 32));
	}
	bed->layer = layer_of(device, s, bed);
	return bed;
}

static void bed_free(struct bed *bed)
{
	const struct nib_moe_layer *l = &bed->layer;
	const int64_t slots = l->y.rows * l->top_k;

	for (int i = 0; i < 3; i++)
		nib_packed_free(bed->packed[i]);
	guard_free(bed->ids, (size_t)(slots * l->ids_bytes));
	guard_free(bed->weights, (size_t)slots * sizeof(float));
	test_nvfp4_free(&bed->gate);
	test_nvfp4_free(&bed->up);
	test_nvfp4_free(&bed->down);
	test_nvfp4_free(&bed->a);
	test_dense_free(&bed->x);
	test_dense_free(&bed->y);
	free(bed);
}

static void run(struct nib_device *device, const struct nib_moe_layer *layer)
{
	struct nib_moe_layer_plan *plan;
	struct nib_error err;

	if (nib_moe_layer_plan_create(device, layer, NULL, &plan, &err) ||
	    nib_moe_layer_run(plan, layer, NULL, &err))
		fail_msg("%s", err.message);
	nib_moe_layer_plan_free(plan);
}

/* ---- the definition, a slot at a time ---------------------------------------- */

/* Codes and scales of one row. */
struct row {
	uint8_t codes[K / 2], scales[K / NIB_NVFP4_BLOCK];
	struct nib_fp4 view;
};

static void quantize_row(struct nib_device *device, struct nib_dense x, float global,
			 struct row *q)
{
	const struct nib_quantize_options options = {
	    .struct_bytes = sizeof(options), .global = global, .saturate = 1};
	struct nib_error err;

	q->view = (struct nib_fp4){
	    .codes = q->codes, .scales = q->scales, .rows = 1, .k = x.cols};
	x.rows = 1;
	assert_ok_err(nib_quantize(device, &x, &q->view, &options, NULL, &err), &err);
}

/* Matrix e of a stack. */
static struct nib_fp4 matrix(const struct nib_fp4 *stack, int64_t e)
{
	struct nib_fp4 v = *stack;

	v.codes = nib_fp4_row(stack, e, 0);
	v.scales = nib_fp4_scales(stack, e);
	v.batch = 1;
	v.batch_stride_bytes = v.scale_batch_stride_bytes = 0;
	return v;
}

static void multiply(struct nib_device *device, enum nib_op op,
		     const struct nib_problem *p)
{
	struct nib_error err;

	assert_ok_err(nib_multiply(device, op, p, 1, &err), &err);
}

static double sigmoid(double z)
{
	return 1 / (1 + exp(-z));
}

/* h in double. */
static double h_of(const struct nib_moe_layer *l, double g, double u)
{
	double v;

	switch (l->activation) {
	case NIB_MOE_ACTIVATION_SWIGLU:
		return g * sigmoid(g) * u;
	case NIB_MOE_ACTIVATION_SWIGLU_CLAMPED:
		v = fmin(g, l->limit);
		u = fmax(fmin(u, l->limit), -l->limit);
		return v * sigmoid(l->swiglu_alpha * v) * (u + l->up_bias);
	case NIB_MOE_ACTIVATION_GELU:
		v = sqrt(2 / acos(-1)) * (g + 0.044715 * g * g * g);
		return 0.5 * g * (1 + tanh(v)) * u;
	case NIB_MOE_ACTIVATION_RELU2:
		break;
	}
	/* fp32 rounds the square before h is rounded. */
	return g > 0 ? (double)(float)(g * g) : 0;
}

/* The row of a slot; A is a NVFP4 row or the dense row x. */
static void slot_row(struct nib_device *device, const struct bed *bed,
		     const struct nib_fp4 *a, struct nib_dense x, int64_t e,
		     struct nib_dense out)
{
	const struct nib_moe_layer *l = &bed->layer;
	const bool is_nvfp4 = l->activations == NIB_ACTIVATIONS_NVFP4;
	float g[WIDTH], u[WIDTH];
	uint8_t h_data[WIDTH * 4];
	struct nib_dense h = {.data = h_data,
			      .dtype = is_nvfp4 ? NIB_DTYPE_FP32 : l->x.dtype,
			      .rows = 1,
			      .cols = WIDTH};
	struct nib_problem p = {.activations = l->activations,
				.x = x,
				.b = matrix(&bed->gate.view, e),
				.b2 = matrix(&bed->up.view, e),
				.alpha = &bed->alpha[0][e],
				.alpha2 = &bed->alpha[1][e],
				.c = h};
	struct row q;

	p.a = a ? *a : (struct nib_fp4){0};
	if (l->activation == NIB_MOE_ACTIVATION_SWIGLU) {
		multiply(device, NIB_OP_DUAL_GEMM, &p);
	} else {
		p.c = (struct nib_dense){.data = g, .rows = 1, .cols = WIDTH};
		multiply(device, NIB_OP_GEMM, &p);
		p.c.data = u;
		p.b = p.b2;
		p.alpha = p.alpha2;
		multiply(device, NIB_OP_GEMM, &p);
		for (int i = 0; i < WIDTH; i++)
			set(&h, 0, i, h_of(l, g[i], u[i]));
	}
	p = (struct nib_problem){.activations = l->activations,
				 .x = h,
				 .b = matrix(&bed->down.view, e),
				 .alpha = &bed->alpha[2][e],
				 .c = out};
	if (is_nvfp4) {
		quantize_row(device, h, bed->h_global, &q);
		p.a = q.view;
	}
	multiply(device, NIB_OP_GEMM, &p);
}

/* Token t of y into want. */
static void define(struct nib_device *device, const struct bed *bed, int64_t t,
		   float *want)
{
	const struct nib_moe_layer *l = &bed->layer;
	uint8_t data[COLS * 4];
	const struct nib_dense out = {
	    .data = data, .dtype = l->y.dtype, .rows = 1, .cols = COLS};
	struct nib_dense x = l->x;
	struct nib_fp4 a = bed->a.view;
	struct row q;
	const bool is_nvfp4 = l->activations == NIB_ACTIVATIONS_NVFP4;

	memset(want, 0, COLS * sizeof(*want));
	x.data =
	    (char *)x.data + t * x.row_stride_elems * (int64_t)nib_dtype_bytes(x.dtype);
	x.rows = 1;
	a.codes = nib_fp4_row(&bed->a.view, 0, t);
	a.scales = nib_fp4_scale(&bed->a.view, 0, t, 0);
	a.rows = 1;
	if (is_nvfp4 && !l->is_quantized) {
		quantize_row(device, x, bed->x_global, &q);
		a = q.view;
	}
	for (int64_t j = 0; j < l->top_k; j++) {
		const int64_t id = get_id(bed, t * l->top_k + j);

		if (id < l->expert_offset || id >= l->expert_offset + EXPERTS)
			continue;
		slot_row(device, bed, is_nvfp4 ? &a : NULL, x, id - l->expert_offset,
			 out);
		for (int i = 0; i < COLS; i++) {
			const float product = bed->weights[t * l->top_k + j] *
					      nib_dense_get(&out, 0, 0, i);

			want[i] += product;
		}
	}
}

/*
 * h of GELU and clamped SwiGLU is worked out in fp32, within 2^-20 of it (some
 * 10 roundings); here it is rounded once from double.  That moves a value of h
 * by 2^-19 of itself or one step of its type, and y by as much of the sum of
 * the absolute values, of which `scale` is more.
 */
static double slack_of(const struct nib_moe_layer *l)
{
	static const double steps[] = {0x1p-19, 0x1p-10, 0x1p-7};

	if (l->activation == NIB_MOE_ACTIVATION_SWIGLU ||
	    l->activation == NIB_MOE_ACTIVATION_RELU2)
		return 0;
	return steps[l->y.dtype];
}

static void compare(struct nib_device *device, const struct bed *bed, const char *what)
{
	const struct nib_moe_layer *l = &bed->layer;
	const double slack = slack_of(l);
	float want[COLS];

	for (int64_t t = 0; t < l->y.rows; t++) {
		double scale = 0;

		define(device, bed, t, want);
		/* No fmax(): gcc 12 for aarch64 fails on that reduction. */
		for (int i = 0; i < COLS; i++)
			if (8 * fabs((double)want[i]) > scale)
				scale = 8 * fabs((double)want[i]);
		for (int i = 0; i < COLS; i++) {
			const float got = nib_dense_get(&l->y, 0, t, i);
			struct nib_dense one = {.data = &want[i],
						.dtype = l->y.dtype,
						.rows = 1,
						.cols = 1};
			float rounded;

			set(&one, 0, 0, want[i]);
			rounded = nib_dense_get(&one, 0, 0, 0);
			if (fabs((double)got - (double)rounded) > slack * scale ||
			    (slack == 0 &&
			     nib_fp32_bits(got) != nib_fp32_bits(rounded)))
				fail_msg("%s: token %" PRId64
					 ", column %d: %a, must be %a",
					 what, t, i, (double)got, (double)rounded);
		}
	}
}

/* ---- cases ------------------------------------------------------------------ */

static void check(const char *isa, int threads, struct rng *rng, const struct spec *s)
{
	struct nib_device *device = test_device(isa, threads);
	struct bed *bed;
	char what[128];

	if (!device)
		return;
	bed = bed_new(rng, device, s);
	snprintf(what, sizeof(what),
		 "%s, A %d, activation %d, type %d, %" PRId64 " x %" PRId64
		 ", ids %d, quantized %d, packed %d",
		 isa, s->activations, s->activation, s->dtype, s->tokens, s->top_k,
		 s->ids_bytes, s->is_quantized, s->is_packed);
	run(device, &bed->layer);
	compare(device, bed, what);
	bed_free(bed);
	nib_device_close(device);
}

static void definition(void **state)
{
	static const int64_t tokens[] = {1, 3, MOST_TOKENS};
	struct rng rng = rng_new(test_seed());

	for (int isa = 0; isa < TEST_ISAS; isa++)
		for (int i = 0; i < 3 * 4 * 3; i++) {
			const int kind = i % 3, type = i / 12;
			/* Where h is quantised it must have the same bits. */
			const int act = kind == NIB_ACTIVATIONS_DENSE
					    ? i / 3 % 4
					    : i / 3 % 4 / 2 * NIB_MOE_ACTIVATION_RELU2;
			const struct spec s = {
			    .activations = (enum nib_activations)kind,
			    .activation = (enum nib_moe_activation)act,
			    .dtype = (enum nib_dtype)type,
			    .tokens = tokens[(i + isa) % 3],
			    .top_k = 1 + (i + isa) % 4,
			    .ids_bytes = i & 1 ? 8 : 4,
			    .is_quantized = kind == 0 && (i & 2),
			    .is_packed = (i + isa) % 2,
			    .offset = i % 5 == 0 ? 0 : 7 * i,
			};

			/* These sum a single row in another order. */
			if (kind == NIB_ACTIVATIONS_DENSE &&
			    s.dtype == NIB_DTYPE_BF16 &&
			    (strcmp(test_isas[isa], "avx512vnni") == 0 ||
			     strcmp(test_isas[isa], "amx") == 0 ||
			     strcmp(test_isas[isa], "neonbf16") == 0))
				continue;
			check(test_isas[isa], 1 + i % 3, &rng, &s);
		}
}

static void nothing(void **state)
{
	static const int64_t sizes[][2] = {{0, 3}, {4, 0}, {0, 0}};
	struct rng rng = rng_new(test_seed());

	for (int i = 0; i < 3 * 3; i++) {
		const struct spec s = {.activations = (enum nib_activations)(i % 3),
				       .dtype = NIB_DTYPE_BF16,
				       .tokens = sizes[i / 3][0],
				       .top_k = sizes[i / 3][1],
				       .ids_bytes = 4};

		check("scalar", 1, &rng, &s);
	}
}

/* No slot is here: zeros, whatever y held. */
static void elsewhere(void **state)
{
	const struct spec s = {.dtype = NIB_DTYPE_FP32,
			       .tokens = 5,
			       .top_k = 2,
			       .ids_bytes = 8,
			       .offset = 100};
	struct rng rng = rng_new(test_seed());
	struct nib_device *device = test_device("scalar", 2);
	struct bed *bed = bed_new(&rng, device, &s);

	for (int i = 0; i < 10; i++)
		put_id(bed, i, i);
	run(device, &bed->layer);
	for (int i = 0; i < 5 * COLS; i++)
		assert_int_equal(
		    nib_fp32_bits(nib_dense_get(&bed->layer.y, 0, i / COLS, i % COLS)),
		    0);
	bed_free(bed);
	nib_device_close(device);
}

/* ---- refusals --------------------------------------------------------------- */

struct refusal {
	struct nib_device *device;
	struct bed *bed;
	struct nib_moe_layer_plan *plan;
};

/* The layer is refused when it is planned, or run. */
static void refuses(struct refusal *r, const struct nib_moe_layer *layer, bool at_plan,
		    enum nib_status want, const char *argument)
{
	struct nib_moe_layer_plan *plan = NULL;
	struct nib_error err = {.status = NIB_STATUS_OK};
	enum nib_status status;

	if (at_plan) {
		status = nib_moe_layer_plan_create(r->device, layer, NULL, &plan, &err);
		assert_null(plan);
	} else {
		status = nib_moe_layer_run(r->plan, layer, NULL, &err);
	}
	if (status != want || strcmp(err.argument, argument) != 0)
		fail_msg("%d '%s', must be %d '%s': %s", status, err.argument, want,
			 argument, err.message);
}

#define REFUSES(at_plan, change, argument)                                             \
	do {                                                                           \
		struct nib_moe_layer l = r.bed->layer;                                 \
		change;                                                                \
		refuses(&r, &l, at_plan, NIB_STATUS_BAD_ARGUMENT, argument);           \
	} while (0)

static void refuse_plans(struct refusal r)
{
	REFUSES(true, l.activations = 3, "layer.activations");
	REFUSES(true, l.activation = 4, "layer.activation");
	REFUSES(true,
		(l.activation = NIB_MOE_ACTIVATION_SWIGLU_CLAMPED, l.limit = -1.0f),
		"layer.limit");
	REFUSES(true, (l.activation = NIB_MOE_ACTIVATION_SWIGLU_CLAMPED, l.limit = NAN),
		"layer.limit");
	REFUSES(true, l.ids_bytes = 2, "layer.ids_bytes");
	REFUSES(true, l.expert_offset = -1, "layer.expert_offset");
	REFUSES(true, l.top_k = -1, "layer.top_k");
	REFUSES(true, l.top_k = INT32_MAX, "layer.top_k");
	REFUSES(true, l.y.rows++, "layer.y.rows");
	REFUSES(true, l.y.cols++, "layer.down.rows");
	REFUSES(true, l.x.batch = 2, "layer.x.batch");
	REFUSES(true, l.gate.k -= 16, "layer.gate.k");
	REFUSES(true, (l.gate.rows = l.up.rows = 40), "layer.gate");
	REFUSES(true, l.up.rows = 32, "layer.up.rows");
	REFUSES(true, l.up.batch = 2, "layer.up.batch");
	REFUSES(true, l.down.k = 32, "layer.down.k");
	REFUSES(true, l.down.batch = 2, "layer.down.batch");
	REFUSES(true, (l.is_quantized = 1, l.activations = NIB_ACTIVATIONS_DENSE),
		"layer.is_quantized");
	REFUSES(true,
		(l.is_quantized = 1, l.a.scale_layout = NIB_SCALE_LAYOUT_TILED_128X4,
		 l.a.scale_row_stride_bytes = 0),
		"layer.a.scale_layout");
}

static void refuse_runs(struct refusal r)
{
	const float zero = 0, negative = -1;

	REFUSES(false, l.top_k++, "layer.top_k");
	REFUSES(false, l.activation = NIB_MOE_ACTIVATION_GELU, "layer.activation");
	REFUSES(false, l.x.dtype = NIB_DTYPE_FP16, "layer.x");
	REFUSES(false, l.x.data = NULL, "layer.x.data");
	REFUSES(false, l.y.data = NULL, "layer.y.data");
	REFUSES(false, l.ids = NULL, "layer.ids");
	REFUSES(false, l.weights = NULL, "layer.weights");
	REFUSES(false, l.gate.codes = NULL, "layer.gate.codes");
	REFUSES(false, l.up.scales = NULL, "layer.up.scales");
	REFUSES(false, l.down.codes = NULL, "layer.down.codes");
	REFUSES(false, l.x_global = NULL, "layer.x_global");
	REFUSES(false, l.h_global = NULL, "layer.h_global");
	REFUSES(false, l.x_global = &zero, "layer.x_global");
	REFUSES(false, l.h_global = &negative, "layer.h_global");
	REFUSES(false, l.y.data = l.x.data, "layer.y.data");
	REFUSES(false, l.ids = l.y.data, "layer.y.data");
	REFUSES(false, l.y.data = l.down.codes, "layer.y.data");
}

static void refusals(void **state)
{
	const struct spec s = {
	    .dtype = NIB_DTYPE_FP32, .tokens = 3, .top_k = 2, .ids_bytes = 4};
	struct rng rng = rng_new(test_seed());
	struct refusal r = {.device = test_device("scalar", 1)};
	struct nib_error err;
	uint8_t before[5 * COLS * 4];

	r.bed = bed_new(&rng, r.device, &s);
	memcpy(before, r.bed->y.view.data, 3 * COLS * 4);
	assert_ok_err(
	    nib_moe_layer_plan_create(r.device, &r.bed->layer, NULL, &r.plan, &err),
	    &err);
	refuse_plans(r);
	refuse_runs(r);
	refuses(&r, NULL, true, NIB_STATUS_BAD_ARGUMENT, "layer");
	refuses(&r, NULL, false, NIB_STATUS_BAD_ARGUMENT, "layer");
	assert_memory_equal(before, r.bed->y.view.data, 3 * COLS * 4);
	nib_moe_layer_plan_free(r.plan);
	nib_moe_layer_plan_free(NULL);
	bed_free(r.bed);
	nib_device_close(r.device);
}

/* A plan without a workspace runs in exactly the caller's. */
static void workspaces(void **state)
{
	const struct spec s = {
	    .dtype = NIB_DTYPE_BF16, .tokens = 9, .top_k = 3, .ids_bytes = 4};
	const struct nib_plan_options callers = {.struct_bytes = sizeof(callers),
						 .caller_workspace = 1};
	struct nib_run_options options = {.struct_bytes = sizeof(options)};
	struct rng rng = rng_new(test_seed());
	struct nib_device *device = test_device("scalar", 2);
	struct bed *bed = bed_new(&rng, device, &s);
	struct nib_moe_layer_plan *plan;
	struct nib_moe_layer_plan_info info = {.struct_bytes = sizeof(info)};
	struct nib_error err;
	size_t bytes;

	assert_ok_err(
	    nib_moe_layer_plan_create(device, &bed->layer, &callers, &plan, &err),
	    &err);
	assert_ok(nib_moe_layer_plan_get_info(plan, &info, &err));
	assert_contains(info.backend, "cpu");
	assert_contains(info.explanation, "; down: ");
	assert_int_equal(nib_moe_layer_plan_get_info(NULL, &info, &err),
			 NIB_STATUS_BAD_ARGUMENT);
	assert_string_equal(err.argument, "plan");
	bytes = info.workspace_bytes;
	assert_int_equal(bytes % 64, 0);
	assert_int_equal(nib_moe_layer_run(plan, &bed->layer, NULL, &err),
			 NIB_STATUS_BAD_ARGUMENT);
	assert_string_equal(err.argument, "options.workspace");
	options.workspace = guard_new(bytes);
	options.workspace_bytes = bytes - 1;
	assert_int_equal(nib_moe_layer_run(plan, &bed->layer, &options, &err),
			 NIB_STATUS_BAD_ARGUMENT);
	assert_string_equal(err.argument, "options.workspace_bytes");
	options.workspace_bytes = bytes;
	assert_ok_err(nib_moe_layer_run(plan, &bed->layer, &options, &err), &err);
	compare(device, bed, "the caller's workspace");
	guard_free(options.workspace, bytes);
	nib_moe_layer_plan_free(plan);
	bed_free(bed);
	nib_device_close(device);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(definition), cmocka_unit_test(nothing),
	    cmocka_unit_test(elsewhere),  cmocka_unit_test(refusals),
	    cmocka_unit_test(workspaces),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
