/* SPDX-License-Identifier: Apache-2.0 */
/*
 * view.c - checks of single views: sizes, strides, layouts, pointers, and whether
 * two views have bytes in common.
 */
#include "core/view.h"

#include <inttypes.h>

#include "core/options.h"

/* Rows, columns and batches: far above any use, far below overflow of a sum. */
#define MAX_SIZE (INT64_C(1) << 40)

static enum nib_status check_size(int64_t value, const char *field,
				  const struct nib_label *label, struct nib_error *err)
{
	if (value >= 0 && value <= MAX_SIZE)
		return NIB_STATUS_OK;
	return nib_fail_at(err, NIB_STATUS_BAD_ARGUMENT, *label, field,
			   " = %" PRId64 ": must be 0 to 2^40", value);
}

/*
 * Resolves one stride: 0 becomes dense, the length of one item.  A smaller one
 * would make items overlap, unless there is only one.
 */
static enum nib_status resolve_stride(int64_t *stride, int64_t dense, int64_t items,
				      const char *field, const struct nib_label *label,
				      struct nib_error *err)
{
	if (*stride == 0)
		*stride = dense;
	if (*stride < 0 || (items > 1 && *stride < dense))
		return nib_fail_at(err, NIB_STATUS_BAD_ARGUMENT, *label, field,
				   " = %" PRId64
				   ": must be 0 (dense) or at least %" PRId64,
				   *stride, dense);
	return NIB_STATUS_OK;
}

/* items * stride without overflow and below 2^62. */
static enum nib_status check_extent(int64_t items, int64_t stride, int64_t *extent,
				    const char *field, const struct nib_label *label,
				    struct nib_error *err)
{
	if (!__builtin_mul_overflow(items, stride, extent) && *extent < INT64_MAX / 2)
		return NIB_STATUS_OK;
	return nib_fail_at(err, NIB_STATUS_BAD_ARGUMENT, *label, field,
			   " = %" PRId64 " times %" PRId64
			   ": must stay below 2^62 bytes",
			   stride, items);
}

bool nib_lies_between(int64_t width, int64_t row_stride, int64_t batch,
		      int64_t batch_stride)
{
	return batch > 1 && batch_stride >= width &&
	       batch_stride <= (row_stride - width) / (batch - 1);
}

/*
 * Checks the stride of stacked batches, each after all rows of the one before.
 * The last row ends after its own bytes, not after a whole row stride, so the next
 * batch may begin there.
 */
static enum nib_status check_stacked(int64_t rows, int64_t row_dense,
				     int64_t row_stride, int64_t batch,
				     int64_t batch_stride, const char *field,
				     const struct nib_label *label,
				     struct nib_error *err)
{
	const int64_t all = rows > 0 ? (rows - 1) * row_stride + row_dense : 0;

	if (batch_stride >= 0 && batch > 1 && batch_stride < all &&
	    nib_lies_between(row_dense, row_stride, batch, row_dense))
		return nib_fail_at(
		    err, NIB_STATUS_BAD_ARGUMENT, *label, field,
		    " = %" PRId64 ": must be 0 (dense), at least %" PRId64
		    " (stacked) or %" PRId64 " to %" PRId64 " (interleaved)",
		    batch_stride, all, row_dense,
		    (row_stride - row_dense) / (batch - 1));
	return resolve_stride(&batch_stride, all, batch, field, label, err);
}

/* Resolves both strides of one array of a view. */
static enum nib_status
resolve_strides(int64_t rows, int64_t row_dense, int64_t *row_stride, int64_t batch,
		int64_t *batch_stride, const char *row_field, const char *batch_field,
		const struct nib_label *label, struct nib_error *err)
{
	int64_t extent;
	enum nib_status status;

	status = resolve_stride(row_stride, row_dense, rows, row_field, label, err);
	if (!status)
		status =
		    check_extent(rows, *row_stride, &extent, row_field, label, err);
	if (status)
		return status;
	if (*batch_stride == 0)
		*batch_stride = extent;
	if (!nib_lies_between(row_dense, *row_stride, batch, *batch_stride))
		status = check_stacked(rows, row_dense, *row_stride, batch,
				       *batch_stride, batch_field, label, err);
	if (!status)
		status = check_extent(batch, *batch_stride, &extent, batch_field, label,
				      err);
	return status;
}

