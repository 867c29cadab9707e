/* SPDX-License-Identifier: Apache-2.0 */
/*
 * validate.c - checks of whole problems: sizes that fit each other, pointers,
 * overlaps of inputs with the output, scale signs.
 */
#include "validate.h"

#include <float.h>
#include <inttypes.h>
#include <string.h>

#include "backend/backend.h"
#include "core/error.h"
#include "core/options.h"
#include "format/view.h"

static enum nib_status check_op(enum nib_op op, bool is_moe, struct nib_error *err)
{
	if (op == NIB_OP_GEMM || op == NIB_OP_DUAL_GEMM ||
	    (op == NIB_OP_GEMV && !is_moe))
		return NIB_STATUS_OK;
	return nib_fail_argument(err, NIB_STATUS_BAD_ARGUMENT, "op",
				 " = %d: must be %s", (int)op,
				 is_moe ? "NIB_OP_GEMM (0) or NIB_OP_DUAL_GEMM (1)"
					: "NIB_OP_GEMM (0), NIB_OP_DUAL_GEMM (1) or "
					  "NIB_OP_GEMV (2)");
}

/* Devices of one instruction set read the same packed weights; each GPU its own. */
bool nib_reads_packed(const struct nib_device *device, const struct nib_packed *packed)
{
	struct nib_device_info ours = {0}, theirs = {0};

	if (packed->device == device)
		return true;
	if (packed->device->backend != device->backend || !device->backend->is_host)
		return false;
	device->backend->device_info(device, &ours);
	device->backend->device_info(packed->device, &theirs);
	return strcmp(ours.backend, theirs.backend) == 0;
}

enum nib_status nib_valid_weights(const struct nib_device *device,
				  const struct nib_fp4 *view,
				  const struct nib_packed *packed, struct nib_fp4 *out,
				  struct nib_label label, const char *packed_field,
				  struct nib_error *err)
{
	struct nib_label packed_label = label;
	struct nib_fp4 sizes = {0};

	if (!packed)
		return nib_valid_fp4(view, out, label, err);
	packed_label.field = packed_field;
	if (!device)
		return nib_fail_at(err, NIB_STATUS_BAD_ARGUMENT, packed_label, "",
				   " is set: the oracle reads views only");
	if (!nib_reads_packed(device, packed))
		return nib_fail_at(err, NIB_STATUS_BAD_ARGUMENT, packed_label, "",
				   ": must be packed for the plan's device, or "
				   "for a cpu device of its instruction set");
	sizes.rows = packed->rows;
	sizes.k = packed->k;
	sizes.batch = packed->batch;
	sizes.batch_stride_bytes = packed->batch_stride_bytes;
	return nib_valid_fp4(&sizes, out, label, err);
}

/* A field of the problem at `at`. */
static struct nib_label field_of(struct nib_label at, const char *field)
{
	at.field = field;
	return at;
}

/* ---- A ------------------------------------------------------------------- */

/* The names of the fields that hold the sizes of A, in a or in x. */
struct a_names {
	const char *view, *rows, *k, *batch;
};

static struct a_names names_of(enum nib_activations activations)
{
	static const struct a_names nvfp4 = {"a", "a.rows", "a.k", "a.batch"};
	static const struct a_names dense = {"x", "x.rows", "x.cols", "x.batch"};

	return activations == NIB_ACTIVATIONS_NVFP4 ? nvfp4 : dense;
}

/*
 * Resolves x.  a_out receives the sizes of x as a view without data, so that later
 * checks find the sizes of A in one place.
 */
static enum nib_status resolve_x(const struct nib_dense *x, struct nib_fp4 *a_out,
				 struct nib_dense *x_out, struct nib_label label,
				 struct nib_error *err)
{
	enum nib_status status = nib_valid_dense(x, x_out, label, err);

	if (status)
		return status;
	if (x_out->cols > NIB_MAX_K || x_out->cols % NIB_NVFP4_BLOCK != 0)
		return nib_fail_at(err, NIB_STATUS_BAD_ARGUMENT, label, "cols",
				   " = %" PRId64
				   ": k must be a multiple of %d, 0 to %" PRId64,
				   x_out->cols, NIB_NVFP4_BLOCK, NIB_MAX_K);
	*a_out = (struct nib_fp4){
	    .rows = x_out->rows, .k = x_out->cols, .batch = x_out->batch};
	return nib_valid_fp4(a_out, a_out, label, err);
}

