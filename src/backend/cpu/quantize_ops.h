/* SPDX-License-Identifier: Apache-2.0 */
/*
 * quantize_ops.h - the inner loops of quantise, dequantise, amax and scale
 * layouts: one contiguous run each, no strides, batches, threads or errors
 * (quantize.c).  No pointer need be aligned, nothing beyond the run is touched,
 * and every instruction set gives the same bytes.
 *
 * The tables below, made once a call, define the meaning of scale bytes and codes; the
 * loops only look up.
 */
#ifndef NIB_CPU_QUANTIZE_OPS_H
#define NIB_CPU_QUANTIZE_OPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "nibblas.h"

#define CPU_DTYPES 3 /* enum nib_dtype indexes the arrays of functions */

/*
 * The table that quantises.  limit[s][c] is the largest magnitude in x's own
 * type whose code is <= c under scale byte s, so a code is the number of
 * limit[s][0..6] that the magnitude exceeds.  A magnitude is a float's bits
 * without the sign; they are ordered as integers.
 */
struct cpu_quantizer {
	union {
		_Alignas(64) int32_t wide[128][8]; /* NIB_DTYPE_FP32 */
		int16_t narrow[128][8];		   /* NIB_DTYPE_FP16, NIB_DTYPE_BF16 */
	} limit;
	/* The fp32 magnitude of each code under scale byte s.  Filled in unless scales
	 * is NIB_SCALES_AMAX, and then limit is wide for every type. */
	_Alignas(32) float value[128][8];
	float global;
	float largest_code; /* fp32 6 * global */
	enum nib_zero_scale zero_scale;
	enum nib_scales scales;
	uint8_t zero_byte; /* zero_scale as e4m3 */
};

/* The table that dequantises: the bits of y for each scale byte and code. */
struct cpu_dequantizer {
	union {
		_Alignas(64) uint32_t wide[256][16]; /* NIB_DTYPE_FP32 */
		struct {
			uint16_t word[256][16];
			/* word's 16 low bytes, then its 16 high bytes */
			uint8_t plane[256][32];
		} narrow; /* NIB_DTYPE_FP16, NIB_DTYPE_BF16 */
	} value;
};

/*
 * Rows of a band of 128 in NIB_SCALE_LAYOUT_LINEAR, grouped as in a tile: row 32 * part
 * + r is at part * part_bytes + r * row_bytes, part < 4, r < rows.
 */
struct cpu_band {
	uint8_t *scales;
	int64_t part_bytes, row_bytes;
	int rows; /* of each part: a multiple of 4, up to 32 */
};

struct cpu_quantize_ops {
	/* The largest magnitude of n elements (inf < NaN); 0 for n = 0. */
	uint32_t (*amax[CPU_DTYPES])(const void *x, int64_t n);
	/*
	 * Quantises blocks of 16 elements into 8 bytes of codes and one scale each,
	 * with NIB_SCALES_AMAX.
	 * False: x has an inf or NaN, and the outputs are unspecified.  next: the
	 * blocks of the next call, as many as these, or x.
	 */
	bool (*quantize[CPU_DTYPES])(const struct cpu_quantizer *quantizer,
				     const void *x, enum nib_dtype dtype,
				     int64_t blocks, const void *next, uint8_t *codes,
				     uint8_t *scales);
	/* The same for every type with the other rules of quantizer->scales.  weights:
	 * of the errors, one for each element of x; NULL for none. */
	bool (*quantize_search)(const struct cpu_quantizer *quantizer, const void *x,
				enum nib_dtype dtype, int64_t blocks,
				const float *weights, uint8_t *codes, uint8_t *scales);
	void (*dequantize[CPU_DTYPES])(const struct cpu_dequantizer *table,
				       const uint8_t *codes, const uint8_t *scales,
				       int64_t blocks, void *y);
	/*
	 * Convert the scales of a band to and from tiles.  groups is a multiple of 4;
	 * tiles points to the 16 bytes of row 0.  next: the source of the next call, of
	 * the same shape, or NULL.  stream: bypass the caches if the alignment allows
	 * it.
	 */
	void (*tile)(const struct cpu_band *from, int64_t groups, const uint8_t *next,
		     bool stream, uint8_t *tiles);
	void (*untile)(const uint8_t *tiles, int64_t groups, const uint8_t *next,
		       bool stream, const struct cpu_band *to);
	/* memcpy to memory that is not read soon: goes past the caches. */
	void (*stream)(void *to, const void *from, size_t bytes);
	/*
	 * A task that used stream, tile or untile calls this last, so that
	 * other threads see what it wrote.
	 */
	void (*drain)(void);
};

/* scalar fills all entries; each other set overwrites those that it has faster
 * functions for. */
void cpu_quantize_ops_scalar(struct cpu_quantize_ops *ops);
void cpu_quantize_ops_avx2(struct cpu_quantize_ops *ops);
void cpu_quantize_ops_avx512bw(struct cpu_quantize_ops *ops);
void cpu_quantize_ops_avx512vnni(struct cpu_quantize_ops *ops);
void cpu_quantize_ops_neon(struct cpu_quantize_ops *ops);

#endif
