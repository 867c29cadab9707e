/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemm_maps.c - tensor maps of A that Hopper's kernels take as it is: [matrix,
 * row, k], loaded by boxes of NIB_STEP_K of k.
 */
#include <string.h>

#include "format/view.h"
#include "gemm.h"

/* Alignment of strides, and what they stay below (cuda.h). */
#define MAP_ALIGN  16
#define STRIDE_END ((int64_t)1 << 40)
/* Bytes of fp16 and bf16. */
#define ELEM_BYTES 2

static bool takes_stride(int64_t elems)
{
	return elems % (MAP_ALIGN / ELEM_BYTES) == 0 &&
	       elems < STRIDE_END / ELEM_BYTES;
}

enum nib_status gemm_check_x(const struct nib_dense *x, struct nib_label label,
			     struct nib_error *err)
{
	const int64_t row = x->rows > 1 ? x->row_stride_elems : 0;
	const int64_t batch = x->batch > 1 ? x->batch_stride_elems : 0;

	if (takes_stride(row) && takes_stride(batch))
		return NIB_OK;
	return nib_fail_at(err, NIB_UNSUPPORTED, label, "",
			   ": row_stride_elems = %lld, batch_stride_elems = "
			   "%lld: must be multiples of 8 below 2^39 on a GPU",
			   (long long)x->row_stride_elems,
			   (long long)x->batch_stride_elems);
}

/* A stride that nothing is read by need only be valid. */
static uint64_t stride_bytes(int64_t elems, int64_t count)
{
	return count > 1 ? (uint64_t)(elems * ELEM_BYTES) : MAP_ALIGN;
}

static enum nib_status encode(const struct cuda_device *device,
			      const struct nib_dense *x, void *data,
			      int64_t matrices, int32_t rows,
			      struct nib_tensor_map *map, struct nib_error *err)
{
	static const uint32_t ones[3] = {1, 1, 1};
	const uint32_t box[3] = {NIB_STEP_K, (uint32_t)rows, 1};
	const uint64_t sizes[3] = {(uint64_t)x->cols, (uint64_t)x->rows,
				   (uint64_t)matrices};
	const uint64_t strides[2] = {
	    stride_bytes(x->row_stride_elems, x->rows),
	    stride_bytes(x->batch_stride_elems, matrices)};
	CUtensorMap encoded;
	CUresult result;

	result = device->driver->cuTensorMapEncodeTiled(
	    &encoded, CU_TENSOR_MAP_DATA_TYPE_UINT16, 3, data, sizes, strides,
	    box, ones, CU_TENSOR_MAP_INTERLEAVE_NONE,
	    CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
	    CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
	if (result)
		return cuda_fail(device->driver, result,
				 "cuTensorMapEncodeTiled", err);
	memcpy(map, &encoded, sizeof(*map));
	return NIB_OK;
}

enum nib_status gemm_encode(const struct cuda_device *device,
			    const struct nib_dense *x, int64_t first,
			    int64_t matrices, struct gemm_maps *maps,
			    struct nib_error *err)
{
	void *const data = nib_dense_at(x, first, 0, 0);
	enum nib_status status = NIB_OK;

	if (maps->address == (uintptr_t)data)
		return NIB_OK;
	maps->address = 0;
	for (int32_t i = 0; i < NIB_A_BOXES && !status; i++)
		status = encode(device, x, data, matrices, NIB_A_BOX_ROWS(i),
				&maps->maps.boxes[i], err);
	if (!status)
		maps->address = (uintptr_t)data;
	return status;
}