/* at: the problem.  The unused one of a and x becomes zero, but for a's sizes. */
static enum nib_status resolve_a(const struct nib_problem *given, struct nib_label at,
				 struct nib_problem *out, struct nib_error *err)
{
	switch (given->activations) {
	case NIB_ACTIVATIONS_NVFP4:
		memset(&out->x, 0, sizeof(out->x));
		return nib_valid_fp4(&given->a, &out->a, field_of(at, "a"), err);
	case NIB_ACTIVATIONS_DENSE:
	case NIB_ACTIVATIONS_INT8:
		return resolve_x(&given->x, &out->a, &out->x, field_of(at, "x"), err);
	}
	return nib_fail_at(err, NIB_STATUS_BAD_ARGUMENT, field_of(at, "activations"),
			   "",
			   " = %d: must be NIB_ACTIVATIONS_NVFP4 (0), "
			   "NIB_ACTIVATIONS_DENSE (1) or "
			   "NIB_ACTIVATIONS_INT8 (2)",
			   (int)given->activations);
}

/* Compares k with A's, and the rows of b with the columns of c. */
static enum nib_status check_fit(const struct nib_fp4 *b, const struct nib_problem *p,
				 struct nib_label label, struct nib_error *err)
{
	if (b->k != p->a.k)
		return nib_fail_at(err, NIB_STATUS_BAD_ARGUMENT, label, "k",
				   " = %" PRId64 ": must be %s = %" PRId64, b->k,
				   names_of(p->activations).k, p->a.k);
	if (b->rows != p->c.cols)
		return nib_fail_at(err, NIB_STATUS_BAD_ARGUMENT, label, "rows",
				   " = %" PRId64 ": must be c.cols = %" PRId64, b->rows,
				   p->c.cols);
	return NIB_STATUS_OK;
}

/*
 * Resolves the views of a problem and compares the weights with A and c, whose
 * batches and rows are the caller's to check.  b2 of an operation that does not
 * read it becomes zero.
 */
static enum nib_status resolve_views(enum nib_op op, const struct nib_device *device,
				     const struct nib_problem *given,
				     struct nib_label at, struct nib_problem *out,
				     struct nib_error *err)
{
	const struct nib_label b = field_of(at, "b"), b2 = field_of(at, "b2");
	enum nib_status status;

	*out = *given;
	if ((status = nib_check_reserved(given->reserved, at, err)) ||
	    (status = resolve_a(given, at, out, err)) ||
	    (status = nib_valid_dense(&given->c, &out->c, field_of(at, "c"), err)) ||
	    (status = nib_valid_weights(device, &given->b, given->b_packed, &out->b, b,
					"b_packed", err)) ||
	    (status = check_fit(&out->b, out, b, err)))
		return status;
	if (op != NIB_OP_DUAL_GEMM) {
		memset(&out->b2, 0, sizeof(out->b2));
		out->b2_packed = NULL;
		return NIB_STATUS_OK;
	}
	status = nib_valid_weights(device, &given->b2, given->b2_packed, &out->b2, b2,
				   "b2_packed", err);
	return status ? status : check_fit(&out->b2, out, b2, err);
}

static enum nib_status check_batch(const struct nib_fp4 *b, const struct nib_problem *p,
				   struct nib_label label, struct nib_error *err)
{
	if (b->batch == 1 || b->batch == p->a.batch)
		return NIB_STATUS_OK;
	return nib_fail_at(err, NIB_STATUS_BAD_ARGUMENT, label, "batch",
			   " = %" PRId64 ": must be 1 or %s = %" PRId64, b->batch,
			   names_of(p->activations).batch, p->a.batch);
}

