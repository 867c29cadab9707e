/* SPDX-License-Identifier: Apache-2.0 */
/*
 * input.h - turns a fuzzer's bytes into sizes, views and buffers.  Sizes are mostly
 * small, sometimes extreme, and sometimes any 64 bits.  Only small views have buffers,
 * which end at the end of the view, so that a read beyond it is found.
 */
#ifndef FUZZ_INPUT_H
#define FUZZ_INPUT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nibblas.h"

/* What one input may allocate for one matrix. */
#define MAX_VIEW_BYTES 16384

/* Wide enough for any product of two sizes. */
__extension__ typedef __int128 wide;

/* Bytes of an input, zero past the end. */
struct input {
	const uint8_t *data;
	size_t left;
};

static inline uint8_t take_u8(struct input *in)
{
	if (in->left == 0)
		return 0;
	in->left--;
	return *in->data++;
}

static inline uint64_t take_u64(struct input *in)
{
	uint64_t value = 0;

	for (int i = 0; i < 8; i++)
		value = value << 8 | take_u8(in);
	return value;
}

/* A size: 0 .. 47 as its byte says, an extreme, or any 64 bits. */
static inline int64_t take_size(struct input *in)
{
	static const int64_t extremes[] = {
	    -1,
	    INT64_MIN,
	    INT64_MAX,
	    INT64_MAX - 15,
	    INT32_MAX,
	    INT64_C(1) << 31,
	    INT64_C(1) << 32,
	    INT64_C(1) << 59,
	    INT64_C(1) << 62,
	    NIB_MAX_K,
	    NIB_MAX_K + 16,
	    NIB_MAX_K - 16,
	    127,
	    128,
	    129,
	};
	uint8_t byte = take_u8(in);

	if (byte < 240)
		return byte % 48;
	if (byte < 255)
		return extremes[byte - 240];
	return (int64_t)take_u64(in);
}

/* 0 (dense) three times in four, else a few of dense and a bit, or any size.
 */
static inline int64_t take_stride(struct input *in, int64_t dense)
{
	uint8_t byte = take_u8(in);

	if (byte < 192)
		return 0;
	if (byte < 248 && dense >= 0 && dense < MAX_VIEW_BYTES)
		return dense * (1 + byte / 8 % 4) + byte % 8;
	return take_size(in);
}

static inline enum nib_scale_layout take_layout(struct input *in)
{
	uint8_t byte = take_u8(in);

	return byte < 250 ? (enum nib_scale_layout)(byte % 2)
			  : (enum nib_scale_layout)byte;
}

static inline enum nib_dtype take_dtype(struct input *in)
{
	uint8_t byte = take_u8(in);

	return byte < 250 ? (enum nib_dtype)(byte % 3) : (enum nib_dtype)byte;
}

/* Strides of a [rows, k] view whose sizes are set. */
static inline void take_nvfp4_strides(struct input *in, struct nib_fp4 *v)
{
	v->scale_layout = take_layout(in);
	v->row_stride_bytes = take_stride(in, v->k / 2);
	v->batch_stride_bytes = take_stride(in, v->k / 2);
	v->scale_row_stride_bytes = take_stride(in, v->k / NIB_NVFP4_BLOCK);
	v->scale_batch_stride_bytes = take_stride(in, v->k / NIB_NVFP4_BLOCK);
}

static inline void take_dense_strides(struct input *in, struct nib_dense *d)
{
	d->dtype = take_dtype(in);
	d->row_stride_elems = take_stride(in, d->cols);
	d->batch_stride_elems = take_stride(in, d->cols);
}

/*
 * From the first to past the last unit of `batch` x `rows` x `width` units, 0
 * strides dense; -1 if that is more than MAX_VIEW_BYTES or makes no sense.
 */
static inline int64_t extent(int64_t batch, int64_t batch_stride, int64_t rows,
			     int64_t row_stride, int64_t width)
{
	wide matrix, all;

	batch = batch ? batch : 1;
	if (batch < 0 || rows < 0 || width < 0 || row_stride < 0 || batch_stride < 0)
		return -1;
	if (rows == 0 || width == 0)
		return 0;
	row_stride = row_stride ? row_stride : width;
	matrix = (wide)row_stride * (rows - 1) + width;
	if (batch_stride == 0) {
		/* Dense: the product of three sizes could overflow. */
		if (batch > 1 && (wide)row_stride * rows > MAX_VIEW_BYTES)
			return -1;
		batch_stride = batch > 1 ? row_stride * rows : 0;
	}
	all = (wide)batch_stride * (batch - 1) + matrix;
	return all > MAX_VIEW_BYTES ? -1 : (int64_t)all;
}

