/* SPDX-License-Identifier: Apache-2.0 */
/*
 * quantize.inc.h - quantising in steps of 16 blocks, and amax, one copy for
 * every vector instruction set: the loop, the tail, and what passes between the
 * parts.  The including file defines:
 *   FN(name)   name with the instruction set's suffix
 *   WIDE       1: fp32 input, 0: fp16 or bf16
 *   vector     a register; load(from) one, load_some(from, bytes) less of one,
 *              zeros after it
 *   magnitudes(v), max(a, b), largest(v)
 *              of all lanes without their signs; largest: of them all
 *   block_amax(x, amax)
 *              amax[b] = the largest magnitude of block b, 16 blocks
 *   block_scales(z, amax, divisor, scales)
 *              amax as fp32 bits, quotients -> 16 scale bytes; false: one is inf or NaN
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

static inline bool NAME(scales_step)(const struct cpu_quantizer *z, const uint8_t *x,
				     enum nib_dtype dtype, uint8_t *scales)
{
	_Alignas(64) uint32_t amax[16];

	NAME(block_amax)(x, amax);
#if WIDE
	(void)dtype;
#else
	FN(widen)(amax, dtype);
#endif
	return FN(block_scales)(z, amax, z->largest_code, scales);
}

static bool NAME(quantize)(const struct cpu_quantizer *z, const void *x,
			   enum nib_dtype dtype, int64_t blocks, const void *next,
			   uint8_t *codes, uint8_t *scales)
{
	_Alignas(64) uint8_t x16[16 * BLOCK_BYTES];
	uint8_t codes16[16 * 8], scales16[16];
	const uint8_t *from = x;
	const int64_t whole = blocks / 16 * 16;
	const size_t left = (size_t)(blocks - whole);

	/* Two passes, so that the scale of a block is ready when its codes need it. */
	for (int64_t b = 0; b < whole; b += 16)
		if (!NAME(scales_step)(z, from + b * BLOCK_BYTES, dtype, scales + b))
			return false;
	/*
	 * The second pass reads x from the cache, so memory is free to prefetch
	 * the next run.  It goes into the second-level cache, which can have
	 * more fetches under way.
	 */
	for (int64_t b = 0; b < whole; b += 16) {
		for (int i = 0; i < 16 * BLOCK_BYTES; i += 64)
			__builtin_prefetch((const uint8_t *)next + b * BLOCK_BYTES + i,
					   0, 2);
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

static uint32_t NAME(amax)(const void *x, int64_t n)
{
	const int64_t step = sizeof(vector);
	const uint8_t *at = x;
	int64_t bytes = n * (BLOCK_BYTES / 16);
	vector most[4] = {0};

	for (; bytes >= 4 * step; bytes -= 4 * step, at += 4 * step)
		for (int i = 0; i < 4; i++)
			most[i] =
			    NAME(max)(most[i], NAME(magnitudes)(load(at + step * i)));
	for (; bytes >= step; bytes -= step, at += step)
		most[0] = NAME(max)(most[0], NAME(magnitudes)(load(at)));
	if (bytes)
		most[0] =
		    NAME(max)(most[0], NAME(magnitudes)(load_some(at, (size_t)bytes)));
	return NAME(largest)(
	    NAME(max)(NAME(max)(most[0], most[1]), NAME(max)(most[2], most[3])));
}

#undef NAME
#undef BLOCK_BYTES
#undef WIDE
