/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pack.c - packs weights on a GPU.  The codes are dense, with rows aligned for the
 * architecture's kernels; they are copied, or stay the caller's.  The scales are copied
 * into tiles of 128 x 4, which the kernels load in whole lines.
 */
#include <stdlib.h>

#include "arch.h"
#include "core/error.h"
#include "format/view.h"
#include "pack.h"

/* The alignment of shared codes: a line of the L2. */
#define SHARED_ALIGN 128

/* Refuses a sign bit in any of the scales, which are dense and padded with zeros. */
static enum nib_status check_signs(const struct cuda_device *device,
				   const struct nib_fp4 *v, size_t bytes,
				   struct nib_error *err)
{
	const struct cuda_driver *cu = device->driver;
	uint8_t *scales = malloc(bytes ? bytes : 1);
	uint8_t signs = 0;
	CUresult result;

	if (!scales)
		return nib_fail(err, NIB_STATUS_OUT_OF_MEMORY,
				"no memory for the scales (%zu bytes)", bytes);
	result = cu->cuMemcpy((CUdeviceptr)(uintptr_t)scales,
			      (CUdeviceptr)(uintptr_t)v->scales, bytes);
	for (size_t i = 0; i < bytes && !result; i++)
		signs |= scales[i];
	free(scales);
	if (result)
		return cuda_fail(cu, result, device->name, err);
	if (signs & 0x80)
		return nib_fail_argument(err, NIB_STATUS_BAD_DATA, "b.scales",
					 ": a scale has its sign bit set: scales are "
					 "not negative");
	return NIB_STATUS_OK;
}

/* Copies dense rows at once, others row by row. */
static CUresult copy_codes(const struct cuda_driver *cu, const struct nib_fp4 *from,
			   const struct nib_fp4 *to, CUstream stream)
{
	const size_t row_bytes = (size_t)from->k / 2;
	const bool dense =
	    nib_fp4_row_stride_bytes(from) == from->k / 2 &&
	    nib_fp4_row_stride_bytes(to) == from->k / 2 &&
	    nib_fp4_batch_stride_bytes(from) == from->rows * (from->k / 2) &&
	    nib_fp4_batch_stride_bytes(to) == from->rows * (from->k / 2);
	CUresult result = CUDA_SUCCESS;

	if (dense)
		return cu->cuMemcpyAsync((CUdeviceptr)(uintptr_t)to->codes,
					 (CUdeviceptr)(uintptr_t)from->codes,
					 row_bytes * (size_t)from->rows *
					     (size_t)nib_fp4_batches(from),
					 stream);
	for (int64_t l = 0; l < nib_fp4_batches(from); l++)
		for (int64_t r = 0; r < from->rows && !result; r++)
			result = cu->cuMemcpyAsync(
			    (CUdeviceptr)(uintptr_t)nib_fp4_row(to, l, r),
			    (CUdeviceptr)(uintptr_t)nib_fp4_row(from, l, r), row_bytes,
			    stream);
	return result;
}

static enum nib_status fill(struct cuda_packed *p, const struct nib_fp4 *b,
			    void *stream, struct nib_error *err)
{
	struct cuda_device *device = cuda_device(p->base.device);
	const struct cuda_driver *cu = device->driver;
	const size_t scale_bytes =
	    (size_t)p->view.scale_batch_stride_bytes * (size_t)p->base.batch;
	enum nib_status status;
	CUresult result = CUDA_SUCCESS;

	if (p->base.bytes == 0)
		return NIB_STATUS_OK;
	status = cuda_convert_scales(&device->base, b, &p->view, stream, err);
	if (status)
		return status;
	status = cuda_enter(device, err);
	if (status)
		return status;
	if (!p->shares_codes)
		result = copy_codes(cu, b, &p->view, stream);
	if (!result)
		result = cu->cuStreamSynchronize(stream);
	if (result)
		status = cuda_fail(cu, result, device->name, err);
	else
		status = check_signs(device, &p->view, scale_bytes, err);
	cuda_leave(device);
	return status;
}

/* Bytes of a row of the copied codes. */
static int64_t copied_row_bytes(const struct nib_device *device, int64_t k)
{
	const int64_t align = cuda_device(device)->arch->row_align;

	return divide_up(k / 2, align) * align;
}

/* Whether these codes have the layout and alignment of a packed copy. */
bool cuda_pack_shares(const struct nib_device *device, const struct nib_fp4 *b)
{
	const int64_t batch_stride = nib_fp4_batch_stride_bytes(b);

	return b->k % 32 == 0 &&
	       nib_fp4_row_stride_bytes(b) == copied_row_bytes(device, b->k) &&
	       (uintptr_t)b->codes % SHARED_ALIGN == 0 &&
	       (nib_fp4_batches(b) == 1 || batch_stride % SHARED_ALIGN == 0);
}