static inline int64_t codes_extent(const struct nib_fp4 *v)
{
	return extent(v->batch, v->batch_stride_bytes, v->rows, v->row_stride_bytes,
		      v->k / 2);
}

/* scale_rows: rows of the scale tensor, which a mixture of experts may pad. */
static inline int64_t scales_extent(const struct nib_fp4 *v, int64_t scale_rows)
{
	size_t one;

	if (v->scale_layout == NIB_SCALE_LAYOUT_LINEAR)
		return extent(v->batch, v->scale_batch_stride_bytes, scale_rows,
			      v->scale_row_stride_bytes, v->k / NIB_NVFP4_BLOCK);
	one = nib_scales_bytes(v->scale_layout, scale_rows, v->k);
	if (one > MAX_VIEW_BYTES)
		return -1;
	return extent(v->batch, v->scale_batch_stride_bytes, 1, 0, (int64_t)one);
}

static inline int64_t dense_extent(const struct nib_dense *d)
{
	int64_t elems = extent(d->batch, d->batch_stride_elems, d->rows,
			       d->row_stride_elems, d->cols);
	int64_t bytes = (int64_t)nib_dtype_bytes(d->dtype);

	return elems < 0 || elems * bytes > MAX_VIEW_BYTES ? -1 : elems * bytes;
}

/*
 * A buffer of n_bytes that the next input bytes fill, repeated; NULL for -1.
 * The caller frees it.
 */
static inline void *take_buffer(struct input *in, int64_t n_bytes)
{
	size_t period = 1 + take_u8(in) % 64u;
	uint8_t *buffer;

	if (n_bytes < 0)
		return NULL;
	buffer = malloc(n_bytes ? (size_t)n_bytes : 1);
	if (!buffer)
		abort();
	for (size_t i = 0; i < (size_t)n_bytes; i++)
		buffer[i] = i < period ? take_u8(in) : buffer[i - period];
	return buffer;
}

/* Gives v buffers if they are small: true if it did. */
static inline bool fill_nvfp4(struct input *in, struct nib_fp4 *v, int64_t scale_rows)
{
	int64_t scales = scales_extent(v, scale_rows);

	v->codes = take_buffer(in, codes_extent(v));
	v->scales = take_buffer(in, scales);
	/* NaN stays; a sign bit is an error, which one input in eight tries. */
	if (v->scales && take_u8(in) < 224)
		for (int64_t i = 0; i < scales; i++)
			((uint8_t *)v->scales)[i] &= 0x7f;
	return v->codes && v->scales;
}

static inline bool fill_dense(struct input *in, struct nib_dense *d)
{
	d->data = take_buffer(in, dense_extent(d));
	return d->data != NULL;
}

static inline void free_nvfp4(struct nib_fp4 *v)
{
	free(v->codes);
	free(v->scales);
}

/* Tasks one after the other: a fuzzer's process has one thread. */
static inline void serial_for(void *pool, int tasks, void (*task)(void *arg, int i),
			      void *arg)
{
	(void)pool;
	for (int i = 0; i < tasks; i++)
		task(arg, i);
}

/* The device of the instruction set that a byte names; the widest are the best
 * here when this machine lacks them.  Opened once, never closed. */
static inline struct nib_device *take_device(struct input *in)
{
	static const char *const isas[] = {"scalar", "avx2", "avx512bw", "avx512vnni",
					   "avxvnni"};
	static struct nib_device *devices[5];
	int i = take_u8(in) % 5;
	struct nib_device_options options = {
	    .struct_bytes = sizeof(options),
	    .threads = 3,
	    .parallel_for = serial_for,
	    .isa = isas[i],
	};

	if (!devices[i] && nib_device_open("cpu", &options, &devices[i], NULL)) {
		options.isa = NULL;
		if (nib_device_open("cpu", &options, &devices[i], NULL))
			abort();
	}
	return devices[i];
}

/* Stops the fuzzer: a call gave what it must not. */
static inline void broken(const char *what, const struct nib_error *err)
{
	fprintf(stderr, "%s: %s\n", what, err->message);
	abort();
}

/* A failure must say which and why. */
static inline void expect_message(enum nib_status status, const struct nib_error *err)
{
	if (status != NIB_STATUS_OK &&
	    (err->status != status || err->message[0] == '\0' ||
	     !memchr(err->message, '\0', sizeof(err->message))))
		broken("failed without a message", err);
}

#endif
