/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_check_moe_layer.c - layers of experts on the GPU, bit by bit:
 *
 *   exact      products that are exact in any order, so that the layer of the
 *              CPU gives the same bits (all activations but SwiGLU, whose
 *              epilogue differs in its last bits);
 *   composed   any weights, against the steps one by one: rows and their
 *              quantisation on the CPU, the same products by nib_moe_run().
 *
 * Covers slots of other experts, few and very many slots, all types, capture in a
 * graph, and pointers that do not belong to the GPU.
 */
#include "gpu_layer.h"
#include "gpu_stream.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- runs ---------------------------------------------------------------- */

static void plan_layer(struct gpu_layer *b)
{
	const struct nib_moe_layer layer = gpu_layer_of(b, gpu_device_of);
	const struct nib_plan_options options = {.struct_bytes = sizeof(options),
						 .caller_workspace = 1};
	struct nib_moe_layer_plan_info info = {.struct_bytes = sizeof(info)};

	gpu_must(nib_moe_layer_plan_create(gpu_test.gpu, &layer, &options, &b->plan,
					   &gpu_test.err),
		 "plan");
	gpu_must(nib_moe_layer_plan_get_info(b->plan, &info, &gpu_test.err), "info");
	b->workspace = gpu_twin_new(info.workspace_bytes);
}

static enum nib_status run_layer(const struct gpu_layer *b,
				 const struct nib_moe_layer *layer, void *stream)
{
	const struct nib_run_options options = {
	    .struct_bytes = sizeof(options),
	    .workspace = gpu_device_of(&b->workspace),
	    .workspace_bytes = b->workspace.bytes,
	    .stream = stream,
	};

	return nib_moe_layer_run(b->plan, layer, &options, &gpu_test.err);
}

/* y of the GPU into the host's; NULL, or what went wrong. */
static const char *run_on_gpu(const struct gpu_layer *b)
{
	const struct nib_moe_layer layer = gpu_layer_of(b, gpu_device_of);

	gpu_poison(&b->workspace, 0xFF);
	gpu_poison(&b->y_data, 0xFF);
	if (run_layer(b, &layer, NULL) ||
	    nib_device_wait(gpu_test.gpu, NULL, &gpu_test.err))
		return gpu_test.err.message;
	if (!gpu_guards_hold(&b->workspace))
		return "wrote into the guard band of the workspace";
	return gpu_download(&b->y_data, gpu_host_of(&b->y_data))
		   ? NULL
		   : "wrote into the guard band of y";
}

/* The bits of an element of y's memory. */
static uint32_t bits_of(const struct gpu_sizes *s, const void *data, int64_t row,
			int64_t col)
{
	const int64_t i = row * (s->k + s->gap) + col;
	uint16_t half;
	uint32_t word;

	if (s->dtype == NIB_DTYPE_FP32) {
		memcpy(&word, (const char *)data + 4 * i, 4);
		return word;
	}
	memcpy(&half, (const char *)data + 2 * i, 2);
	return half;
}

static struct {
	int64_t all, finite, nonzero; /* values that slots may be in */
} seen;

static float value_of(uint32_t bits, enum nib_dtype dtype)
{
	uint32_t word = bits;
	float x;

	if (dtype == NIB_DTYPE_BF16)
		word = bits << 16;
	if (dtype == NIB_DTYPE_FP16)
		word = (bits & 0x8000) << 16 | (bits & 0x7FFF) << 13;
	memcpy(&x, &word, 4);
	return dtype == NIB_DTYPE_FP16 ? x * 0x1p112f : x;
}

static void count_value(const struct gpu_layer *b, bool counts, uint32_t bits)
{
	const float x = value_of(bits, b->s.y_dtype);

	seen.all += counts;
	seen.finite += counts && x - x == 0;
	seen.nonzero += counts && x != 0;
}

