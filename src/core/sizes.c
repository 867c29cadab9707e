/* SPDX-License-Identifier: Apache-2.0 */
/* sizes.c - public sizes in bytes, with every product checked. */
#include "core/sizes.h"

size_t nib_scales_bytes(enum nib_scale_layout layout, int64_t rows, int64_t k)
{
	int64_t groups, bytes;

	if (rows < 0 || k < 0 || k % NIB_NVFP4_BLOCK != 0 || k > NIB_MAX_K)
		return 0;
	groups = k / NIB_NVFP4_BLOCK;
	if (layout == NIB_SCALE_LAYOUT_TILED_128X4) {
		if (rows > INT64_MAX - (NIB_SCALE_TILE_ROWS - 1))
			return 0;
		rows = (rows + NIB_SCALE_TILE_ROWS - 1) &
		       ~(int64_t)(NIB_SCALE_TILE_ROWS - 1);
		groups = (groups + NIB_SCALE_TILE_GROUPS - 1) &
			 ~(int64_t)(NIB_SCALE_TILE_GROUPS - 1);
	} else if (layout != NIB_SCALE_LAYOUT_LINEAR) {
		return 0;
	}
	if (__builtin_mul_overflow(rows, groups, &bytes) || (uint64_t)bytes > SIZE_MAX)
		return 0;
	return (size_t)bytes;
}

size_t nib_dtype_bytes(enum nib_dtype dtype)
{
	switch (dtype) {
	case NIB_DTYPE_FP32:
		return 4;
	case NIB_DTYPE_FP16:
	case NIB_DTYPE_BF16:
		return 2;
	}
	return 0;
}
