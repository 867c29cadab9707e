/* SPDX-License-Identifier: Apache-2.0 */
/* costs.c - API: reads and sets the costs of tiles that a device's planner uses. */
#include "backend/backend.h"
#include "core/options.h"
#include "validate.h"

enum nib_status nib_device_get_costs(struct nib_device *device, struct nib_costs *costs,
				     struct nib_error *err)
{
	struct nib_costs ours = {0};
	size_t bytes;
	enum nib_status status = nib_check_device(device, err);

	if (!status)
		status = nib_info_check(costs, sizeof(ours), &bytes, "costs", err);
	if (!status)
		status = device->backend->costs_get(device, &ours, err);
	if (!status)
		nib_info_write(costs, &ours, bytes);
	return status;
}

enum nib_status nib_device_set_costs(struct nib_device *device,
				     const struct nib_costs *costs,
				     struct nib_error *err)
{
	struct nib_costs ours;
	enum nib_status status = nib_check_device(device, err);

	if (!status)
		status = nib_options_read(&ours, sizeof(ours), costs, "costs", err);
	if (status)
		return status;
	return device->backend->costs_set(device, costs ? &ours : NULL, err);
}