/* NULL if y of the host has the bits of want and poison between the rows. */
static const char *compare(const struct gpu_layer *b, const void *want)
{
	const struct gpu_sizes *y = &b->y;
	const uint32_t poison = y->dtype == NIB_DTYPE_FP32 ? ~0u : 0xFFFF;
	static char text[160];

	for (int64_t t = 0; t < y->rows; t++)
		for (int64_t i = 0; i < y->k + y->gap; i++) {
			const uint32_t got = bits_of(y, gpu_host_of(&b->y_data), t, i);
			const uint32_t must =
			    i < y->k ? bits_of(y, want, t, i) : poison;

			count_value(b, i < y->k, must);
			if (got == must)
				continue;
			snprintf(text, sizeof(text),
				 "token %" PRId64 ", column %" PRId64
				 ": bits %x, not %x",
				 t, i, got, must);
			return text;
		}
	return gpu_layer_unchanged(b) ? NULL : "an input changed";
}

static void tell(const struct gpu_layer *b, const char *what, const char *why)
{
	static const char *const kinds[] = {"W4A4", "W4A16"};
	static const char *const names[] = {"SwiGLU", "clamped", "GELU", "ReLU2"};

	gpu_test.passed += !why;
	gpu_test.failed += why != NULL;
	if (why)
		printf(
		    "FAIL %s %s %s, x %s%s, y %s, %" PRId64 " x %" PRId64 " of %" PRId64
		    ", k %" PRId64 ", width %" PRId64 ", cols %" PRId64
		    ", ids %d: %s\n",
		    what, kinds[b->s.activations], names[b->s.activation],
		    gpu_dtype_name(b->s.x_dtype), b->s.is_quantized ? " quantised" : "",
		    gpu_dtype_name(b->s.y_dtype), b->s.tokens, b->s.top_k, b->s.experts,
		    b->s.k, b->s.width, b->s.cols, b->s.ids_bytes, why);
}

/* ---- exact: the CPU's layer ---------------------------------------------- */

static void check_exact(struct gpu_layer_spec s)
{
	struct nib_moe_layer_plan *plan;
	struct nib_moe_layer layer;
	struct gpu_layer b;
	const char *why;
	void *want;

	s.is_exact = true;
	b = gpu_layer_new(&s);
	layer = gpu_layer_of(&b, gpu_host_of);
	want = gpu_take(b.y_data.bytes);
	layer.y.data = want;
	gpu_must(
	    nib_moe_layer_plan_create(gpu_test.cpu, &layer, NULL, &plan, &gpu_test.err),
	    "the CPU's plan");
	gpu_must(nib_moe_layer_run(plan, &layer, NULL, &gpu_test.err),
		 "the CPU's layer");
	nib_moe_layer_plan_free(plan);
	plan_layer(&b);
	why = run_on_gpu(&b);
	tell(&b, "exact", why ? why : compare(&b, want));
	free(want);
	gpu_layer_free(&b);
}

/* ---- composed: the steps one by one -------------------------------------- */

/* Rows by expert, on both sides. */
struct steps {
	int32_t *slot_rows;
	struct gpu_twin offsets, a[2], x, h, q[2], rows;
	struct gpu_sizes a_sizes, x_sizes, h_sizes, q_sizes, rows_sizes;
};

/* Counts the slots of experts before, as the definition says. */
static void route(const struct gpu_layer *b, struct steps *st)
{
	const int64_t slots = b->s.tokens * b->s.top_k;
	int32_t *offsets = gpu_host_of(&st->offsets), row = 0;

	for (int64_t e = 0; e < b->s.experts; e++) {
		offsets[e] = row;
		for (int64_t i = 0; i < slots; i++)
			if (gpu_layer_expert(b, i) == e)
				st->slot_rows[i] = row++;
	}
	offsets[b->s.experts] = row;
	for (int64_t i = 0; i < slots; i++)
		if (gpu_layer_expert(b, i) < 0)
			st->slot_rows[i] = -1;
	gpu_upload(&st->offsets);
}

static void quantize(struct nib_dense x, struct nib_fp4 q, float global)
{
	const struct nib_quantize_options options = {
	    .struct_bytes = sizeof(options), .global = global, .saturate = 1};

	gpu_must(nib_quantize(gpu_test.cpu, &x, &q, &options, NULL, &gpu_test.err),
		 "quantize");
}