/* Sets the sizes and strides of the packed copy, and its bytes. */
static void make_view(const struct nib_fp4 *b, bool shares_codes, struct cuda_packed *p)
{
	const int64_t row = copied_row_bytes(p->base.device, b->k);
	const size_t scales =
	    nib_scales_bytes(NIB_SCALE_LAYOUT_TILED_128X4, b->rows, b->k);
	size_t codes = (size_t)b->rows * (size_t)row;

	p->view = (struct nib_fp4){
	    .rows = b->rows,
	    .k = b->k,
	    .batch = nib_fp4_batches(b),
	    .row_stride_bytes = row,
	    .batch_stride_bytes = b->rows * row,
	    .scale_layout = NIB_SCALE_LAYOUT_TILED_128X4,
	    .scale_batch_stride_bytes = (int64_t)scales,
	};
	p->shares_codes = shares_codes && cuda_pack_shares(p->base.device, b);
	if (p->shares_codes) {
		p->view.codes = b->codes;
		codes = 0;
	}
	if (p->shares_codes && p->view.batch > 1)
		p->view.batch_stride_bytes = nib_fp4_batch_stride_bytes(b);
	p->base.batch_stride_bytes = p->view.batch_stride_bytes;
	p->base.rows = b->rows;
	p->base.k = b->k;
	p->base.batch = nib_fp4_batches(b);
	/*
	 * A multiple of 16 bytes: compute-sanitizer treats a cp.async of fewer bytes as
	 * one of 16.
	 */
	p->base.bytes = ((size_t)p->base.batch * (codes + scales) + 15) & ~(size_t)15;
}

enum nib_status cuda_pack(struct nib_device *base, const struct nib_fp4 *b,
			  bool shares_codes, void *stream, struct nib_packed **packed,
			  struct nib_error *err)
{
	struct cuda_packed *p = calloc(1, sizeof(*p));
	void *data = NULL;
	enum nib_status status = NIB_STATUS_OK;

	if (!p)
		return nib_fail(err, NIB_STATUS_OUT_OF_MEMORY,
				"no memory for packed weights");
	p->base.device = base;
	make_view(b, shares_codes, p);
	if (p->base.bytes)
		status = cuda_alloc(base, p->base.bytes, &data, err);
	p->data = (CUdeviceptr)(uintptr_t)data;
	p->view.scales = data;
	/* Scales first: tiles of 512 bytes keep the codes aligned. */
	if (!p->shares_codes)
		p->view.codes = nib_offset_bytes(
		    data, p->view.scale_batch_stride_bytes * p->base.batch);
	if (!status)
		status = fill(p, b, stream, err);
	if (status) {
		cuda_packed_free(&p->base);
		return status;
	}
	*packed = &p->base;
	return NIB_STATUS_OK;
}

enum nib_status cuda_packed_update(struct nib_packed *packed, const struct nib_fp4 *b,
				   void *stream, struct nib_error *err)
{
	struct cuda_packed *p = (struct cuda_packed *)packed;

	if (p->shares_codes &&
	    (b->codes != p->view.codes ||
	     nib_fp4_row_stride_bytes(b) != p->view.row_stride_bytes ||
	     (p->base.batch > 1 &&
	      nib_fp4_batch_stride_bytes(b) != p->view.batch_stride_bytes)))
		return nib_fail_argument(err, NIB_STATUS_BAD_ARGUMENT, "b.codes",
					 " = %p: must be the codes %p that "
					 "packed shares, with their strides",
					 b->codes, p->view.codes);
	return fill(p, b, stream, err);
}

enum nib_status cuda_unpack(const struct nib_packed *packed, const struct nib_fp4 *to,
			    void *stream, struct nib_error *err)
{
	const struct cuda_packed *p = (const struct cuda_packed *)packed;
	struct cuda_device *device = cuda_device(packed->device);
	const struct cuda_driver *cu = device->driver;
	enum nib_status status;
	CUresult result;

	if (packed->bytes == 0)
		return NIB_STATUS_OK;
	status = nib_check_apart(nib_codes_span(to), "to.codes",
				 nib_codes_span(&p->view), "packed's codes", err);
	if (!status)
		status =
		    nib_check_apart(nib_scale_span(to), "to.scales",
				    nib_codes_span(&p->view), "packed's codes", err);
	if (!status)
		status = cuda_enter(device, err);
	if (status)
		return status;
	status = cuda_check_nvfp4(device, to, nib_label("to"), err);
	cuda_leave(device);
	if (!status)
		status = cuda_convert_scales(packed->device, &p->view, to, stream, err);
	if (!status)
		status = cuda_enter(device, err);
	if (status)
		return status;
	result = copy_codes(cu, &p->view, to, stream);
	if (!result)
		result = cu->cuStreamSynchronize(stream);
	if (result)
		status = cuda_fail(cu, result, device->name, err);
	cuda_leave(device);
	return status;
}

void cuda_packed_free(struct nib_packed *packed)
{
	struct cuda_packed *p = (struct cuda_packed *)packed;

	if (p->data)
		cuda_free(packed->device, (void *)(uintptr_t)p->data);
	free(p);
}
