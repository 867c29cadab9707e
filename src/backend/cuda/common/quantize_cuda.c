/* SPDX-License-Identifier: Apache-2.0 */
/*
 * quantize_cuda.c - quantise, amax, dequantise and scale layouts on a GPU.  Checks that
 * pointers are memory of the device, fills the kernels' parameters, launches, and reads
 * back results that the call must report.
 */
#include <math.h>

#include "backend/cuda/kernels/common/quantize_params.h"
#include "core/error.h"
#include "cuda.h"
#include "format/quantize_ref.h"
#include "format/view.h"
#include "views.h"

/* More CTAs than this for each SM would only wait. */
#define BLOCKS_PER_SM 8

/* One call: its stream, and the memory for the kernels' findings (or 0). */
struct call {
	struct cuda_device *device;
	CUstream stream;
	CUdeviceptr found;
	bool is_pooled; /* found is from the GPU's pool, in stream order */
};

static enum nib_status fail_call(const struct call *call, CUresult result,
				 struct nib_error *err)
{
	return cuda_fail(call->device->driver, result, call->device->name, err);
}

static enum nib_status begin(struct call *call, struct nib_device *device, void *stream,
			     struct nib_error *err)
{
	*call =
	    (struct call){.device = cuda_device(device), .stream = (CUstream)stream};
	return cuda_enter(call->device, err);
}

/*
 * Allocates in stream order, so that a call that reports nothing need not wait.  Some
 * virtual GPUs have no pools; end() waits there.
 */
static enum nib_status new_found(struct call *call, struct nib_error *err)
{
	const struct cuda_driver *cu = call->device->driver;
	const size_t bytes = sizeof(struct nib_quantize_found);
	CUresult result;

	result = cu->cuMemAllocAsync(&call->found, bytes, call->stream);
	call->is_pooled = !result;
	if (result == CUDA_ERROR_NOT_SUPPORTED)
		result = cuda_memory_alloc(cu, &call->found, bytes);
	if (!result)
		result = cu->cuMemsetD8Async(call->found, 0, bytes, call->stream);
	return result ? fail_call(call, result, err) : NIB_STATUS_OK;
}

/* Waits for what was found. */
static enum nib_status read_back(const struct call *call, void *to, const void *from,
				 size_t bytes, struct nib_error *err)
{
	const struct cuda_driver *cu = call->device->driver;
	CUresult result;

	result = cu->cuMemcpyAsync((CUdeviceptr)(uintptr_t)to,
				   (CUdeviceptr)(uintptr_t)from, bytes, call->stream);
	if (!result)
		result = cu->cuStreamSynchronize(call->stream);
	return result ? fail_call(call, result, err) : NIB_STATUS_OK;
}

static enum nib_status read_found(const struct call *call,
				  struct nib_quantize_found *found,
				  struct nib_error *err)
{
	return read_back(call, found, (void *)(uintptr_t)call->found, sizeof(*found),
			 err);
}

static void end(struct call *call)
{
	const struct cuda_driver *cu = call->device->driver;

	if (call->found && call->is_pooled) {
		(void)cu->cuMemFreeAsync(call->found, call->stream);
	} else if (call->found) {
		(void)cu->cuStreamSynchronize(call->stream);
		(void)cuda_memory_free(cu, call->found);
	}
	cuda_leave(call->device);
}

/* Starts a thread for each unit; threads loop if the units are very many. */
static enum nib_status launch(const struct call *call, const char *name, int64_t units,
			      void *params, struct nib_error *err)
{
	const int64_t most = (int64_t)call->device->multiprocessors * BLOCKS_PER_SM;
	const int64_t blocks =
	    units / NIB_QUANTIZE_THREADS + (units % NIB_QUANTIZE_THREADS != 0);
	CUlaunchConfig config = {0};
	CUfunction function;
	enum nib_status status;

	if (units == 0)
		return NIB_STATUS_OK;
	status = cuda_kernel(call->device, name, 0, &function, err);
	if (status)
		return status;
	config.gridDimX = (unsigned)(blocks < most ? blocks : most);
	config.blockDimX = NIB_QUANTIZE_THREADS;
	config.hStream = call->stream;
	return cuda_launch(call->device, function, config, &params, err);
}