/* Rows of bytes of tokens to those of slots. */
static void gather(const struct gpu_layer *b, const struct steps *st, const void *from,
		   int64_t stride, const struct gpu_twin *to, int64_t bytes)
{
	for (int64_t i = 0; i < b->s.tokens * b->s.top_k; i++)
		if (st->slot_rows[i] >= 0)
			memcpy((char *)gpu_host_of(to) + st->slot_rows[i] * bytes,
			       (const char *)from + i / b->s.top_k * stride,
			       (size_t)bytes);
	gpu_upload(to);
}

static void gather_input(const struct gpu_layer *b, const struct steps *st)
{
	const struct nib_moe_layer l = gpu_layer_of(b, gpu_host_of);
	const int64_t k = b->s.k, size = b->x.dtype == NIB_DTYPE_FP32 ? 4 : 2;
	struct nib_fp4 a = l.a;

	gather(b, st, l.x.data, (k + b->x.gap) * size, &st->x, k * size);
	if (!b->s.is_quantized) {
		a = (struct nib_fp4){.rows = b->s.tokens, .k = k};
		a.codes = gpu_take((size_t)(b->s.tokens * k / 2));
		a.scales = gpu_take((size_t)(b->s.tokens * k / 16));
		quantize(l.x, a, *l.x_global);
	}
	gather(b, st, a.codes, a.row_stride_bytes ? a.row_stride_bytes : k / 2,
	       &st->a[0], k / 2);
	gather(b, st, a.scales,
	       a.scale_row_stride_bytes ? a.scale_row_stride_bytes : k / 16, &st->a[1],
	       k / 16);
	if (!b->s.is_quantized) {
		free(a.codes);
		free(a.scales);
	}
}

static struct steps steps_new(const struct gpu_layer *b)
{
	const struct gpu_layer_spec *s = &b->s;
	const int64_t slots = s->tokens * s->top_k;
	const enum nib_dtype h = gpu_layer_is_nvfp4(s) || !gpu_layer_is_dual(s)
				     ? NIB_DTYPE_FP32
				     : s->x_dtype;
	struct steps st = {
	    .slot_rows = gpu_take((size_t)slots * 4),
	    .offsets = gpu_twin_new((size_t)s->experts * 4 + 4),
	    .a_sizes = {slots, s->k, 1, 0, NIB_SCALE_LAYOUT_LINEAR, NIB_DTYPE_FP32,
			false},
	    .x_sizes = {slots, s->k, 1, 0, NIB_SCALE_LAYOUT_LINEAR, s->x_dtype, false},
	    .h_sizes = {slots, s->width, 1, 0, NIB_SCALE_LAYOUT_LINEAR, h, false},
	    .q_sizes = {slots, s->width, 1, 0, NIB_SCALE_LAYOUT_LINEAR, NIB_DTYPE_FP32,
			false},
	    .rows_sizes = {slots, s->cols, 1, 0, NIB_SCALE_LAYOUT_LINEAR, s->y_dtype,
			   false},
	};

	gpu_operand_new(&st.a_sizes, st.a);
	gpu_operand_new(&st.q_sizes, st.q);
	st.x = gpu_twin_new(gpu_dense_bytes(&st.x_sizes));
	st.h = gpu_twin_new(gpu_dense_bytes(&st.h_sizes));
	st.rows = gpu_twin_new(gpu_dense_bytes(&st.rows_sizes));
	gpu_upload(&st.h);
	gpu_upload(&st.rows);
	route(b, &st);
	gather_input(b, &st);
	return st;
}

static void steps_free(struct steps *st)
{
	for (int i = 0; i < 2; i++) {
		gpu_twin_free(&st->a[i]);
		gpu_twin_free(&st->q[i]);
	}
	gpu_twin_free(&st->offsets);
	gpu_twin_free(&st->x);
	gpu_twin_free(&st->h);
	gpu_twin_free(&st->rows);
	free(st->slot_rows);
}

