/* SPDX-License-Identifier: Apache-2.0 */
/* operand.c - see operand.h. */
#include "operand.h"

#include "format/view.h"

/* The largest of 16, 4 and 1 that divides x. */
static int16_t align_of(uint64_t x)
{
	return x % 16 == 0 ? 16 : x % 4 == 0 ? 4 : 1;
}

struct nib_gemv_operand cuda_operand(const struct nib_fp4 *v, int64_t batches)
{
	struct nib_gemv_operand o = {
	    .codes = v->codes,
	    .scales = v->scales,
	    .row_stride = nib_fp4_row_stride_bytes(v),
	    .batch_stride = nib_fp4_batch_stride_bytes(v),
	    .scale_row_stride = nib_fp4_scale_row_stride_bytes(v),
	    .scale_batch_stride = nib_fp4_scale_batch_stride_bytes(v),
	    .is_tiled = v->scale_layout == NIB_SCALE_LAYOUT_TILED_128X4,
	};
	uint64_t codes = (uintptr_t)v->codes, scales = (uintptr_t)v->scales;

	/* A single matrix or row needs no stride. */
	if (nib_fp4_batches(v) == 1)
		o.batch_stride = o.scale_batch_stride = 0;
	if (v->rows > 1)
		codes |= (uint64_t)o.row_stride;
	if (v->rows > 1 && !o.is_tiled)
		scales |= (uint64_t)o.scale_row_stride;
	if (batches > 1) {
		codes |= (uint64_t)o.batch_stride;
		scales |= (uint64_t)o.scale_batch_stride;
	}
	o.codes_align = align_of(codes);
	o.scales_align = align_of(scales);
	return o;
}

struct nib_gemv_operand cuda_dense_operand(const struct nib_dense *x, int64_t batches)
{
	const int64_t size = (int64_t)nib_dtype_bytes(x->dtype);
	struct nib_gemv_operand o = {
	    .codes = x->data,
	    .row_stride = nib_dense_row_stride_elems(x) * size,
	    .batch_stride = batches > 1 ? nib_dense_batch_stride_elems(x) * size : 0,
	    .scales_align = 16,
	};
	uint64_t data = (uintptr_t)x->data | (uint64_t)o.batch_stride;

	if (x->rows > 1)
		data |= (uint64_t)o.row_stride;
	o.codes_align = align_of(data);
	return o;
}

struct nib_gemv_operand cuda_a_operand(const struct nib_problem *p, int64_t batches)
{
	return p->activations == NIB_ACTIVATIONS_DENSE
		   ? cuda_dense_operand(&p->x, batches)
		   : cuda_operand(&p->a, batches);
}

void cuda_skip_matrices(struct nib_gemv_operand *o, int64_t count)
{
	o->codes = nib_offset_bytes(o->codes, count * o->batch_stride);
	o->scales = nib_offset_bytes(o->scales, count * o->scale_batch_stride);
}

bool cuda_are_pieces(const struct nib_gemv_operand *a, const struct nib_gemv_operand *b)
{
	return a->codes_align == 16 && a->scales_align >= 4 && b->codes_align == 16 &&
	       b->scales_align == 16 && b->is_tiled;
}
