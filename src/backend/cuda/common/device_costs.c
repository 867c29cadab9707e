/* SPDX-License-Identifier: Apache-2.0 */
/* device_costs.c - the costs of a device, as struct nib_costs has them. */
#include <stdio.h>

#include "arch.h"
#include "core/error.h"
#include "cuda.h"
#include "tile_plan.h"

enum nib_status cuda_costs_get(struct nib_device *base, struct nib_costs *costs,
			       struct nib_error *err)
{
	struct cuda_device *device = cuda_device(base);
	struct nib_tile_device clusters;
	enum nib_status status = cuda_enter(device, err);

	if (status)
		return status;
	status = device->arch->clusters(device, &clusters, err);
	cuda_leave(device);
	if (status)
		return status;
	costs->revision = NIB_COSTS_REVISION;
	costs->sizes = NIB_TILE_SIZES;
	for (int i = 0; i < NIB_TILE_SIZES; i++) {
		costs->tile_rows[i] = nib_tile_size(i);
		costs->step_cycles[i] = device->costs.step[i];
	}
	costs->tile_cycles = device->costs.tile;
	costs->split_cycles = device->costs.split;
	costs->tile_cols = NIB_GEMM_PAIR * NIB_TILE_N;
	costs->tiles_at_once = clusters.clusters;
	return NIB_STATUS_OK;
}

static enum nib_status check(const char *field, int i, int cycles,
			     struct nib_error *err)
{
	char index[16] = "";

	if (cycles >= 1 && cycles <= NIB_COSTS_MAX)
		return NIB_STATUS_OK;
	if (i >= 0)
		snprintf(index, sizeof(index), "[%d]", i);
	return nib_fail_at(err, NIB_STATUS_BAD_ARGUMENT, nib_label("costs"), field,
			   "%s = %d: must be 1 to %d cycles", index, cycles,
			   NIB_COSTS_MAX);
}

enum nib_status cuda_costs_set(struct nib_device *base, const struct nib_costs *costs,
			       struct nib_error *err)
{
	struct cuda_device *device = cuda_device(base);
	struct nib_cuda_costs ours = *device->arch->costs;
	enum nib_status status = NIB_STATUS_OK;

	if (costs && costs->revision != NIB_COSTS_REVISION)
		return nib_fail_argument(err, NIB_STATUS_BAD_ARGUMENT, "costs.revision",
					 " = %d: must be %d, as "
					 "nib_device_get_costs() returns",
					 costs->revision, NIB_COSTS_REVISION);
	if (costs && costs->sizes != NIB_TILE_SIZES)
		return nib_fail_argument(err, NIB_STATUS_BAD_ARGUMENT, "costs.sizes",
					 " = %d: must be %d, as "
					 "nib_device_get_costs() returns",
					 costs->sizes, NIB_TILE_SIZES);
	for (int i = 0; costs && i < NIB_TILE_SIZES && !status; i++) {
		if (costs->tile_rows[i] != nib_tile_size(i))
			return nib_fail_argument(err, NIB_STATUS_BAD_ARGUMENT,
						 "costs.tile_rows",
						 "[%d] = %d: must be %d", i,
						 costs->tile_rows[i], nib_tile_size(i));
		ours.step[i] = costs->step_cycles[i];
		status = check("step_cycles", i, ours.step[i], err);
	}
	if (costs && !status) {
		ours.tile = costs->tile_cycles;
		ours.split = costs->split_cycles;
		status = check("tile_cycles", -1, ours.tile, err);
		if (!status)
			status = check("split_cycles", -1, ours.split, err);
	}
	if (status)
		return status;
	device->costs = ours;
	return NIB_STATUS_OK;
}