/* Compares the rows and batches of c with A's. */
static enum nib_status check_output(enum nib_op op, const struct nib_problem *p,
				    int64_t index, struct nib_error *err)
{
	const struct nib_label lc = nib_label_of("problems", index, "c");
	const struct a_names names = names_of(p->activations);

	if (p->c.rows != p->a.rows)
		return nib_fail_at(err, NIB_STATUS_BAD_ARGUMENT, lc, "rows",
				   " = %" PRId64 ": must be %s = %" PRId64, p->c.rows,
				   names.rows, p->a.rows);
	if (p->c.batch != p->a.batch)
		return nib_fail_at(err, NIB_STATUS_BAD_ARGUMENT, lc, "batch",
				   " = %" PRId64 ": must be %s = %" PRId64, p->c.batch,
				   names.batch, p->a.batch);
	if (op == NIB_OP_GEMV && p->a.rows != 1)
		return nib_fail_at(err, NIB_STATUS_BAD_ARGUMENT,
				   nib_label_of("problems", index, names.view), "rows",
				   " = %" PRId64 ": must be 1 for NIB_OP_GEMV",
				   p->a.rows);
	return NIB_STATUS_OK;
}

enum nib_status nib_valid_problem(enum nib_op op, const struct nib_device *device,
				  const struct nib_problem *problem, int64_t index,
				  struct nib_problem *out, struct nib_error *err)
{
	const struct nib_label at = nib_label_of("problems", index, "");
	enum nib_status status;

	if ((status = resolve_views(op, device, problem, at, out, err)) ||
	    (status = check_batch(&out->b, out, field_of(at, "b"), err)) ||
	    (status = check_output(op, out, index, err)) || op != NIB_OP_DUAL_GEMM)
		return status;
	return check_batch(&out->b2, out, field_of(at, "b2"), err);
}

/* A of all problems is of one kind and type, so that one kernel takes them. */
static enum nib_status check_kind(const struct nib_problem *first,
				  const struct nib_problem *p, int64_t index,
				  struct nib_error *err)
{
	if (p->activations != first->activations)
		return nib_fail_at(err, NIB_STATUS_BAD_ARGUMENT,
				   nib_label_of("problems", index, "activations"), "",
				   " = %d: must be problems[0]'s, %d",
				   (int)p->activations, (int)first->activations);
	if (p->x.dtype != first->x.dtype)
		return nib_fail_at(err, NIB_STATUS_BAD_ARGUMENT,
				   nib_label_of("problems", index, "x"), "dtype",
				   " = %d: must be problems[0]'s, %d", (int)p->x.dtype,
				   (int)first->x.dtype);
	return NIB_STATUS_OK;
}

enum nib_status nib_valid_problems(enum nib_op op, const struct nib_device *device,
				   const struct nib_problem *problems, int64_t count,
				   struct nib_problem *out, struct nib_error *err)
{
	enum nib_status status = check_op(op, false, err);

	if (status)
		return status;
	if (count < 0 || count > INT32_MAX)
		return nib_fail_argument(err, NIB_STATUS_BAD_ARGUMENT, "count",
					 " = %" PRId64 ": must be 0 to 2^31 - 1",
					 count);
	if (count > 0 && !problems)
		return nib_fail_argument(
		    err, NIB_STATUS_BAD_ARGUMENT, "problems",
		    " = NULL: must point to count = %" PRId64 " problems", count);
	for (int64_t i = 0; i < count && !status; i++) {
		status = nib_valid_problem(op, device, &problems[i], i, &out[i], err);
		if (!status)
			status = check_kind(out, &out[i], i, err);
	}
	return status;
}

/* Where messages find the problem of a mixture of experts. */
static struct nib_label moe_label(const char *field)
{
	return nib_label_of("moe.problem", -1, field);
}

/* The scales of a may have more rows than its codes; x has none. */
static enum nib_status check_scale_rows(const struct nib_moe_problem *moe,
					struct nib_error *err)
{
	struct nib_fp4 scales = moe->problem.a;

