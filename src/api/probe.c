/* SPDX-License-Identifier: Apache-2.0 */
/* probe.c - API: probes, which measure the peak rates of a device. */
#include "backend/backend.h"
#include "core/error.h"
#include "validate.h"

/* A GPU needs about twenty minutes for it; rounding it up does not overflow. */
#define MAX_AMOUNT (INT64_C(1) << 60)

/* Checks the data and the amount of a probe. */
static enum nib_status check(enum nib_probe probe, const void *data, int64_t amount,
			     struct nib_error *err)
{
	const int kind = (int)probe;

	if (kind < NIB_PROBE_READ || kind > NIB_PROBE_CYCLES)
		return nib_fail_argument(err, NIB_STATUS_BAD_ARGUMENT, "probe",
					 " = %d: must be an enum nib_probe", kind);
	if (amount < 0 || amount > MAX_AMOUNT)
		return nib_fail_argument(err, NIB_STATUS_BAD_ARGUMENT, "amount",
					 " = %lld: must be 0 to 2^60",
					 (long long)amount);
	if (probe != NIB_PROBE_READ)
		return data ? nib_fail_argument(err, NIB_STATUS_BAD_ARGUMENT, "data",
						" = %p: must be NULL but for "
						"NIB_PROBE_READ",
						data)
			    : NIB_STATUS_OK;
	if (amount % 16)
		return nib_fail_argument(err, NIB_STATUS_BAD_ARGUMENT, "amount",
					 " = %lld: must be a multiple of 16 bytes "
					 "for NIB_PROBE_READ",
					 (long long)amount);
	if (!data && amount)
		return nib_fail_argument(err, NIB_STATUS_BAD_ARGUMENT, "data",
					 " = NULL: must point to %lld bytes",
					 (long long)amount);
	return NIB_STATUS_OK;
}

enum nib_status nib_device_probe(struct nib_device *device, enum nib_probe probe,
				 const void *data, int64_t amount, int64_t *done,
				 const struct nib_call_options *options,
				 struct nib_error *err)
{
	struct nib_call_options ours;
	int64_t unused = 0;
	enum nib_status status;

	done = done ? done : &unused;
	*done = 0;
	status = nib_read_call_options(device, options, &ours, err);
	if (!status)
		status = check(probe, data, amount, err);
	if (status || amount == 0)
		return status;
	return device->backend->probe(device, probe, data, amount, done, ours.stream,
				      err);
}
