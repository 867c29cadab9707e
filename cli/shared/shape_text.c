/* SPDX-License-Identifier: Apache-2.0 */
/* shape_text.c - what a shape costs, and how it is written. */
#include <stdio.h>
#include <string.h>

#include "shapes.h"

const char *const shape_op_names[] = {
    "gemm", "dual_gemm", "group_gemm", "group_dual", "gemv",
    "moe",  "moe_dual",	 "quantize",   "dequantize", "convert",
};

#define BATCH_FORM "MxNxK or MxNxKxL"
#define GROUP_FORM "MxNxK+MxNxK+..."
#define MOE_FORM   "--m --n --k --experts"
#define PLAIN_FORM "MxK or MxKxL"

const struct shape_op_info shape_ops[] = {
    [OP_GEMM] = {NIB_OP_GEMM, 0, 0, 1, BATCH_FORM},
    [OP_DUAL_GEMM] = {NIB_OP_DUAL_GEMM, 0, 0, 1, BATCH_FORM},
    [OP_GROUP_GEMM] = {NIB_OP_GEMM, 0, 1, 1, GROUP_FORM},
    [OP_GROUP_DUAL] = {NIB_OP_DUAL_GEMM, 0, 1, 1, GROUP_FORM},
    [OP_GEMV] = {NIB_OP_GEMV, 0, 0, 0, PLAIN_FORM},
    [OP_MOE] = {NIB_OP_GEMM, 1, 1, 1, MOE_FORM},
    [OP_MOE_DUAL] = {NIB_OP_DUAL_GEMM, 1, 1, 1, MOE_FORM},
    [OP_QUANTIZE] = {NIB_OP_GEMM, 0, 0, 0, PLAIN_FORM},
    [OP_DEQUANTIZE] = {NIB_OP_GEMM, 0, 0, 0, PLAIN_FORM},
    [OP_CONVERT] = {NIB_OP_GEMM, 0, 0, 0, PLAIN_FORM},
};

/* ---- what a shape costs -------------------------------------------------- */

int shape_is_multiply(const struct shape *shape)
{
	return shape->op < OP_QUANTIZE;
}

static int is_dual(const struct shape *shape)
{
	return shape_ops[shape->op].op == NIB_OP_DUAL_GEMM;
}

double shape_flop(const struct shape *shape)
{
	double flop = 0;

	if (!shape_is_multiply(shape))
		return 0;
	for (int64_t i = 0; i < shape->count; i++) {
		const struct shape_size *s = &shape->sizes[i];

		flop += 2.0 * (double)s->m * (double)s->n * (double)s->k;
	}
	return flop * (double)shape->batch * (is_dual(shape) ? 2 : 1);
}

void shape_bytes(const struct shape *shape, struct shape_widths widths, double *read,
		 double *written)
{
	const double batch = (double)shape->batch;

	*read = *written = 0;
	for (int64_t i = 0; i < shape->count; i++) {
		double m = (double)shape->sizes[i].m;
		double n = (double)shape->sizes[i].n;
		double k = (double)shape->sizes[i].k;

		if (m <= 0)
			continue;
		*read += batch * k *
			 (m * widths.a + (is_dual(shape) ? 2 : 1) * n * widths.b);
		*written += batch * m * n * widths.c;
	}
}

int64_t shape_sample_rows(const struct shape *shape, double terms)
{
	double all = shape_flop(shape) / 2, rows = 0, sample;

	for (int64_t i = 0; i < shape->count; i++)
		rows += (double)(shape->sizes[i].m * shape->batch);
	if (all <= terms || rows < 1)
		return 0;
	/* The sample is of each matrix of C. */
	sample = terms / (all / rows) / (double)(shape->count * shape->batch);
	return sample > 1 ? (int64_t)sample : 1;
}

/* ---- how it is written --------------------------------------------------- */