static void multiply(enum nib_op op, const struct nib_moe_problem *moe,
		     const struct gpu_twin *c)
{
	struct nib_plan *plan;

	gpu_must(nib_moe_plan_create(gpu_test.gpu, op, moe, NULL, &plan, &gpu_test.err),
		 "the product's plan");
	gpu_must(nib_moe_run(plan, moe, NULL, &gpu_test.err), "the product");
	gpu_must(nib_device_wait(gpu_test.gpu, NULL, &gpu_test.err), "wait");
	nib_plan_free(plan);
	if (!gpu_download(c, gpu_host_of(c)))
		printf("FAIL guard band of a product\n"), exit(1);
}

static void square(const struct steps *st)
{
	float *h = gpu_host_of(&st->h);

	for (int64_t i = 0; i < st->h_sizes.rows * st->h_sizes.k; i++)
		h[i] = h[i] < 0 ? 0 : h[i] * h[i];
}

/* The rows of slots; SwiGLU, and with NVFP4 also ReLU^2. */
static void multiply_all(const struct gpu_layer *b, struct steps *st)
{
	const struct nib_moe_layer l = gpu_layer_of(b, gpu_device_of);
	struct nib_moe_problem moe = {
	    .problem.a = gpu_nvfp4(&st->a_sizes, gpu_device_of(&st->a[0]),
				   gpu_device_of(&st->a[1])),
	    .problem.x = gpu_dense(&st->x_sizes, gpu_device_of(&st->x)),
	    .problem.activations = b->s.activations,
	    .problem.b = l.gate,
	    .problem.b2 = gpu_layer_is_dual(&b->s) ? l.up : (struct nib_fp4){0},
	    .problem.alpha = l.gate_alpha,
	    .problem.alpha2 = l.up_alpha,
	    .problem.c = gpu_dense(&st->h_sizes, gpu_device_of(&st->h)),
	    .row_offsets = gpu_device_of(&st->offsets),
	};

	multiply(gpu_layer_is_dual(&b->s) ? NIB_OP_DUAL_GEMM : NIB_OP_GEMM, &moe,
		 &st->h);
	if (!gpu_layer_is_dual(&b->s))
		square(st);
	if (gpu_layer_is_nvfp4(&b->s))
		quantize(gpu_dense(&st->h_sizes, gpu_host_of(&st->h)),
			 gpu_nvfp4(&st->q_sizes, gpu_host_of(&st->q[0]),
				   gpu_host_of(&st->q[1])),
			 gpu_floats_of(&b->in)[1]);
	gpu_upload(&st->q[0]);
	gpu_upload(&st->q[1]);
	moe.problem.a =
	    gpu_nvfp4(&st->q_sizes, gpu_device_of(&st->q[0]), gpu_device_of(&st->q[1]));
	moe.problem.x = moe.problem.c;
	moe.problem.b = l.down;
	moe.problem.b2 = (struct nib_fp4){0};
	moe.problem.alpha = l.down_alpha;
	moe.problem.alpha2 = NULL;
	moe.problem.c = gpu_dense(&st->rows_sizes, gpu_device_of(&st->rows));
	multiply(NIB_OP_GEMM, &moe, &st->rows);
}

/* The fp32 sums, in order; y has fp32. */
static void combine(const struct gpu_layer *b, const struct steps *st, float *want)
{
	const int64_t pitch = b->y.k + b->y.gap;

	for (int64_t i = 0; i < b->s.tokens * b->s.top_k; i++)
		for (int64_t c = 0; c < b->s.cols && st->slot_rows[i] >= 0; c++) {
			const float x =
			    value_of(bits_of(&st->rows_sizes, gpu_host_of(&st->rows),
					     st->slot_rows[i], c),
				     b->s.y_dtype);
			const float product = gpu_floats_of(&b->weights)[i] * x;

			want[i / b->s.top_k * pitch + c] += product;
		}
}

static void check_composed(const struct gpu_layer_spec *s)
{
	struct gpu_layer b = gpu_layer_new(s);
	struct steps st = steps_new(&b);
	void *want = gpu_take(b.y_data.bytes);
	const char *why;

	if (s->tokens * s->top_k > 0)
		multiply_all(&b, &st);
	combine(&b, &st, want);
	plan_layer(&b);
	why = run_on_gpu(&b);
	tell(&b, "composed", why ? why : compare(&b, want));
	free(want);
	steps_free(&st);
	gpu_layer_free(&b);
}

