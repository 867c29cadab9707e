/* SPDX-License-Identifier: Apache-2.0 */
/*
 * file/global_scale.h - global scales as files store them, some as their
 * reciprocals.  They are compared by their bits and converted by integer code, so
 * that a thread that flushes subnormals gets the same values.
 */
#ifndef NIB_FILE_GLOBAL_SCALE_H
#define NIB_FILE_GLOBAL_SCALE_H

#include <stdbool.h>
#include <stdint.h>

#include "format/half.h"

/* Positive and finite. */
static inline bool nib_is_global_scale(float value)
{
	const uint32_t bits = nib_fp32_bits(value);

	return bits >= 1 && bits < 0x7F800000;
}

/* 1 / x rounded to fp32.  In fp64 neither x nor the result is subnormal. */
static inline float nib_reciprocal(float x)
{
	return nib_fp64_to_fp32(1 / nib_fp32_to_fp64(x));
}

#endif
