/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemm_maps.c - tensor maps: which operands they can describe where they are, and the
 * maps of those operands and of copies of the others.
 */
#include <string.h>

#include "format/view.h"
#include "sm100.h"

/* The alignment of addresses and strides, and the limit of strides (cuda.h). */
#define MAP_ALIGN  16
#define STRIDE_END ((int64_t)1 << 40)

static bool takes_stride(int64_t bytes)
{
	return bytes % MAP_ALIGN == 0 && bytes < STRIDE_END;
}

static void set_sizes(struct sm100_map *map, int64_t row, int64_t rows,
		      int64_t matrices)
{
	/* A map has no size of 0; with k = 0 nothing is loaded. */
	map->sizes[0] = (uint64_t)row;
	map->sizes[1] = (uint64_t)(rows ? rows : 1);
	map->sizes[2] = (uint64_t)matrices;
	map->is_used = true;
	map->copy = -1;
}

/* A stride that no load uses must still be valid. */
static uint64_t valid_stride(int64_t bytes)
{
	return (uint64_t)(bytes && takes_stride(bytes) ? bytes : MAP_ALIGN);
}

static void set_strides(struct sm100_map *map, int64_t row, int64_t batch)
{
	map->strides_bytes[0] = valid_stride(row);
	map->strides_bytes[1] = valid_stride(batch);
}

void sm100_codes_map(const struct sm100_source *source, int32_t box_rows,
		     struct sm100_map *map)
{
	const struct nib_fp4 *v = source->view;
	const int64_t row = nib_fp4_row_stride_bytes(v);
	const int64_t batch = nib_fp4_batch_stride_bytes(v);

	memset(map, 0, sizeof(*map));
	set_sizes(map, v->k ? v->k / 2 : MAP_ALIGN, v->rows, source->matrices);
	map->box[0] = NIB_SM100_STAGE_K / 2;
	map->box[1] = (uint32_t)box_rows;
	map->box[2] = 1;
	if (v->k && ((v->rows > 1 && !takes_stride(row)) ||
		     (source->matrices > 1 && !takes_stride(batch)))) {
		const int64_t dense =
		    (int64_t)nib_stage_row_pieces((int32_t)v->k) * NIB_STAGE_PIECE;

		map->copy = 0;
		set_strides(map, dense, dense * v->rows);
	} else {
		set_strides(map, row, batch);
	}
}

void sm100_scales_map(const struct sm100_source *source, int32_t blocks,
		      struct sm100_map *map)
{
	const struct nib_fp4 *v = source->view;
	const int64_t across = nib_stage_tiles_across((int32_t)v->k);
	const int64_t row = across * NIB_SCALE_TILE_BYTES;
	const int64_t batch = nib_fp4_scale_batch_stride_bytes(v);
	const bool is_clean = v->k % 64 == 0 || source->is_packed;

	memset(map, 0, sizeof(*map));
	map->is_scales = true;
	set_sizes(map, (across ? across : 1) * (NIB_SCALE_TILE_BYTES / 8),
		  divide_up(v->rows, 128), source->matrices);
	map->box[0] = NIB_SM100_SCALES_BYTES / 8;
	map->box[1] = (uint32_t)blocks;
	map->box[2] = 1;
	if (v->k && (v->scale_layout != NIB_SCALE_LAYOUT_TILED_128X4 || !is_clean ||
		     (source->matrices > 1 && !takes_stride(batch)))) {
		map->copy = 0;
		set_strides(map, row, row * divide_up(v->rows, 128));
	} else {
		set_strides(map, row, batch);
	}
}

bool sm100_is_copied(const struct sm100_source *source)
{
	struct sm100_map codes, scales;

	sm100_codes_map(source, NIB_TILE_N, &codes);
	sm100_scales_map(source, 1, &scales);
	return codes.copy == 0 || scales.copy == 0;
}

size_t sm100_copy_bytes(const struct sm100_map *map)
{
	return (size_t)(map->strides_bytes[0] * map->sizes[1] * map->sizes[2]);
}

/*
 * L2 promotion: 128 bytes for codes, whose boxes are as wide (CUTLASS and DeepGEMM use
 * the same).  A load of scales has 2048 contiguous bytes.
 */
enum nib_status sm100_encode(const struct cuda_device *device,
			     const struct sm100_map *map, uintptr_t address,
			     struct nib_tensor_map *out, struct nib_error *err)
{
	static const uint32_t ones[3] = {1, 1, 1};
	const struct cuda_driver *cu = device->driver;
	CUtensorMap encoded;
	CUresult result;

	result = cu->cuTensorMapEncodeTiled(
	    &encoded,
	    map->is_scales ? CU_TENSOR_MAP_DATA_TYPE_INT64
			   : CU_TENSOR_MAP_DATA_TYPE_UINT8,
	    3, (void *)address, map->sizes, map->strides_bytes, map->box, ones,
	    CU_TENSOR_MAP_INTERLEAVE_NONE,
	    map->is_scales ? CU_TENSOR_MAP_SWIZZLE_NONE : CU_TENSOR_MAP_SWIZZLE_128B,
	    map->is_scales ? CU_TENSOR_MAP_L2_PROMOTION_NONE
			   : CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
	    CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
	if (result)
		return cuda_fail(cu, result, "cuTensorMapEncodeTiled", err);
	memcpy(out, &encoded, sizeof(*out));
	return NIB_STATUS_OK;
}