/* ---- cases --------------------------------------------------------------- */

static bool takes_dense(void)
{
	return gpu_test.arithmetic == NIB_ARITHMETIC_FP16_TENSOR;
}

/* Whether the GPU computes a layer of few slots by Hopper's vector kernels. */
static bool has_few_launches(void)
{
	struct nib_device_info info = {.struct_bytes = sizeof(info)};

	gpu_must(nib_device_get_info(gpu_test.gpu, &info, &gpu_test.err), "info");
	return strcmp(info.backend, "cuda-sm90") == 0;
}

static struct gpu_layer_spec any_spec(int i, enum nib_activations activations)
{
	/* The last one has more slots of a token than one launch takes, and in a small
	 * run too a short k. */
	static const int64_t tokens[] = {1, 3, 64, 0, 17, 300, 20};
	static const int64_t top_k[] = {8, 4, 2, 3, 1, 4, 65};
	static const int64_t k[] = {64, 16, 1088, 272};
	const int at = i % 7;
	const bool dense = activations == NIB_ACTIVATIONS_DENSE;

	return (struct gpu_layer_spec){
	    .activations = activations,
	    .activation = (enum nib_moe_activation)(i % 4),
	    .x_dtype = (enum nib_dtype)(dense ? 1 + i % 2 : i % 3),
	    .y_dtype = (enum nib_dtype)(gpu_rnd_below(3)),
	    .tokens = tokens[at],
	    .top_k = top_k[at],
	    .experts = 1 + gpu_rnd_below(i % 3 ? 9 : 300),
	    .offset = gpu_rnd_below(2) * 1000,
	    .k = k[tokens[at] > 64 || i == 6 ? i % 2 : i % 4],
	    .width = 16 * (1 + gpu_rnd_below(9)),
	    .cols = 1 + gpu_rnd_below(150),
	    .gap = 8 * gpu_rnd_below(2),
	    .ids_bytes = i & 1 ? 8 : 4,
	    .is_quantized = !dense && i % 5 == 4,
	};
}

static void check_all(enum nib_activations activations)
{
	for (int i = 0; i < gpu_cases(140); i++) {
		struct gpu_layer_spec s = any_spec(i, activations);

		if (i % 2)
			s.cols = (s.cols + 7) / 8 * 8;
		if (s.activation == NIB_MOE_ACTIVATION_SWIGLU)
			s.activation = NIB_MOE_ACTIVATION_GELU;
		check_exact(s);
		s.activation = activations || i % 3 ? NIB_MOE_ACTIVATION_SWIGLU
						    : NIB_MOE_ACTIVATION_RELU2;
		s.y_dtype = NIB_DTYPE_FP32;
		check_composed(&s);
	}
}

/*
 * Layers in two launches or three: each activation, both layouts of scales, blocks
 * of h that are in several CTAs, more slots of a token than a cluster has CTAs.
 */
static void check_few(enum nib_activations activations)
{
	static const int64_t top_k[] = {8, 2, 10, 1};
	const bool dense = activations == NIB_ACTIVATIONS_DENSE;

	for (int i = 0; i < gpu_cases(48); i++) {
		const int64_t slots = (1 + i % 3) * top_k[i / 2 % 4];
		struct gpu_layer_spec s = {
		    .activations = activations,
		    .activation = (enum nib_moe_activation)(1 + i / 2 % 3),
		    .x_dtype = (enum nib_dtype)(dense ? 1 + i % 2 : i % 3),
		    .y_dtype = (enum nib_dtype)gpu_rnd_below(3),
		    .tokens = 1 + i % 3,
		    .top_k = top_k[i / 2 % 4],
		    .experts = 2 * slots,
		    .k = 256 * (1 + gpu_rnd_below(3)),
		    .width = 256,
		    .cols = 1 + gpu_rnd_below(400),
		    .gap = 8 * gpu_rnd_below(2),
		    .ids_bytes = i & 1 ? 8 : 4,
		    .is_quantized = !dense && i % 5 == 4,
		    .is_tiled = i % 4 != 3,
		};

		if (s.is_tiled)
			s.width = 32 * (1 + gpu_rnd_below(12));
		check_exact(s);
		s.activation = activations || i % 3 ? NIB_MOE_ACTIVATION_SWIGLU
						    : NIB_MOE_ACTIVATION_RELU2;
		s.y_dtype = NIB_DTYPE_FP32;
		check_composed(&s);
	}
}

