/* SPDX-License-Identifier: Apache-2.0 */
/*
 * halves.c - see halves.h.  Loops over bits without branches, which compilers
 * vectorise.  Each step is a loop of its own, because only memcpy converts between
 * bits and floats.
 */
#include "hardware/halves.h"

#include <string.h>

#include "hardware/floats.h"

#define SIGN	    0x8000u
#define F32_INF	    0x7F800000u
#define LEAST_BITS  0x38800000u /* 2^-14, the smallest normal fp16 */
#define BEYOND_BITS 0x47800000u /* 2^16 */
/* Adding 1/2 leaves 24 bits after the point: those of subnormal fp16. */
#define HALF_BITS 0x3F000000u

struct row {
	uint32_t bits[EMU_HALVES_MOST];
};

static inline void to_floats(const struct row *row, float *f)
{
	memcpy(f, row->bits, sizeof(row->bits));
}

static inline void to_bits(const float *f, struct row *row)
{
	memcpy(row->bits, f, sizeof(row->bits));
}

/* Exact: moves the bits to their place in fp32 and corrects the exponent's bias. */
static inline void widen(const uint16_t *h, float *f, int n)
{
	struct row row = {{0}};

	for (int i = 0; i < n; i++)
		row.bits[i] = (h[i] & 0x7FFFu) << 13;
	to_floats(&row, f);
	for (int i = 0; i < n; i++)
		f[i] *= 0x1p112F;
	to_bits(f, &row);
	for (int i = 0; i < n; i++)
		row.bits[i] |=
		    (h[i] & SIGN) << 16 | ((h[i] & 0x7C00) == 0x7C00 ? F32_INF : 0);
	to_floats(&row, f);
}

/* To nearest even. */
static inline void narrow(const float *f, uint16_t *h, int n)
{
	struct row row, small;
	float shifted[EMU_HALVES_MOST];

	to_bits(f, &row);
	for (int i = 0; i < n; i++)
		small.bits[i] = row.bits[i] & 0x7FFFFFFF;
	for (int i = n; i < EMU_HALVES_MOST; i++)
		small.bits[i] = 0;
	to_floats(&small, shifted);
	for (int i = 0; i < n; i++)
		shifted[i] += 0.5F;
	to_bits(shifted, &small);
	for (int i = 0; i < n; i++) {
		const uint32_t x = row.bits[i] & 0x7FFFFFFF;
		const uint32_t sign = row.bits[i] >> 16 & SIGN;
		/* A carry may correctly give infinity. */
		const uint32_t normal =
		    (x - (112u << 23) + 0xFFF + (x >> 13 & 1)) >> 13;
		const uint32_t subnormal = small.bits[i] - HALF_BITS;
		uint32_t r = x < LEAST_BITS ? subnormal : normal;

		r = x >= BEYOND_BITS ? 0x7C00 : r;
		r |= sign;
		h[i] = (uint16_t)(x > F32_INF ? EMU_NAN_F16 : r);
	}
}

#define OPERATION(name, sign)                                                          \
	EMU_FAST void name(const uint16_t *a, const uint16_t *b, uint16_t *r, int n)   \
	{                                                                              \
		float x[EMU_HALVES_MOST], y[EMU_HALVES_MOST];                          \
                                                                                       \
		widen(a, x, n);                                                        \
		widen(b, y, n);                                                        \
		for (int i = 0; i < n; i++)                                            \
			x[i] = x[i] sign y[i];                                         \
		narrow(x, r, n);                                                       \
	}

OPERATION(emu_halves_add, +)
OPERATION(emu_halves_subtract, -)
OPERATION(emu_halves_multiply, *)

EMU_FAST void emu_halves_from_e4m3(const uint8_t *codes, uint16_t *r, int n)
{
	struct row row = {{0}};
	float f[EMU_HALVES_MOST];

	for (int i = 0; i < n; i++)
		row.bits[i] = (codes[i] & 0x7Fu) << 20;
	to_floats(&row, f);
	for (int i = 0; i < n; i++)
		f[i] *= 0x1p120F;
	narrow(f, r, n);
	for (int i = 0; i < n; i++) {
		const uint32_t x = r[i] | (codes[i] & 0x80u) << 8;

		r[i] = (uint16_t)((codes[i] & 0x7F) == 0x7F ? EMU_NAN_F16 : x);
	}
}
