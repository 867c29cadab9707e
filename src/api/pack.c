/* SPDX-License-Identifier: Apache-2.0 */
/* pack.c - the API layer of packed weights. */
#include "backend/backend.h"
#include "core/error.h"
#include "validate.h"

enum nib_status nib_pack(struct nib_device *device, const struct nib_nvfp4 *b,
			 struct nib_packed **packed, struct nib_error *err)
{
	struct nib_label label = nib_label("b");
	struct nib_nvfp4 view;
	enum nib_status status;

	if (!packed)
		return nib_fail_argument(err, NIB_BAD_ARGUMENT, "packed",
					 " = NULL: must point to a pointer");
	*packed = NULL;
	if (!device)
		return nib_fail_argument(err, NIB_BAD_ARGUMENT, "device",
					 " = NULL: must be an open device");
	if (!b)
		return nib_fail_argument(err, NIB_BAD_ARGUMENT, "b",
					 " = NULL: must point to a view");
	if ((status = nib_valid_nvfp4(b, &view, label, err)) ||
	    (status = nib_valid_nvfp4_data(&view, label, err)))
		return status;
	if (device->backend->is_host &&
	    (status = nib_valid_scale_signs(&view, label, err)))
		return status;
	return device->backend->pack(device, &view, packed, err);
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
