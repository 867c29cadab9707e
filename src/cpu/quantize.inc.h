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

static inline bool NAME(scales_step)(const struct cpu_quantizer *z,
				     const uint8_t *x, enum nib_dtype dtype,
				     uint8_t *scales)
{
	_Alignas(64) uint32_t amax[16];

	NAME(block_amax)(x, amax);
#if WIDE
	(void)dtype;
#else
	FN(widen)(amax, dtype);
#endif
	return FN(block_scales)(z, amax, scales);
}

static inline bool NAME(quantize)(const struct cpu_quantizer *z, const void *x,
				  enum nib_dtype dtype, int64_t blocks,
				  const void *next, uint8_t *codes,
				  uint8_t *scales)
{
	_Alignas(64) uint8_t x16[16 * BLOCK_BYTES];
	uint8_t codes16[16 * 8], scales16[16];
	const uint8_t *from = x;
	const int64_t whole = blocks / 16 * 16;
	const size_t left = (size_t)(blocks - whole);

	/* Two passes: a block's scale is long ready when its codes need it. */
	for (int64_t b = 0; b < whole; b += 16)
		if (!NAME(scales_step)(z, from + b * BLOCK_BYTES, dtype,
				       scales + b))
			return false;
	/*
	 * The second works from the cache, so memory fetches the next run: into
	 * the second-level cache, which has more fetches under way at a time.
	 */
	for (int64_t b = 0; b < whole; b += 16) {
		for (int i = 0; i < 16 * BLOCK_BYTES; i += 64)
			__builtin_prefetch(
			    (const uint8_t *)next + b * BLOCK_BYTES + i, 0, 2);
		NAME(block_codes)
		(z, from + b * BLOCK_BYTES, scales + b, codes + 8 * b);
	}
	if (left == 0)
		return true;
	memset(x16, 0, sizeof(x16));
	memcpy(x16, from + whole * BLOCK_BYTES, left * BLOCK_BYTES);
	if (!NAME(scales_step)(z, x16, dtype, scales16))
		return false;
	NAME(block_codes)(z, x16, scales16, codes16);
	memcpy(codes + 8 * whole, codes16, left * 8);
	memcpy(scales + whole, scales16, left);
	return true;
}

#undef NAME
#undef BLOCK_BYTES
#undef WIDE
