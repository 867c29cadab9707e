/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_check_mixture.c - mixtures of experts on the GPU: few and many experts,
 * empty ones, scales laid out expert by expert, rows outside the offsets.
 */
#include "gpu_common.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ORACLE_PRODUCTS 16000000

struct mixture {
	enum nib_op op;
	int64_t experts, rows; /* rows of a: at least what experts have */
	int64_t most;	       /* tokens of an expert */
	int64_t empty;	       /* of 8 experts, about */
	struct gpu_sizes a, b, b2, c; /* a: its scale tensor's rows */
	bool has_scale_rows, packed;
};

struct memory {
	struct gpu_twin a[2], b[2], b2[2]; /* codes, scales */
	struct gpu_twin c, alpha, offsets, scale_rows;
	struct nib_packed *packed, *packed2;
};

static void operand_new(const struct gpu_sizes *s, struct gpu_twin *t)
{
	t[0] = gpu_twin_new(gpu_codes_bytes(s));
	t[1] = gpu_twin_new(gpu_scale_bytes(s));
	gpu_fill_nvfp4(s, gpu_host_of(&t[0]), gpu_host_of(&t[1]));
}

static void upload_pair(const struct gpu_twin *t)
{
	gpu_upload(&t[0]);
	gpu_upload(&t[1]);
}

/* Who has how many tokens, and where their scales begin. */
static void deal_tokens(struct mixture *x, struct memory *m)
{
	const size_t words = (size_t)x->experts * 4;
	int32_t *offsets, *scale_rows;
	int64_t scales = 0;

	m->offsets = gpu_twin_new(words + 4);
	m->scale_rows = gpu_twin_new(words);
	offsets = gpu_host_of(&m->offsets);
	scale_rows = gpu_host_of(&m->scale_rows);
	offsets[0] = 0;
	for (int64_t e = 0; e < x->experts; e++) {
		const int64_t tokens = gpu_rnd_below(8) < x->empty
					   ? 0
					   : gpu_rnd_below(x->most + 1);

		offsets[e + 1] = offsets[e] + (int32_t)tokens;
		scale_rows[e] = (int32_t)scales;
		scales += (tokens + 127) / 128 * 128;
	}
	/* Some rows that no expert has. */
	x->rows = offsets[x->experts] + gpu_rnd_below(40);
	x->a.rows = x->has_scale_rows && scales > x->rows ? scales : x->rows;
	x->c.rows = x->rows;
	gpu_upload(&m->offsets);
	gpu_upload(&m->scale_rows);
}

/* NaN wherever no expert's tokens have a scale. */
static void spoil_scales(const struct mixture *x, struct memory *m)
{
	const int32_t *offsets = gpu_host_of(&m->offsets);
	const int32_t *scale_rows = gpu_host_of(&m->scale_rows);
	uint8_t *scales = gpu_host_of(&m->a[1]);
	bool *used = gpu_take((size_t)x->a.rows * sizeof(*used));

	for (int64_t e = 0; e < x->experts; e++)
		for (int32_t r = offsets[e]; r < offsets[e + 1]; r++)
			used[x->has_scale_rows ? scale_rows[e] + r - offsets[e]
					       : r] = true;
	for (int64_t r = 0; r < x->a.rows; r++)
		for (int64_t g = 0; g < x->a.k / 16 && !used[r]; g++)
			scales[gpu_scale_at(&x->a, 0, r, g)] = NAN_SCALE;
	free(used);
}

static struct nib_packed *packed(const struct gpu_sizes *s,
				 const struct gpu_twin *t)
{
	const struct nib_nvfp4 v =
	    gpu_nvfp4(s, gpu_device_of(&t[0]), gpu_device_of(&t[1]));
	struct nib_packed *p;

	gpu_must(nib_pack(gpu_test.gpu, &v, &p, &gpu_test.err), "pack");
	return p;
}

static struct memory memory_new(struct mixture *x)
{
	struct memory m;
	float *alpha;

