/* SPDX-License-Identifier: Apache-2.0 */
/* wgmma_cases.c - see wgmma_cases.h. */
#include "wgmma_cases.h"

/* ---- random bits --------------------------------------------------------- */

/* SplitMix64. */
static uint64_t next(uint64_t *state)
{
	uint64_t x = *state += UINT64_C(0x9E3779B97F4A7C15);

	x = (x ^ x >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
	x = (x ^ x >> 27) * UINT64_C(0x94D049BB133111EB);
	return x ^ x >> 31;
}

static uint32_t below(uint64_t *state, uint32_t n)
{
	return (uint32_t)((next(state) >> 32) * n >> 32);
}

/* ---- float formats ------------------------------------------------------- */

struct format {
	int exponent_bits, fraction_bits;
	int shift; /* of its bits in a code: what is below is not read */
};

static const struct format formats[] = {
    [EMU_F16] = {5, 10, 0}, [EMU_BF16] = {8, 7, 0}, [EMU_TF32] = {8, 10, 13},
    [EMU_E4M3] = {4, 3, 0}, [EMU_E5M2] = {5, 2, 0},
};
static const struct format fp32 = {8, 23, 0};

/* sign, biased exponent and fraction as a code; an exponent out of range
 * becomes the nearest finite one. */
static uint32_t code_of(const struct format *f, uint32_t sign, int biased,
			uint32_t fraction)
{
	const int most = (1 << f->exponent_bits) - 2;

	biased = biased < 0 ? 0 : biased > most ? most : biased;
	fraction &= (1u << f->fraction_bits) - 1;
	return ((sign << f->exponent_bits | (uint32_t)biased) << f->fraction_bits |
		fraction)
	       << f->shift;
}

static int bias_of(const struct format *f)
{
	return (1 << (f->exponent_bits - 1)) - 1;
}

/* ---- kinds of data ------------------------------------------------------- */

enum data { ANY, FINITE, NARROW, SPARSE, POWERS, TINY, HUGE };

const char *wgmma_data_name(int data)
{
	static const char *const names[WGMMA_DATA] = {
	    "any", "finite", "narrow", "sparse", "powers", "tiny", "huge"};

	return names[data];
}

/* A power of two at most 2^-low below the largest of the kind. */
static uint32_t power(const struct format *f, uint64_t *state, int top, uint32_t low)
{
	const uint32_t sign = below(state, 2);
	const int e = top - (int)below(state, low);

	return code_of(f, sign, e + bias_of(f), 0);
}

/* is_b: an element of B; with HUGE, products are then near the largest float. */
static uint32_t element(const struct format *f, enum data data, bool is_b,
			uint64_t *state)
{
	const int bias = bias_of(f), most = (1 << f->exponent_bits) - 2;
	const uint32_t bits = (uint32_t)next(state), sign = bits >> 31;
	const int any = (int)below(state, (uint32_t)most + 1);

	switch (data) {
	case ANY: /* one in 64 infinite or NaN */
		if (below(state, 64) == 0)
			return code_of(f, sign, 0, below(state, 2) ? bits : 0) |
			       ((1u << f->exponent_bits) - 1)
				   << f->fraction_bits << f->shift;
		return code_of(f, sign, any, bits);
	case FINITE:
		return code_of(f, sign, any, bits);
	case NARROW:
		return code_of(f, sign, bias - (int)below(state, 3), bits);
	case SPARSE:
		if (below(state, 4))
			return code_of(f, sign, 0, 0);
		return code_of(f, sign, any, bits);
	case POWERS:
		return below(state, 8) ? power(f, state, 0, 15)
				       : code_of(f, sign, 0, 0);
	case TINY: /* half of them subnormal */
		return code_of(f, sign, (int)below(state, 2) * (any / 4), bits);
	default:
		return code_of(f, sign, (is_b ? bias - 2 : most) - (int)below(state, 3),
			       bits);
	}
}

static uint32_t addend(const struct format *f, enum data data, uint64_t *state)
{
	const struct format half = formats[EMU_F16];
	const uint32_t bits = (uint32_t)next(state), sign = bits >> 31;
	const bool is_half = f->exponent_bits == half.exponent_bits;
	const int most = (1 << f->exponent_bits) - 2;

	if (below(state, 4) == 0)
		return code_of(f, sign, 0, 0);
	switch (data) {
	case NARROW:
		return code_of(f, sign, bias_of(f) + 2 - (int)below(state, 8), bits);
	case POWERS:
		return power(f, state, 1, is_half ? 14 : 30);
	case TINY:
		return code_of(f, sign, (int)below(state, 2) * (int)below(state, 40),
			       bits);
	case HUGE:
		return code_of(f, sign, most - (int)below(state, 4), bits);
	default:
		return element(f, data, false, state);
	}
}

/* ---- variants ------------------------------------------------------------ */

/* The last two are mma.sync: the same sums, other registers. */
static const struct {
	const char *name;
	enum emu_mma_type a, b;
	bool d_is_f16;
} variants[WGMMA_VARIANTS] = {
    {"wgmma.f32.f16.f16", EMU_F16, EMU_F16, false},
    {"wgmma.f32.bf16.bf16", EMU_BF16, EMU_BF16, false},
    {"wgmma.f32.tf32.tf32", EMU_TF32, EMU_TF32, false},
    {"wgmma.f32.e4m3.e4m3", EMU_E4M3, EMU_E4M3, false},
    {"wgmma.f32.e5m2.e5m2", EMU_E5M2, EMU_E5M2, false},
    {"wgmma.f32.e4m3.e5m2", EMU_E4M3, EMU_E5M2, false},
    {"wgmma.f16.f16.f16", EMU_F16, EMU_F16, true},
    {"wgmma.f16.e4m3.e4m3", EMU_E4M3, EMU_E4M3, true},
    {"wgmma.f16.e5m2.e5m2", EMU_E5M2, EMU_E5M2, true},
    {"mma.f32.f16.f16.f32", EMU_F16, EMU_F16, false},
    {"mma.f32.bf16.bf16.f32", EMU_BF16, EMU_BF16, false},
};

const char *wgmma_variant_name(int variant)
{
	return variants[variant].name;
}

void wgmma_case_make(struct wgmma_case *made, int variant, int data, int index)
{
	const struct format *a = &formats[variants[variant].a];
	const struct format *b = &formats[variants[variant].b];
	const struct format *c = variants[variant].d_is_f16 ? &formats[EMU_F16] : &fp32;
	const enum data kind = (enum data)data;
	uint64_t state =
	    (uint64_t)((variant * WGMMA_DATA + data) * WGMMA_REPEATS + index) << 32;

	made->shape = (struct emu_wgmma_shape){
	    .n = WGMMA_N,
	    .k = 32 / emu_mma_type_bytes(variants[variant].a),
	    .a_type = variants[variant].a,
	    .b_type = variants[variant].b,
	    .d_is_f16 = variants[variant].d_is_f16,
	};
	for (int i = 0; i < WGMMA_M * made->shape.k; i++)
		made->a[i] = element(a, kind, false, &state);
	for (int i = 0; i < WGMMA_N * made->shape.k; i++)
		made->b[i] = element(b, kind, true, &state);
	for (int i = 0; i < WGMMA_SUMS; i++)
		made->c[i] = addend(c, kind, &state);
}

void wgmma_case_model(const struct wgmma_case *asked, uint32_t *d)
{
	for (int warp = 0; warp < 4; warp++)
		emu_wgmma_rows(&asked->shape, asked->a + warp * 16 * asked->shape.k,
			       asked->b, asked->c + warp * 16 * WGMMA_N,
			       d + warp * 16 * WGMMA_N);
}

uint64_t wgmma_hash(const uint32_t *words, int count)
{
	uint64_t hash = UINT64_C(0xCBF29CE484222325);

	for (int i = 0; i < count; i++)
		for (int shift = 0; shift < 32; shift += 8)
			hash = (hash ^ (words[i] >> shift & 0xFF)) *
			       UINT64_C(0x100000001B3);
	return hash;
}

/* ---- places -------------------------------------------------------------- */

/* In 16 bytes, as a descriptor has them; swizzle: its two bits. */
static const struct {
	uint16_t start, lead, stride;
	uint8_t base, swizzle;
	bool is_transposed;
} places[] = {
    /* Without swizzle: packed, apart, strides exchanged. */
    {0, 8, 16, 0, 0, false},
    {64, 128, 8, 0, 0, false},
    {3, 8, 24, 0, 0, false},
    {0, 8, 16, 0, 0, true},
    {64, 128, 8, 0, 0, true},
    {5, 160, 8, 0, 0, true},
    /* Each swizzle, packed; inside the row; rows further apart. */
    {0, 1, 64, 0, 1, false},
    {2, 1, 64, 0, 1, false},
    {6, 1, 64, 0, 1, false},
    {64, 9, 128, 0, 1, false},
    {0, 1, 32, 0, 2, false},
    {2, 1, 32, 0, 2, false},
    {64, 1, 48, 0, 2, false},
    {0, 1, 16, 0, 3, false},
    {64, 1, 40, 0, 3, false},
    {0, 512, 64, 0, 1, true},
    {64, 1024, 64, 0, 1, true},
    {128, 512, 128, 0, 1, true},
    {0, 256, 32, 0, 2, true},
    {64, 256, 64, 0, 2, true},
    {0, 128, 16, 0, 3, true},
    {64, 160, 32, 0, 3, true},
    /* Patterns that begin at another row of 128 bytes. */
    {8, 1, 64, 0, 1, false},
    {8, 1, 64, 1, 1, false},
    {24, 1, 64, 3, 1, false},
    {24, 1, 64, 0, 1, false},
    {26, 1, 64, 3, 1, false},
    {40, 1, 64, 5, 1, false},
    {56, 1, 64, 7, 1, false},
    {0, 1, 64, 4, 1, false},
    {8, 1, 32, 1, 2, false},
    {24, 1, 32, 3, 2, false},
    {8, 1, 16, 1, 3, false},
    {24, 512, 64, 3, 1, true},
    {8, 256, 32, 1, 2, true},
};

int wgmma_places(void)
{
	return (int)(sizeof(places) / sizeof(places[0]));
}

struct wgmma_place wgmma_place_make(int index)
{
	return (struct wgmma_place){
	    .descriptor = places[index].start | (uint64_t)places[index].lead << 16 |
			  (uint64_t)places[index].stride << 32 |
			  (uint64_t)places[index].base << 49 |
			  (uint64_t)places[index].swizzle << 62,
	    .is_transposed = places[index].is_transposed,
	};
}

bool wgmma_place_model(struct wgmma_place place, uint32_t *offsets,
		       struct emu_error *err)
{
	const struct emu_wgmma_shape shape = {
	    .n = WGMMA_PLACE_N, .k = 16, .a_type = EMU_F16, .b_type = EMU_F16};
	const int pieces = place.is_transposed ? WGMMA_PLACE_N / 8 : 2;

	for (int i = 0; i < WGMMA_PIECES; i++)
		if (!emu_wgmma_offset(place.descriptor, &shape, place.is_transposed,
				      i / pieces, i % pieces, offsets + i, err))
			return false;
	return true;
}
