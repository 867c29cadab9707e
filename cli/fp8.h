/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fp8.h - rows of e4m3 with a scale each, to which nib quantize --budget rounds the
 * layers that NVFP4 would change most.
 */
#ifndef NIB_FP8_H
#define NIB_FP8_H

#include <stdint.h>

/*
 * codes = e4m3(x / scale), to nearest, ties to even; scale = amax of the row / 448, at
 * least 2^-126, and 1 for a row of zeros.  NaN becomes 0 and inf the largest value, as
 * with nib_quantize()'s saturate.  values: what codes and scales stand for.
 */
void fp8_quantize(const float *x, int64_t rows, int64_t k, uint8_t *codes,
		  float *scales, float *values);

#endif