/* ---- views as the kernels see them --------------------------------------- */

struct nib_quantize_dense cuda_view_dense(const struct nib_dense *v)
{
	const int64_t bytes = (int64_t)nib_dtype_bytes(v->dtype);
	struct nib_quantize_dense d = {
	    .data = v->data,
	    .rows = v->rows,
	    .cols = v->cols,
	    .batch = nib_dense_batches(v),
	    .row_stride = nib_dense_row_stride_elems(v),
	    .batch_stride = nib_dense_batch_stride_elems(v),
	    .dtype = (int32_t)v->dtype,
	};

	d.is_aligned = (d.rows <= 1 || d.row_stride * bytes % CUDA_ALIGN == 0) &&
		       (d.batch <= 1 || d.batch_stride * bytes % CUDA_ALIGN == 0);
	return d;
}

struct nib_quantize_nvfp4 cuda_view_nvfp4(const struct nib_fp4 *v)
{
	struct nib_quantize_nvfp4 q = {
	    .codes = v->codes,
	    .scales = v->scales,
	    .rows = v->rows,
	    .groups = nib_fp4_groups(v),
	    .batch = nib_fp4_batches(v),
	    .row_stride = nib_fp4_row_stride_bytes(v),
	    .batch_stride = nib_fp4_batch_stride_bytes(v),
	    .scale_row_stride = nib_fp4_scale_row_stride_bytes(v),
	    .scale_batch_stride = nib_fp4_scale_batch_stride_bytes(v),
	    .scale_bytes = (int64_t)nib_scales_bytes(v->scale_layout, v->rows, v->k),
	    .is_tiled = v->scale_layout == NIB_SCALE_LAYOUT_TILED_128X4,
	};

	q.tile_columns = (q.groups + NIB_SCALE_TILE_GROUPS - 1) / NIB_SCALE_TILE_GROUPS;
	q.is_aligned = (q.rows <= 1 || q.row_stride % 8 == 0) &&
		       (q.batch <= 1 || q.batch_stride % 8 == 0);
	return q;
}

/* An empty matrix has no units: products with its batch could overflow. */
static int64_t scale_units(const struct nib_quantize_nvfp4 *q)
{
	return q->scale_bytes ? q->scale_bytes * q->batch : 0;
}

/* ---- amax ---------------------------------------------------------------- */

/* Reads the value back for the message. */
static enum nib_status fail_bad(const struct call *call, const struct nib_dense *x,
				const struct nib_quantize_found *found,
				struct nib_error *err)
{
	const int64_t index = (int64_t)~found->first_bad;
	const int64_t col = index % x->cols;
	const int64_t row = index / x->cols % x->rows;
	const int64_t batch = index / x->cols / x->rows;
	uint32_t bits = 0;
	enum nib_status status;

	status = read_back(call, &bits, nib_dense_at(x, batch, row, col),
			   nib_dtype_bytes(x->dtype), err);
	if (status)
		return status;
	return nib_fail_argument(
	    err, NIB_STATUS_BAD_DATA, "x",
	    "[batch %lld, row %lld, col %lld] = %s: must be finite", (long long)batch,
	    (long long)row, (long long)col,
	    isnan(nib_dtype_to_fp32(bits, x->dtype)) ? "nan" : "inf");
}

static enum nib_status launch_amax(const struct call *call, const struct nib_dense *x,
				   bool saturate, struct nib_error *err)
{
	struct nib_amax_params p = {
	    .x = cuda_view_dense(x),
	    .found = (void *)(uintptr_t)call->found,
	    .saturate = saturate,
	};
	struct nib_quantize_dense *d = &p.x;

	if (d->rows == 0 || d->cols == 0)
		return NIB_STATUS_OK;
	/* Rows without gaps are one long row. */
	if (d->row_stride == d->cols) {
		d->cols *= d->rows;
		d->rows = 1;
	}
	return launch(call, "nib_amax",
		      (d->cols + NIB_NVFP4_BLOCK - 1) / NIB_NVFP4_BLOCK * d->rows *
			  d->batch,
		      &p, err);
}