	if (moe->scale_rows_total < 0 || moe->scale_rows_total > INT32_MAX)
		return nib_fail_argument(
		    err, NIB_STATUS_BAD_ARGUMENT, "moe.scale_rows_total",
		    " = %" PRId64 ": must be 0 to 2^31 - 1", moe->scale_rows_total);
	if (!moe->scale_rows)
		return NIB_STATUS_OK;
	if (moe->problem.activations != NIB_ACTIVATIONS_NVFP4)
		return nib_fail_argument(err, NIB_STATUS_BAD_ARGUMENT, "moe.scale_rows",
					 " = %p: must be NULL if A is moe.problem.x, "
					 "which has no scales",
					 (const void *)moe->scale_rows);
	scales.rows = moe->scale_rows_total;
	scales.row_stride_bytes = 0;
	return nib_valid_fp4(&scales, &scales, moe_label("a"), err);
}

enum nib_status nib_valid_moe(enum nib_op op, const struct nib_device *device,
			      const struct nib_moe_problem *moe,
			      struct nib_moe_problem *out, struct nib_error *err)
{
	struct nib_problem *p = &out->problem;
	enum nib_status status;

	if ((status = check_op(op, true, err)))
		return status;
	if (!moe)
		return nib_fail_argument(err, NIB_STATUS_BAD_ARGUMENT, "moe",
					 " = NULL: must point to a problem");
	*out = *moe;
	if ((status = nib_check_reserved(moe->reserved, nib_label("moe"), err)) ||
	    (status = resolve_views(op, device, &moe->problem, moe_label(""), p, err)))
		return status;
	if (op == NIB_OP_DUAL_GEMM && p->b2.batch != p->b.batch)
		return nib_fail_at(
		    err, NIB_STATUS_BAD_ARGUMENT, moe_label("b2"), "batch",
		    " = %" PRId64 ": must be moe.problem.b.batch = %" PRId64,
		    p->b2.batch, p->b.batch);
	if (p->a.batch != 1 || p->c.batch != 1 || p->c.rows != p->a.rows)
		return nib_fail_at(
		    err, NIB_STATUS_BAD_ARGUMENT, moe_label("c"), "",
		    " = [%" PRId64 ", %" PRId64 "] x %" PRId64
		    ": must have %s = %" PRId64 " rows, and %s and c batch 1",
		    p->c.rows, p->c.cols, p->c.batch, names_of(p->activations).rows,
		    p->a.rows, names_of(p->activations).view);
	if (p->b.batch > INT32_MAX || p->a.rows > INT32_MAX)
		return nib_fail_argument(err, NIB_STATUS_BAD_ARGUMENT, "moe",
					 ": %" PRId64 " experts, %" PRId64
					 " rows: both must be below 2^31",
					 p->b.batch, p->a.rows);
	return check_scale_rows(out, err);
}

/* ---- a view of a run and its plan's ---------------------------------------- */

bool nib_same_fp4(const struct nib_fp4 *x, const struct nib_fp4 *y)
{
	return x->format == y->format && x->rows == y->rows && x->k == y->k &&
	       x->batch == y->batch && x->row_stride_bytes == y->row_stride_bytes &&
	       x->batch_stride_bytes == y->batch_stride_bytes &&
	       x->scale_layout == y->scale_layout &&
	       x->scale_row_stride_bytes == y->scale_row_stride_bytes &&
	       x->scale_batch_stride_bytes == y->scale_batch_stride_bytes;
}

bool nib_same_dense(const struct nib_dense *x, const struct nib_dense *y)
{
	return x->dtype == y->dtype && x->rows == y->rows && x->cols == y->cols &&
	       x->batch == y->batch && x->row_stride_elems == y->row_stride_elems &&
	       x->batch_stride_elems == y->batch_stride_elems;
}

/* ---- global scales --------------------------------------------------------- */

/*
 * Compares bits, which are ordered as positive floats are, because the caller's
 * thread may flush subnormals.
 */
bool nib_is_global(float global)
{
	return nib_fp32_bits(global) <= nib_fp32_bits(FLT_MAX / 6);
}

/* ---- devices and streams -------------------------------------------------- */

enum nib_status nib_check_device(const struct nib_device *device, struct nib_error *err)
{
	if (device)
		return NIB_STATUS_OK;
	return nib_fail_argument(err, NIB_STATUS_BAD_ARGUMENT, "device",
				 " = NULL: must be an open device");
}

