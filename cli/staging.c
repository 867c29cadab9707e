/* SPDX-License-Identifier: Apache-2.0 */
/* staging.c - host buffers where the device computes: see staging.h. */
#include "staging.h"

#include "cli.h"

enum nib_status staging_new(struct nib_device *device, const void *host,
			    size_t bytes, struct staging *staging,
			    struct nib_error *err)
{
	*staging = (struct staging){
	    .device = device,
	    .host = (void *)(uintptr_t)host,
	    .bytes = bytes,
	    .data = (void *)(uintptr_t)host,
	};
	if (cli_is_host(device))
		return NIB_OK;
	return nib_device_alloc(device, bytes, &staging->data, err);
}

void staging_free(struct staging *staging)
{
	if (staging->data != staging->host)
		nib_device_free(staging->device, staging->data);
	*staging = (struct staging){0};
}

enum nib_status staging_load(const struct staging *staging, size_t bytes,
			     struct nib_error *err)
{
	if (staging->data == staging->host)
		return NIB_OK;
	return nib_device_copy(staging->device, staging->data, staging->host,
			       bytes, err);
}

enum nib_status staging_fetch(const struct staging *staging, size_t bytes,
			      struct nib_error *err)
{
	if (staging->data == staging->host)
		return NIB_OK;
	return nib_device_copy(staging->device, staging->host, staging->data,
			       bytes, err);
}

enum nib_status staging_new_loaded(struct nib_device *device, const void *host,
				   size_t bytes, struct staging *staging,
				   struct nib_error *err)
{
	enum nib_status status = staging_new(device, host, bytes, staging, err);

	return status ? status : staging_load(staging, bytes, err);
}
