/* SPDX-License-Identifier: Apache-2.0 */
/*
 * moe_steps.c - the steps of a layer of experts between its products: the row of each
 * slot, rows of A gathered by expert, h from gate and up, the weighted sum of a token's
 * slots (backend.h).  They move few bytes compared with the work of the products, so
 * plain C is fast enough on every processor.
 */
#include <string.h>

#include "core/view.h"
#include "cpu.h"
#include "float_out.inc.h"
#include "format/view.h"

/* Waking a thread costs more than moving fewer bytes than this. */
#define TASK_BYTES (32 << 10)
/* Floats of a row that are processed at a time, on the stack. */
#define PIECE 256

/* ---- items onto threads --------------------------------------------------- */

struct parallel_loop {
	void (*part)(const void *arg, int64_t begin, int64_t end);
	const void *arg;
	int64_t items;
	int tasks;
};

static void run_part(void *arg, int i)
{
	const struct parallel_loop *loop = arg;

	loop->part(loop->arg, loop->items * i / loop->tasks,
		   loop->items * (i + 1) / loop->tasks);
}

/* Calls part(arg, begin, end) for ranges of 0 .. items-1; an item has item_bytes. */
static void run_in_parts(struct nib_device *device, int64_t items, int64_t item_bytes,
			 void (*part)(const void *arg, int64_t begin, int64_t end),
			 const void *arg)
{
	const struct cpu_device *cpu = cpu_device(device);
	struct parallel_loop loop = {part, arg, items, cpu->threads};
	const double bytes = (double)items * (double)item_bytes;

	if (items == 0)
		return;
	if (loop.tasks > items)
		loop.tasks = (int)items;
	if (bytes < (double)loop.tasks * TASK_BYTES)
		loop.tasks = (int)(bytes / TASK_BYTES) + 1;
	cpu_parallel(cpu, loop.tasks, run_part, &loop);
}

/* ---- which row ------------------------------------------------------------ */

/* The expert of a slot, counted from this device's first one; -1: on another device. */
static int64_t expert_of(const struct nib_moe_route *r, int64_t slot)
{
	int64_t id;

	if (r->ids_bytes == 8) {
		id = ((const int64_t *)r->ids)[slot];
	} else {
		id = ((const int32_t *)r->ids)[slot];
	}
	if (id < r->first_expert || id - r->first_expert >= r->experts)
		return -1;
	return id - r->first_expert;
}

/* A counting sort.  row_offsets[e + 1] first counts the rows of e, then is its next
 * row. */
static void route(const struct nib_moe_route *r)
{
	int32_t *next = r->row_offsets + 1, rows = 0;

	memset(r->row_offsets, 0, (size_t)(r->experts + 1) * sizeof(*next));
	for (int64_t s = 0; s < r->slots; s++) {
		const int64_t e = expert_of(r, s);

		if (e >= 0)
			next[e]++;
	}
	for (int64_t e = 0; e < r->experts; e++) {
		const int32_t count = next[e];

		next[e] = rows;
		rows += count;
	}
	for (int64_t s = 0; s < r->slots; s++) {
		const int64_t e = expert_of(r, s);

		r->slot_rows[s] = e < 0 ? -1 : next[e]++;
		if (e >= 0)
			r->row_tokens[r->slot_rows[s]] = (int32_t)(s / r->top_k);
	}
}

/* ---- rows of A ------------------------------------------------------------ */

/* Quantises x to q with *global, saturating; the host can read *global. */
static enum nib_status quantize(struct nib_device *device, struct nib_dense x,
				struct nib_fp4 q, const float *global,
				struct nib_error *err)
{
	const struct nib_quantize_options options = {
	    .struct_bytes = sizeof(options), .global = *global, .saturate = 1};
	enum nib_status status;

	status = nib_valid_dense(&x, &x, nib_label("x"), err);
	if (!status)
		status = nib_valid_fp4(&q, &q, nib_label("q"), err);
	return status ? status : cpu_quantize(device, &x, &q, &options, NULL, err);
}

