/* SPDX-License-Identifier: Apache-2.0 */
/*
 * view.h - checks of single views.  nib_valid_*() write a resolved copy, in which no
 * stride or batch of 0 has a special meaning any more.  An error names the
 * argument, its value and the rule.  What elements mean is in format/.
 */
#ifndef NIB_CORE_VIEW_H
#define NIB_CORE_VIEW_H

#include <stdbool.h>
#include <stdint.h>

#include "core/error.h"

/* The address range of a view: [begin, end), empty without elements. */
struct nib_span {
	uintptr_t begin, end;
};

/* Checks sizes, strides and layout, but no pointer.  in may be out. */
enum nib_status nib_valid_fp4(const struct nib_fp4 *in, struct nib_fp4 *out,
			      struct nib_label label, struct nib_error *err);
enum nib_status nib_valid_dense(const struct nib_dense *in, struct nib_dense *out,
				struct nib_label label, struct nib_error *err);

/* Checks the pointers of resolved views: not NULL, no wrap around. */
enum nib_status nib_valid_fp4_data(const struct nib_fp4 *v, struct nib_label label,
				   struct nib_error *err);
enum nib_status nib_valid_dense_data(const struct nib_dense *v, struct nib_label label,
				     struct nib_error *err);

/* Spans of resolved views. */
struct nib_span nib_codes_span(const struct nib_fp4 *v);
struct nib_span nib_scale_span(const struct nib_fp4 *v);
struct nib_span nib_dense_span(const struct nib_dense *v);
bool nib_spans_overlap(struct nib_span a, struct nib_span b);
/* a_name, b_name: the arguments that the spans belong to. */
enum nib_status nib_check_apart(struct nib_span a, const char *a_name,
				struct nib_span b, const char *b_name,
				struct nib_error *err);

/*
 * The bytes of a view's array, as pieces: the piece of batch b and row r begins
 * at begin + b * batch_stride + r * row_stride and has `width` bytes.
 */
struct nib_grid {
	uintptr_t begin;
	int64_t width, rows, row_stride, batch, batch_stride;
};

struct nib_grid nib_dense_grid(const struct nib_dense *v);
/* Width of the columns, counted circularly from begin, that hold all pieces. */
uintptr_t nib_grid_columns_bytes(const struct nib_grid *g);
/* Whether no two pieces have a byte in common. */
bool nib_grid_is_apart(const struct nib_grid *g);
/*
 * Whether the pieces of all batches, width bytes each, are between the begin of a row
 * and that of the next, as in memory of [rows, batch, columns].
 */
bool nib_lies_between(int64_t width, int64_t row_stride, int64_t batch,
		      int64_t batch_stride);

/*
 * Whether two views of valid data have a byte in common.  Views whose spans
 * overlap have none in two patterns that are recognised: columns of one wider
 * matrix, and stacks whose pieces are side by side.  Others count as overlap.
 */
bool nib_dense_overlap(const struct nib_dense *x, const struct nib_dense *y);
bool nib_scales_overlap_codes(const struct nib_fp4 *v);

#endif
