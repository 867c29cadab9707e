/* SPDX-License-Identifier: Apache-2.0 */
/* expert_rows.c - where the rows and scales of experts begin. */
#include "core/sizes.h"
#include "cpu.h"

/* Sums of wrong offsets wrap around as unsigned numbers; the multiplication checks
 * them. */
enum nib_status cpu_expert_rows(struct nib_device *device, const int32_t *ends,
				int64_t experts, int32_t *row_offsets,
				int32_t *scale_rows, void *stream,
				struct nib_error *err)
{
	uint32_t begin = 0, padded = 0;

	(void)device;
	(void)stream;
	(void)err;
	row_offsets[0] = 0;
	for (int64_t e = 0; e < experts; e++) {
		const uint32_t end = (uint32_t)ends[e];

		row_offsets[e + 1] = ends[e];
		if (scale_rows)
			scale_rows[e] = (int32_t)padded;
		padded += (end - begin + NIB_SCALE_TILE_ROWS - 1) &
			  ~(uint32_t)(NIB_SCALE_TILE_ROWS - 1);
		begin = end;
	}
	return NIB_STATUS_OK;
}
