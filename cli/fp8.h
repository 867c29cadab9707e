/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fp8.h - layers of e4m3: rows with a scale each, to which nib quantize --budget rounds
 * the layers that NVFP4 would change most, and layers of files, which nib verify reads.
 */
#ifndef NIB_FP8_H
#define NIB_FP8_H

#include "tensor.h"

/*
 * codes = e4m3(x / scale), to nearest, ties to even; scale = amax of the row / 448, at
 * least 2^-126, and 1 for a row of zeros.  NaN becomes 0 and inf the largest value, as
 * with nib_quantize()'s saturate.  values: what codes and scales stand for.
 */
void fp8_quantize(const float *x, int64_t rows, int64_t k, uint8_t *codes,
		  float *scales, float *values);

/* An FP8 layer of a file by its codes, with one scale, one a row or one a block.  -1 if
 * tensor is no such layer. */
int fp8_source(const struct nib_file *file, const struct nib_file_tensor *tensor,
	       struct tensor_source *source);
/* Whether tensor is a scale of such a layer. */
int fp8_has_scale(const struct nib_file *file, const struct nib_file_tensor *tensor);
/* Rows of it as fp32; tensor_read() calls it. */
void fp8_read(const struct tensor_source *source, int64_t first, int64_t count,
	      float *out);

#endif
