/* SPDX-License-Identifier: Apache-2.0 */
/*
 * moe_layer_check.c - API: checks of a layer of experts.  The layer's products are
 * checked again when they are planned and run as mixtures of experts.  For a layer
 * that was accepted here, those checks fail only if a product of sizes overflows.
 */
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "backend/backend.h"
#include "core/error.h"
#include "core/options.h"
#include "format/half.h"
#include "moe_layer.h"
#include "validate.h"

#define AT(field) nib_label_of("layer", -1, field)

struct nib_moe_sizes nib_moe_sizes_of(const struct nib_moe_layer *l)
{
	return (struct nib_moe_sizes){
	    .tokens = l->y.rows,
	    .k = l->gate.k,
	    .slots = l->y.rows * l->top_k,
	    .experts = l->gate.batch,
	    .width = l->gate.rows,
	    .is_nvfp4 = l->activations == NIB_ACTIVATIONS_NVFP4,
	    .has_up = l->activation != NIB_MOE_ACTIVATION_RELU2,
	};
}

/* ---- sizes and types ------------------------------------------------------ */

/* Checks that view.field = value is other = want; other NULL: a constant. */
static enum nib_status equal(const char *view, const char *field, int64_t value,
			     const char *other, int64_t want, struct nib_error *err)
{
	if (value == want)
		return NIB_STATUS_OK;
	if (!other)
		return nib_fail_at(err, NIB_STATUS_BAD_ARGUMENT, AT(view), field,
				   " = %" PRId64 ": must be %" PRId64, value, want);
	return nib_fail_at(err, NIB_STATUS_BAD_ARGUMENT, AT(view), field,
			   " = %" PRId64 ": must be %s = %" PRId64, value, other, want);
}

static enum nib_status check_options(const struct nib_moe_layer *l,
				     struct nib_error *err)
{
	if ((int)l->activations < NIB_ACTIVATIONS_NVFP4 ||
	    l->activations > NIB_ACTIVATIONS_INT8)
		return nib_fail_at(err, NIB_STATUS_BAD_ARGUMENT, AT("activations"), "",
				   " = %d: must be 0 to %d", (int)l->activations,
				   NIB_ACTIVATIONS_INT8);
	if (l->is_quantized && l->activations != NIB_ACTIVATIONS_NVFP4)
		return nib_fail_at(err, NIB_STATUS_BAD_ARGUMENT, AT("is_quantized"), "",
				   " = %d: must be 0 unless activations are "
				   "NIB_ACTIVATIONS_NVFP4",
				   l->is_quantized);
	if ((int)l->activation < NIB_MOE_ACTIVATION_SWIGLU ||
	    l->activation > NIB_MOE_ACTIVATION_RELU2)
		return nib_fail_at(err, NIB_STATUS_BAD_ARGUMENT, AT("activation"), "",
				   " = %d: must be 0 to %d", (int)l->activation,
				   NIB_MOE_ACTIVATION_RELU2);
	if (l->activation == NIB_MOE_ACTIVATION_SWIGLU_CLAMPED &&
	    (nib_fp32_bits(l->limit) == 0 ||
	     nib_fp32_bits(l->limit) > nib_fp32_bits(INFINITY)))
		return nib_fail_at(err, NIB_STATUS_BAD_ARGUMENT, AT("limit"), "",
				   " = %g: must be positive", (double)l->limit);
	if (l->ids_bytes != 4 && l->ids_bytes != 8)
		return nib_fail_at(err, NIB_STATUS_BAD_ARGUMENT, AT("ids_bytes"), "",
				   " = %d: must be 4 or 8", l->ids_bytes);
	if (l->expert_offset < 0)
		return nib_fail_at(err, NIB_STATUS_BAD_ARGUMENT, AT("expert_offset"),
				   "", " = %" PRId64 ": must not be negative",
				   l->expert_offset);
	return NIB_STATUS_OK;
}

/* Resolves x or a, and y; checks that they have as many rows. */
static enum nib_status resolve_input(const struct nib_moe_layer *in,
				     struct nib_moe_layer *out, struct nib_error *err)
{
	const char *view = in->is_quantized ? "a" : "x";
	int64_t rows, batch;
	enum nib_status status;

	if (in->is_quantized) {
		memset(&out->x, 0, sizeof(out->x));
		status = nib_valid_fp4(&in->a, &out->a, AT("a"), err);
		if (!status && out->a.scale_layout != NIB_SCALE_LAYOUT_LINEAR)
			status = nib_fail_at(
			    err, NIB_STATUS_BAD_ARGUMENT, AT("a"), "scale_layout",
			    " = %d: must be NIB_SCALE_LAYOUT_LINEAR (0): rows are gathered",
			    (int)out->a.scale_layout);
		rows = out->a.rows, batch = out->a.batch;
	} else {
		memset(&out->a, 0, sizeof(out->a));
		status = nib_valid_dense(&in->x, &out->x, AT("x"), err);
		rows = out->x.rows, batch = out->x.batch;
	}
	if (!status)
		status = equal(view, "batch", batch, NULL, 1, err);
	if (!status)
		status = nib_valid_dense(&in->y, &out->y, AT("y"), err);
	if (!status)
		status = equal("y", "batch", out->y.batch, NULL, 1, err);
	if (!status)
		status = equal("y", "rows", out->y.rows,
			       in->is_quantized ? "a.rows" : "x.rows", rows, err);
	if (status)
		return status;
	if (in->top_k < 0 || in->top_k > INT32_MAX ||
	    (in->top_k > 0 && rows > INT32_MAX / in->top_k))
		return nib_fail_at(err, NIB_STATUS_BAD_ARGUMENT, AT("top_k"), "",
				   " = %" PRId64 ": must not be negative, and "
				   "with %" PRId64 " tokens give at most "
				   "2^31 - 1 slots",
				   in->top_k, rows);
	return NIB_STATUS_OK;
}