/* Rows that are copied: row row_tokens[r] of from to row r of to. */
struct copy {
	const int32_t *row_tokens;
	const void *from;
	int64_t from_stride_bytes;
	void *to; /* dense */
	int64_t row_bytes;
};

static void copy_some(const void *arg, int64_t begin, int64_t end)
{
	const struct copy *c = arg;

	for (int64_t row = begin; row < end; row++)
		memcpy(nib_offset_bytes(c->to, row * c->row_bytes),
		       nib_offset_bytes(c->from,
					c->row_tokens[row] * c->from_stride_bytes),
		       (size_t)c->row_bytes);
}

static enum nib_status gather(struct nib_device *device, const struct nib_moe_route *r,
			      const struct nib_moe_gather *g, struct nib_error *err)
{
	const struct nib_moe_layer *l = g->layer;
	const int64_t size = (int64_t)nib_dtype_bytes(l->x.dtype);
	const int64_t rows = r->row_offsets[r->experts];
	const struct nib_fp4 *a = l->is_quantized ? &l->a : &g->tokens;
	const struct copy x = {r->row_tokens, l->x.data, l->x.row_stride_elems * size,
			       g->dense.data, g->dense.cols * size};
	const struct copy codes = {r->row_tokens, a->codes, nib_fp4_row_stride_bytes(a),
				   g->a.codes, g->a.k / 2};
	const struct copy scales = {r->row_tokens, a->scales,
				    nib_fp4_scale_row_stride_bytes(a), g->a.scales,
				    g->a.k / NIB_NVFP4_BLOCK};
	enum nib_status status = NIB_STATUS_OK;

	if (l->activations != NIB_ACTIVATIONS_NVFP4) {
		run_in_parts(device, rows, x.row_bytes, copy_some, &x);
		return NIB_STATUS_OK;
	}
	if (!l->is_quantized)
		status = quantize(device, l->x, g->tokens, l->x_global, err);
	if (status)
		return status;
	run_in_parts(device, rows, codes.row_bytes, copy_some, &codes);
	run_in_parts(device, rows, scales.row_bytes, copy_some, &scales);
	return NIB_STATUS_OK;
}

static enum nib_status begin(struct nib_device *device, const struct nib_moe_route *r,
			     const struct nib_moe_gather *g, void *stream,
			     struct nib_error *err)
{
	(void)stream;
	route(r);
	return r->row_offsets[r->experts] ? gather(device, r, g, err) : NIB_STATUS_OK;
}

/* ---- h -------------------------------------------------------------------- */

/* 1 / (1 + e^-z); 0 where e^z underflows. */
static float sigmoid(float z)
{
	const float e = exp_negative(z > 0.0f ? -z : z);

	return (z > 0.0f ? 1.0f : e) / (1.0f + e);
}

static float at_most(float x, float limit)
{
	return x > limit ? limit : x;
}

static float activate_one(const struct nib_moe_layer *layer, float g, float u)
{
	switch (layer->activation) {
	case NIB_MOE_ACTIVATION_SWIGLU:
		break;
	case NIB_MOE_ACTIVATION_SWIGLU_CLAMPED:
		g = at_most(g, layer->limit);
		u = -at_most(-at_most(u, layer->limit), layer->limit);
		return g * sigmoid(layer->swiglu_alpha * g) * (u + layer->up_bias);
	case NIB_MOE_ACTIVATION_GELU:
		return g * sigmoid(1.59576912f * (g + 0.044715f * g * g * g)) * u;
	case NIB_MOE_ACTIVATION_RELU2:
		/* NaN stays. */
		return g < 0.0f ? 0.0f : g * g;
	}
	return silu(g) * u;
}