static enum nib_status resolve_scales(struct nib_fp4 *v, const struct nib_label *label,
				      struct nib_error *err)
{
	int64_t extent;
	enum nib_status status;

	if (v->scale_layout == NIB_SCALE_LAYOUT_LINEAR)
		return resolve_strides(
		    v->rows, v->k / NIB_NVFP4_BLOCK, &v->scale_row_stride_bytes,
		    v->batch, &v->scale_batch_stride_bytes, "scale_row_stride_bytes",
		    "scale_batch_stride_bytes", label, err);
	if (v->scale_row_stride_bytes != 0)
		return nib_fail_at(
		    err, NIB_STATUS_BAD_ARGUMENT, *label, "scale_row_stride_bytes",
		    " = %" PRId64 ": must be 0 with NIB_SCALE_LAYOUT_TILED_128X4",
		    v->scale_row_stride_bytes);
	status =
	    resolve_stride(&v->scale_batch_stride_bytes,
			   (int64_t)nib_scales_bytes(v->scale_layout, v->rows, v->k),
			   v->batch, "scale_batch_stride_bytes", label, err);
	if (!status)
		status = check_extent(v->batch, v->scale_batch_stride_bytes, &extent,
				      "scale_batch_stride_bytes", label, err);
	return status;
}

static enum nib_status check_format(const struct nib_fp4 *v,
				    const struct nib_label *label,
				    struct nib_error *err)
{
	if (v->format == NIB_FP4_FORMAT_NVFP4)
		return NIB_STATUS_OK;
	if (v->format == NIB_FP4_FORMAT_MXFP4)
		return nib_fail_at(err, NIB_STATUS_UNSUPPORTED, *label, "format",
				   " = NIB_FP4_FORMAT_MXFP4 (1): must be "
				   "NIB_FP4_FORMAT_NVFP4 (0) in this version");
	return nib_fail_at(err, NIB_STATUS_BAD_ARGUMENT, *label, "format",
			   " = %d: must be NIB_FP4_FORMAT_NVFP4 (0) or "
			   "NIB_FP4_FORMAT_MXFP4 (1)",
			   (int)v->format);
}

static enum nib_status check_code_order(const struct nib_fp4 *v,
					const struct nib_label *label,
					struct nib_error *err)
{
	if (v->code_order == NIB_CODE_ORDER_LOW_FIRST)
		return NIB_STATUS_OK;
	return nib_fail_at(err, NIB_STATUS_BAD_ARGUMENT, *label, "code_order",
			   " = %d: must be NIB_CODE_ORDER_LOW_FIRST (0); "
			   "nib_layer_read_rows() reads others",
			   (int)v->code_order);
}

enum nib_status nib_valid_fp4(const struct nib_fp4 *in, struct nib_fp4 *out,
			      struct nib_label label, struct nib_error *err)
{
	struct nib_fp4 v = *in;
	enum nib_status status;

	if ((status = nib_check_reserved(v.reserved, label, err)) ||
	    (status = check_format(&v, &label, err)) ||
	    (status = check_code_order(&v, &label, err)) ||
	    (status = check_size(v.rows, "rows", &label, err)) ||
	    (status = check_size(v.batch, "batch", &label, err)))
		return status;
	if (v.k < 0 || v.k > NIB_MAX_K || v.k % NIB_NVFP4_BLOCK != 0)
		return nib_fail_at(err, NIB_STATUS_BAD_ARGUMENT, label, "k",
				   " = %" PRId64
				   ": must be a multiple of %d, 0 to %" PRId64,
				   v.k, NIB_NVFP4_BLOCK, NIB_MAX_K);
	if (v.scale_layout != NIB_SCALE_LAYOUT_LINEAR &&
	    v.scale_layout != NIB_SCALE_LAYOUT_TILED_128X4)
		return nib_fail_at(err, NIB_STATUS_BAD_ARGUMENT, label, "scale_layout",
				   " = %d: must be NIB_SCALE_LAYOUT_LINEAR (0) "
				   "or NIB_SCALE_LAYOUT_TILED_128X4 (1)",
				   (int)v.scale_layout);
	if (v.batch == 0)
		v.batch = 1;
	status = resolve_strides(v.rows, v.k / 2, &v.row_stride_bytes, v.batch,
				 &v.batch_stride_bytes, "row_stride_bytes",
				 "batch_stride_bytes", &label, err);
	if (!status)
		status = resolve_scales(&v, &label, err);
	if (!status)
		*out = v;
	return status;
}

