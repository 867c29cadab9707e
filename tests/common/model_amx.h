/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model_amx.h - a software model of the AMX intrinsics that gemm_amx.c uses, so that
 * its tests run on every machine with AVX-512.  The test build includes it before that
 * file (tests/CMakeLists.txt) and compiles features_x86.c with NIB_AMX_MODEL.
 *
 * Bits are those of the instructions: on a Xeon, 20,000 tdpbf16ps of random tiles
 * (subnormals among them) gave the bits of a scalar model in this order.  Intel SDM
 * volume 2, TDPBF16PS: even and odd elements are summed apart, by fused multiply-adds
 * from zero; the two sums are added, then the accumulator.  Every result is rounded to
 * nearest even, subnormal operands and results are zero, and MXCSR does not matter.
 *
 * As on the processor an instruction without a configuration is a fault, here a trap,
 * and so are tiles whose sizes do not fit together.
 */
#ifndef NIB_AMX_MODEL_H
#define NIB_AMX_MODEL_H

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

/* Round to nearest even, flush subnormals, operands too, no exceptions. */
#define AMX_MODEL_MXCSR 0x9fc0u

struct amx_model_config {
	uint8_t palette, start_row, reserved[14];
	uint16_t row_bytes[16];
	uint8_t rows[16];
};

static _Thread_local struct amx_model {
	struct amx_model_config config;
	uint8_t tile[8][16][64];
} amx_model;

static inline void amx_model_require(int condition)
{
	if (!condition)
		__builtin_trap();
}

static inline void amx_model_loadconfig(const void *from)
{
	memcpy(&amx_model.config, from, sizeof(amx_model.config));
	memset(amx_model.tile, 0, sizeof(amx_model.tile));
	amx_model_require(amx_model.config.palette == 1);
	for (int t = 0; t < 8; t++)
		amx_model_require(amx_model.config.rows[t] <= 16 &&
				  amx_model.config.row_bytes[t] <= 64);
}

static inline void amx_model_storeconfig(void *to)
{
	memcpy(to, &amx_model.config, sizeof(amx_model.config));
}

static inline void amx_model_release(void)
{
	memset(&amx_model, 0, sizeof(amx_model));
}

static inline void amx_model_zero(int t)
{
	amx_model_require(amx_model.config.palette == 1);
	memset(amx_model.tile[t], 0, sizeof(amx_model.tile[t]));
}

static inline void amx_model_load(int t, const void *from, int64_t stride)
{
	amx_model_zero(t);
	for (int r = 0; r < amx_model.config.rows[t]; r++)
		memcpy(amx_model.tile[t][r], (const char *)from + r * stride,
		       amx_model.config.row_bytes[t]);
}

static inline void amx_model_store(int t, void *to, int64_t stride)
{
	amx_model_require(amx_model.config.palette == 1);
	for (int r = 0; r < amx_model.config.rows[t]; r++)
		memcpy((char *)to + r * stride, amx_model.tile[t][r],
		       amx_model.config.row_bytes[t]);
}

/* Dwords of a tile's row. */
static inline int amx_model_dwords(int t)
{
	return amx_model.config.row_bytes[t] / 4;
}

static inline void amx_model_dpbf16ps(int c, int a, int b)
{
	const struct amx_model_config *config = &amx_model.config;
	const __m512i upper = _mm512_set1_epi32((int)0xffff0000u);
	const unsigned int mxcsr = _mm_getcsr();

	amx_model_require(config->palette == 1 && config->rows[c] == config->rows[a] &&
			  amx_model_dwords(a) == config->rows[b] &&
			  config->row_bytes[c] == config->row_bytes[b]);
	_mm_setcsr(AMX_MODEL_MXCSR);
	for (int m = 0; m < config->rows[c]; m++) {
		__m512 even = _mm512_setzero_ps(), odd = even;

		for (int k = 0; k < config->rows[b]; k++) {
			const __m512i w = _mm512_loadu_si512(amx_model.tile[b][k]);
			uint32_t x;

			memcpy(&x, amx_model.tile[a][m] + 4 * k, 4);
			even = _mm512_fmadd_ps(
			    _mm512_castsi512_ps(_mm512_set1_epi32((int)(x << 16))),
			    _mm512_castsi512_ps(_mm512_slli_epi32(w, 16)), even);
			odd = _mm512_fmadd_ps(
			    _mm512_castsi512_ps(
				_mm512_set1_epi32((int)(x & 0xffff0000u))),
			    _mm512_castsi512_ps(_mm512_and_si512(w, upper)), odd);
		}
		/* Without a barrier the additions could move past _mm_setcsr(). */
		__m512 sum = _mm512_add_ps(_mm512_loadu_ps(amx_model.tile[c][m]),
					   _mm512_add_ps(even, odd));

		__asm__ volatile("" : "+v"(sum));
		_mm512_storeu_ps(amx_model.tile[c][m], sum);
	}
	_mm_setcsr(mxcsr);
}

#undef _tile_loadconfig
#undef _tile_storeconfig
#undef _tile_release
#undef _tile_zero
#undef _tile_loadd
#undef _tile_stored
#undef _tile_dpbf16ps
#define _tile_loadconfig(from)	     amx_model_loadconfig(from)
#define _tile_storeconfig(to)	     amx_model_storeconfig(to)
#define _tile_release()		     amx_model_release()
#define _tile_zero(t)		     amx_model_zero(t)
#define _tile_loadd(t, from, stride) amx_model_load(t, from, stride)
#define _tile_stored(t, to, stride)  amx_model_store(t, to, stride)
#define _tile_dpbf16ps(c, a, b)	     amx_model_dpbf16ps(c, a, b)

#endif
