/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_moe.c - see gpu_moe.h. */
#include "gpu_moe.h"

#include <stdlib.h>
#include <string.h>

struct gpu_moe gpu_any_moe(enum nib_op op, int64_t experts, int64_t most, int64_t empty,
			   int64_t n, int64_t k)
{
	return (struct gpu_moe){
	    .op = op,
	    .experts = experts,
	    .most = most,
	    .empty = empty,
	    .spare = 39,
	    .a = gpu_any_weights(0, k, 1),
	    .b = gpu_any_weights(n, k, experts),
	    .b2 = gpu_any_weights(n, k, experts),
	    .c = {0, n, 1, gpu_rnd_below(9), NIB_SCALE_LAYOUT_LINEAR,
		  (enum nib_dtype)gpu_rnd_below(3), false},
	    .has_scale_rows = gpu_rnd() & 1,
	    .packed = gpu_rnd_below(4) == 0,
	};
}

/* ---- tokens -------------------------------------------------------------- */

/* Sets where experts' tokens and scales begin; returns the scales' rows. */
static int64_t place_tokens(const struct gpu_moe *x, const int32_t *shares,
			    const struct gpu_moe_memory *m)
{
	int32_t *offsets = gpu_host_of(&m->offsets);
	int32_t *scale_rows = gpu_host_of(&m->scale_rows);
	int64_t scales = 0;

	offsets[0] = 0;
	for (int64_t e = 0; e < x->experts; e++) {
		offsets[e + 1] = offsets[e] + shares[e];
		scale_rows[e] = (int32_t)scales;
		scales += (shares[e] + 127) / 128 * 128;
	}
	return scales;
}

/* Deals tokens to each expert, and leaves some rows to none. */
static void deal_tokens(struct gpu_moe *x, struct gpu_moe_memory *m)
{
	const size_t words = (size_t)x->experts * 4;
	int32_t *shares = gpu_take(words), *offsets;
	int64_t scales;

	m->offsets = gpu_twin_new(words + 4);
	m->scale_rows = gpu_twin_new(words);
	for (int64_t e = 0; e < x->experts; e++)
		shares[e] = gpu_rnd_below(8) < x->empty
				? 0
				: (int32_t)gpu_rnd_below(x->most + 1);
	scales = place_tokens(x, shares, m);
	offsets = gpu_host_of(&m->offsets);
	x->rows = offsets[x->experts] + gpu_rnd_below(x->spare + 1);
	x->a.rows = x->has_scale_rows && scales > x->rows ? scales : x->rows;
	x->c.rows = x->rows;
	free(shares);
}

static void shuffle_tokens(const struct gpu_moe *x, const struct gpu_moe_memory *m)
{
	const int32_t *offsets = gpu_host_of(&m->offsets);
	int32_t *shares = gpu_take((size_t)x->experts * sizeof(*shares));

	for (int64_t e = 0; e < x->experts; e++) {
		const int64_t other = gpu_rnd_below(e + 1);

		shares[e] = shares[other];
		shares[other] = offsets[e + 1] - offsets[e];
	}
	(void)place_tokens(x, shares, m);
	free(shares);
}

/* NaN wherever no expert's tokens have a scale. */
static void spoil_scales(const struct gpu_moe *x, const struct gpu_moe_memory *m)
{
	const int32_t *offsets = gpu_host_of(&m->offsets);
	const int32_t *scale_rows = gpu_host_of(&m->scale_rows);
	uint8_t *scales = gpu_host_of(&m->base.a[1]);
	bool *used = gpu_take((size_t)x->a.rows * sizeof(*used));

	for (int64_t e = 0; e < x->experts; e++)
		for (int32_t r = offsets[e]; r < offsets[e + 1]; r++)
			used[x->has_scale_rows ? scale_rows[e] + r - offsets[e] : r] =
			    true;
	for (int64_t r = 0; r < x->a.rows; r++)
		for (int64_t g = 0; g < x->a.k / 16 && !used[r]; g++)
			scales[gpu_scale_at(&x->a, 0, r, g)] = NAN_SCALE;
	free(used);
}

/* ---- memory -------------------------------------------------------------- */

static void fill_operands(const struct gpu_moe *x, const struct gpu_moe_memory *m)
{
	gpu_fill_nvfp4(&x->a, gpu_host_of(&m->base.a[0]), gpu_host_of(&m->base.a[1]));
	gpu_fill_nvfp4(&x->b, gpu_host_of(&m->base.b[0]), gpu_host_of(&m->base.b[1]));
	gpu_fill_nvfp4(&x->b2, gpu_host_of(&m->base.b2[0]),
		       gpu_host_of(&m->base.b2[1]));
	spoil_scales(x, m);
	for (int i = 0; i < 2; i++) {
		gpu_upload(&m->base.a[i]);
		gpu_upload(&m->base.b[i]);
		gpu_upload(&m->base.b2[i]);
	}
	gpu_upload(&m->offsets);
	gpu_upload(&m->scale_rows);
	gpu_fill_alpha(&m->base.alpha);
}

void gpu_moe_fill(const struct gpu_moe *x, const struct gpu_moe_memory *m)
{
	shuffle_tokens(x, m);
	fill_operands(x, m);
}

