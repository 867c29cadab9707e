/* SPDX-License-Identifier: Apache-2.0 */
/*
 * view.h - what the zeros in a view mean, and where its elements are.
 *
 * A stride of 0 is "dense", a batch of 0 is 1.  Views must be valid
 * (core/view.h): nothing here checks, and no product overflows.
 */
#ifndef NIB_VIEW_H
#define NIB_VIEW_H

#include <stdint.h>
#include <string.h>

#include "format/half.h"
#include "format/scale_layout.h"
#include "nibblas.h"

/* ---- struct nib_fp4 --------------------------------------------------- */

static inline int64_t nib_fp4_batches(const struct nib_fp4 *v)
{
	return v->batch ? v->batch : 1;
}

static inline int64_t nib_fp4_groups(const struct nib_fp4 *v)
{
	return v->k / NIB_NVFP4_BLOCK;
}

static inline int64_t nib_fp4_row_stride_bytes(const struct nib_fp4 *v)
{
	return v->row_stride_bytes ? v->row_stride_bytes : v->k / 2;
}

static inline int64_t nib_fp4_batch_stride_bytes(const struct nib_fp4 *v)
{
	return v->batch_stride_bytes ? v->batch_stride_bytes
				     : v->rows * nib_fp4_row_stride_bytes(v);
}

/* NIB_SCALE_LAYOUT_LINEAR only. */
static inline int64_t nib_fp4_scale_row_stride_bytes(const struct nib_fp4 *v)
{
	return v->scale_row_stride_bytes ? v->scale_row_stride_bytes
					 : nib_fp4_groups(v);
}

static inline int64_t nib_fp4_scale_batch_stride_bytes(const struct nib_fp4 *v)
{
	if (v->scale_batch_stride_bytes)
		return v->scale_batch_stride_bytes;
	if (v->scale_layout == NIB_SCALE_LAYOUT_LINEAR)
		return v->rows * nib_fp4_scale_row_stride_bytes(v);
	return (int64_t)nib_scales_bytes(v->scale_layout, v->rows, v->k);
}

/*
 * data + offset, added as integers: the pointer of an empty view may be NULL, and
 * NULL + 0 is undefined in C17.
 */
static inline uint8_t *nib_offset_bytes(const void *data, int64_t offset)
{
	return (uint8_t *)((uintptr_t)data + (uintptr_t)offset);
}

/* The k/2 bytes of codes of a row. */
static inline uint8_t *nib_fp4_row(const struct nib_fp4 *v, int64_t batch, int64_t row)
{
	return nib_offset_bytes(v->codes, batch * nib_fp4_batch_stride_bytes(v) +
					      row * nib_fp4_row_stride_bytes(v));
}

/* The first scale of a batch. */
static inline uint8_t *nib_fp4_scales(const struct nib_fp4 *v, int64_t batch)
{
	return nib_offset_bytes(v->scales, batch * nib_fp4_scale_batch_stride_bytes(v));
}

/* From nib_fp4_scales() to one scale, in either layout. */
static inline int64_t nib_fp4_scale_offset(const struct nib_fp4 *v, int64_t row,
					   int64_t group)
{
	if (v->scale_layout == NIB_SCALE_LAYOUT_LINEAR)
		return row * nib_fp4_scale_row_stride_bytes(v) + group;
	return nib_scale_offset_tiled(nib_fp4_groups(v), row, group);
}

static inline uint8_t *nib_fp4_scale(const struct nib_fp4 *v, int64_t batch,
				     int64_t row, int64_t group)
{
	return nib_fp4_scales(v, batch) + nib_fp4_scale_offset(v, row, group);
}

/* ---- struct nib_dense --------------------------------------------------- */

static inline int64_t nib_dense_batches(const struct nib_dense *v)
{
	return v->batch ? v->batch : 1;
}

static inline int64_t nib_dense_row_stride_elems(const struct nib_dense *v)
{
	return v->row_stride_elems ? v->row_stride_elems : v->cols;
}

static inline int64_t nib_dense_batch_stride_elems(const struct nib_dense *v)
{
	return v->batch_stride_elems ? v->batch_stride_elems
				     : v->rows * nib_dense_row_stride_elems(v);
}

/* The address of an element; elements may be unaligned. */
static inline void *nib_dense_at(const struct nib_dense *v, int64_t batch, int64_t row,
				 int64_t col)
{
	const int64_t index = batch * nib_dense_batch_stride_elems(v) +
			      row * nib_dense_row_stride_elems(v) + col;

	return nib_offset_bytes(v->data, index * (v->dtype == NIB_DTYPE_FP32 ? 4 : 2));
}

/* An element's bits, in the low 16 or 32. */
static inline uint32_t nib_dense_get_bits(const struct nib_dense *v, int64_t batch,
					  int64_t row, int64_t col)
{
	const void *at = nib_dense_at(v, batch, row, col);
	uint32_t wide;
	uint16_t narrow;

	if (v->dtype == NIB_DTYPE_FP32) {
		memcpy(&wide, at, sizeof(wide));
		return wide;
	}
	memcpy(&narrow, at, sizeof(narrow));
	return narrow;
}

static inline void nib_dense_set_bits(const struct nib_dense *v, int64_t batch,
				      int64_t row, int64_t col, uint32_t bits)
{
	void *at = nib_dense_at(v, batch, row, col);
	const uint16_t narrow = (uint16_t)bits;

	if (v->dtype == NIB_DTYPE_FP32)
		memcpy(at, &bits, sizeof(bits));
	else
		memcpy(at, &narrow, sizeof(narrow));
}

/* An element's value, exact. */
static inline float nib_dense_get(const struct nib_dense *v, int64_t batch, int64_t row,
				  int64_t col)
{
	return nib_dtype_to_fp32(nib_dense_get_bits(v, batch, row, col), v->dtype);
}

#endif