enum nib_status nib_read_call_options(const struct nib_device *device,
				      const struct nib_call_options *options,
				      struct nib_call_options *ours,
				      struct nib_error *err)
{
	enum nib_status status = nib_check_device(device, err);

	if (!status)
		status = nib_options_read(ours, sizeof(*ours), options, "options", err);
	return status ? status
		      : nib_check_stream(device, ours->stream, "options.stream", err);
}

enum nib_status nib_check_stream(const struct nib_device *device, const void *stream,
				 const char *name, struct nib_error *err)
{
	if (!stream || !device->backend->is_host)
		return NIB_STATUS_OK;
	return nib_fail_argument(err, NIB_STATUS_BAD_ARGUMENT, name,
				 " = %p: must be NULL on '%s', which has no streams",
				 stream, device->backend->name);
}

/* ---- data: pointers and overlaps ---------------------------------------- */

enum nib_status nib_resolve_dense(const struct nib_dense *in, struct nib_dense *out,
				  const char *name, struct nib_error *err)
{
	const struct nib_label label = nib_label(name);
	enum nib_status status;

	if (!in)
		return nib_fail_argument(err, NIB_STATUS_BAD_ARGUMENT, name,
					 " = NULL: must point to a view");
	status = nib_valid_dense(in, out, label, err);
	return status ? status : nib_valid_dense_data(out, label, err);
}

enum nib_status nib_check_disjoint(struct nib_span c, struct nib_label lc,
				   struct nib_span in, struct nib_label li,
				   struct nib_error *err)
{
	if (!nib_spans_overlap(c, in))
		return NIB_STATUS_OK;
	return nib_fail_at(err, NIB_STATUS_BAD_ARGUMENT, lc, "data",
			   " [%p, %p) overlaps %s [%p, %p): outputs must not overlap",
			   (void *)c.begin, (void *)c.end, NIB_LABEL_TEXT(li),
			   (void *)in.begin, (void *)in.end);
}

/* scales: v, or a view of as many rows as its scales have. */
static enum nib_status check_input(const struct nib_fp4 *v,
				   const struct nib_fp4 *scales, struct nib_label label,
				   struct nib_span c, struct nib_label lc,
				   struct nib_error *err)
{
	enum nib_status status = nib_valid_fp4_data(v, label, err);

	if (!status && scales != v)
		status = nib_valid_fp4_data(scales, label, err);
	if (!status)
		status = nib_check_disjoint(c, lc, nib_codes_span(v), label, err);
	if (!status)
		status = nib_check_disjoint(c, lc, nib_scale_span(scales), label, err);
	return status;
}

static enum nib_status check_x(const struct nib_dense *x, struct nib_label label,
			       struct nib_span c, struct nib_label lc,
			       struct nib_error *err)
{
	enum nib_status status = nib_valid_dense_data(x, label, err);

	return status ? status
		      : nib_check_disjoint(c, lc, nib_dense_span(x), label, err);
}

/*
 * Pointers and overlaps of the problem at `at`.  a_scales: a view of as many rows
 * as the scales of a have, which a mixture of experts may choose.
 */
static enum nib_status check_data(enum nib_op op, const struct nib_problem *p,
				  const struct nib_fp4 *a_scales, struct nib_label at,
				  struct nib_error *err)
{
	const struct nib_label lc = field_of(at, "c"), la = field_of(at, "a");
	const struct nib_span c = nib_dense_span(&p->c);
	enum nib_status status = nib_valid_dense_data(&p->c, lc, err);

	if (!status && p->activations != NIB_ACTIVATIONS_NVFP4)
		status = check_x(&p->x, field_of(at, "x"), c, lc, err);
	else if (!status)
		status = check_input(&p->a, a_scales, la, c, lc, err);
	if (!status && !p->b_packed)
		status = check_input(&p->b, &p->b, field_of(at, "b"), c, lc, err);
	if (!status && op == NIB_OP_DUAL_GEMM && !p->b2_packed)
		status = check_input(&p->b2, &p->b2, field_of(at, "b2"), c, lc, err);
	return status;
}

