/* SPDX-License-Identifier: Apache-2.0 */
/* shape_text.c - what a shape costs, and how it is written. */
#include <stdarg.h>
#include <string.h>

#include "shapes.h"

enum nib_op shape_nib_op(const struct shape *shape, int *is_moe)
{
	*is_moe = shape->op == OP_MOE || shape->op == OP_MOE_DUAL;
	if (shape->op == OP_GEMV)
		return NIB_GEMV;
	if (shape->op == OP_DUAL_GEMM || shape->op == OP_GROUP_DUAL ||
	    shape->op == OP_MOE_DUAL)
		return NIB_DUAL_GEMM;
	return NIB_GEMM;
}

double shape_flop(const struct shape *shape)
{
	int is_moe;
	double each = shape_nib_op(shape, &is_moe) == NIB_DUAL_GEMM ? 4 : 2;
	double flop = 0;

	if (!shape_is_multiply(shape))
		return 0;
	for (int64_t i = 0; i < shape->count; i++) {
		const struct shape_size *s = &shape->sizes[i];

		flop += each * (double)s->m * (double)s->n * (double)s->k;
	}
	return flop * (double)shape->batch;
}

struct text {
	char *at;
	size_t left; /* with space for the NUL */
};

__attribute__((format(printf, 2, 3))) static void put(struct text *text,
						      const char *format, ...)
{
	va_list list;
	int n;

	va_start(list, format);
	n = vsnprintf(text->at, text->left, format, list);
	va_end(list);
	if (n < 0)
		return;
	if ((size_t)n >= text->left)
		n = (int)text->left - 1;
	text->at += n;
	text->left -= (size_t)n;
}

static int same_nk(const struct shape *shape)
{
	for (int64_t i = 1; i < shape->count; i++)
		if (shape->sizes[i].n != shape->sizes[0].n ||
		    shape->sizes[i].k != shape->sizes[0].k)
			return 0;
	return 1;
}

static void put_size(struct text *text, const struct shape *shape, int64_t i)
{
	const struct shape_size *s = &shape->sizes[i];

	if (shape->op == OP_GEMV)
		put(text, "%lldx%lldx%lld", (long long)s->n, (long long)s->k,
		    (long long)shape->batch);
	else if (shape->op >= OP_QUANTIZE)
		put(text, "%lldx%lld", (long long)s->m, (long long)s->k);
	else
		put(text, "%lldx%lldx%lld", (long long)s->m, (long long)s->n,
		    (long long)s->k);
	if (shape->op != OP_GEMV && shape->batch > 1)
		put(text, "x%lld", (long long)shape->batch);
}

/* most: rows to write before "..."; then the list says how many there are. */
static void put_rows(struct text *text, const struct shape *shape, int64_t most)
{
	for (int64_t i = 0; i < shape->count; i++) {
		if (i == most) {
			put(text, ",...(%lld)", (long long)shape->count);
			break;
		}
		put(text, "%s%lld", i ? "," : "", (long long)shape->sizes[i].m);
	}
}

static int is_list(const struct shape *shape)
{
	return shape->op == OP_GROUP_GEMM || shape->op == OP_GROUP_DUAL ||
	       shape->op == OP_MOE || shape->op == OP_MOE_DUAL;
}

const char *shape_text(const struct shape *shape, char out[SHAPE_TEXT])
{
	struct text text = {out, SHAPE_TEXT};

	*out = '\0';
	if (!is_list(shape)) {
		put_size(&text, shape, 0);
	} else if (same_nk(shape) && shape->count) {
		put(&text, "m=");
		put_rows(&text, shape, 4);
		put(&text, " n=%lld k=%lld", (long long)shape->sizes[0].n,
		    (long long)shape->sizes[0].k);
	} else {
		for (int64_t i = 0; i < shape->count && i < 2; i++) {
			put(&text, "%s", i ? "+" : "");
			put_size(&text, shape, i);
		}
		if (shape->count > 2)
			put(&text, "+...(%lld)", (long long)shape->count);
	}
	return out;
}

const char *shape_arguments(const struct shape *shape, char *out, size_t bytes)
{
	struct text text = {out, bytes};

	*out = '\0';
	put(&text, "--op %s ", shape_op_names[shape->op]);
	if (is_list(shape) && same_nk(shape) && shape->count) {
		put(&text, "--m ");
		put_rows(&text, shape, shape->count);
		put(&text, " --n %lld --k %lld", (long long)shape->sizes[0].n,
		    (long long)shape->sizes[0].k);
		return out;
	}
	put(&text, "--shape ");
	for (int64_t i = 0; i < shape->count; i++) {
		put(&text, "%s", i ? "+" : "");
		put_size(&text, shape, i);
	}
	return out;
}
