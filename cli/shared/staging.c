/* SPDX-License-Identifier: Apache-2.0 */
/* staging.c - host buffers where the device computes: see device.h. */
#include "device.h"

enum nib_status staging_new(struct nib_device *device, const void *host, size_t bytes,
			    struct staging *staging, struct nib_error *err)
{
	void *data = (void *)(uintptr_t)host;

	*staging = (struct staging){device, data, data};
	if (cli_is_host(device))
		return NIB_STATUS_OK;
	return nib_device_alloc(device, bytes, &staging->data, err);
}

void staging_free(struct staging *staging)
{
	if (staging->data != staging->host)
		nib_device_free(staging->device, staging->data);
	*staging = (struct staging){0};
}

enum nib_status staging_load(const struct staging *s, size_t bytes,
			     struct nib_error *err)
{
	if (s->data == s->host)
		return NIB_STATUS_OK;
	return nib_device_copy(s->device, s->data, s->host, bytes, NULL, err);
}

enum nib_status staging_fetch(const struct staging *s, size_t bytes,
			      struct nib_error *err)
{
	if (s->data == s->host)
		return NIB_STATUS_OK;
	return nib_device_copy(s->device, s->host, s->data, bytes, NULL, err);
}

enum nib_status staging_new_loaded(struct nib_device *device, const void *host,
				   size_t bytes, struct staging *staging,
				   struct nib_error *err)
{
	enum nib_status status = staging_new(device, host, bytes, staging, err);

	return status ? status : staging_load(staging, bytes, err);
}