enum nib_status nib_valid_dense(const struct nib_dense *in, struct nib_dense *out,
				struct nib_label label, struct nib_error *err)
{
	struct nib_dense v = *in;
	int64_t extent;
	enum nib_status status;

	if ((status = nib_check_reserved(v.reserved, label, err)) ||
	    (status = check_size(v.rows, "rows", &label, err)) ||
	    (status = check_size(v.cols, "cols", &label, err)) ||
	    (status = check_size(v.batch, "batch", &label, err)))
		return status;
	if (v.dtype != NIB_DTYPE_FP32 && v.dtype != NIB_DTYPE_FP16 &&
	    v.dtype != NIB_DTYPE_BF16)
		return nib_fail_at(err, NIB_STATUS_BAD_ARGUMENT, label, "dtype",
				   " = %d: must be NIB_DTYPE_FP32 (0), "
				   "NIB_DTYPE_FP16 (1) or NIB_DTYPE_BF16 (2)",
				   (int)v.dtype);
	if (v.batch == 0)
		v.batch = 1;
	status = resolve_strides(v.rows, v.cols, &v.row_stride_elems, v.batch,
				 &v.batch_stride_elems, "row_stride_elems",
				 "batch_stride_elems", &label, err);
	/* Elements have at most 4 bytes.  Unused strides are checked, too. */
	if (!status)
		status = check_extent(v.rows ? 4 * v.rows : 4, v.row_stride_elems,
				      &extent, "row_stride_elems", &label, err);
	if (!status)
		status = check_extent(4 * v.batch, v.batch_stride_elems, &extent,
				      "batch_stride_elems", &label, err);
	if (!status)
		*out = v;
	return status;
}

/* ---- spans, and overlaps ------------------------------------------------ */

static struct nib_grid codes_grid(const struct nib_fp4 *v)
{
	return (struct nib_grid){(uintptr_t)v->codes, v->k / 2, v->rows,
				 v->row_stride_bytes, v->batch, v->batch_stride_bytes};
}

static struct nib_grid scale_grid(const struct nib_fp4 *v)
{
	const bool is_linear = v->scale_layout == NIB_SCALE_LAYOUT_LINEAR;

	return (struct nib_grid){
	    .begin = (uintptr_t)v->scales,
	    .width = is_linear
			 ? v->k / NIB_NVFP4_BLOCK
			 : (int64_t)nib_scales_bytes(v->scale_layout, v->rows, v->k),
	    .rows = is_linear ? v->rows : 1,
	    .row_stride = is_linear ? v->scale_row_stride_bytes : 0,
	    .batch = v->batch,
	    .batch_stride = v->scale_batch_stride_bytes,
	};
}

struct nib_grid nib_dense_grid(const struct nib_dense *v)
{
	const int64_t size = (int64_t)nib_dtype_bytes(v->dtype);

	return (struct nib_grid){
	    (uintptr_t)v->data,		v->cols * size, v->rows,
	    v->row_stride_elems * size, v->batch,	v->batch_stride_elems * size,
	};
}

static struct nib_span span_of(struct nib_grid g)
{
	struct nib_span span = {g.begin, g.begin};

	if (g.rows > 0 && g.width > 0)
		span.end += (uintptr_t)((g.batch - 1) * g.batch_stride +
					(g.rows - 1) * g.row_stride + g.width);
	return span;
}

struct nib_span nib_codes_span(const struct nib_fp4 *v)
{
	return span_of(codes_grid(v));
}

struct nib_span nib_scale_span(const struct nib_fp4 *v)
{
	return span_of(scale_grid(v));
}

struct nib_span nib_dense_span(const struct nib_dense *v)
{
	return span_of(nib_dense_grid(v));
}

bool nib_spans_overlap(struct nib_span a, struct nib_span b)
{
	/* Empty spans overlap nothing. */
	return a.begin < a.end && b.begin < b.end && a.begin < b.end && b.begin < a.end;
}

