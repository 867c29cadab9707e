/* SPDX-License-Identifier: Apache-2.0 */
/*
 * quantize.inc.h - quantising in steps of 16 blocks, one copy for every vector
 * instruction set: the loop, the tail, and what passes between the parts.  The
 * including file defines:
 *   FN(name)   name with the instruction set's suffix
 *   WIDE       1: fp32 input, 0: fp16 or bf16
 *   block_amax(x, amax)
 *              amax[b] = the largest magnitude of block b, 16 blocks
 *   block_scales(z, amax, scales)
 *              amax as fp32 bits -> 16 scale bytes; false: one is inf or NaN
 *   block_codes(z, x, scales, codes)
 *              16 blocks -> 128 bytes by z->limit
 *   widen(amax, dtype)
 *              narrow only: 16 magnitudes to fp32 bits, in place
 */

#if WIDE
#define NAME(name)  FN(name##_wide)
#define BLOCK_BYTES 64
#else
#define NAME(name)  FN(name##_narrow)
#define BLOCK_BYTES 32
#endif

static inline bool NAME(quantize_step)(const struct cpu_quantizer *z,
				       const uint8_t *x, enum nib_dtype dtype,
				       uint8_t *codes, uint8_t *scales)
{
	_Alignas(64) uint32_t amax[16];

	NAME(block_amax)(x, amax);
#if WIDE
	(void)dtype;
#else
	FN(widen)(amax, dtype);
#endif
	if (!FN(block_scales)(z, amax, scales))
		return false;
	NAME(block_codes)(z, x, scales, codes);
	return true;
}

static inline bool NAME(quantize)(const struct cpu_quantizer *z, const void *x,
				  enum nib_dtype dtype, int64_t blocks,
				  uint8_t *codes, uint8_t *scales)
{
	_Alignas(64) uint8_t x16[16 * BLOCK_BYTES];
	uint8_t codes16[16 * 8], scales16[16];
	const uint8_t *from = x;

	for (; blocks >= 16; blocks -= 16) {
		if (!NAME(quantize_step)(z, from, dtype, codes, scales))
			return false;
		from += 16 * BLOCK_BYTES;
		codes += 16 * 8;
		scales += 16;
	}
	if (blocks == 0)
		return true;
	memset(x16, 0, sizeof(x16));
	memcpy(x16, from, (size_t)blocks * BLOCK_BYTES);
	if (!NAME(quantize_step)(z, x16, dtype, codes16, scales16))
		return false;
	memcpy(codes, codes16, (size_t)blocks * 8);
	memcpy(scales, scales16, (size_t)blocks);
	return true;
}

#undef NAME
#undef BLOCK_BYTES
#undef WIDE