/* ---- a graph ------------------------------------------------------------- */

/* T = 1 of a usual shape, captured; launches are counted. */
static void check_graph(enum nib_activations activations, int64_t tokens)
{
	const struct gpu_layer_spec s = {.activations = activations,
					 .activation = NIB_MOE_ACTIVATION_SWIGLU,
					 .x_dtype = NIB_DTYPE_BF16,
					 .y_dtype = NIB_DTYPE_BF16,
					 .tokens = tokens,
					 .top_k = 8,
					 /* Vector kernels, or tiles. */
					 .experts = tokens == 1 ? 64 : 16,
					 .k = 256,
					 .width = 128,
					 .cols = 256,
					 .ids_bytes = 8,
					 .is_tiled = tokens == 1};
	struct gpu_layer b = gpu_layer_new(&s);
	const struct nib_moe_layer layer = gpu_layer_of(&b, gpu_device_of);
	struct gpu_graph graph;
	void *stream = gpu_stream_new(), *want;
	const char *why;

	plan_layer(&b);
	gpu_must(run_on_gpu(&b) ? NIB_STATUS_DEVICE_FAILED : NIB_STATUS_OK, "layer");
	want = gpu_take(b.y_data.bytes);
	memcpy(want, gpu_host_of(&b.y_data), b.y_data.bytes);
	gpu_capture_begin(stream);
	why = run_layer(&b, &layer, stream) ? gpu_test.err.message : NULL;
	gpu_must(why ? NIB_STATUS_DEVICE_FAILED : NIB_STATUS_OK, "capture");
	why = gpu_capture_end(stream, &graph);
	for (int i = 0; i < 2 && !why; i++) {
		gpu_poison(&b.y_data, 0xFF);
		gpu_poison(&b.workspace, 0xFF);
		gpu_layer_fill_routes(&b);
		why = run_on_gpu(&b);
		memcpy(want, gpu_host_of(&b.y_data), b.y_data.bytes);
		gpu_poison(&b.y_data, 0xFF);
		gpu_graph_launch(&graph, stream);
		gpu_must(nib_device_wait(gpu_test.gpu, stream, &gpu_test.err), "wait");
		if (!why && !gpu_download(&b.y_data, gpu_host_of(&b.y_data)))
			why = "wrote into the guard band of y";
		if (!why)
			why = compare(&b, want);
	}
	if (!why && graph.nodes != graph.kernels)
		why = "nodes that are no kernels";
	if (!why && has_few_launches() && tokens == 1 &&
	    graph.kernels != (gpu_layer_is_nvfp4(&s) ? 3 : 2))
		why = "not in two launches, or three where x is quantised";
	tell(&b, "graph", why);
	printf("%s of %" PRId64 " token%s: %zu launches\n",
	       gpu_layer_is_nvfp4(&s) ? "W4A4" : "W4A16", tokens,
	       tokens == 1 ? "" : "s", graph.kernels);
	gpu_graph_free(&graph);
	gpu_stream_free(stream);
	free(want);
	gpu_layer_free(&b);
}

/* ---- refusals ------------------------------------------------------------ */

static void refuses(const struct gpu_layer *b, const struct nib_moe_layer *layer,
		    const char *argument)
{
	const enum nib_status status = run_layer(b, layer, NULL);
	char name[80];

	snprintf(name, sizeof(name), "%s in host memory", argument);
	gpu_verdict(status == NIB_STATUS_BAD_ARGUMENT &&
			strcmp(gpu_test.err.argument, argument) == 0,
		    name, status ? gpu_test.err.message : "no error");
}

