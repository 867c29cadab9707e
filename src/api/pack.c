/* SPDX-License-Identifier: Apache-2.0 */
/* pack.c - API: packs, updates and unpacks weights. */
#include <inttypes.h>

#include "backend/backend.h"
#include "core/error.h"
#include "format/view.h"
#include "validate.h"

/* Checks b and its data; view receives it, resolved. */
static enum nib_status check(const struct nib_device *device, const struct nib_fp4 *b,
			     struct nib_fp4 *view, struct nib_error *err)
{
	struct nib_label label = nib_label("b");
	enum nib_status status;

	if (!b)
		return nib_fail_argument(err, NIB_STATUS_BAD_ARGUMENT, "b",
					 " = NULL: must point to a view");
	if ((status = nib_valid_fp4(b, view, label, err)) ||
	    (status = nib_valid_fp4_data(view, label, err)))
		return status;
	return device->backend->is_host ? nib_valid_scale_signs(view, label, err)
					: NIB_STATUS_OK;
}

static enum nib_status pack(struct nib_device *device, const struct nib_fp4 *b,
			    bool shares_codes, const struct nib_call_options *options,
			    struct nib_packed **packed, struct nib_error *err)
{
	struct nib_call_options ours;
	struct nib_fp4 view;
	enum nib_status status;

	if (!packed)
		return nib_fail_argument(err, NIB_STATUS_BAD_ARGUMENT, "packed",
					 " = NULL: must point to a pointer");
	*packed = NULL;
	status = nib_read_call_options(device, options, &ours, err);
	if (!status)
		status = check(device, b, &view, err);
	if (status)
		return status;
	return device->backend->pack(device, &view, shares_codes, ours.stream, packed,
				     err);
}

enum nib_status nib_pack(struct nib_device *device, const struct nib_fp4 *b,
			 const struct nib_call_options *options,
			 struct nib_packed **packed, struct nib_error *err)
{
	return pack(device, b, false, options, packed, err);
}

enum nib_status nib_pack_shared(struct nib_device *device, const struct nib_fp4 *b,
				const struct nib_call_options *options,
				struct nib_packed **packed, struct nib_error *err)
{
	return pack(device, b, true, options, packed, err);
}

int nib_pack_shares(const struct nib_device *device, const struct nib_fp4 *b)
{
	struct nib_fp4 view;

	if (!device || !b || nib_valid_fp4(b, &view, nib_label("b"), NULL) ||
	    nib_valid_fp4_data(&view, nib_label("b"), NULL))
		return 0;
	return device->backend->pack_shares(device, &view);
}

static enum nib_status same_size(const char *name, int64_t got, int64_t want,
				 struct nib_error *err)
{
	if (got == want)
		return NIB_STATUS_OK;
	return nib_fail_argument(err, NIB_STATUS_BAD_ARGUMENT, name,
				 " = %" PRId64 ": must be %" PRId64 ", as in packed",
				 got, want);
}

/* Checks that a view has the sizes of packed. */
static enum nib_status check_sizes(const struct nib_packed *packed,
				   const struct nib_fp4 *view,
				   const char *const names[3], struct nib_error *err)
{
	enum nib_status status;

	if ((status = same_size(names[0], view->rows, packed->rows, err)) ||
	    (status = same_size(names[1], view->k, packed->k, err)))
		return status;
	return same_size(names[2], nib_fp4_batches(view), packed->batch, err);
}

enum nib_status nib_packed_update(struct nib_packed *packed, const struct nib_fp4 *b,
				  const struct nib_call_options *options,
				  struct nib_error *err)
{
	static const char *const names[] = {"b.rows", "b.k", "b.batch"};
	struct nib_call_options ours;
	struct nib_fp4 view;
	enum nib_status status;

	if (!packed)
		return nib_fail_argument(err, NIB_STATUS_BAD_ARGUMENT, "packed",
					 " = NULL: must be packed weights");
	if ((status = nib_read_call_options(packed->device, options, &ours, err)) ||
	    (status = check(packed->device, b, &view, err)) ||
	    (status = check_sizes(packed, &view, names, err)))
		return status;
	return packed->device->backend->packed_update(packed, &view, ours.stream, err);
}

enum nib_status nib_unpack(const struct nib_packed *packed, const struct nib_fp4 *to,
			   const struct nib_call_options *options,
			   struct nib_error *err)
{
	static const char *const names[] = {"to.rows", "to.k", "to.batch"};
	const struct nib_label label = nib_label("to");
	struct nib_call_options ours;
	struct nib_fp4 view;
	enum nib_status status;

	if (!packed)
		return nib_fail_argument(err, NIB_STATUS_BAD_ARGUMENT, "packed",
					 " = NULL: must be packed weights");
	if (!to)
		return nib_fail_argument(err, NIB_STATUS_BAD_ARGUMENT, "to",
					 " = NULL: must point to a view");
	if ((status = nib_read_call_options(packed->device, options, &ours, err)) ||
	    (status = nib_valid_fp4(to, &view, label, err)) ||
	    (status = nib_valid_fp4_data(&view, label, err)) ||
	    (status = check_sizes(packed, &view, names, err)))
		return status;
	if (nib_scales_overlap_codes(&view))
		return nib_check_apart(nib_scale_span(&view), "to.scales",
				       nib_codes_span(&view), "to.codes", err);
	return packed->device->backend->unpack(packed, &view, ours.stream, err);
}

void nib_packed_free(struct nib_packed *packed)
{
	if (packed)
		packed->device->backend->packed_free(packed);
}

size_t nib_packed_bytes(const struct nib_packed *packed)
{
	return packed ? packed->bytes : 0;
}
