/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_problem.c - see gpu_problem.h. */
#include "gpu_problem.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum nib_scale_layout gpu_any_layout(void)
{
	return gpu_rnd() & 1 ? NIB_SCALE_LAYOUT_TILED_128X4 : NIB_SCALE_LAYOUT_LINEAR;
}

struct gpu_sizes gpu_any_weights(int64_t n, int64_t k, int64_t batch)
{
	return (struct gpu_sizes){n,
				  k,
				  batch,
				  gpu_rnd_below(3) ? 0 : 8 * gpu_rnd_below(3),
				  gpu_any_layout(),
				  NIB_DTYPE_FP32,
				  false};
}

struct gpu_item gpu_any_item(enum nib_op op, int64_t m, int64_t n, int64_t k,
			     int64_t batch, int64_t b_batch)
{
	struct gpu_item x = {
	    .op = op,
	    .a = gpu_any_weights(m, k, batch),
	    .b = gpu_any_weights(n, k, b_batch),
	    .b2 = gpu_any_weights(n, k, b_batch),
	    .c = {m, n, batch, gpu_rnd() & 1 ? 0 : gpu_rnd_below(9),
		  NIB_SCALE_LAYOUT_LINEAR, (enum nib_dtype)gpu_rnd_below(3), false},
	    .packed = gpu_rnd_below(4) == 0,
	    .nan_row = -1,
	    .nan_col = -1,
	};

	if (m && k && gpu_rnd_below(3) == 0) {
		x.nan_row = gpu_rnd() & 1 ? gpu_rnd_below(m) : -1;
		x.nan_col = gpu_rnd() & 1 ? gpu_rnd_below(n) : -1;
	}
	/* Without alpha the two sums' product would overflow. */
	x.no_alpha = op != NIB_OP_DUAL_GEMM && gpu_rnd_below(8) == 0;
	return x;
}

void gpu_make_dense(struct gpu_item *x, enum nib_dtype dtype)
{
	x->activations = NIB_ACTIVATIONS_DENSE;
	x->x = x->a;
	x->x.dtype = dtype;
	x->x.gap = 8 * gpu_rnd_below(3);
	x->nan_row = -1; /* a has no part in the product */
}

static const char *a_name(const struct gpu_item *x)
{
	return x->activations ? gpu_dtype_name(x->x.dtype)
			      : gpu_layout_name(x->a.layout);
}

void gpu_name_item(const struct gpu_item *x, const char *what, char *name, size_t bytes)
{
	snprintf(name, bytes,
		 "%s %s %s m %" PRId64 " n %" PRId64 " k %" PRId64 " batch %" PRId64
		 "/%" PRId64 " between %d%d%d%d a %s+%" PRId64 " b %s+%" PRId64
		 " b2 %s+%" PRId64 " c +%" PRId64 "%s%s nan %" PRId64 ", %" PRId64,
		 what, x->op == NIB_OP_DUAL_GEMM ? "dual" : "gemm",
		 gpu_dtype_name(x->c.dtype), x->c.rows, x->c.k, x->b.k, x->c.batch,
		 x->b.batch, x->a.is_between, x->b.is_between, x->b2.is_between,
		 x->c.is_between, a_name(x), x->activations ? x->x.gap : x->a.gap,
		 gpu_layout_name(x->b.layout), x->b.gap, gpu_layout_name(x->b2.layout),
		 x->b2.gap, x->c.gap, x->packed ? " packed" : "",
		 x->no_alpha ? " no alpha" : "", x->nan_row, x->nan_col);
}

/* ---- memory -------------------------------------------------------------- */

void gpu_operand_new(const struct gpu_sizes *s, struct gpu_twin *t)
{
	t[0] = gpu_twin_new(gpu_codes_bytes(s));
	t[1] = gpu_twin_new(gpu_scale_bytes(s));
}

static void operand_fill(const struct gpu_sizes *s, int64_t nan_row,
			 const struct gpu_twin *t)
{
	gpu_fill_nvfp4(s, gpu_host_of(&t[0]), gpu_host_of(&t[1]));
	if (nan_row >= 0)
		((uint8_t *)gpu_host_of(
		    &t[1]))[gpu_scale_at(s, 0, nan_row, gpu_rnd_below(s->k / 16))] =
		    NAN_SCALE;
	gpu_upload(&t[0]);
	gpu_upload(&t[1]);
}

void gpu_fill_alpha(const struct gpu_twin *t)
{
	float *alpha = gpu_host_of(t);

	for (size_t i = 0; i < t->bytes / sizeof(*alpha); i++)
		alpha[i] = (gpu_rnd() & 1 ? -0x1p-18f : 0x1p-19f) *
			   (1.0f + (float)gpu_rnd_below(64) / 64);
	gpu_upload(t);
}

