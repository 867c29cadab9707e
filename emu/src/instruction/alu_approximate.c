/* SPDX-License-Identifier: Apache-2.0 */
/*
 * alu_approximate.c - functions that a GPU approximates (.approx, .full).  Here they
 * are rounded to nearest (docs/covers.md), with the special values of the PTX ISA.
 */
#include <math.h>
#include <string.h>

#include "hardware/floats.h"
#include "instruction/binds.h"
#include "machine/warp.h"

/* Division by multiplication.  The reciprocal of 2^126 and more is not a normal
 * number and becomes 0. */
static float divide(float x, float y)
{
	return fabsf(y) > 0x1p126f && !isinf(y) ? x * copysignf(0, y) : x / y;
}

/* name_f32: d = f(x, y); NaN becomes the hardware's NaN. */
#define APPROXIMATE(name, expression)                                                  \
	static void name##_f32(struct emu_warp *w, const struct emu_instr *i,          \
			       uint32_t lanes)                                         \
	{                                                                              \
		const float *a = emu_row(w, &i->operand[1]);                           \
		const float *b = i->operands > 2 ? emu_row(w, &i->operand[2]) : a;     \
		uint32_t r[EMU_LANES];                                                 \
                                                                                       \
		EMU_EACH_LANE(l)                                                       \
		{                                                                      \
			const float x = a[l], y = b[l];                                \
			const float d = (float)(expression);                           \
                                                                                       \
			(void)y;                                                       \
			memcpy(&r[l], &d, sizeof(d));                                  \
			r[l] = d != d ? EMU_NAN_F32 : r[l];                            \
		}                                                                      \
		emu_put_32(w, &i->operand[0], r, lanes);                               \
	}
APPROXIMATE(rcp, 1 / x)
APPROXIMATE(sqrt, sqrtf(x))
APPROXIMATE(rsqrt, 1 / sqrt(x))
APPROXIMATE(ex2, exp2(x))
APPROXIMATE(lg2, log2(x))
APPROXIMATE(tanh, tanh(x))
APPROXIMATE(sin, sin(x))
APPROXIMATE(cos, cos(x))
APPROXIMATE(div_fast, divide(x, y))
APPROXIMATE(div_full, x / y)

/* A GPU reads and writes only the upper 32 bits of doubles; subnormal numbers
 * become zeros. */
static double upper_half(double x)
{
	uint64_t bits;

	if (fpclassify(x) == FP_SUBNORMAL)
		return copysign(0, x);
	memcpy(&bits, &x, sizeof(bits));
	bits &= ~(uint64_t)UINT32_MAX;
	memcpy(&x, &bits, sizeof(x));
	return x;
}

#define OF_DOUBLES(name, expression)                                                   \
	static void name##_f64(struct emu_warp *w, const struct emu_instr *i,          \
			       uint32_t lanes)                                         \
	{                                                                              \
		const double *a = emu_row(w, &i->operand[1]);                          \
		uint64_t r[EMU_LANES];                                                 \
                                                                                       \
		EMU_EACH_LANE(l)                                                       \
		{                                                                      \
			const double x = upper_half(a[l]);                             \
			const double d = upper_half(expression);                       \
                                                                                       \
			memcpy(&r[l], &d, sizeof(d));                                  \
			r[l] = d != d ? UINT64_C(0x7FFFFFFF00000000) : r[l];           \
		}                                                                      \
		emu_put_64(w, &i->operand[0], r, lanes);                               \
	}
OF_DOUBLES(rcp, 1 / x)
OF_DOUBLES(rsqrt, 1 / sqrt(x))

/* The same for fp16, and for both values of a pair. */
static void of_halves(struct emu_warp *w, const struct emu_instr *i, uint32_t lanes,
		      const struct emu_format *f, double (*function)(double x))
{
	const int parts = i->operand[0].bytes / 2;
	uint64_t x[EMU_LANES], r[EMU_LANES] = {0};

	emu_get_wide(w, &i->operand[1], x);
	EMU_EACH_LANE(l)
	for (int p = 0; p < parts; p++) {
		const double part = emu_widen(f, (uint32_t)(x[l] >> 16 * p) & 0xFFFF);

		r[l] |= (uint64_t)emu_narrow(f, function(part), EMU_RN, false)
			<< 16 * p;
	}
	emu_put_wide(w, &i->operand[0], r, lanes);
}

#define OF_HALVES(name, function)                                                      \
	static void name##_f16(struct emu_warp *w, const struct emu_instr *i,          \
			       uint32_t lanes)                                         \
	{                                                                              \
		of_halves(w, i, lanes, &emu_format_f16, function);                     \
	}                                                                              \
	static void name##_bf16(struct emu_warp *w, const struct emu_instr *i,         \
				uint32_t lanes)                                        \
	{                                                                              \
		of_halves(w, i, lanes, &emu_format_bf16, function);                    \
	}
OF_HALVES(ex2, exp2)
OF_HALVES(tanh, tanh)

const struct emu_alu emu_approximate_alu[] = {
    {"rcp.approx", EMU_F32, "tt", rcp_f32},
    {"rcp.approx.ftz", EMU_F64, "tt", rcp_f64},
    {"rsqrt.approx.ftz", EMU_F64, "tt", rsqrt_f64},
    {"sqrt.approx", EMU_F32, "tt", sqrt_f32},
    {"rsqrt.approx", EMU_F32, "tt", rsqrt_f32},
    {"ex2.approx", EMU_F32, "tt", ex2_f32},
    {"lg2.approx", EMU_F32, "tt", lg2_f32},
    {"tanh.approx", EMU_F32, "tt", tanh_f32},
    {"sin.approx", EMU_F32, "tt", sin_f32},
    {"cos.approx", EMU_F32, "tt", cos_f32},
    {"div.approx", EMU_F32, "ttt", div_fast_f32},
    {"div.full", EMU_F32, "ttt", div_full_f32},
    {"ex2.approx", EMU_T_F16, "tt", ex2_f16},
    {"ex2.approx", EMU_F16X2, "tt", ex2_f16},
    {"ex2.approx", EMU_T_BF16, "tt", ex2_bf16},
    {"ex2.approx", EMU_BF16X2, "tt", ex2_bf16},
    {"tanh.approx", EMU_T_F16, "tt", tanh_f16},
    {"tanh.approx", EMU_F16X2, "tt", tanh_f16},
    {"tanh.approx", EMU_T_BF16, "tt", tanh_bf16},
    {"tanh.approx", EMU_BF16X2, "tt", tanh_bf16},
    {NULL, EMU_NO_TYPE, NULL, NULL},
};