enum nib_status cuda_amax(struct nib_device *device, const struct nib_dense *x,
			  bool saturate, void *stream, float *amax,
			  struct nib_error *err)
{
	struct nib_quantize_found found = {0};
	struct call call;
	enum nib_status status = begin(&call, device, stream, err);

	if (status)
		return status;
	status = cuda_check_dense(call.device, x, nib_label("x"), err);
	if (!status)
		status = new_found(&call, err);
	if (!status)
		status = launch_amax(&call, x, saturate, err);
	if (!status)
		status = read_found(&call, &found, err);
	if (!status && found.first_bad)
		status = fail_bad(&call, x, &found, err);
	if (!status)
		*amax = nib_fp32_from_bits(found.amax);
	end(&call);
	return status;
}

/* ---- quantise ------------------------------------------------------------ */

/* That options.NAME is count floats of the device; NULL is none. */
static enum nib_status check_floats(const struct call *call, const float *floats,
				    int64_t count, const char *name,
				    struct nib_error *err)
{
	const uintptr_t begin = (uintptr_t)floats;
	const struct nib_span span = {
	    begin, begin ? begin + sizeof(*floats) * (uintptr_t)count : 0};

	return cuda_check_span(call->device, span, sizeof(*floats),
			       nib_label("options"), name, err);
}

static enum nib_status check_quantize(const struct call *call,
				      const struct nib_dense *x,
				      const struct nib_fp4 *q,
				      const struct nib_quantize_options *options,
				      struct nib_error *err)
{
	enum nib_status status;

	status = cuda_check_dense(call->device, x, nib_label("x"), err);
	if (!status)
		status = cuda_check_nvfp4(call->device, q, nib_label("q"), err);
	if (!status)
		status = check_floats(call, options->global_pointer, 1,
				      "global_pointer", err);
	if (!status)
		status = check_floats(call, options->column_weights, x->cols,
				      "column_weights", err);
	return status;
}

static enum nib_status launch_quantize(const struct call *call,
				       const struct nib_dense *x,
				       const struct nib_fp4 *q,
				       const struct nib_quantize_options *options,
				       bool global_of_amax, struct nib_error *err)
{
	struct nib_quantize_params p = {
	    .x = cuda_view_dense(x),
	    .q = cuda_view_nvfp4(q),
	    .global_pointer = options->global_pointer,
	    .global = options->global,
	    .largest = nib_largest(options->scales),
	    .global_of_amax = global_of_amax,
	    .found = (void *)(uintptr_t)call->found,
	    .zero_scale = nib_scale_ref(0, 1, options->zero_scale),
	    .saturate = options->saturate != 0,
	    .weights = options->column_weights,
	    .is_mse = options->scales == NIB_SCALES_MSE,
	};
	const char *name =
	    options->scales == NIB_SCALES_AMAX ? "nib_quantize" : "nib_quantize_search";

	return launch(call, name, scale_units(&p.q), &p, err);
}

/* Waits for the kernels and reports what they found. */
static enum nib_status report(const struct call *call, const struct nib_dense *x,
			      const struct nib_quantize_options *options,
			      float *global_used, struct nib_error *err)
{
	struct nib_quantize_found found;
	enum nib_status status = read_found(call, &found, err);

	if (status)
		return status;
	if (found.first_bad)
		return fail_bad(call, x, &found, err);
	if (global_used)
		*global_used = nib_fp32_bits(options->global)
				   ? options->global
				   : nib_global_ref(nib_fp32_from_bits(found.amax),
						    options->scales);
	return NIB_STATUS_OK;
}