void gpu_poison(const struct gpu_twin *t, int byte)
{
	memset(gpu_host_of(t), byte, t->bytes);
	gpu_upload(t);
}

void gpu_memory_fill(const struct gpu_item *x, const struct gpu_memory *m)
{
	operand_fill(&x->a, x->nan_row, m->a);
	operand_fill(&x->b, x->nan_col, m->b);
	operand_fill(&x->b2, -1, m->b2);
	if (x->activations) {
		gpu_fill_dense(&x->x, gpu_host_of(&m->x), false);
		gpu_upload(&m->x);
	}
	gpu_fill_alpha(&m->alpha);
}

struct nib_packed *gpu_pack(const struct gpu_sizes *s, const struct gpu_twin *t)
{
	const struct nib_fp4 v =
	    gpu_nvfp4(s, gpu_device_of(&t[0]), gpu_device_of(&t[1]));
	static unsigned packs;
	struct nib_packed *p;

	/* Codes that are copied, and where they can be shared, shared ones. */
	gpu_must((packs++ % 2 ? nib_pack_shared : nib_pack)(gpu_test.gpu, &v, NULL, &p,
							    &gpu_test.err),
		 "pack");
	return p;
}

struct gpu_memory gpu_memory_new(const struct gpu_item *x)
{
	struct gpu_memory m;

	memset(&m, 0, sizeof(m));
	gpu_operand_new(&x->a, m.a);
	gpu_operand_new(&x->b, m.b);
	gpu_operand_new(&x->b2, m.b2);
	m.alpha = gpu_twin_new(2 * sizeof(float));
	m.c = gpu_twin_new(gpu_dense_bytes(&x->c));
	if (x->activations)
		m.x = gpu_twin_new(gpu_dense_bytes(&x->x));
	gpu_memory_fill(x, &m);
	gpu_poison(&m.c, 0xFF);
	if (x->packed) {
		m.packed = gpu_pack(&x->b, m.b);
		if (x->op == NIB_OP_DUAL_GEMM)
			m.packed2 = gpu_pack(&x->b2, m.b2);
	}
	return m;
}

void gpu_memory_free(struct gpu_memory *m)
{
	nib_packed_free(m->packed);
	nib_packed_free(m->packed2);
	for (int i = 0; i < 2; i++) {
		gpu_twin_free(&m->a[i]);
		gpu_twin_free(&m->b[i]);
		gpu_twin_free(&m->b2[i]);
	}
	gpu_twin_free(&m->c);
	if (m->x.host)
		gpu_twin_free(&m->x);
	gpu_twin_free(&m->alpha);
}

struct nib_problem gpu_problem(const struct gpu_item *x, const struct gpu_memory *m,
			       void *(*side)(const struct gpu_twin *))
{
	struct nib_problem p;

	memset(&p, 0, sizeof(p));
	p.a = gpu_nvfp4(&x->a, side(&m->a[0]), side(&m->a[1]));
	p.b = gpu_nvfp4(&x->b, side(&m->b[0]), side(&m->b[1]));
	if (x->op == NIB_OP_DUAL_GEMM)
		p.b2 = gpu_nvfp4(&x->b2, side(&m->b2[0]), side(&m->b2[1]));
	if (!x->no_alpha) {
		p.alpha = side(&m->alpha);
		p.alpha2 = p.alpha + 1;
	}
	p.c = gpu_dense(&x->c, side(&m->c));
	if (x->activations) {
		p.activations = x->activations;
		p.x = gpu_dense(&x->x, side(&m->x));
	}
	if (side == gpu_device_of) {
		p.b_packed = m->packed;
		p.b2_packed = m->packed2;
	}
	return p;
}

bool gpu_is_unchanged(const struct gpu_twin *t)
{
	uint8_t *now = gpu_take(t->bytes);
	const bool ok =
	    gpu_download(t, now) && memcmp(now, gpu_host_of(t), t->bytes) == 0;

	free(now);
	return ok;
}

bool gpu_inputs_unchanged(const struct gpu_memory *m)
{
	return gpu_is_unchanged(&m->a[0]) && gpu_is_unchanged(&m->a[1]) &&
	       gpu_is_unchanged(&m->b[0]) && gpu_is_unchanged(&m->b[1]) &&
	       gpu_is_unchanged(&m->b2[0]) && gpu_is_unchanged(&m->b2[1]) &&
	       (!m->x.host || gpu_is_unchanged(&m->x)) && gpu_is_unchanged(&m->alpha);
}
