/* SPDX-License-Identifier: Apache-2.0 */
/* sum_slots.c - API: the last step of a layer of experts, as a function. */
#include <inttypes.h>

#include "backend/backend.h"
#include "core/error.h"
#include "validate.h"

static enum nib_status resolve_matrix(const struct nib_dense *in, struct nib_dense *out,
				      const char *name, struct nib_error *err)
{
	const struct nib_label label = nib_label(name);
	enum nib_status status = nib_resolve_dense(in, out, name, err);

	if (status)
		return status;
	if (out->batch == 1)
		return NIB_STATUS_OK;
	return nib_fail_at(err, NIB_STATUS_BAD_ARGUMENT, label, "batch",
			   " = %" PRId64 ": must be 1", out->batch);
}

/* Checks that sizes and types fit each other. */
static enum nib_status check_sizes(const struct nib_moe_combine *c,
				   struct nib_error *err)
{
	if (c->rows.dtype != c->y.dtype)
		return nib_fail_argument(err, NIB_STATUS_BAD_ARGUMENT, "rows.dtype",
					 " = %d: must be y.dtype = %d",
					 (int)c->rows.dtype, (int)c->y.dtype);
	if (c->rows.cols != c->y.cols)
		return nib_fail_argument(err, NIB_STATUS_BAD_ARGUMENT, "rows.cols",
					 " = %" PRId64 ": must be y.cols = %" PRId64,
					 c->rows.cols, c->y.cols);
	if (c->rows.rows > 1 && c->rows.row_stride_elems != c->rows.cols)
		return nib_fail_argument(err, NIB_STATUS_BAD_ARGUMENT,
					 "rows.row_stride_elems",
					 " = %" PRId64 ": must be rows.cols = %" PRId64,
					 c->rows.row_stride_elems, c->rows.cols);
	if (c->top_k < 0 || c->top_k > INT32_MAX ||
	    (c->top_k > 0 && c->y.rows > INT32_MAX / c->top_k))
		return nib_fail_argument(err, NIB_STATUS_BAD_ARGUMENT, "top_k",
					 " = %" PRId64
					 ": must not be negative, and with %" PRId64
					 " tokens give at most 2^31 - 1 slots",
					 c->top_k, c->y.rows);
	return NIB_STATUS_OK;
}

/* Checks an array of four bytes a slot, which must not overlap y. */
static enum nib_status check_slots(const struct nib_moe_combine *c, const void *slots,
				   const char *name, struct nib_error *err)
{
	const uintptr_t begin = (uintptr_t)slots;
	const struct nib_span span = {begin,
				      begin + 4 * (uintptr_t)(c->y.rows * c->top_k)};

	if (span.begin == span.end)
		return NIB_STATUS_OK;
	if (!slots)
		return nib_fail_argument(err, NIB_STATUS_BAD_ARGUMENT, name,
					 " = NULL: must point to %" PRId64 " values",
					 c->y.rows * c->top_k);
	return nib_check_disjoint(nib_dense_span(&c->y), nib_label("y"), span,
				  nib_label(name), err);
}

/* Reads slot_rows: for host backends. */
static enum nib_status check_rows(const struct nib_moe_combine *c,
				  struct nib_error *err)
{
	for (int64_t slot = 0; slot < c->y.rows * c->top_k; slot++)
		if (c->slot_rows[slot] >= c->rows.rows)
			return nib_fail_argument(
			    err, NIB_STATUS_BAD_ARGUMENT, "slot_rows",
			    "[%" PRId64 ", %" PRId64
			    "] = %d: must be below rows.rows = %" PRId64,
			    slot / c->top_k, slot % c->top_k, (int)c->slot_rows[slot],
			    c->rows.rows);
	return NIB_STATUS_OK;
}

static enum nib_status check(const struct nib_moe_combine *c, bool is_host,
			     struct nib_error *err)
{
	enum nib_status status;

	if ((status = check_sizes(c, err)) ||
	    (status = nib_check_disjoint(nib_dense_span(&c->y), nib_label("y"),
					 nib_dense_span(&c->rows), nib_label("rows"),
					 err)) ||
	    (status = check_slots(c, c->slot_rows, "slot_rows", err)) ||
	    (status = check_slots(c, c->weights, "weights", err)))
		return status;
	return is_host ? check_rows(c, err) : NIB_STATUS_OK;
}

enum nib_status nib_moe_sum_slots(struct nib_device *device,
				  const struct nib_dense *rows,
				  const int32_t *slot_rows, const float *weights,
				  int64_t top_k, const struct nib_dense *y,
				  const struct nib_call_options *options,
				  struct nib_error *err)
{
	struct nib_moe_combine c = {.slot_rows = slot_rows,
				    .weights = weights,
				    .top_k = top_k,
				    .is_callers = true};
	struct nib_call_options ours;
	enum nib_status status;

	status = nib_read_call_options(device, options, &ours, err);
	if (!status)
		status = resolve_matrix(rows, &c.rows, "rows", err);
	if (!status)
		status = resolve_matrix(y, &c.y, "y", err);
	if (!status)
		status = check(&c, device->backend->is_host, err);
	return status
		   ? status
		   : device->backend->moe_steps->combine(device, &c, ours.stream, err);
}