/* A stream that writes to text, cut to fit; without memory NULL and no text. */
static FILE *open_text(char *text, size_t bytes)
{
	*text = '\0';
	return fmemopen(text, bytes, "w");
}

/* Some C libraries end only a text that leaves space for it. */
static const char *close_text(FILE *file, char *text, size_t bytes)
{
	fclose(file);
	text[bytes - 1] = '\0';
	return text;
}

static int same_nk(const struct shape *shape)
{
	for (int64_t i = 1; i < shape->count; i++)
		if (shape->sizes[i].n != shape->sizes[0].n ||
		    shape->sizes[i].k != shape->sizes[0].k)
			return 0;
	return 1;
}

static void put_size(FILE *text, const struct shape *shape, int64_t i)
{
	const struct shape_size *s = &shape->sizes[i];

	fprintf(text, "%lldx", (long long)(shape->op == OP_GEMV ? s->n : s->m));
	if (shape_ops[shape->op].has_n)
		fprintf(text, "%lldx", (long long)s->n);
	fprintf(text, "%lld", (long long)s->k);
	if (shape->op == OP_GEMV || shape->batch > 1)
		fprintf(text, "x%lld", (long long)shape->batch);
}

/* What a list says where it is cut. */
static void put_rest(FILE *text, const struct shape *shape)
{
	int64_t rows = 0;

	fprintf(text, ",...(%lld", (long long)shape->count);
	for (int64_t i = 0; i < shape->count; i++)
		rows += shape->sizes[i].m;
	/* The first experts do not tell how many tokens there are. */
	if (shape_ops[shape->op].is_moe)
		fprintf(text, ", %lld rows", (long long)rows);
	fprintf(text, ")");
}

/* most: rows to write before "...". */
static void put_rows(FILE *text, const struct shape *shape, int64_t most)
{
	for (int64_t i = 0; i < shape->count; i++) {
		if (i == most) {
			put_rest(text, shape);
			break;
		}
		fprintf(text, "%s%lld", i ? "," : "", (long long)shape->sizes[i].m);
	}
}

const char *shape_text(const struct shape *shape, char out[SHAPE_TEXT])
{
	FILE *text = open_text(out, SHAPE_TEXT);

	if (!text)
		return out;
	if (!shape_ops[shape->op].is_group) {
		put_size(text, shape, 0);
	} else if (same_nk(shape) && shape->count) {
		fprintf(text, "m=");
		put_rows(text, shape, 4);
		fprintf(text, " n=%lld k=%lld", (long long)shape->sizes[0].n,
			(long long)shape->sizes[0].k);
	} else {
		for (int64_t i = 0; i < shape->count && i < 2; i++) {
			fprintf(text, "%s", i ? "+" : "");
			put_size(text, shape, i);
		}
		if (shape->count > 2)
			fprintf(text, "+...(%lld)", (long long)shape->count);
	}
	return close_text(text, out, SHAPE_TEXT);
}

int shapes_width(const struct shape_list *list, int least)
{
	char text[SHAPE_TEXT];

	for (int64_t i = 0; i < list->count; i++) {
		int n = (int)strlen(shape_text(&list->shapes[i], text));

		least = n > least ? n : least;
	}
	return least;
}

const char *shape_arguments(const struct shape *shape, char *out, size_t bytes)
{
	FILE *text = open_text(out, bytes);

	if (!text)
		return out;
	fprintf(text, "--op %s ", shape_op_names[shape->op]);
	if (shape_ops[shape->op].is_group && same_nk(shape) && shape->count) {
		fprintf(text, "--m ");
		put_rows(text, shape, shape->count);
		fprintf(text, " --n %lld --k %lld", (long long)shape->sizes[0].n,
			(long long)shape->sizes[0].k);
		return close_text(text, out, bytes);
	}
	fprintf(text, "--shape ");
	for (int64_t i = 0; i < shape->count; i++) {
		fprintf(text, "%s", i ? "+" : "");
		put_size(text, shape, i);
	}
	return close_text(text, out, bytes);
}
