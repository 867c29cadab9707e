/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_layer.c - see gpu_layer.h. */
#include "gpu_layer.h"

#include <string.h>

bool gpu_layer_is_nvfp4(const struct gpu_layer_spec *s)
{
	return s->activations == NIB_ACTIVATIONS_NVFP4;
}

bool gpu_layer_is_dual(const struct gpu_layer_spec *s)
{
	return s->activation == NIB_MOE_ACTIVATION_SWIGLU;
}

float *gpu_floats_of(const struct gpu_twin *t)
{
	return gpu_host_of(t);
}

/* ---- operands ------------------------------------------------------------ */

/*
 * Rows with one block of values, or one value (few), and scales of 1 to 8: the
 * sums have few bits, whatever the order.
 */
static void make_exact(const struct gpu_sizes *s, const struct gpu_twin *t, bool few)
{
	uint8_t *codes = gpu_host_of(&t[0]), *scales = gpu_host_of(&t[1]);
	const int64_t groups = s->k / 16;

	for (size_t i = 0; i < t[1].bytes; i++)
		scales[i] = (uint8_t)(0x38 + 8 * gpu_rnd_below(4));
	for (int64_t i = 0; i < s->batch * s->rows; i++) {
		const int64_t at = gpu_rnd_below(groups) * 8;

		memset(codes + i * s->k / 2, 0, (size_t)s->k / 2);
		if (few) {
			codes[i * s->k / 2 + at + gpu_rnd_below(8)] =
			    (uint8_t)(gpu_rnd_below(16) << 4);
			continue;
		}
		for (int64_t j = 0; j < 8; j++)
			codes[i * s->k / 2 + at + j] = (uint8_t)gpu_rnd();
	}
}

static void new_weights(const struct gpu_sizes *s, struct gpu_twin *t, bool is_exact,
			bool few)
{
	gpu_operand_new(s, t);
	gpu_fill_nvfp4(s, gpu_host_of(&t[0]), gpu_host_of(&t[1]));
	if (is_exact)
		make_exact(s, t, few);
	gpu_upload(&t[0]);
	gpu_upload(&t[1]);
}

static void put_id(const struct gpu_layer *b, int64_t slot, int64_t id)
{
	const int32_t narrow = (int32_t)id;
	uint8_t *ids = gpu_host_of(&b->ids);

	if (b->s.ids_bytes == 8)
		memcpy(ids + 8 * slot, &id, 8);
	else
		memcpy(ids + 4 * slot, &narrow, 4);
}

/* The expert of a slot; -1: elsewhere. */
int64_t gpu_layer_expert(const struct gpu_layer *b, int64_t slot)
{
	const uint8_t *ids = gpu_host_of(&b->ids);
	int64_t id;
	int32_t narrow;

	memcpy(&narrow, ids + slot * b->s.ids_bytes, 4);
	id = narrow;
	if (b->s.ids_bytes == 8)
		memcpy(&id, ids + 8 * slot, 8);
	if (id < b->s.offset || id >= b->s.offset + b->s.experts)
		return -1;
	return id - b->s.offset;
}

/* Experts on both sides of those that are here; one of three gets none. */
void gpu_layer_fill_routes(const struct gpu_layer *b)
{
	const struct gpu_layer_spec *s = &b->s;
	const int64_t slots = s->tokens * s->top_k;

	for (int64_t i = 0; i < slots; i++) {
		int64_t e = gpu_rnd_below(s->experts + 3) - 1;

		if (e % 3 == 2 && gpu_rnd_below(8))
			e--;
		put_id(b, i, s->offset + e);
		gpu_floats_of(&b->weights)[i] =
		    (float)(gpu_rnd_below(2001) - 1000) / 777.0f;
	}
	if (s->ids_bytes == 8 && slots > 2) {
		put_id(b, 0, INT64_MIN);
		put_id(b, 1, INT64_MAX);
		put_id(b, 2, s->offset + (INT64_C(1) << 32));
	}
	gpu_upload(&b->ids);
	gpu_upload(&b->weights);
}

/* Powers of two, by which g, u, h and y are near 1 and none is infinite. */
static void fill_scales(const struct gpu_layer *b)
{
	static const float first[2][2] = {{0x1p-20f, 0x1p-12f}, {0x1p-10f, 0x1p-11f}};
	static const float last[2][2] = {{0x1p-18f, 0x1p-10f}, {0x1p-8f, 0x1p-6f}};
	const int exact = b->s.is_exact, dense = !gpu_layer_is_nvfp4(&b->s);

	for (int64_t i = 0; i < 3 * b->s.experts; i++)
		gpu_floats_of(&b->alpha)[i] =
		    (i < 2 * b->s.experts ? first[exact][dense] : last[exact][dense]) *
		    (float)(1 << gpu_rnd_below(3));
	gpu_floats_of(&b->in)[0] = 0x1p-6f;
	gpu_floats_of(&b->in)[1] = 0x1p-8f;
	gpu_upload(&b->alpha);
	gpu_upload(&b->in);
}

