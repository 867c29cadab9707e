/* SPDX-License-Identifier: Apache-2.0 */
/* expert_rows.c - API: where the rows and the scales of each expert begin. */
#include <inttypes.h>

#include "backend/backend.h"
#include "core/error.h"
#include "validate.h"

/* As many as int32 can count, the type of the offsets. */
#define MOST_EXPERTS INT32_MAX

static struct nib_span words(const int32_t *pointer, int64_t count)
{
	const uintptr_t begin = (uintptr_t)pointer;

	return (struct nib_span){
	    begin, begin ? begin + sizeof(*pointer) * (uintptr_t)count : 0};
}

static enum nib_status check(const int32_t *ends, int64_t experts,
			     const int32_t *row_offsets, const int32_t *scale_rows,
			     struct nib_error *err)
{
	const struct nib_span in = words(ends, experts);
	const struct nib_span rows = words(row_offsets, experts + 1);
	const struct nib_span scales = words(scale_rows, experts);
	enum nib_status status;

	if (!ends || !row_offsets)
		return nib_fail_argument(err, NIB_STATUS_BAD_ARGUMENT,
					 ends ? "row_offsets" : "ends",
					 " = NULL: must point to memory of the device");
	if ((status = nib_check_apart(rows, "row_offsets", in, "ends", err)) ||
	    (status = nib_check_apart(scales, "scale_rows", in, "ends", err)))
		return status;
	return nib_check_apart(scales, "scale_rows", rows, "row_offsets", err);
}

enum nib_status nib_moe_expert_rows(struct nib_device *device, const int32_t *ends,
				    int64_t experts, int32_t *row_offsets,
				    int32_t *scale_rows,
				    const struct nib_call_options *options,
				    struct nib_error *err)
{
	struct nib_call_options ours;
	enum nib_status status;

	status = nib_read_call_options(device, options, &ours, err);
	if (status)
		return status;
	if (experts < 1 || experts > MOST_EXPERTS)
		return nib_fail_argument(err, NIB_STATUS_BAD_ARGUMENT, "experts",
					 " = %" PRId64 ": must be 1 to %d", experts,
					 MOST_EXPERTS);
	status = check(ends, experts, row_offsets, scale_rows, err);
	if (status)
		return status;
	return device->backend->expert_rows(device, ends, experts, row_offsets,
					    scale_rows, ours.stream, err);
}
