/* SPDX-License-Identifier: Apache-2.0 */
/*
 * quantize.c - quantise, amax, dequantise and conversion of scale layouts: checks every
 * argument, then calls the device's backend.
 */
#include <float.h>
#include <inttypes.h>
#include <stdbool.h>

#include "backend/backend.h"
#include "core/error.h"
#include "core/options.h"
#include "format/half.h"
#include "format/quantize_ref.h"
#include "validate.h"

static enum nib_status check_pointer(const void *pointer, const char *name,
				     const char *rule, struct nib_error *err)
{
	if (pointer)
		return NIB_STATUS_OK;
	return nib_fail_argument(err, NIB_STATUS_BAD_ARGUMENT, name, " = NULL: must %s",
				 rule);
}

static enum nib_status resolve_fp4(const struct nib_fp4 *in, struct nib_fp4 *out,
				   const char *name, struct nib_error *err)
{
	const struct nib_label label = nib_label(name);
	enum nib_status status;

	status = check_pointer(in, name, "point to a view", err);
	if (!status)
		status = nib_valid_fp4(in, out, label, err);
	if (!status)
		status = nib_valid_fp4_data(out, label, err);
	return status;
}

/* As resolve_fp4(), for a view whose codes are not used. */
static enum nib_status resolve_scales(const struct nib_fp4 *in, struct nib_fp4 *out,
				      const char *name, struct nib_error *err)
{
	const struct nib_label label = nib_label(name);
	struct nib_fp4 v;
	struct nib_span span;
	enum nib_status status;

	status = check_pointer(in, name, "point to a view", err);
	if (status)
		return status;
	v = *in;
	v.row_stride_bytes = v.batch_stride_bytes = 0;
	status = nib_valid_fp4(&v, out, label, err);
	if (status)
		return status;
	span = nib_scale_span(out);
	if (span.begin != span.end && (span.begin == 0 || span.end < span.begin))
		return nib_fail_at(err, NIB_STATUS_BAD_ARGUMENT, label, "scales",
				   " = %p: must point to %ju bytes", out->scales,
				   (uintmax_t)(span.end - span.begin));
	return NIB_STATUS_OK;
}

static enum nib_status check_same(int64_t a, const char *a_name, int64_t b,
				  const char *b_name, struct nib_error *err)
{
	if (a == b)
		return NIB_STATUS_OK;
	return nib_fail_argument(err, NIB_STATUS_BAD_ARGUMENT, a_name,
				 " = %" PRId64 ": must equal %s = %" PRId64, a, b_name,
				 b);
}

static enum nib_status check_quantize_views(const struct nib_dense *x,
					    const struct nib_fp4 *q,
					    struct nib_error *err)
{
	const struct nib_span from = nib_dense_span(x);
	const struct nib_span codes = nib_codes_span(q);
	const struct nib_span scales = nib_scale_span(q);
	enum nib_status status;

	if ((status = check_same(q->rows, "q.rows", x->rows, "x.rows", err)) ||
	    (status = check_same(q->k, "q.k", x->cols, "x.cols", err)) ||
	    (status = check_same(q->batch, "q.batch", x->batch, "x.batch", err)) ||
	    (status = nib_check_apart(codes, "q.codes", from, "x", err)) ||
	    (status = nib_check_apart(scales, "q.scales", from, "x", err)))
		return status;
	if (!nib_scales_overlap_codes(q))
		return NIB_STATUS_OK;
	return nib_check_apart(scales, "q.scales", codes, "q.codes", err);
}

/* Replaces global_pointer by its value on a host backend. */
static enum nib_status read_global(const struct nib_device *device,
				   struct nib_quantize_options *options,
				   struct nib_error *err)
{
	const float *pointer = options->global_pointer;