static void check_pointers(void)
{
	const struct gpu_layer_spec s = any_spec(1, NIB_ACTIVATIONS_NVFP4);
	struct gpu_layer b = gpu_layer_new(&s);
	const struct nib_moe_layer on_host = gpu_layer_of(&b, gpu_host_of);
	struct nib_moe_layer l = gpu_layer_of(&b, gpu_device_of);

	plan_layer(&b);
#define REFUSES(field, argument)                                                       \
	do {                                                                           \
		const struct nib_moe_layer good = l;                                   \
		l.field = on_host.field;                                               \
		refuses(&b, &l, argument);                                             \
		l = good;                                                              \
	} while (0)
	REFUSES(x.data, "layer.x.data");
	REFUSES(ids, "layer.ids");
	REFUSES(weights, "layer.weights");
	REFUSES(x_global, "layer.x_global");
	REFUSES(h_global, "layer.h_global");
	REFUSES(gate.codes, "layer.gate.codes");
	REFUSES(gate.scales, "layer.gate.scales");
	REFUSES(up.codes, "layer.up.codes");
	REFUSES(up.scales, "layer.up.scales");
	REFUSES(down.codes, "layer.down.codes");
	REFUSES(down.scales, "layer.down.scales");
	REFUSES(gate_alpha, "layer.gate_alpha");
	REFUSES(up_alpha, "layer.up_alpha");
	REFUSES(down_alpha, "layer.down_alpha");
	REFUSES(y.data, "layer.y.data");
	b.workspace.device = b.workspace.host;
	refuses(&b, &l, "options.workspace");
	b.workspace.device = NULL;
	b.plan = NULL;
	gpu_layer_free(&b);
}

/* ---- the last step alone ------------------------------------------------- */

/* inf - inf is a NaN whose sign differs between processors. */
static bool is_nan(enum nib_dtype dtype, const uint8_t *at)
{
	const uint32_t inf = dtype == NIB_DTYPE_FP32   ? 0x7F800000
			     : dtype == NIB_DTYPE_FP16 ? 0x7C00
						       : 0x7F80;
	uint32_t bits = 0;

	memcpy(&bits, at, nib_dtype_bytes(dtype));
	return (bits & (dtype == NIB_DTYPE_FP32 ? 0x7FFFFFFF : 0x7FFF)) > inf;
}

/* Equal bits, or two NaN. */
static bool are_same(enum nib_dtype dtype, const uint8_t *a, const uint8_t *b,
		     size_t bytes)
{
	const size_t size = nib_dtype_bytes(dtype);

	for (size_t i = 0; i < bytes; i += size)
		if (memcmp(a + i, b + i, size) != 0 &&
		    !(is_nan(dtype, a + i) && is_nan(dtype, b + i)))
			return false;
	return true;
}

/* nib_moe_sum_slots() has a CPU's bits. */
static void check_sum(const struct gpu_sizes *from, const struct gpu_sizes *to,
		      int64_t top_k)
{
	const size_t slots = (size_t)(to->rows * top_k);
	struct gpu_twin rows = gpu_twin_new(gpu_dense_bytes(from));
	struct gpu_twin y = gpu_twin_new(gpu_dense_bytes(to));
	struct gpu_twin places = gpu_twin_new(slots * 4);
	struct gpu_twin weights = gpu_twin_new(slots * 4);
	int32_t *at = gpu_host_of(&places);
	const struct nib_dense on_cpu[2] = {gpu_dense(from, gpu_host_of(&rows)),
					    gpu_dense(to, gpu_host_of(&y))};
	const struct nib_dense on_gpu[2] = {gpu_dense(from, gpu_device_of(&rows)),
					    gpu_dense(to, gpu_device_of(&y))};
	uint8_t *got = gpu_take(y.bytes);
	bool ok;

	gpu_fill_dense(from, gpu_host_of(&rows), false);
	for (size_t i = 0; i < slots; i++) {
		at[i] = (int32_t)gpu_rnd_below(from->rows + 1) - 1;
		gpu_floats_of(&weights)[i] =
		    at[i] < 0 ? INFINITY : (float)gpu_rnd_below(999) / 256;
	}
	gpu_upload(&rows);
	gpu_upload(&y);
	gpu_upload(&places);
	gpu_upload(&weights);
	gpu_must(nib_moe_sum_slots(gpu_test.cpu, &on_cpu[0], at,
				   gpu_floats_of(&weights), top_k, &on_cpu[1], NULL,
				   &gpu_test.err),
		 "sum on the CPU");
	gpu_test.err.message[0] = '\0';
	ok = !nib_moe_sum_slots(gpu_test.gpu, &on_gpu[0], gpu_device_of(&places),
				gpu_device_of(&weights), top_k, &on_gpu[1], NULL,
				&gpu_test.err) &&
	     gpu_download(&y, got) &&
	     are_same(to->dtype, got, gpu_host_of(&y), y.bytes);
	gpu_verdict(ok, "sum of slots",
		    gpu_test.err.message[0] ? gpu_test.err.message : "values differ");
	free(got);
	gpu_twin_free(&weights);
	gpu_twin_free(&places);
	gpu_twin_free(&y);
	gpu_twin_free(&rows);
}

