/* SPDX-License-Identifier: Apache-2.0 */
/* device.c - API: the list of backends, and devices opened by name. */
#include <string.h>

#include "backend/backend.h"
#include "core/error.h"
#include "core/options.h"
#include "validate.h"

const struct nib_backend *const nib_backends[] = {&nib_backend_cuda, &nib_backend_cpu,
						  NULL};

/* More threads than any machine has, so a larger number is a mistake. */
#define MAX_THREADS 4096

static const struct nib_backend *find_backend(const char *name)
{
	for (int i = 0; nib_backends[i]; i++) {
		size_t n = strlen(nib_backends[i]->name);

		if (strncmp(name, nib_backends[i]->name, n) == 0 &&
		    (name[n] == '\0' || name[n] == ':'))
			return nib_backends[i];
	}
	return NULL;
}

enum nib_status nib_device_open(const char *name,
				const struct nib_device_options *options,
				struct nib_device **device, struct nib_error *err)
{
	struct nib_device_options ours;
	const struct nib_backend *backend;
	enum nib_status status;

	if (!device)
		return nib_fail_argument(err, NIB_STATUS_BAD_ARGUMENT, "device",
					 " = NULL: must point to a pointer");
	*device = NULL;
	if (!name)
		return nib_fail_argument(err, NIB_STATUS_BAD_ARGUMENT, "name",
					 " = NULL: must be a device name, as 'cpu'");
	status = nib_options_read(&ours, sizeof(ours), options, "options", err);
	if (status)
		return status;
	if (ours.threads < 0 || ours.threads > MAX_THREADS)
		return nib_fail_argument(
		    err, NIB_STATUS_BAD_ARGUMENT, "options.threads",
		    " = %d: must be 0 (all) to %d", ours.threads, MAX_THREADS);
	backend = find_backend(name);
	if (!backend)
		return nib_fail_argument(err, NIB_STATUS_NO_DEVICE, "name",
					 " = '%.32s': this build has no such backend; "
					 "it has 'cuda' and 'cpu'",
					 name);
	return backend->open(name, &ours, device, err);
}

void nib_device_close(struct nib_device *device)
{
	if (device)
		device->backend->close(device);
}

enum nib_status nib_device_get_info(const struct nib_device *device,
				    struct nib_device_info *info, struct nib_error *err)
{
	struct nib_device_info ours = {0};
	size_t bytes;
	enum nib_status status = nib_check_device(device, err);

	if (!status)
		status = nib_info_check(info, sizeof(ours), &bytes, "info", err);
	if (status)
		return status;
	device->backend->device_info(device, &ours);
	nib_info_write(info, &ours, bytes);
	return NIB_STATUS_OK;
}

int nib_backend_count(void)
{
	int count = 0;

	for (int i = 0; nib_backends[i]; i++)
		count += nib_backends[i]->levels;
	return count;
}

enum nib_status nib_backend_get_info(int index, struct nib_backend_info *info,
				     struct nib_error *err)
{
	struct nib_backend_info ours = {0};
	size_t bytes;
	int level = index;
	enum nib_status status;

	status = nib_info_check(info, sizeof(ours), &bytes, "info", err);
	if (status)
		return status;
	for (int i = 0; level >= 0 && nib_backends[i]; i++) {
		if (level < nib_backends[i]->levels) {
			nib_backends[i]->level_info(level, &ours);
			nib_info_write(info, &ours, bytes);
			return NIB_STATUS_OK;
		}
		level -= nib_backends[i]->levels;
	}
	return nib_fail_argument(err, NIB_STATUS_BAD_ARGUMENT, "index",
				 " = %d: must be 0 to %d (nib_backend_count() - 1)",
				 index, nib_backend_count() - 1);
}