/* The offsets are set. */
static void take_memory(const struct gpu_moe *x, struct gpu_moe_memory *m)
{
	gpu_operand_new(&x->a, m->base.a);
	gpu_operand_new(&x->b, m->base.b);
	gpu_operand_new(&x->b2, m->base.b2);
	m->base.alpha = gpu_twin_new((size_t)x->experts * 2 * sizeof(float));
	fill_operands(x, m);
	m->base.c = gpu_twin_new(gpu_dense_bytes(&x->c));
	gpu_poison(&m->base.c, 0xFF);
	if (x->packed) {
		m->base.packed = gpu_pack(&x->b, m->base.b);
		if (x->op == NIB_OP_DUAL_GEMM)
			m->base.packed2 = gpu_pack(&x->b2, m->base.b2);
	}
}

struct gpu_moe_memory gpu_moe_new(struct gpu_moe *x)
{
	struct gpu_moe_memory m;

	memset(&m, 0, sizeof(m));
	deal_tokens(x, &m);
	take_memory(x, &m);
	return m;
}

struct gpu_moe_memory gpu_moe_new_like(const struct gpu_moe *x,
				       const struct gpu_moe_memory *like)
{
	struct gpu_moe_memory m;

	memset(&m, 0, sizeof(m));
	m.offsets = gpu_twin_new(like->offsets.bytes);
	m.scale_rows = gpu_twin_new(like->scale_rows.bytes);
	memcpy(gpu_host_of(&m.offsets), gpu_host_of(&like->offsets),
	       like->offsets.bytes);
	shuffle_tokens(x, &m);
	take_memory(x, &m);
	return m;
}

void gpu_moe_free(struct gpu_moe_memory *m)
{
	gpu_memory_free(&m->base);
	gpu_twin_free(&m->offsets);
	gpu_twin_free(&m->scale_rows);
}

struct nib_moe_problem gpu_moe_problem(const struct gpu_moe *x,
				       const struct gpu_moe_memory *m,
				       void *(*side)(const struct gpu_twin *))
{
	struct nib_moe_problem p;

	memset(&p, 0, sizeof(p));
	p.problem.a = gpu_nvfp4(&x->a, side(&m->base.a[0]), side(&m->base.a[1]));
	p.problem.a.rows = x->rows;
	p.problem.b = gpu_nvfp4(&x->b, side(&m->base.b[0]), side(&m->base.b[1]));
	if (x->op == NIB_OP_DUAL_GEMM)
		p.problem.b2 =
		    gpu_nvfp4(&x->b2, side(&m->base.b2[0]), side(&m->base.b2[1]));
	p.problem.alpha = side(&m->base.alpha);
	p.problem.alpha2 = p.problem.alpha + x->experts;
	p.problem.c = gpu_dense(&x->c, side(&m->base.c));
	p.row_offsets = side(&m->offsets);
	if (x->has_scale_rows) {
		p.scale_rows = side(&m->scale_rows);
		p.scale_rows_total = x->a.rows;
	}
	if (side == gpu_device_of) {
		p.problem.b_packed = m->base.packed;
		p.problem.b2_packed = m->base.packed2;
	}
	return p;
}

bool gpu_moe_unchanged(const struct gpu_moe_memory *m)
{
	return gpu_is_unchanged(&m->base.a[0]) && gpu_is_unchanged(&m->base.a[1]) &&
	       gpu_is_unchanged(&m->base.b[0]) && gpu_is_unchanged(&m->base.b[1]) &&
	       gpu_is_unchanged(&m->base.b2[0]) && gpu_is_unchanged(&m->base.b2[1]) &&
	       gpu_is_unchanged(&m->base.alpha) && gpu_is_unchanged(&m->offsets) &&
	       gpu_is_unchanged(&m->scale_rows);
}

/* The row that an offset stands for. */
static int32_t row_of(const struct gpu_moe *x, int32_t offset)
{
	if (offset < 0)
		return 0;
	return offset > x->rows ? (int32_t)x->rows : offset;
}

bool gpu_moe_shares_rows(const struct gpu_moe *x, const int32_t *offsets)
{
	for (int64_t i = 0; i < x->experts; i++)
		for (int64_t j = 0; j < i; j++) {
			const int32_t begin = row_of(x, offsets[i]);
			const int32_t end = row_of(x, offsets[i + 1]);
			const int32_t begin2 = row_of(x, offsets[j]);
			const int32_t end2 = row_of(x, offsets[j + 1]);

			if (begin < end && begin2 < end2 && begin < end2 &&
			    begin2 < end)
				return true;
		}
	return false;
}

const char *gpu_moe_places(const struct gpu_moe *x, const struct gpu_moe_memory *m)
{
	const int32_t *offsets = gpu_host_of(&m->offsets);
	const size_t size = nib_dtype_bytes(x->c.dtype);
	const int64_t pitch = x->c.k + x->c.gap;
	const uint8_t *c = gpu_host_of(&m->base.c);

	for (int64_t i = 0; i < x->rows * pitch; i++) {
		const bool inside =
		    i / pitch < offsets[x->experts] && i % pitch < x->c.k;
		bool is_poison = true;

		for (size_t b = 0; b < size; b++)
			is_poison = is_poison && c[(size_t)i * size + b] == 0xFF;
		if (is_poison == inside)
			return inside ? "not written" : "wrote outside c";
	}
	return NULL;
}
