/* SPDX-License-Identifier: Apache-2.0 */
/*
 * quantize_params.h - the parameters of the kernels of quantize.cuh.  Strides are
 * resolved; nothing is empty.
 */
#ifndef NIB_QUANTIZE_PARAMS_H
#define NIB_QUANTIZE_PARAMS_H

#include <stdint.h>

#define NIB_QUANTIZE_THREADS 256

/* The findings of the kernels; zeroed before the launch. */
struct nib_quantize_found {
	/* ~index, row-major in x, of the first inf or NaN; 0: none. */
	unsigned long long first_bad;
	/* Largest finite |x|, as the bits of an fp32. */
	uint32_t amax;
	uint32_t pad;
};

/* enum nib_dtype: 0 fp32, 1 fp16, 2 bf16. */
struct nib_quantize_dense {
	void *data;
	int64_t rows, cols, batch;
	int64_t row_stride, batch_stride; /* elements */
	int32_t dtype;
	int32_t is_aligned; /* rows begin at multiples of 16 bytes */
};

struct nib_quantize_nvfp4 {
	uint8_t *codes, *scales;
	int64_t rows, groups, batch;
	int64_t row_stride, batch_stride; /* bytes */
	int64_t scale_row_stride, scale_batch_stride;
	/* Scale bytes of a matrix, padding included; tiles across a row. */
	int64_t scale_bytes, tile_columns;
	int32_t is_tiled;
	int32_t is_aligned; /* rows of codes begin at multiples of 8 bytes */
};

struct nib_quantize_params {
	struct nib_quantize_dense x;
	struct nib_quantize_nvfp4 q;
	/* The global scale: *global_pointer; if NULL, computed from found->amax if that
	 * is used, otherwise global. */
	const float *global_pointer;
	float global;
	float largest; /* the amax whose global scale is 1 */
	int32_t global_of_amax;
	struct nib_quantize_found *found; /* or NULL */
	/* quantize_search only: of columns, or NULL */
	const float *weights;
	uint8_t is_mse;	    /* or four-six */
	uint8_t zero_scale; /* of a block of zeros */
	uint8_t saturate;
};

struct nib_amax_params {
	struct nib_quantize_dense x;
	struct nib_quantize_found *found;
	int32_t saturate;
};

struct nib_dequantize_params {
	struct nib_quantize_nvfp4 q;
	struct nib_quantize_dense y;
	const float *global_pointer; /* NULL: global */
	float global;
};

/* Experts of an MoE problem; scale_rows may be NULL. */
struct nib_expert_rows_params {
	const int32_t *ends;
	int64_t experts;
	int32_t *row_offsets, *scale_rows;
};

/* Conversion of scales. */
struct nib_convert_params {
	struct nib_quantize_nvfp4 from, to;
};

#endif