	memset(&m, 0, sizeof(m));
	deal_tokens(x, &m);
	operand_new(&x->a, m.a);
	operand_new(&x->b, m.b);
	operand_new(&x->b2, m.b2);
	spoil_scales(x, &m);
	upload_pair(m.a);
	upload_pair(m.b);
	upload_pair(m.b2);
	m.alpha = gpu_twin_new((size_t)x->experts * 2 * sizeof(float));
	alpha = gpu_host_of(&m.alpha);
	for (int64_t i = 0; i < 2 * x->experts; i++)
		alpha[i] = (gpu_rnd() & 1 ? -0x1p-18f : 0x1p-19f) *
			   (1.0f + (float)gpu_rnd_below(64) / 64);
	gpu_upload(&m.alpha);
	m.c = gpu_twin_new(gpu_dense_bytes(&x->c));
	memset(gpu_host_of(&m.c), 0xFF, m.c.bytes);
	gpu_upload(&m.c);
	if (x->packed) {
		m.packed = packed(&x->b, m.b);
		m.packed2 =
		    x->op == NIB_DUAL_GEMM ? packed(&x->b2, m.b2) : NULL;
	}
	return m;
}

static void memory_free(struct memory *m)
{
	nib_packed_free(m->packed);
	nib_packed_free(m->packed2);
	for (int i = 0; i < 2; i++) {
		gpu_twin_free(&m->a[i]);
		gpu_twin_free(&m->b[i]);
		gpu_twin_free(&m->b2[i]);
	}
	gpu_twin_free(&m->c);
	gpu_twin_free(&m->alpha);
	gpu_twin_free(&m->offsets);
	gpu_twin_free(&m->scale_rows);
}

static struct nib_moe_problem problem(const struct mixture *x,
				      const struct memory *m,
				      void *(*side)(const struct gpu_twin *))
{
	struct nib_moe_problem p;

	memset(&p, 0, sizeof(p));
	p.a = gpu_nvfp4(&x->a, side(&m->a[0]), side(&m->a[1]));
	p.a.rows = x->rows;
	p.b = gpu_nvfp4(&x->b, side(&m->b[0]), side(&m->b[1]));
	if (x->op == NIB_DUAL_GEMM)
		p.b2 = gpu_nvfp4(&x->b2, side(&m->b2[0]), side(&m->b2[1]));
	p.alpha = side(&m->alpha);
	p.alpha2 = p.alpha + x->experts;
	p.c = gpu_dense(&x->c, side(&m->c));
	p.row_offsets = side(&m->offsets);
	if (x->has_scale_rows) {
		p.scale_rows = side(&m->scale_rows);
		p.scale_rows_total = x->a.rows;
	}
	if (side == gpu_device_of) {
		p.b_packed = m->packed;
		p.b2_packed = m->packed2;
	}
	return p;
}

/* Rows of no expert and gaps keep the poison; the rest is no NaN. */
static const char *check_places(const struct mixture *x, const struct memory *m)
{
	const int32_t *offsets = gpu_host_of(&m->offsets);
	const size_t size = nib_dtype_bytes(x->c.dtype);
	const int64_t pitch = x->c.k + x->c.gap;
	const uint8_t *c = gpu_host_of(&m->c);

	for (int64_t i = 0; i < x->rows * pitch; i++) {
		const bool inside =
		    i / pitch < offsets[x->experts] && i % pitch < x->c.k;
		bool is_poison = true;

		for (size_t b = 0; b < size; b++)
			is_poison =
			    is_poison && c[(size_t)i * size + b] == 0xFF;
		if (is_poison == inside)
			return inside ? "not written" : "wrote outside c";
	}
	return NULL;
}

static const char *check_result(const struct mixture *x, const struct memory *m)
{
	const struct nib_moe_problem on_host = problem(x, m, gpu_host_of);
	const struct nib_check_options options = {
	    .struct_bytes = sizeof(options),
	    .sample_rows =
		1 + ORACLE_PRODUCTS / (x->b.rows * x->b.k + 1) / x->experts,
	    .seed = gpu_rnd(),
	    .arithmetic = NIB_ARITHMETIC_FP16_TENSOR,
	};
	struct nib_check_result r = {.struct_bytes = sizeof(r)};
	static char text[160];

	gpu_must(nib_check_moe(x->op, &on_host, &options, &r, &gpu_test.err),
		 "check");
	snprintf(text, sizeof(text),
		 "%" PRId64 " of %" PRId64 " outside, %.3g of the bound, "
		 "expert %" PRId64 " [%" PRId64 ", %" PRId64 "]: %g, not %g",
		 r.failed, r.checked, r.worst_fraction, r.problem, r.row, r.col,
		 r.got, r.want);
	return r.failed ? text : NULL;
}

