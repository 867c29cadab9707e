/* SPDX-License-Identifier: Apache-2.0 */
/*
 * staging.h - host buffers where the device computes: on "cpu" the buffer
 * itself, on a GPU a copy in its memory.
 */
#ifndef NIB_STAGING_H
#define NIB_STAGING_H

#include "nibblas.h"

struct staging {
	struct nib_device *device;
	void *host;
	size_t bytes;
	void *data; /* for the device's calls; host on "cpu" */
};

/* data's contents are undefined on a GPU until staging_load(). */
enum nib_status staging_new(struct nib_device *device, const void *host,
			    size_t bytes, struct staging *staging,
			    struct nib_error *err);
void staging_free(struct staging *staging); /* zeroed is fine */
/* The first bytes of the host buffer to the device; and back, when done. */
enum nib_status staging_load(const struct staging *staging, size_t bytes,
			     struct nib_error *err);
enum nib_status staging_fetch(const struct staging *staging, size_t bytes,
			      struct nib_error *err);
/* New and load, all of it. */
enum nib_status staging_new_loaded(struct nib_device *device, const void *host,
				   size_t bytes, struct staging *staging,
				   struct nib_error *err);

#endif
