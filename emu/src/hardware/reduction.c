/* SPDX-License-Identifier: Apache-2.0 */
/* reduction.c - see reduction.h. */
#include "hardware/reduction.h"

#include <math.h>
#include <string.h>

#include "hardware/floats.h"

uint32_t emu_reduction_bytes(enum emu_reduction_type type)
{
	static const uint8_t bytes[] = {
	    [EMU_REDUCE_U32] = 4, [EMU_REDUCE_S32] = 4, [EMU_REDUCE_U64] = 8,
	    [EMU_REDUCE_S64] = 8, [EMU_REDUCE_F16] = 2, [EMU_REDUCE_BF16] = 2,
	    [EMU_REDUCE_F32] = 4, [EMU_REDUCE_F64] = 8,
	};

	return bytes[type];
}

bool emu_reduction_is_known(const struct emu_reduction *r)
{
	switch (r->operation) {
	case EMU_REDUCE_ADD:
		return true;
	case EMU_REDUCE_MIN:
	case EMU_REDUCE_MAX:
		return r->type < EMU_REDUCE_F32;
	case EMU_REDUCE_INC:
	case EMU_REDUCE_DEC:
		return r->type == EMU_REDUCE_U32;
	default:
		return r->type < EMU_REDUCE_F16;
	}
}

static float without_subnormals(float x)
{
	return fabsf(x) < 0x1p-126F ? copysignf(0, x) : x;
}

static uint64_t add_f32(uint64_t x, uint64_t y)
{
	const uint32_t words[2] = {(uint32_t)x, (uint32_t)y};
	float a[2], sum;
	uint32_t bits;

	memcpy(a, words, sizeof(a));
	sum = without_subnormals(without_subnormals(a[0]) + without_subnormals(a[1]));
	memcpy(&bits, &sum, sizeof(bits));
	return isnan(sum) ? EMU_NAN_F32 : bits;
}

static uint64_t add_f64(uint64_t x, uint64_t y)
{
	double a, b;

	memcpy(&a, &x, sizeof(a));
	memcpy(&b, &y, sizeof(b));
	a += b;
	memcpy(&x, &a, sizeof(x));
	return x;
}

/* Elements of 16 bits; a NaN loses against a number in min and max. */
static uint64_t of_halves(enum emu_reduction_operation operation,
			  const struct emu_format *f, uint64_t x, uint64_t y)
{
	const double a = emu_widen(f, (uint32_t)x);
	const double b = emu_widen(f, (uint32_t)y);

	if (operation == EMU_REDUCE_ADD)
		return emu_narrow(f, a + b, EMU_RN, false);
	if (isnan(a) || isnan(b))
		return isnan(a) && isnan(b) ? f->nan : isnan(a) ? y : x;
	/* -0 is less than +0. */
	if (a == b)
		return operation == EMU_REDUCE_MIN ? x | y : x & y;
	return (a < b) == (operation == EMU_REDUCE_MIN) ? x : y;
}

static uint64_t of_integers(const struct emu_reduction *r, uint64_t x, uint64_t y)
{
	const int unused = 64 - 8 * (int)emu_reduction_bytes(r->type);
	const int64_t sx = (int64_t)(x << unused) >> unused;
	const int64_t sy = (int64_t)(y << unused) >> unused;
	const bool is_signed = r->type == EMU_REDUCE_S32 || r->type == EMU_REDUCE_S64;
	const bool less = is_signed ? sx < sy : x < y;

	switch (r->operation) {
	case EMU_REDUCE_ADD:
		return x + y;
	case EMU_REDUCE_MIN:
		return less ? x : y;
	case EMU_REDUCE_MAX:
		return less ? y : x;
	case EMU_REDUCE_INC:
		return x >= y ? 0 : x + 1;
	case EMU_REDUCE_DEC:
		return x == 0 || x > y ? y : x - 1;
	case EMU_REDUCE_AND:
		return x & y;
	case EMU_REDUCE_OR:
		return x | y;
	default:
		return x ^ y;
	}
}

void emu_reduce(const struct emu_reduction *r, uint8_t *to, const uint8_t *from,
		uint32_t bytes)
{
	const uint32_t size = emu_reduction_bytes(r->type);

	for (uint32_t at = 0; at + size <= bytes; at += size) {
		uint64_t x = 0, y = 0;

		memcpy(&x, to + at, size);
		memcpy(&y, from + at, size);
		switch (r->type) {
		case EMU_REDUCE_F16:
			x = of_halves(r->operation, &emu_format_f16, x, y);
			break;
		case EMU_REDUCE_BF16:
			x = of_halves(r->operation, &emu_format_bf16, x, y);
			break;
		case EMU_REDUCE_F32:
			x = add_f32(x, y);
			break;
		case EMU_REDUCE_F64:
			x = add_f64(x, y);
			break;
		default:
			x = of_integers(r, x, y);
		}
		memcpy(to + at, &x, size);
	}
}