enum nib_status nib_valid_problem_data(enum nib_op op, const struct nib_problem *p,
				       int64_t index, struct nib_error *err)
{
	return check_data(op, p, &p->a, nib_label_of("problems", index, ""), err);
}

/* row_offsets ascend within A; scale_rows stay within their tensor. */
enum nib_status nib_valid_moe_offsets(const struct nib_moe_problem *moe,
				      struct nib_error *err)
{
	const int64_t experts = moe->problem.b.batch;

	for (int64_t e = 0; e < experts; e++) {
		int64_t begin = moe->row_offsets[e];
		int64_t end = moe->row_offsets[e + 1];
		int64_t scale = moe->scale_rows ? moe->scale_rows[e] : 0;

		if (begin < 0 || end < begin || end > moe->problem.a.rows)
			return nib_fail_argument(
			    err, NIB_STATUS_BAD_ARGUMENT, "moe.row_offsets",
			    "[%" PRId64 "..] = %" PRId64 ", %" PRId64
			    ": must ascend within 0 to %s = %" PRId64,
			    e, begin, end, names_of(moe->problem.activations).rows,
			    moe->problem.a.rows);
		if (!moe->scale_rows || begin == end)
			continue;
		if (scale < 0 || scale + end - begin > moe->scale_rows_total)
			return nib_fail_argument(
			    err, NIB_STATUS_BAD_ARGUMENT, "moe.scale_rows",
			    "[%" PRId64 "] = %" PRId64 ": with %" PRId64
			    " rows it must stay within "
			    "scale_rows_total = %" PRId64,
			    e, scale, end - begin, moe->scale_rows_total);
		if (moe->problem.a.scale_layout == NIB_SCALE_LAYOUT_TILED_128X4 &&
		    scale % 128)
			return nib_fail_argument(err, NIB_STATUS_BAD_ARGUMENT,
						 "moe.scale_rows",
						 "[%" PRId64 "] = %" PRId64
						 ": must be a multiple of 128 with "
						 "NIB_SCALE_LAYOUT_TILED_128X4",
						 e, scale);
	}
	return NIB_STATUS_OK;
}

enum nib_status nib_valid_moe_data(enum nib_op op, const struct nib_moe_problem *moe,
				   struct nib_error *err)
{
	struct nib_fp4 scales = moe->problem.a;

	if (!moe->row_offsets)
		return nib_fail_argument(err, NIB_STATUS_BAD_ARGUMENT,
					 "moe.row_offsets",
					 " = NULL: must point to %" PRId64 " values",
					 moe->problem.b.batch + 1);
	if (!moe->scale_rows)
		return check_data(op, &moe->problem, &moe->problem.a, moe_label(""),
				  err);
	/* The codes may have another number of rows than the scales. */
	scales.rows = moe->scale_rows_total;
	scales.codes = scales.scales;
	scales.row_stride_bytes = 0;
	return check_data(op, &moe->problem, &scales, moe_label(""), err);
}

/* ---- scale signs -------------------------------------------------------- */

/* The first group of the row whose scale has its sign bit, or -1. */
static int64_t first_signed(const struct nib_fp4 *v, int64_t batch, int64_t row)
{
	const int64_t groups = v->k / NIB_NVFP4_BLOCK;
	uint8_t any = 0;

	if (v->scale_layout == NIB_SCALE_LAYOUT_LINEAR) {
		const uint8_t *scales = nib_fp4_scale(v, batch, row, 0);

		for (int64_t g = 0; g < groups; g++)
			any |= scales[g];
		if (!(any & 0x80))
			return -1;
	}
	for (int64_t g = 0; g < groups; g++)
		if (*nib_fp4_scale(v, batch, row, g) & 0x80)
			return g;
	return -1;
}

