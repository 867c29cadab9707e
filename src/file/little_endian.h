/* SPDX-License-Identifier: Apache-2.0 */
/* little_endian.h - fp32 as files store them, on any machine. */
#ifndef NIB_FILE_LITTLE_ENDIAN_H
#define NIB_FILE_LITTLE_ENDIAN_H

#include <stdint.h>

#include "format/half.h"

static inline float nib_load_fp32(const void *bytes)
{
	const uint8_t *b = bytes;

	return nib_fp32_from_bits((uint32_t)b[0] | (uint32_t)b[1] << 8 |
				  (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24);
}

static inline void nib_store_fp32(void *bytes, float x)
{
	const uint32_t bits = nib_fp32_bits(x);

	for (int i = 0; i < 4; i++)
		((uint8_t *)bytes)[i] = (uint8_t)(bits >> 8 * i);
}

#endif
