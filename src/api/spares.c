/* SPDX-License-Identifier: Apache-2.0 */
/* spares.c - API: options of a run, and workspaces that a plan keeps. */
#include "spares.h"

#include <stdatomic.h>
#include <stdint.h>

#include "core/error.h"
#include "core/options.h"
#include "validate.h"

static enum nib_status check_workspace(const struct nib_run_options *options,
				       size_t bytes, bool callers,
				       struct nib_error *err)
{
	if (!options->workspace) {
		if (!callers || !bytes)
			return NIB_STATUS_OK;
		return nib_fail_argument(
		    err, NIB_STATUS_BAD_ARGUMENT, "options.workspace",
		    " = NULL: the plan was made with caller_workspace, so a "
		    "run must provide %zu bytes",
		    bytes);
	}
	if (options->workspace_bytes < bytes)
		return nib_fail_argument(
		    err, NIB_STATUS_BAD_ARGUMENT, "options.workspace_bytes",
		    " = %zu: must be at least %zu", options->workspace_bytes, bytes);
	if ((uintptr_t)options->workspace % 64)
		return nib_fail_argument(
		    err, NIB_STATUS_BAD_ARGUMENT, "options.workspace",
		    " = %p: must be aligned to 64 bytes", options->workspace);
	return NIB_STATUS_OK;
}

enum nib_status nib_read_run_options(const struct nib_device *device,
				     const struct nib_run_options *options,
				     struct nib_run_options *ours, size_t bytes,
				     bool callers, struct nib_error *err)
{
	enum nib_status status;

	status = nib_options_read(ours, sizeof(*ours), options, "options", err);
	if (!status)
		status = nib_check_stream(device, ours->stream, "options.stream", err);
	if (!status && ours->check_data && !device->backend->is_host)
		return nib_fail_argument(
		    err, NIB_STATUS_UNSUPPORTED, "options.check_data",
		    " = %d: must be 0 on '%s', whose data the host does not "
		    "read",
		    ours->check_data, device->backend->name);
	return status ? status : check_workspace(ours, bytes, callers, err);
}

enum nib_status nib_spare_take(struct nib_device *device, struct nib_spares *spares,
			       size_t bytes, void **workspace, struct nib_error *err)
{
	for (int i = 0; i < NIB_SPARES; i++) {
		*workspace = atomic_exchange(&spares->kept[i], NULL);
		if (*workspace)
			return NIB_STATUS_OK;
	}
	return device->backend->workspace_new(device, bytes, workspace, err);
}

void nib_spare_give(struct nib_device *device, struct nib_spares *spares,
		    void *workspace)
{
	for (int i = 0; i < NIB_SPARES; i++) {
		void *none = NULL;

		if (atomic_compare_exchange_strong(&spares->kept[i], &none, workspace))
			return;
	}
	device->backend->workspace_free(device, workspace);
}

void nib_spares_free(struct nib_device *device, struct nib_spares *spares)
{
	for (int i = 0; i < NIB_SPARES; i++)
		if (spares->kept[i])
			device->backend->workspace_free(device, spares->kept[i]);
}
