/* SPDX-License-Identifier: Apache-2.0 */
/* unsupported.c - entries of a backend's table for what it cannot do. */
#include "backend/backend.h"
#include "core/error.h"

bool nib_shares_no_codes(const struct nib_device *device, const struct nib_fp4 *b)
{
	(void)device;
	(void)b;
	return false;
}

enum nib_status nib_no_probe(struct nib_device *device, enum nib_probe probe,
			     const void *data, int64_t amount, int64_t *done,
			     void *stream, struct nib_error *err)
{
	(void)probe;
	(void)data;
	(void)amount;
	(void)done;
	(void)stream;
	return nib_fail_argument(err, NIB_STATUS_UNSUPPORTED, "device",
				 ": '%s' has no probes; a GPU has",
				 device->backend->name);
}

static enum nib_status no_costs(const struct nib_device *device, struct nib_error *err)
{
	return nib_fail_argument(err, NIB_STATUS_UNSUPPORTED, "device",
				 ": '%s' plans without costs; a GPU has some",
				 device->backend->name);
}

enum nib_status nib_no_costs_get(struct nib_device *device, struct nib_costs *costs,
				 struct nib_error *err)
{
	(void)costs;
	return no_costs(device, err);
}

enum nib_status nib_no_costs_set(struct nib_device *device,
				 const struct nib_costs *costs, struct nib_error *err)
{
	(void)costs;
	return no_costs(device, err);
}

enum nib_status nib_no_activations(const struct nib_plan *plan, const char *rule,
				   struct nib_error *err)
{
	static const char *const kinds[] = {"NVFP4", "dense", "int8"};
	static const char *const types[] = {"fp32", "fp16", "bf16"};
	const enum nib_activations kind = nib_plan_activations(plan);

	return nib_fail_argument(err, NIB_STATUS_UNSUPPORTED,
				 plan->is_moe ? "moe.problem.activations"
					      : "problems[0].activations",
				 " = %d (%s, x is %s): %s", (int)kind, kinds[kind],
				 types[nib_plan_x_dtype(plan)], rule);
}