struct gpu_layer gpu_layer_new(const struct gpu_layer_spec *s)
{
	const int64_t slots = s->tokens * s->top_k;
	const enum nib_scale_layout any = s->is_tiled	? NIB_SCALE_LAYOUT_TILED_128X4
					  : s->is_exact ? NIB_SCALE_LAYOUT_LINEAR
							: gpu_any_layout();
	struct gpu_layer b = {
	    .s = *s,
	    .a = {s->tokens, s->k, 1, 8, NIB_SCALE_LAYOUT_LINEAR, NIB_DTYPE_FP32,
		  false},
	    .x = {s->tokens, s->k, 1, s->gap, NIB_SCALE_LAYOUT_LINEAR, s->x_dtype,
		  false},
	    .y = {s->tokens, s->cols, 1, s->gap, NIB_SCALE_LAYOUT_LINEAR, s->y_dtype,
		  false},
	    .gate = {s->width, s->k, s->experts, 0, any, NIB_DTYPE_FP32, false},
	    .up = {s->width, s->k, s->experts, 0, any, NIB_DTYPE_FP32, false},
	    .down = {s->cols, s->width, s->experts, 0, any, NIB_DTYPE_FP32, false},
	};

	new_weights(&b.a, b.a_data, false, false);
	new_weights(&b.gate, b.gate_data, s->is_exact, false);
	new_weights(&b.up, b.up_data, s->is_exact, false);
	new_weights(&b.down, b.down_data, s->is_exact, true);
	b.x_data = gpu_twin_new(gpu_dense_bytes(&b.x));
	gpu_fill_dense(&b.x, gpu_host_of(&b.x_data), true);
	gpu_upload(&b.x_data);
	b.y_data = gpu_twin_new(gpu_dense_bytes(&b.y));
	b.ids = gpu_twin_new((size_t)(slots * s->ids_bytes));
	b.weights = gpu_twin_new((size_t)slots * 4);
	b.alpha = gpu_twin_new((size_t)s->experts * 12);
	b.in = gpu_twin_new(8);
	gpu_layer_fill_routes(&b);
	fill_scales(&b);
	return b;
}

void gpu_layer_free(struct gpu_layer *b)
{
	for (int i = 0; i < 2; i++) {
		gpu_twin_free(&b->a_data[i]);
		gpu_twin_free(&b->gate_data[i]);
		gpu_twin_free(&b->up_data[i]);
		gpu_twin_free(&b->down_data[i]);
	}
	gpu_twin_free(&b->x_data);
	gpu_twin_free(&b->y_data);
	gpu_twin_free(&b->ids);
	gpu_twin_free(&b->weights);
	gpu_twin_free(&b->alpha);
	gpu_twin_free(&b->in);
	if (b->plan)
		gpu_twin_free(&b->workspace);
	nib_moe_layer_plan_free(b->plan);
}

struct nib_moe_layer gpu_layer_of(const struct gpu_layer *b,
				  void *(*at)(const struct gpu_twin *))
{
	const struct gpu_layer_spec *s = &b->s;
	float *alpha = at(&b->alpha), *in = at(&b->in);

	return (struct nib_moe_layer){
	    .x = gpu_dense(&b->x, at(&b->x_data)),
	    .a = gpu_nvfp4(&b->a, at(&b->a_data[0]), at(&b->a_data[1])),
	    .is_quantized = s->is_quantized,
	    .activations = s->activations,
	    .ids = at(&b->ids),
	    .ids_bytes = s->ids_bytes,
	    .top_k = s->top_k,
	    .expert_offset = s->offset,
	    .weights = at(&b->weights),
	    .gate = gpu_nvfp4(&b->gate, at(&b->gate_data[0]), at(&b->gate_data[1])),
	    .up = gpu_nvfp4(&b->up, at(&b->up_data[0]), at(&b->up_data[1])),
	    .down = gpu_nvfp4(&b->down, at(&b->down_data[0]), at(&b->down_data[1])),
	    .gate_alpha = alpha,
	    .up_alpha = alpha + s->experts,
	    .down_alpha = alpha + 2 * s->experts,
	    .x_global = in,
	    .h_global = in + 1,
	    .activation = s->activation,
	    .limit = 1.5f,
	    .swiglu_alpha = 1.702f,
	    .up_bias = 1.0f,
	    .y = gpu_dense(&b->y, at(&b->y_data)),
	};
}

bool gpu_layer_unchanged(const struct gpu_layer *b)
{
	bool ok = gpu_is_unchanged(&b->x_data) && gpu_is_unchanged(&b->ids) &&
		  gpu_is_unchanged(&b->weights) && gpu_is_unchanged(&b->alpha) &&
		  gpu_is_unchanged(&b->in);

	for (int i = 0; i < 2; i++)
		ok = ok && gpu_is_unchanged(&b->a_data[i]) &&
		     gpu_is_unchanged(&b->gate_data[i]) &&
		     gpu_is_unchanged(&b->up_data[i]) &&
		     gpu_is_unchanged(&b->down_data[i]);
	return ok;
}