enum nib_status nib_check_apart(struct nib_span a, const char *a_name,
				struct nib_span b, const char *b_name,
				struct nib_error *err)
{
	if (!nib_spans_overlap(a, b))
		return NIB_STATUS_OK;
	return nib_fail_argument(err, NIB_STATUS_BAD_ARGUMENT, a_name,
				 " = %p: must not overlap %s, bytes %p to %p",
				 (void *)a.begin, b_name, (void *)b.begin,
				 (void *)b.end);
}

uintptr_t nib_grid_columns_bytes(const struct nib_grid *g)
{
	if (g->batch_stride % g->row_stride == 0)
		return (uintptr_t)g->width;
	return (uintptr_t)((g->batch - 1) * g->batch_stride + g->width);
}

/* True for separate columns of one wider matrix: the row strides are equal. */
static bool are_columns_apart(const struct nib_grid *x, const struct nib_grid *y)
{
	const uintptr_t stride = (uintptr_t)x->row_stride;
	uintptr_t offset;

	if (x->row_stride != y->row_stride || stride == 0)
		return false;
	/* The column of y's first byte, counted from x's first. */
	offset = y->begin >= x->begin
		     ? (y->begin - x->begin) % stride
		     : (stride - (x->begin - y->begin) % stride) % stride;
	return offset >= nib_grid_columns_bytes(x) &&
	       offset + nib_grid_columns_bytes(y) <= stride;
}

bool nib_grid_is_apart(const struct nib_grid *g)
{
	if (g->rows > 1 && g->row_stride < g->width)
		return false;
	return g->batch == 1 ||
	       g->batch_stride >= (g->rows - 1) * g->row_stride + g->width ||
	       nib_lies_between(g->width, g->row_stride, g->batch, g->batch_stride);
}

/*
 * True if each piece of x is next to one of y, and the two together form a
 * grid of longer pieces.
 */
static bool are_pieces_apart(const struct nib_grid *x, const struct nib_grid *y)
{
	const struct nib_grid *low = x->begin < y->begin ? x : y;
	const struct nib_grid *high = low == x ? y : x;
	const uintptr_t offset = high->begin - low->begin;
	struct nib_grid both;

	if (x->rows != y->rows || x->row_stride != y->row_stride ||
	    x->batch != y->batch || x->batch_stride != y->batch_stride)
		return false;
	/* The limit keeps the sums below from overflowing. */
	if (offset < (uintptr_t)low->width || offset > INT64_MAX / 4)
		return false;
	both = *low;
	both.width = (int64_t)offset + high->width;
	return nib_grid_is_apart(&both);
}

/* x and y do not wrap around the end of memory. */
static bool grids_overlap(struct nib_grid x, struct nib_grid y)
{
	return nib_spans_overlap(span_of(x), span_of(y)) &&
	       !are_columns_apart(&x, &y) && !are_pieces_apart(&x, &y);
}

bool nib_dense_overlap(const struct nib_dense *x, const struct nib_dense *y)
{
	return grids_overlap(nib_dense_grid(x), nib_dense_grid(y));
}

bool nib_scales_overlap_codes(const struct nib_fp4 *v)
{
	return grids_overlap(scale_grid(v), codes_grid(v));
}

static enum nib_status check_span(struct nib_span span, const char *field,
				  const struct nib_label *label, struct nib_error *err)
{
	if (span.begin == span.end)
		return NIB_STATUS_OK;
	if (span.begin == 0)
		return nib_fail_at(err, NIB_STATUS_BAD_ARGUMENT, *label, field,
				   " = NULL: must point to %ju bytes",
				   (uintmax_t)(span.end - span.begin));
	if (span.end < span.begin)
		return nib_fail_at(err, NIB_STATUS_BAD_ARGUMENT, *label, field,
				   " = %p: its strides run past the end of "
				   "memory",
				   (void *)span.begin);
	return NIB_STATUS_OK;
}

enum nib_status nib_valid_fp4_data(const struct nib_fp4 *v, struct nib_label label,
				   struct nib_error *err)
{
	enum nib_status status;

	status = check_span(nib_codes_span(v), "codes", &label, err);
	if (!status)
		status = check_span(nib_scale_span(v), "scales", &label, err);
	return status;
}

enum nib_status nib_valid_dense_data(const struct nib_dense *v, struct nib_label label,
				     struct nib_error *err)
{
	return check_span(nib_dense_span(v), "data", &label, err);
}