static enum nib_status check_gate(const struct nib_moe_layer *l, struct nib_error *err)
{
	enum nib_status status =
	    l->is_quantized ? equal("gate", "k", l->gate.k, "a.k", l->a.k, err)
			    : equal("gate", "k", l->gate.k, "x.cols", l->x.cols, err);

	if (status)
		return status;
	if (l->gate.batch > INT32_MAX || l->gate.rows % NIB_NVFP4_BLOCK ||
	    l->gate.rows > NIB_MAX_K)
		return nib_fail_at(err, NIB_STATUS_BAD_ARGUMENT, AT("gate"), "",
				   " = %" PRId64 " experts of %" PRId64
				   " rows: must be below 2^31, and a multiple "
				   "of %d up to %" PRId64,
				   l->gate.batch, l->gate.rows, NIB_NVFP4_BLOCK,
				   NIB_MAX_K);
	return NIB_STATUS_OK;
}

static enum nib_status resolve_up(const struct nib_device *device,
				  const struct nib_moe_layer *in,
				  struct nib_moe_layer *out, struct nib_error *err)
{
	enum nib_status status;

	if (in->activation == NIB_MOE_ACTIVATION_RELU2) {
		memset(&out->up, 0, sizeof(out->up));
		out->up_packed = NULL;
		return NIB_STATUS_OK;
	}
	status = nib_valid_weights(device, &in->up, in->up_packed, &out->up, AT("up"),
				   "up_packed", err);
	if (!status)
		status = equal("up", "k", out->up.k, "gate.k", out->gate.k, err);
	if (!status)
		status =
		    equal("up", "rows", out->up.rows, "gate.rows", out->gate.rows, err);
	return status ? status
		      : equal("up", "batch", out->up.batch, "gate.batch",
			      out->gate.batch, err);
}

enum nib_status nib_valid_moe_layer(const struct nib_device *device,
				    const struct nib_moe_layer *in,
				    struct nib_moe_layer *out, struct nib_error *err)
{
	enum nib_status status;

	if (!in)
		return nib_fail_argument(err, NIB_STATUS_BAD_ARGUMENT, "layer",
					 " = NULL: must point to a layer");
	*out = *in;
	if ((status = nib_check_reserved(in->reserved, nib_label("layer"), err)) ||
	    (status = check_options(in, err)) ||
	    (status = resolve_input(in, out, err)) ||
	    (status = nib_valid_weights(device, &in->gate, in->gate_packed, &out->gate,
					AT("gate"), "gate_packed", err)) ||
	    (status = check_gate(out, err)) ||
	    (status = resolve_up(device, in, out, err)) ||
	    (status = nib_valid_weights(device, &in->down, in->down_packed, &out->down,
					AT("down"), "down_packed", err)) ||
	    (status =
		 equal("down", "k", out->down.k, "gate.rows", out->gate.rows, err)) ||
	    (status =
		 equal("down", "rows", out->down.rows, "y.cols", out->y.cols, err)))
		return status;
	return equal("down", "batch", out->down.batch, "gate.batch", out->gate.batch,
		     err);
}

/* ---- comparison with the plan --------------------------------------------- */

static bool same_weights(const struct nib_fp4 *x, const struct nib_packed *x_packed,
			 const struct nib_fp4 *y, const struct nib_packed *y_packed)
{
	return nib_same_fp4(x, y) && !x_packed == !y_packed;
}

static const char *wrong_field(const struct nib_moe_layer *plan,
			       const struct nib_moe_layer *run)
{
	if (run->activations != plan->activations)
		return "activations";
	if (!run->is_quantized != !plan->is_quantized)
		return "is_quantized";
	if (run->activation != plan->activation)
		return "activation";
	if (run->top_k != plan->top_k)
		return "top_k";
	if (!nib_same_dense(&plan->x, &run->x))
		return "x";
	if (!nib_same_fp4(&plan->a, &run->a))
		return "a";
	if (!same_weights(&plan->gate, plan->gate_packed, &run->gate, run->gate_packed))
		return "gate";
	if (!same_weights(&plan->up, plan->up_packed, &run->up, run->up_packed))
		return "up";
	if (!same_weights(&plan->down, plan->down_packed, &run->down, run->down_packed))
		return "down";
	return nib_same_dense(&plan->y, &run->y) ? NULL : "y";
}

