/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_quantize.c - quantises, dequantises, computes amax and converts scale layouts of
 * any sizes, strides, layouts and values.  Both scale layouts must dequantise to the
 * same bits.
 */
#include <math.h>

#include "input.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

static void take_views(struct input *in, struct nib_dense *x, struct nib_fp4 *q)
{
	x->rows = take_size(in);
	x->cols = take_u8(in) < 240 ? take_u8(in) % 8 * NIB_NVFP4_BLOCK : take_size(in);
	x->batch = take_u8(in) < 240 ? take_u8(in) % 4 : take_size(in);
	take_dense_strides(in, x);
	q->rows = take_u8(in) < 240 ? x->rows : take_size(in);
	q->k = take_u8(in) < 240 ? x->cols : take_size(in);
	q->batch = take_u8(in) < 240 ? x->batch : take_size(in);
	take_nvfp4_strides(in, q);
}

/* q's sizes in the other layout, dense, with buffers. */
static bool other_layout(struct input *in, const struct nib_fp4 *q,
			 struct nib_fp4 *other)
{
	*other = (struct nib_fp4){
	    .rows = q->rows,
	    .k = q->k,
	    .batch = q->batch,
	    .scale_layout = q->scale_layout == NIB_SCALE_LAYOUT_LINEAR
				? NIB_SCALE_LAYOUT_TILED_128X4
				: NIB_SCALE_LAYOUT_LINEAR,
	};
	return fill_nvfp4(in, other, other->rows);
}

/* Dequantises q as fp32 into a dense buffer of n values. */
static float *dequantize(struct nib_device *device, const struct nib_fp4 *q,
			 float global, size_t n)
{
	struct nib_error err = {0};
	struct nib_dense y = {
	    .data = calloc(n ? n : 1, sizeof(float)),
	    .dtype = NIB_DTYPE_FP32,
	    .rows = q->rows,
	    .cols = q->k,
	    .batch = q->batch,
	};

	if (!y.data)
		abort();
	if (nib_dequantize(device, q, global, &y, NULL, &err))
		broken("quantised, but not dequantised", &err);
	return y.data;
}

static void round_trip(struct input *in, struct nib_device *device,
		       const struct nib_fp4 *q, float global)
{
	size_t n = (size_t)(q->rows * q->k * (q->batch ? q->batch : 1));
	struct nib_fp4 other;
	struct nib_error err = {0};

	if (other_layout(in, q, &other)) {
		void *codes = other.codes;
		float *one, *two;

		if (nib_convert_scales(device, q, &other, NULL, &err))
			broken("quantised, but not converted", &err);
		one = dequantize(device, q, global, n);
		other.codes = q->codes;
		other.row_stride_bytes = q->row_stride_bytes;
		other.batch_stride_bytes = q->batch_stride_bytes;
		two = dequantize(device, &other, global, n);
		if (memcmp(one, two, n * sizeof(float)) != 0)
			broken("layouts disagree", &err);
		other.codes = codes;
		free(one);
		free(two);
	}
	free_nvfp4(&other);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
	static const float globals[] = {0,  1,	      0x1p-140f, 0x1p100f,
					-1, INFINITY, NAN,	 0.01f};
	struct input in = {data, n_bytes};
	struct nib_device *device = take_device(&in);
	struct nib_quantize_options options = {
	    .struct_bytes = sizeof(options),
	    .zero_scale = (enum nib_zero_scale)(take_u8(&in) % 4),
	    .global = globals[take_u8(&in) % 8],
	    .saturate = take_u8(&in) % 2,
	    .scales = (enum nib_scales)(take_u8(&in) % 4),
	};
	struct nib_dense x = {0};
	struct nib_fp4 q = {0};
	struct nib_error err = {0};
	float amax = 0, global = 0;
	enum nib_status status;
	bool is_small;

	take_views(&in, &x, &q);
	is_small = fill_dense(&in, &x);
	is_small = fill_nvfp4(&in, &q, q.rows) && is_small;

	/* As they come: arbitrary codes and scales, or views that must fail. */
	status = nib_dequantize(device, &q, options.global, &x, NULL, &err);
	expect_message(status, &err);
	status = nib_amax(device, &x, options.saturate, NULL, &amax, &err);
	expect_message(status, &err);
	if (status == NIB_STATUS_OK && !(amax >= 0 && isfinite(amax)))
		broken("amax is not a finite magnitude", &err);
	status = nib_quantize(device, &x, &q, &options, &global, &err);
	expect_message(status, &err);
	if (status == NIB_STATUS_OK && is_small)
		round_trip(&in, device, &q, global);
	free(x.data);
	free_nvfp4(&q);
	return 0;
}