enum nib_status cuda_quantize(struct nib_device *device, const struct nib_dense *x,
			      const struct nib_fp4 *q,
			      const struct nib_quantize_options *options,
			      float *global_used, struct nib_error *err)
{
	const bool saturate = options->saturate != 0;
	/* Compared as bits: a subnormal is not 0, whatever the caller's floating-point
	 * mode. */
	const bool of_amax =
	    !options->global_pointer && nib_fp32_bits(options->global) == 0;
	const bool waits = !saturate || global_used;
	struct call call;
	enum nib_status status;

	status = begin(&call, device, options->stream, err);
	if (status)
		return status;
	status = check_quantize(&call, x, q, options, err);
	if (!status && (waits || of_amax))
		status = new_found(&call, err);
	if (!status && of_amax)
		status = launch_amax(&call, x, saturate, err);
	if (!status)
		status = launch_quantize(&call, x, q, options, of_amax, err);
	if (!status && waits)
		status = report(&call, x, options, global_used, err);
	end(&call);
	return status;
}

/* ---- dequantise, scale layouts ------------------------------------------- */

enum nib_status cuda_dequantize(struct nib_device *device, const struct nib_fp4 *q,
				float global, const struct nib_dense *y,
				const struct nib_dequantize_options *options,
				struct nib_error *err)
{
	struct nib_dequantize_params p = {cuda_view_nvfp4(q), cuda_view_dense(y),
					  options->global_pointer, global};
	struct call call;
	enum nib_status status = begin(&call, device, options->stream, err);

	if (status)
		return status;
	status = cuda_check_nvfp4(call.device, q, nib_label("q"), err);
	if (!status)
		status = cuda_check_dense(call.device, y, nib_label("y"), err);
	if (!status)
		status = check_floats(&call, options->global_pointer, 1,
				      "global_pointer", err);
	if (!status)
		status = launch(&call, "nib_dequantize", scale_units(&p.q), &p, err);
	end(&call);
	return status;
}

enum nib_status cuda_convert_scales(struct nib_device *device,
				    const struct nib_fp4 *from,
				    const struct nib_fp4 *to, void *stream,
				    struct nib_error *err)
{
	struct nib_convert_params p = {cuda_view_nvfp4(from), cuda_view_nvfp4(to)};
	struct call call;
	enum nib_status status = begin(&call, device, stream, err);

	if (status)
		return status;
	status = cuda_check_scales(call.device, from, nib_label("from"), err);
	if (!status)
		status = cuda_check_scales(call.device, to, nib_label("to"), err);
	if (!status)
		status =
		    launch(&call, "nib_convert_scales", scale_units(&p.to), &p, err);
	end(&call);
	return status;
}

/* ---- experts' rows ------------------------------------------------------- */

static enum nib_status check_words(const struct call *call, const int32_t *words,
				   int64_t count, const char *name,
				   struct nib_error *err)
{
	const uintptr_t begin = (uintptr_t)words;
	const struct nib_span span = {
	    begin, begin ? begin + sizeof(*words) * (uintptr_t)count : 0};

	return cuda_check_span(call->device, span, sizeof(*words), nib_label(name), "",
			       err);
}

enum nib_status cuda_expert_rows(struct nib_device *device, const int32_t *ends,
				 int64_t experts, int32_t *row_offsets,
				 int32_t *scale_rows, void *stream,
				 struct nib_error *err)
{
	struct nib_expert_rows_params p = {ends, experts, row_offsets, scale_rows};
	struct call call;
	enum nib_status status = begin(&call, device, stream, err);

	if (status)
		return status;
	status = check_words(&call, ends, experts, "ends", err);
	if (!status)
		status =
		    check_words(&call, row_offsets, experts + 1, "row_offsets", err);
	if (!status)
		status = check_words(&call, scale_rows, experts, "scale_rows", err);
	if (!status)
		status = launch(&call, "nib_expert_rows", 1, &p, err);
	end(&call);
	return status;
}