enum nib_status nib_same_moe_layer(const struct nib_moe_layer *plan,
				   const struct nib_moe_layer *run,
				   struct nib_error *err)
{
	const char *field = wrong_field(plan, run);

	if (!field)
		return NIB_STATUS_OK;
	return nib_fail_at(err, NIB_STATUS_BAD_ARGUMENT, AT(field), "",
			   ": its value, sizes, strides, type or packing are "
			   "not those that the plan was made for");
}

/* ---- data ----------------------------------------------------------------- */

/* Checks that an array of the caller's is not NULL and does not overlap y. */
static enum nib_status check_array(const struct nib_moe_layer *l, const char *field,
				   const void *pointer, int64_t count, int64_t bytes,
				   struct nib_error *err)
{
	const uintptr_t begin = (uintptr_t)pointer;
	const struct nib_span span = {begin, begin + (uintptr_t)(count * bytes)};

	if (count == 0)
		return NIB_STATUS_OK;
	if (!pointer)
		return nib_fail_at(err, NIB_STATUS_BAD_ARGUMENT, AT(field), "",
				   " = NULL: must point to %" PRId64 " values", count);
	return nib_check_disjoint(nib_dense_span(&l->y), AT("y"), span, AT(field), err);
}

static enum nib_status check_view(const struct nib_moe_layer *l, const char *field,
				  const struct nib_fp4 *v, struct nib_error *err)
{
	const struct nib_span y = nib_dense_span(&l->y);
	enum nib_status status = nib_valid_fp4_data(v, AT(field), err);

	if (!status)
		status =
		    nib_check_disjoint(y, AT("y"), nib_codes_span(v), AT(field), err);
	return status
		   ? status
		   : nib_check_disjoint(y, AT("y"), nib_scale_span(v), AT(field), err);
}

static enum nib_status check_input(const struct nib_moe_layer *l, struct nib_error *err)
{
	enum nib_status status;

	if (l->is_quantized)
		return check_view(l, "a", &l->a, err);
	status = nib_valid_dense_data(&l->x, AT("x"), err);
	return status ? status
		      : nib_check_disjoint(nib_dense_span(&l->y), AT("y"),
					   nib_dense_span(&l->x), AT("x"), err);
}

enum nib_status nib_valid_moe_layer_data(const struct nib_moe_layer *l,
					 struct nib_error *err)
{
	const struct nib_moe_sizes s = nib_moe_sizes_of(l);
	enum nib_status status;

	if ((status = nib_valid_dense_data(&l->y, AT("y"), err)) ||
	    (status = check_input(l, err)) ||
	    (status = check_array(l, "ids", l->ids, s.slots, l->ids_bytes, err)) ||
	    (status = check_array(l, "weights", l->weights, s.slots,
				  sizeof(*l->weights), err)))
		return status;
	if (s.is_nvfp4 && !l->is_quantized)
		status = check_array(l, "x_global", l->x_global, 1, sizeof(float), err);
	if (!status && s.is_nvfp4)
		status = check_array(l, "h_global", l->h_global, 1, sizeof(float), err);
	if (!status && !l->gate_packed)
		status = check_view(l, "gate", &l->gate, err);
	if (!status && s.has_up && !l->up_packed)
		status = check_view(l, "up", &l->up, err);
	if (!status && !l->down_packed)
		status = check_view(l, "down", &l->down, err);
	return status;
}

static enum nib_status check_scale(const char *field, const float *value,
				   struct nib_error *err)
{
	if (nib_fp32_bits(*value) != 0 && nib_is_global(*value))
		return NIB_STATUS_OK;
	return nib_fail_at(err, NIB_STATUS_BAD_ARGUMENT, AT(field), "",
			   " = %g: must be positive, at most %g", (double)*value,
			   (double)FLT_MAX / 6);
}

static enum nib_status check_signs(const struct nib_moe_layer *l, struct nib_error *err)
{
	enum nib_status status = NIB_STATUS_OK;

	if (l->is_quantized)
		status = nib_valid_scale_signs(&l->a, AT("a"), err);
	if (!status && !l->gate_packed)
		status = nib_valid_scale_signs(&l->gate, AT("gate"), err);
	if (!status && l->up.rows && !l->up_packed)
		status = nib_valid_scale_signs(&l->up, AT("up"), err);
	if (!status && !l->down_packed)
		status = nib_valid_scale_signs(&l->down, AT("down"), err);
	return status;
}

enum nib_status nib_valid_moe_layer_values(const struct nib_moe_layer *l,
					   bool check_data, struct nib_error *err)
{
	enum nib_status status = NIB_STATUS_OK;

	if (l->activations == NIB_ACTIVATIONS_NVFP4 && !l->is_quantized)
		status = check_scale("x_global", l->x_global, err);
	if (!status && l->activations == NIB_ACTIVATIONS_NVFP4)
		status = check_scale("h_global", l->h_global, err);
	return status || !check_data ? status : check_signs(l, err);
}
