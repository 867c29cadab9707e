/* SPDX-License-Identifier: Apache-2.0 */
/*
 * floats.h - exact conversions of small floating-point formats: widening to double
 * loses nothing, and narrowing rounds once.
 */
#ifndef EMU_FLOATS_H
#define EMU_FLOATS_H

#include "hardware/emu.h"

enum emu_rounding {
	EMU_RN, /* to nearest, ties to even */
	EMU_RZ,
	EMU_RM,	 /* down */
	EMU_RP,	 /* up */
	EMU_RNA, /* to nearest, ties away from zero */
};

struct emu_format {
	int exponent_bits, mantissa_bits;
	bool has_inf;	  /* else the largest exponent is of numbers too */
	uint32_t nan;	  /* what every NaN becomes; 0: it has none, as e2m1 */
	uint32_t largest; /* finite, without sign */
};

extern const struct emu_format emu_format_f16, emu_format_bf16, emu_format_tf32,
    emu_format_e4m3, emu_format_e5m2, emu_format_e2m1, emu_format_e2m3, emu_format_e3m2;

double emu_widen(const struct emu_format *f, uint32_t bits);
/* saturates: values beyond the largest finite value become it, not infinity. */
uint32_t emu_narrow(const struct emu_format *f, double x, enum emu_rounding rounding,
		    bool saturates);

/* ue8m0, powers of two without a sign: 2^(bits - 127), 0xFF is NaN. */
double emu_widen_ue8m0(uint32_t bits);
/* Rounds the magnitude of x up (rounds_up) or down to a power of two.  What is too
 * large becomes NaN, or 2^127 with saturates. */
uint32_t emu_narrow_ue8m0(double x, bool rounds_up, bool saturates);

/* To float in any mode; a NaN becomes the hardware's NaN. */
uint32_t emu_narrow_f32(double x, enum emu_rounding rounding);

/* a * b + c rounded to odd, so that narrowing the result rounds correctly. */
double emu_fma_odd(double a, double b, double c);

#define EMU_NAN_F32 UINT32_C(0x7FFFFFFF)
#define EMU_NAN_F16 UINT16_C(0x7FFF)

#endif
