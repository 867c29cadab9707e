/* SPDX-License-Identifier: Apache-2.0 */
/* quantize_scalar.c - the reference code (format/quantize_ref.h), applied to runs. */
#include <string.h>

#include "backend/cpu/quantize_ops.h"
#include "format/half.h"
#include "format/quantize_ref.h"
#include "format/scale_layout.h"

static uint32_t amax_fp32(const void *x, int64_t n)
{
	const uint8_t *from = x;
	uint32_t largest = 0, bits;

	for (int64_t i = 0; i < n; i++) {
		memcpy(&bits, from + 4 * i, sizeof(bits));
		bits &= 0x7FFFFFFF;
		largest = bits > largest ? bits : largest;
	}
	return largest;
}

/* fp16 and bf16: both order as integers. */
static uint32_t amax_16bit(const void *x, int64_t n)
{
	const uint8_t *from = x;
	uint16_t bits;
	uint32_t largest = 0;

	for (int64_t i = 0; i < n; i++) {
		memcpy(&bits, from + 2 * i, sizeof(bits));
		bits &= 0x7FFF;
		largest = bits > largest ? bits : largest;
	}
	return largest;
}

static void load_block(const uint8_t *from, enum nib_dtype dtype,
		       float x[NIB_NVFP4_BLOCK])
{
	uint16_t narrow[NIB_NVFP4_BLOCK];

	if (dtype == NIB_DTYPE_FP32) {
		memcpy(x, from, NIB_NVFP4_BLOCK * sizeof(*x));
		return;
	}
	memcpy(narrow, from, sizeof(narrow));
	for (int i = 0; i < NIB_NVFP4_BLOCK; i++)
		x[i] = nib_dtype_to_fp32(narrow[i], dtype);
}

static bool quantize_search(const struct cpu_quantizer *z, const void *x,
			    enum nib_dtype dtype, int64_t blocks, const float *weights,
			    uint8_t *codes, uint8_t *scales)
{
	const int64_t block_bytes = dtype == NIB_DTYPE_FP32 ? 64 : 32;
	float block[NIB_NVFP4_BLOCK];

	for (int64_t i = 0; i < blocks; i++) {
		load_block((const uint8_t *)x + i * block_bytes, dtype, block);
		if (nib_quantize_block_ref(block, z->global, z->zero_scale, z->scales,
					   weights ? weights + i * NIB_NVFP4_BLOCK
						   : NULL,
					   0, codes + 8 * i, scales + i) >= 0)
			return false;
	}
	return true;
}

static bool quantize(const struct cpu_quantizer *z, const void *x, enum nib_dtype dtype,
		     int64_t blocks, const void *next, uint8_t *codes, uint8_t *scales)
{
	(void)next;
	return quantize_search(z, x, dtype, blocks, NULL, codes, scales);
}

static void dequantize_fp32(const struct cpu_dequantizer *table, const uint8_t *codes,
			    const uint8_t *scales, int64_t blocks, void *y)
{
	uint32_t pair[2];

	for (int64_t i = 0; i < 8 * blocks; i++) {
		const uint32_t *row = table->value.wide[scales[i / 8]];

		pair[0] = row[codes[i] & 15];
		pair[1] = row[codes[i] >> 4];
		memcpy((uint8_t *)y + 8 * i, pair, sizeof(pair));
	}
}

static void dequantize_16bit(const struct cpu_dequantizer *table, const uint8_t *codes,
			     const uint8_t *scales, int64_t blocks, void *y)
{
	uint16_t pair[2];

	for (int64_t i = 0; i < 8 * blocks; i++) {
		const uint16_t *row = table->value.narrow.word[scales[i / 8]];

		pair[0] = row[codes[i] & 15];
		pair[1] = row[codes[i] >> 4];
		memcpy((uint8_t *)y + 4 * i, pair, sizeof(pair));
	}
}

/* Byte of scale g of row 32 * part + r, counted from row 0 of the first tile. */
static int64_t in_tiles(int part, int r, int64_t g)
{
	return g / NIB_SCALE_TILE_GROUPS * NIB_SCALE_TILE_BYTES +
	       nib_scale_offset_in_tile(32 * part + r, g % NIB_SCALE_TILE_GROUPS);
}

static void tile(const struct cpu_band *from, int64_t groups, const uint8_t *next,
		 bool stream_it, uint8_t *tiles)
{
	(void)next;
	(void)stream_it;
	for (int part = 0; part < 4; part++)
		for (int r = 0; r < from->rows; r++) {
			const uint8_t *row = from->scales + part * from->part_bytes +
					     r * from->row_bytes;

			for (int64_t g = 0; g < groups; g++)
				tiles[in_tiles(part, r, g)] = row[g];
		}
}

static void untile(const uint8_t *tiles, int64_t groups, const uint8_t *next,
		   bool stream_it, const struct cpu_band *to)
{
	(void)next;
	(void)stream_it;
	for (int part = 0; part < 4; part++)
		for (int r = 0; r < to->rows; r++) {
			uint8_t *row =
			    to->scales + part * to->part_bytes + r * to->row_bytes;

			for (int64_t g = 0; g < groups; g++)
				row[g] = tiles[in_tiles(part, r, g)];
		}
}

static void stream(void *to, const void *from, size_t bytes)
{
	memcpy(to, from, bytes);
}

static void drain(void)
{
}

void cpu_quantize_ops_scalar(struct cpu_quantize_ops *ops)
{
	ops->amax[NIB_DTYPE_FP32] = amax_fp32;
	ops->amax[NIB_DTYPE_FP16] = amax_16bit;
	ops->amax[NIB_DTYPE_BF16] = amax_16bit;
	ops->quantize[NIB_DTYPE_FP32] = quantize;
	ops->quantize[NIB_DTYPE_FP16] = quantize;
	ops->quantize[NIB_DTYPE_BF16] = quantize;
	ops->quantize_search = quantize_search;
	ops->dequantize[NIB_DTYPE_FP32] = dequantize_fp32;
	ops->dequantize[NIB_DTYPE_FP16] = dequantize_16bit;
	ops->dequantize[NIB_DTYPE_BF16] = dequantize_16bit;
	ops->tile = tile;
	ops->untile = untile;
	ops->stream = stream;
	ops->drain = drain;
}