static void check_sums(void)
{
	for (int i = 0; i < 18; i++) {
		const enum nib_dtype dtype = (enum nib_dtype)(i % 3);
		const int64_t cols =
		    i % 2 ? 1 + gpu_rnd_below(70) : 8 * (1 + gpu_rnd_below(45));
		const struct gpu_sizes from = {.rows = 1 + gpu_rnd_below(50),
					       .k = cols,
					       .batch = 1,
					       .dtype = dtype};
		const struct gpu_sizes to = {.rows = 1 + gpu_rnd_below(40),
					     .k = cols,
					     .batch = 1,
					     .gap = i % 4 ? gpu_rnd_below(9)
							  : 8 * gpu_rnd_below(2),
					     .dtype = dtype};

		check_sum(&from, &to, 1 + gpu_rnd_below(17));
	}
}

/* What a GPU has no kernels for is said when the layer is planned. */
static void check_unsupported(enum nib_activations activations, enum nib_dtype dtype)
{
	struct gpu_layer_spec s = any_spec(1, activations);
	struct nib_moe_layer_plan *plan = NULL;
	struct nib_moe_layer layer;
	enum nib_status status;
	struct gpu_layer b;

	s.x_dtype = dtype;
	b = gpu_layer_new(&s);
	layer = gpu_layer_of(&b, gpu_device_of);
	status =
	    nib_moe_layer_plan_create(gpu_test.gpu, &layer, NULL, &plan, &gpu_test.err);
	gpu_verdict(status == NIB_STATUS_UNSUPPORTED && !plan &&
			strcmp(gpu_test.err.argument, "layer.activations") == 0,
		    gpu_test.err.message[0] ? gpu_test.err.message : "a plan",
		    nib_status_name(status));
	gpu_layer_free(&b);
}

int main(void)
{
	int code;

	if (!gpu_begin(&code))
		return code;
	gpu_driver_open();
	gpu_must(gpu_context_set(0) ? NIB_STATUS_OK : NIB_STATUS_DEVICE_FAILED,
		 "context");
	check_all(NIB_ACTIVATIONS_NVFP4);
	if (takes_dense())
		check_all(NIB_ACTIVATIONS_DENSE);
	else
		check_unsupported(NIB_ACTIVATIONS_DENSE, NIB_DTYPE_BF16);
	check_few(NIB_ACTIVATIONS_NVFP4);
	if (takes_dense())
		check_few(NIB_ACTIVATIONS_DENSE);
	check_unsupported(NIB_ACTIVATIONS_DENSE, NIB_DTYPE_FP32);
	check_unsupported(NIB_ACTIVATIONS_INT8, NIB_DTYPE_BF16);
	for (int64_t tokens = 1; tokens <= 200; tokens += 199) {
		check_graph(NIB_ACTIVATIONS_NVFP4, tokens);
		if (takes_dense())
			check_graph(NIB_ACTIVATIONS_DENSE, tokens);
	}
	check_pointers();
	check_sums();
	printf("%" PRId64 " values: %" PRId64 " finite, %" PRId64 " not 0\n", seen.all,
	       seen.finite, seen.nonzero);
	gpu_verdict(seen.finite == seen.all && seen.nonzero > seen.all / 4,
		    "values that mean something", "they are not finite, or 0");
	return gpu_end();
}