enum nib_status nib_valid_row_signs(const struct nib_fp4 *v, int64_t batch,
				    int64_t first, int64_t end, struct nib_label label,
				    struct nib_error *err)
{
	/* A view without scales may have 2^40 rows, so no loop visits them. */
	if (v->k == 0)
		return NIB_STATUS_OK;
	for (int64_t row = first; row < end; row++) {
		int64_t g = first_signed(v, batch, row);

		if (g < 0)
			continue;
		return nib_fail_at(err, NIB_STATUS_BAD_DATA, label, "scales",
				   ": batch %" PRId64 ", row %" PRId64
				   ", group %" PRId64
				   " is 0x%02x: the sign bit must be 0",
				   batch, row, g, *nib_fp4_scale(v, batch, row, g));
	}
	return NIB_STATUS_OK;
}

enum nib_status nib_valid_scale_signs(const struct nib_fp4 *v, struct nib_label label,
				      struct nib_error *err)
{
	enum nib_status status = NIB_STATUS_OK;

	/* An empty view may have 2^40 batches: no loop over them either. */
	if (v->rows == 0 || v->k == 0)
		return NIB_STATUS_OK;
	for (int64_t batch = 0; batch < v->batch && !status; batch++)
		status = nib_valid_row_signs(v, batch, 0, v->rows, label, err);
	return status;
}

/* Checks the weights of the problem at `at`. */
static enum nib_status check_weight_signs(enum nib_op op, const struct nib_problem *p,
					  struct nib_label at, struct nib_error *err)
{
	enum nib_status status = NIB_STATUS_OK;

	if (!p->b_packed)
		status = nib_valid_scale_signs(&p->b, field_of(at, "b"), err);
	if (!status && op == NIB_OP_DUAL_GEMM && !p->b2_packed)
		status = nib_valid_scale_signs(&p->b2, field_of(at, "b2"), err);
	return status;
}

enum nib_status nib_valid_problem_signs(enum nib_op op, const struct nib_problem *p,
					int64_t index, struct nib_error *err)
{
	const struct nib_label at = nib_label_of("problems", index, "");
	enum nib_status status = NIB_STATUS_OK;

	if (p->activations == NIB_ACTIVATIONS_NVFP4)
		status = nib_valid_scale_signs(&p->a, field_of(at, "a"), err);
	return status ? status : check_weight_signs(op, p, at, err);
}

enum nib_status nib_valid_moe_signs(enum nib_op op, const struct nib_moe_problem *moe,
				    struct nib_error *err)
{
	const struct nib_problem *p = &moe->problem;
	const bool has_scales = p->activations == NIB_ACTIVATIONS_NVFP4;
	enum nib_status status = NIB_STATUS_OK;

	/* Rows of no expert may contain anything. */
	for (int64_t e = 0; has_scales && e < p->b.batch && !status; e++) {
		const int64_t rows = moe->row_offsets[e + 1] - moe->row_offsets[e];
		const int64_t first =
		    moe->scale_rows ? moe->scale_rows[e] : moe->row_offsets[e];

		status = nib_valid_row_signs(&p->a, 0, first, first + rows,
					     moe_label("a"), err);
	}
	return status ? status : check_weight_signs(op, p, moe_label(""), err);
}

/* ---- what a problem costs ----------------------------------------------- */

double nib_problem_flop(enum nib_op op, const struct nib_problem *p)
{
	double flop = 2.0 * (double)p->a.rows * (double)p->c.cols * (double)p->a.k *
		      (double)p->a.batch;

	return op == NIB_OP_DUAL_GEMM ? 2 * flop : flop;
}

/* 4 bits a code and 8 bits for 16 of them: 9/16 byte a value. */
static double nvfp4_bytes(const struct nib_fp4 *v)
{
	return (double)v->batch * (double)v->rows * (double)v->k * 9 / 16;
}

static double dense_bytes(const struct nib_dense *v)
{
	return (double)v->batch * (double)v->rows * (double)v->cols *
	       (double)nib_dtype_bytes(v->dtype);
}

double nib_problem_bytes(enum nib_op op, const struct nib_problem *p)
{
	double bytes = p->activations == NIB_ACTIVATIONS_NVFP4 ? nvfp4_bytes(&p->a)
							       : dense_bytes(&p->x);

	bytes += nvfp4_bytes(&p->b);
	if (op == NIB_OP_DUAL_GEMM)
		bytes += nvfp4_bytes(&p->b2);
	return bytes + dense_bytes(&p->c);
}