/* Twice by one plan: within the bound, and the same bits. */
static const char *run_mixture(const struct mixture *x, const struct memory *m)
{
	const struct nib_moe_problem p = problem(x, m, gpu_device_of);
	uint8_t *again = gpu_take(m->c.bytes);
	struct nib_plan *plan = NULL;
	const char *why = NULL;

	if (nib_plan_create_moe(gpu_test.gpu, x->op, &p, NULL, &plan,
				&gpu_test.err) ||
	    nib_run_moe(plan, &p, NULL, &gpu_test.err) ||
	    nib_device_wait(gpu_test.gpu, NULL, &gpu_test.err))
		why = gpu_test.err.message;
	else if (!gpu_download(&m->c, gpu_host_of(&m->c)))
		why = "guard band of c";
	if (!why)
		why = check_places(x, m);
	if (!why)
		why = check_result(x, m);
	if (!why && (nib_run_moe(plan, &p, NULL, &gpu_test.err) ||
		     nib_device_wait(gpu_test.gpu, NULL, &gpu_test.err)))
		why = gpu_test.err.message;
	if (!why && (!gpu_download(&m->c, again) ||
		     memcmp(again, gpu_host_of(&m->c), m->c.bytes) != 0))
		why = "other bits in a second run";
	nib_plan_free(plan);
	free(again);
	return why;
}

static struct gpu_sizes weights(int64_t n, int64_t k, int64_t batch)
{
	return (struct gpu_sizes){n,
				  k,
				  batch,
				  gpu_rnd_below(3) ? 0 : 8 * gpu_rnd_below(3),
				  gpu_rnd() & 1 ? NIB_TILED_128X4 : NIB_LINEAR,
				  NIB_FP32};
}

static void check_mixture(enum nib_op op, int64_t experts, int64_t most,
			  int64_t empty, int64_t n, int64_t k)
{
	struct mixture x = {
	    .op = op,
	    .experts = experts,
	    .most = most,
	    .empty = empty,
	    .a = weights(0, k, 1),
	    .b = weights(n, k, experts),
	    .b2 = weights(n, k, experts),
	    .c = {0, n, 1, gpu_rnd_below(9), NIB_LINEAR,
		  (enum nib_dtype)gpu_rnd_below(3)},
	    .has_scale_rows = gpu_rnd() & 1,
	    .packed = gpu_rnd_below(4) == 0,
	};
	struct memory m = memory_new(&x);
	const char *why = run_mixture(&x, &m);

	gpu_test.passed += !why;
	gpu_test.failed += why != NULL;
	if (why)
		printf("FAIL mixture %s %s experts %" PRId64 " rows %" PRId64
		       " n %" PRId64 " k %" PRId64 " a %s b %s%s%s: %s\n",
		       op == NIB_DUAL_GEMM ? "dual" : "gemm",
		       gpu_dtype_name(x.c.dtype), experts, x.rows, n, k,
		       gpu_layout_name(x.a.layout), gpu_layout_name(x.b.layout),
		       x.has_scale_rows ? " scale rows" : "",
		       x.packed ? " packed" : "", why);
	memory_free(&m);
}

int main(void)
{
	static const int64_t experts[] = {1, 2, 3, 8, 31, 32, 33, 128, 257};
	static const int64_t n[] = {1, 64, 129, 250, 300};
	static const int64_t k[] = {16, 48, 272, 512};
	int code;

	if (!gpu_begin(&code))
		return code;
	for (int i = 0; i < 90; i++) {
		const enum nib_op op = i & 1 ? NIB_DUAL_GEMM : NIB_GEMM;
		const int64_t count = experts[i % 9];

		/* Also experts of over 128 and over 256 tokens. */
		check_mixture(op, count, count < 9 ? 600 : 20 + i % 3 * 60,
			      i % 8, n[i % 5], k[i % 4]);
	}
	for (int i = 0; i < 4; i++) {
		const enum nib_op op = i & 1 ? NIB_DUAL_GEMM : NIB_GEMM;

		check_mixture(op, 1024, 12, 6, 129, 64);
		check_mixture(op, 1000, 3, 0, 64, 272);
		check_mixture(op, 8, 300, 1, 1000, 2048);
		check_mixture(op, 5, 0, 0, 64, 32);
	}
	return gpu_end();
}
