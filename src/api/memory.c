/* SPDX-License-Identifier: Apache-2.0 */
/* memory.c - API: allocates, copies and frees device memory, waits for a device. */
#include "backend/backend.h"
#include "core/error.h"
#include "validate.h"

enum nib_status nib_device_alloc(struct nib_device *device, size_t bytes,
				 void **pointer, struct nib_error *err)
{
	enum nib_status status;

	if (!pointer)
		return nib_fail_argument(err, NIB_STATUS_BAD_ARGUMENT, "pointer",
					 " = NULL: must point to a pointer");
	*pointer = NULL;
	status = nib_check_device(device, err);
	if (status || bytes == 0)
		return status;
	return device->backend->alloc(device, bytes, pointer, err);
}

void nib_device_free(struct nib_device *device, void *pointer)
{
	if (device && pointer)
		device->backend->free(device, pointer);
}

enum nib_status nib_device_copy(struct nib_device *device, void *to, const void *from,
				size_t bytes, const struct nib_call_options *options,
				struct nib_error *err)
{
	const uintptr_t t = (uintptr_t)to, f = (uintptr_t)from;
	struct nib_call_options ours;
	enum nib_status status = nib_read_call_options(device, options, &ours, err);

	if (status || bytes == 0)
		return status;
	if (!to || !from)
		return nib_fail_argument(err, NIB_STATUS_BAD_ARGUMENT,
					 to ? "from" : "to",
					 " = NULL: must point to %zu bytes", bytes);
	if (t < f ? f - t < bytes : t - f < bytes)
		return nib_fail_argument(err, NIB_STATUS_BAD_ARGUMENT, "to",
					 " = %p, from = %p: %zu bytes of each must "
					 "not overlap",
					 to, from, bytes);
	return device->backend->copy(device, to, from, bytes, ours.stream, err);
}

enum nib_status nib_device_wait(struct nib_device *device, void *stream,
				struct nib_error *err)
{
	enum nib_status status = nib_check_device(device, err);

	if (!status)
		status = nib_check_stream(device, stream, "stream", err);
	return status ? status : device->backend->wait(device, stream, err);
}
