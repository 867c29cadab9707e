/* SPDX-License-Identifier: Apache-2.0 */
/*
 * quantize_search.inc.h - quantising with the scale of least squared error, one copy
 * for every vector instruction set, in steps of 16 blocks.  The including file includes
 * quantize.inc.h first, and defines:
 *   FN(block_errors)(z, x, weights, unit, scales, errors)
 *              the error of each of 16 fp32 blocks under its scale byte, by
 *              nib_error_unit(); weights: 256, or NULL
 *
 * Compute-bound: four-six finds the codes of each value three times, mse ten times,
 * while the source is read from memory once.
 */

/* 16 blocks of 16 bits to fp32. */
static inline void FN(widen_blocks)(const uint8_t *x, enum nib_dtype dtype,
				    uint32_t *to)
{
	uint16_t from[16 * NIB_NVFP4_BLOCK];

	memcpy(from, x, sizeof(from));
	for (int i = 0; i < 16 * NIB_NVFP4_BLOCK; i++)
		to[i] = from[i];
	for (int b = 0; b < 16; b++)
		FN(widen)(to + b * NIB_NVFP4_BLOCK, dtype);
}

/* The state of a search for the scales of 16 blocks. */
struct FN(search) {
	_Alignas(64) uint32_t amax[16]; /* fp32 bits */
	float unit[16], least[16];
	uint8_t best[16];
};

/* The larger scale comes first and keeps a tie. */
static inline void FN(try_scales)(const struct cpu_quantizer *z, const uint8_t *x,
				  const float *weights, const uint8_t tried[16],
				  struct FN(search) * search)
{
	_Alignas(64) float errors[16];

	FN(block_errors)(z, x, weights, search->unit, tried, errors);
	for (int b = 0; b < 16; b++) {
		const bool is_less = errors[b] < search->least[b];

		search->least[b] = is_less ? errors[b] : search->least[b];
		search->best[b] = is_less ? tried[b] : search->best[b];
	}
}

/* The scale that is delta bytes above six; a block of zeros keeps its own. */
static inline uint8_t FN(neighbour)(uint8_t six, int delta, uint32_t amax)
{
	const int s = six + delta;

	/* A scale beyond the range is one at its end, tried again: no error is less. */
	if (amax == 0)
		return six;
	return (uint8_t)(s < NIB_E4M3_MIN   ? NIB_E4M3_MIN
			 : s > NIB_E4M3_MAX ? NIB_E4M3_MAX
					    : s);
}

static inline bool FN(search_16)(const struct cpu_quantizer *z, const uint8_t *x,
				 const float *weights, uint8_t *scales)
{
	struct FN(search) search;
	uint8_t six[16], tried[16];

	FN(block_amax_wide)(x, search.amax);
	if (!FN(block_scales)(z, search.amax, z->largest_code, six))
		return false;
	memcpy(search.best, six, sizeof(six));
	for (int b = 0; b < 16; b++) {
		search.unit[b] = nib_error_unit(nib_fp32_from_bits(search.amax[b]));
		search.least[b] = INFINITY;
	}
	if (z->scales == NIB_SCALES_FOUR_SIX) {
		FN(try_scales)(z, x, weights, six, &search);
		FN(block_scales)(z, search.amax, 4.0f * z->global, tried);
		FN(try_scales)(z, x, weights, tried, &search);
	} else {
		for (int i = NIB_SCALES_ABOVE; i >= -NIB_SCALES_BELOW; i--) {
			for (int b = 0; b < 16; b++)
				tried[b] = FN(neighbour)(six[b], i, search.amax[b]);
			FN(try_scales)(z, x, weights, tried, &search);
		}
	}
	memcpy(scales, search.best, sizeof(search.best));
	return true;
}

static bool FN(quantize_search)(const struct cpu_quantizer *z, const void *x,
				enum nib_dtype dtype, int64_t blocks,
				const float *weights, uint8_t *codes, uint8_t *scales)
{
	const int64_t block_bytes = dtype == NIB_DTYPE_FP32 ? 64 : 32;
	_Alignas(64) uint8_t some[16 * 64];
	_Alignas(64) uint32_t wide[16 * NIB_NVFP4_BLOCK];
	float some_weights[16 * NIB_NVFP4_BLOCK];
	uint8_t codes16[16 * 8], scales16[16];
	const uint8_t *from = x, *floats;

	for (int64_t b = 0; b < blocks; b += 16, from += 16 * block_bytes) {
		const size_t n = (size_t)(blocks - b < 16 ? blocks - b : 16);
		const float *by = weights ? weights + b * NIB_NVFP4_BLOCK : NULL;

		if (n < 16) {
			memset(some, 0, sizeof(some));
			memcpy(some, from, n * (size_t)block_bytes);
			from = some;
		}
		if (n < 16 && weights) {
			memset(some_weights, 0, sizeof(some_weights));
			memcpy(some_weights, by, n * NIB_NVFP4_BLOCK * sizeof(float));
			by = some_weights;
		}
		floats = from;
		if (dtype != NIB_DTYPE_FP32) {
			FN(widen_blocks)(from, dtype, wide);
			floats = (const uint8_t *)wide;
		}
		if (!FN(search_16)(z, floats, by, scales16))
			return false;
		FN(block_codes_wide)(z, floats, scales16, codes16);
		memcpy(codes + 8 * b, codes16, n * 8);
		memcpy(scales + b, scales16, n);
	}
	return true;
}