	if (!pointer)
		return NIB_STATUS_OK;
	if (nib_fp32_bits(options->global) != 0)
		return nib_fail_argument(err, NIB_STATUS_BAD_ARGUMENT, "options.global",
					 " = %g: must be 0 with "
					 "global_pointer",
					 (double)options->global);
	if (!device->backend->is_host)
		return NIB_STATUS_OK;
	options->global_pointer = NULL;
	options->global = *pointer;
	if (nib_fp32_bits(*pointer) != 0 && nib_is_global(*pointer))
		return NIB_STATUS_OK;
	return nib_fail_argument(err, NIB_STATUS_BAD_ARGUMENT, "options.global_pointer",
				 " = %g: must be positive, at most %g",
				 (double)*pointer, (double)FLT_MAX / 6);
}

static enum nib_status check_quantize_options(const struct nib_device *device,
					      struct nib_quantize_options *options,
					      struct nib_error *err)
{
	if ((int)options->zero_scale < NIB_ZERO_SCALE_MODELOPT ||
	    (int)options->zero_scale > NIB_ZERO_SCALE_GGML)
		return nib_fail_argument(err, NIB_STATUS_BAD_ARGUMENT,
					 "options.zero_scale", " = %d: must be 0 to %d",
					 (int)options->zero_scale, NIB_ZERO_SCALE_GGML);
	if ((int)options->scales < NIB_SCALES_AMAX ||
	    (int)options->scales > NIB_SCALES_MSE)
		return nib_fail_argument(err, NIB_STATUS_BAD_ARGUMENT, "options.scales",
					 " = %d: must be 0 to %d", (int)options->scales,
					 NIB_SCALES_MSE);
	if (options->column_weights && options->scales == NIB_SCALES_AMAX)
		return nib_fail_argument(err, NIB_STATUS_BAD_ARGUMENT,
					 "options.column_weights",
					 " = %p: must be NULL with options.scales = 0",
					 (const void *)options->column_weights);
	if (!nib_is_global(options->global))
		return nib_fail_argument(err, NIB_STATUS_BAD_ARGUMENT, "options.global",
					 " = %g: must be 0 (found from amax) "
					 "or positive, at most %g",
					 (double)options->global, (double)FLT_MAX / 6);
	return nib_check_stream(device, options->stream, "options.stream", err);
}

/* The weights of a host backend's k columns, and that q does not overwrite them. */
static enum nib_status check_weights(const struct nib_device *device,
				     const float *weights, const struct nib_fp4 *q,
				     struct nib_error *err)
{
	const uintptr_t begin = (uintptr_t)weights;
	const struct nib_span span = {begin,
				      begin + (uintptr_t)q->k * sizeof(*weights)};
	static const char name[] = "options.column_weights";
	enum nib_status status;

	if (!weights || q->rows == 0 || q->k == 0)
		return NIB_STATUS_OK;
	if ((status = nib_check_apart(nib_codes_span(q), "q.codes", span, name, err)) ||
	    (status = nib_check_apart(nib_scale_span(q), "q.scales", span, name, err)))
		return status;
	for (int64_t i = 0; device->backend->is_host && i < q->k; i++)
		if (!(weights[i] >= 0 && weights[i] <= NIB_WEIGHT_MAX))
			return nib_fail_argument(err, NIB_STATUS_BAD_ARGUMENT, name,
						 "[%" PRId64
						 "] = %g: must be from 0 to 2^100",
						 i, (double)weights[i]);
	return NIB_STATUS_OK;
}

enum nib_status nib_quantize(struct nib_device *device, const struct nib_dense *x,
			     const struct nib_fp4 *q,
			     const struct nib_quantize_options *options,
			     float *global_used, struct nib_error *err)
{
	struct nib_quantize_options ours;
	struct nib_dense from;
	struct nib_fp4 to;
	enum nib_status status;

	if ((status = nib_check_device(device, err)) ||
	    (status = nib_options_read(&ours, sizeof(ours), options, "options", err)) ||
	    (status = check_quantize_options(device, &ours, err)) ||
	    (status = nib_resolve_dense(x, &from, "x", err)) ||
	    (status = resolve_fp4(q, &to, "q", err)) ||
	    (status = check_quantize_views(&from, &to, err)) ||
	    (status = check_weights(device, ours.column_weights, &to, err)))
		return status;
	if (ours.global_pointer)
		global_used = NULL;
	status = read_global(device, &ours, err);
	if (status)
		return status;
	return device->backend->quantize(device, &from, &to, &ours, global_used, err);
}