static void activate_some(const void *arg, int64_t begin, int64_t end)
{
	const struct nib_moe_activate *a = arg;
	const int64_t cols = a->h.cols;
	const int64_t size = (int64_t)nib_dtype_bytes(a->h.dtype);
	float h[PIECE];

	for (int64_t at = begin * cols; at < end * cols; at += PIECE) {
		const int64_t left = end * cols - at;
		const int64_t n = left < PIECE ? left : PIECE;

		for (int64_t i = 0; i < n; i++)
			h[i] = activate_one(a->layer, a->gate[at + i],
					    a->up ? a->up[at + i] : 0);
		store_row(h, n, a->h.dtype,
			  (char *)nib_offset_bytes(a->h.data, at * size));
	}
}

static enum nib_status activate(struct nib_device *device,
				const struct nib_moe_activate *a, void *stream,
				struct nib_error *err)
{
	(void)stream;
	/* Computing an activation costs as much as copying about 16 floats. */
	if (a->gate)
		run_in_parts(device, *a->rows, a->h.cols * 64, activate_some, a);
	return a->q.codes ? quantize(device, a->h, a->q, a->layer->h_global, err)
			  : NIB_STATUS_OK;
}

/* ---- the sum of slots ------------------------------------------------------ */

/* Elements of two bytes at any address. */
static float fp16_value(uint16_t bits)
{
	const uint32_t magnitude = (bits & 0x7fffu) << 13;
	/* Exact, subnormals included; from 0x7c00 on the exponent is all ones. */
	uint32_t x = nib_fp32_bits(nib_fp32_from_bits(magnitude) * 0x1p112f);

	x |= magnitude >= 0x0f800000u ? 0x7f800000u : 0;
	return nib_fp32_from_bits(x | (bits & 0x8000u) << 16);
}

/* sums += weight * row, n elements. */
static void add_row(float *restrict sums, float weight, const void *restrict row,
		    enum nib_dtype dtype, int64_t n)
{
	const half_at *half = row;

	if (dtype == NIB_DTYPE_FP32) {
		const float *x = row;

		for (int64_t i = 0; i < n; i++)
			sums[i] += weight * x[i];
	} else if (dtype == NIB_DTYPE_FP16) {
		for (int64_t i = 0; i < n; i++)
			sums[i] += weight * fp16_value(half[i]);
	} else {
		for (int64_t i = 0; i < n; i++)
			sums[i] += weight * nib_bf16_to_fp32(half[i]);
	}
}

/* Columns col .. col+n-1 of a token. */
static void combine_piece(const struct nib_moe_combine *c, int64_t token, int64_t col,
			  int64_t n)
{
	const enum nib_dtype dtype = c->y.dtype;
	const int64_t size = (int64_t)nib_dtype_bytes(dtype);
	float sums[PIECE] = {0};

	for (int64_t j = 0; j < c->top_k; j++) {
		const int64_t slot = token * c->top_k + j;
		const int64_t row = c->slot_rows[slot];

		if (row >= 0)
			add_row(sums, c->weights[slot],
				nib_offset_bytes(c->rows.data,
						 (row * c->rows.cols + col) * size),
				dtype, n);
	}
	store_row(sums, n, dtype,
		  (char *)nib_offset_bytes(
		      c->y.data, (token * c->y.row_stride_elems + col) * size));
}

static void combine_some(const void *arg, int64_t begin, int64_t end)
{
	const struct nib_moe_combine *c = arg;
	const int64_t pieces = (c->y.cols + PIECE - 1) / PIECE;

	for (int64_t i = begin; i < end; i++) {
		const int64_t col = i % pieces * PIECE, left = c->y.cols - col;

		combine_piece(c, i / pieces, col, left < PIECE ? left : PIECE);
	}
}

static enum nib_status combine(struct nib_device *device,
			       const struct nib_moe_combine *c, void *stream,
			       struct nib_error *err)
{
	const int64_t pieces = (c->y.cols + PIECE - 1) / PIECE;

	(void)stream;
	(void)err;
	run_in_parts(device, c->y.rows * pieces, PIECE * 4 * (c->top_k + 1),
		     combine_some, c);
	return NIB_STATUS_OK;
}

const struct nib_moe_steps cpu_moe_steps = {NULL, begin, activate, combine};