enum nib_status nib_amax(struct nib_device *device, const struct nib_dense *x,
			 int saturate, const struct nib_call_options *options,
			 float *amax, struct nib_error *err)
{
	struct nib_call_options ours;
	struct nib_dense from;
	enum nib_status status;

	if ((status = nib_read_call_options(device, options, &ours, err)) ||
	    (status = check_pointer(amax, "amax", "point to a float", err)) ||
	    (status = nib_resolve_dense(x, &from, "x", err)))
		return status;
	return device->backend->amax(device, &from, saturate != 0, ours.stream, amax,
				     err);
}

/* As nib_read_call_options().  global: the argument of nib_dequantize(). */
static enum nib_status read_dequantize_options(
    const struct nib_device *device, const struct nib_dequantize_options *options,
    struct nib_dequantize_options *ours, float global, struct nib_error *err)
{
	enum nib_status status;

	status = nib_options_read(ours, sizeof(*ours), options, "options", err);
	if (!status && ours->global_pointer && nib_fp32_bits(global) != 0)
		return nib_fail_argument(err, NIB_STATUS_BAD_ARGUMENT, "global",
					 " = %g: must be 0 with "
					 "options.global_pointer",
					 (double)global);
	if (!status)
		status = nib_check_stream(device, ours->stream, "options.stream", err);
	return status;
}

enum nib_status nib_dequantize(struct nib_device *device, const struct nib_fp4 *q,
			       float global, const struct nib_dense *y,
			       const struct nib_dequantize_options *options,
			       struct nib_error *err)
{
	struct nib_dequantize_options ours;
	struct nib_fp4 from;
	struct nib_dense to;
	struct nib_span span, pointed = {0};
	enum nib_status status;

	if ((status = nib_check_device(device, err)) ||
	    (status = read_dequantize_options(device, options, &ours, global, err)) ||
	    (status = resolve_fp4(q, &from, "q", err)) ||
	    (status = nib_resolve_dense(y, &to, "y", err)))
		return status;
	span = nib_dense_span(&to);
	if (ours.global_pointer)
		pointed =
		    (struct nib_span){(uintptr_t)ours.global_pointer,
				      (uintptr_t)ours.global_pointer + sizeof(float)};
	if ((status = check_same(to.rows, "y.rows", from.rows, "q.rows", err)) ||
	    (status = check_same(to.cols, "y.cols", from.k, "q.k", err)) ||
	    (status = check_same(to.batch, "y.batch", from.batch, "q.batch", err)) ||
	    (status =
		 nib_check_apart(span, "y", nib_codes_span(&from), "q.codes", err)) ||
	    (status =
		 nib_check_apart(span, "y", nib_scale_span(&from), "q.scales", err)) ||
	    (status =
		 nib_check_apart(span, "y", pointed, "options.global_pointer", err)))
		return status;
	if (ours.global_pointer && device->backend->is_host) {
		global = *ours.global_pointer;
		ours.global_pointer = NULL;
	}
	return device->backend->dequantize(device, &from, global, &to, &ours, err);
}

enum nib_status nib_convert_scales(struct nib_device *device,
				   const struct nib_fp4 *from, const struct nib_fp4 *to,
				   const struct nib_call_options *options,
				   struct nib_error *err)
{
	struct nib_call_options ours;
	struct nib_fp4 source, target;
	enum nib_status status;

	if ((status = nib_read_call_options(device, options, &ours, err)) ||
	    (status = resolve_scales(from, &source, "from", err)) ||
	    (status = resolve_scales(to, &target, "to", err)) ||
	    (status =
		 check_same(target.rows, "to.rows", source.rows, "from.rows", err)) ||
	    (status = check_same(target.k, "to.k", source.k, "from.k", err)) ||
	    (status = check_same(target.batch, "to.batch", source.batch, "from.batch",
				 err)) ||
	    (status = nib_check_apart(nib_scale_span(&target), "to.scales",
				      nib_scale_span(&source), "from.scales", err)))
		return status;
	return device->backend->convert_scales(device, &source, &target, ours.stream,
					       err);
}
