/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tensor_core.c - fused sums of products.  The common case computes whole rows in
 * double, where every product, its scaling by a power of two and its truncation to
 * an integer are exact.  Sums with infinities and NaN are computed one at a time.
 */
#include "hardware/tensor_core.h"

#include <math.h>
#include <string.h>

#include "hardware/power.h"

/* Below every exponent that a product can have. */
#define NO_EXPONENT (-8192)

enum class { FINITE, PLUS_INFINITY, MINUS_INFINITY, NOT_A_NUMBER };

/* Bits after the point: of the aligned terms, and of an fp32 result. */
struct precision {
	int terms, result;
};

static struct precision precision_of(enum emu_mma_type type)
{
	if (emu_mma_type_bytes(type) == 1)
		return (struct precision){13, 13};
	return (struct precision){25, 23};
}

int emu_mma_type_bytes(enum emu_mma_type type)
{
	switch (type) {
	case EMU_TF32:
		return 4;
	case EMU_F16:
	case EMU_BF16:
		return 2;
	default:
		return 1;
	}
}

static float float_of(uint32_t bits)
{
	float x;

	memcpy(&x, &bits, sizeof(x));
	return x;
}

static uint32_t bits_of(float x)
{
	uint32_t bits;

	memcpy(&bits, &x, sizeof(bits));
	return bits;
}

/* ---- operands ------------------------------------------------------------ */

/*
 * How a format maps to fp32: its magnitude bits shifted left are those of a float
 * that is 2^-scale times the value, also for subnormal numbers.
 */
struct format {
	uint32_t sign, magnitude; /* bits of a code; others are not read */
	uint32_t infinity;	  /* the largest finite magnitude plus one */
	bool has_infinity;	  /* else all from there on are NaN */
	int shift, fraction_bits, bias;
};

static const struct format formats[] = {
    [EMU_F16] = {0x8000, 0x7FFF, 0x7C00, true, 13, 10, 15},
    [EMU_BF16] = {0x8000, 0x7FFF, 0x7F80, true, 16, 7, 127},
    /* The low 13 bits of a tf32 are not read. */
    [EMU_TF32] = {0x80000000, 0x7FFFE000, 0x7F800000, true, 0, 23, 127},
    [EMU_E4M3] = {0x80, 0x7F, 0x7F, false, 20, 3, 7},
    [EMU_E5M2] = {0x80, 0x7F, 0x7C, true, 21, 2, 15},
};

static enum class class_of(const struct format *f, uint32_t code) {
	const uint32_t magnitude = code & f->magnitude;

	if (magnitude < f->infinity) return FINITE;
	if (magnitude > f->infinity || !f->has_infinity) return NOT_A_NUMBER;
	return code & f->sign ? MINUS_INFINITY : PLUS_INFINITY;
}

static void fill_row(struct emu_mma_operand *o, int row, const uint32_t *codes,
		     uint32_t flip)
{
	const struct format *f = &formats[o->type];
	const double scale = emu_power_of_2(127 - f->bias);

	o->is_special[row] = 0;
	for (int i = 0, at = row; i < o->k; i++, at += o->rows) {
		const uint32_t code = codes[i] ^ flip;
		const uint32_t magnitude = code & f->magnitude;
		const uint32_t sign = (uint32_t) !!(code & f->sign) << 31;
		const int biased = (int)(magnitude >> f->fraction_bits);
		/* All ones for zeros: signs and zeros are no pattern that a
		 * branch could learn. */
		const int zero = -(int)(magnitude == 0);
		const int exponent = biased + (biased == 0) - f->bias;

		o->value[at] = float_of(magnitude << f->shift | sign) * scale;
		o->exponent[at] = (int16_t)((exponent & ~zero) | (NO_EXPONENT & zero));
		o->kind[at] = FINITE;
		if (magnitude >= f->infinity) {
			o->value[at] = 0;
			o->exponent[at] = NO_EXPONENT;
			o->kind[at] = (uint8_t)class_of(f, code);
			o->is_special[row] = 1;
		}
	}
}

EMU_FAST void emu_mma_operand_fill(struct emu_mma_operand *operand,
				   enum emu_mma_type type, int rows,
				   const uint32_t *codes, bool negate)
{
	operand->rows = rows;
	operand->k = 32 / emu_mma_type_bytes(type);
	operand->type = type;
	for (int row = 0; row < rows; row++)
		fill_row(operand, row, codes + row * operand->k,
			 negate ? formats[type].sign : 0);
}

/* ---- finite sums --------------------------------------------------------- */

/* The state of a row of sums. */
struct row {
	float c[EMU_MMA_MAX_ROWS];
	double finite_c[EMU_MMA_MAX_ROWS]; /* infinities and NaN as zeros */
	int16_t exponent[EMU_MMA_MAX_ROWS];
	double scale[EMU_MMA_MAX_ROWS]; /* terms to integers */
	int32_t sum[EMU_MMA_MAX_ROWS];
};

/* The exponent of a term.  smallest: that of the normal numbers of c's format. */
static int16_t exponent_of_c(double c, int smallest)
{
	const int biased = (int)(bits_of((float)c) >> 23 & 0xFF);

	if (c == 0)
		return EMU_ZERO_EXPONENT;
	return (int16_t)(biased - 127 > smallest ? biased - 127 : smallest);
}

/* c's bits as a float, exactly. */
static float c_of(uint32_t bits, bool is_f16)
{
	float x;

	if (!is_f16)
		return float_of(bits);
	if ((bits & 0x7C00) == 0x7C00)
		x = float_of(0x7F800000 | (bits & 0x3FF) << 13);
	else
		x = float_of((bits & 0x7FFF) << 13) * 0x1p112F;
	return bits & 0x8000 ? -x : x;
}

static void load_c(struct row *row, int n, bool is_f16, const uint32_t *c)
{
	for (int j = 0; j < n; j++) {
		const float x = c ? c_of(c[j], is_f16) : 0;

		row->c[j] = x;
		row->finite_c[j] = isfinite(x) ? x : 0;
		row->exponent[j] = exponent_of_c(row->finite_c[j], is_f16 ? -14 : -126);
	}
}

/* The largest exponent of each sum, and the factor that turns terms into integers. */
static void align(const struct emu_mma_operand *a, const struct emu_mma_operand *b,
		  int m, int fraction_bits, struct row *row)
{
	const int n = b->rows;

	for (int i = 0; i < a->k; i++) {
		const int16_t ea = a->exponent[i * a->rows + m];
		const int16_t *eb = b->exponent + i * n;

		for (int j = 0; j < n; j++) {
			const int16_t e = (int16_t)(ea + eb[j]);

			row->exponent[j] = e > row->exponent[j] ? e : row->exponent[j];
		}
	}
	for (int j = 0; j < n; j++)
		row->scale[j] = emu_power_of_2(fraction_bits - row->exponent[j]);
}

/*
 * Adds the products, each truncated to an integer below 2^27 (2^15 for 8-bit
 * operands).  The sum of all sixteen (32) is below 2^31.
 */
static void add_products(const struct emu_mma_operand *a,
			 const struct emu_mma_operand *b, int m, struct row *row)
{
	const int n = b->rows;

	memset(row->sum, 0, sizeof(row->sum[0]) * (size_t)n);
	for (int i = 0; i < a->k; i++) {
		const double x = a->value[i * a->rows + m];
		const double *y = b->value + i * n;

		for (int j = 0; j < n; j++)
			row->sum[j] += (int32_t)(x * y[j] * row->scale[j]);
	}
}

uint32_t emu_cut_to_f32(double x, int result_bits)
{
	uint64_t bits;

	if (fabs(x) >= 0x1p128)
		return bits_of(x < 0 ? -INFINITY : INFINITY);
	if (fabs(x) < 0x1p-126) {
		const double unit = emu_power_of_2(-126 - result_bits);

		/* A value that is truncated to zero is +0, as on an H200. */
		return bits_of((float)(trunc(x / unit) * unit + 0.0));
	}
	memcpy(&bits, &x, sizeof(bits));
	bits &= ~(uint64_t)0 << (52 - result_bits);
	memcpy(&x, &bits, sizeof(bits));
	return bits_of((float)x);
}

uint32_t emu_round_to_f16(double x)
{
	const uint32_t sign = x < 0 ? 0x8000 : 0;
	uint32_t steps;
	int e;

	if (x == 0)
		return 0;
	if (!isfinite(x))
		return isnan(x) ? 0x7FFF : sign | 0x7C00;
	x = fabs(x);
	frexp(x, &e);
	e = e - 1 > -14 ? e - 1 : -14;
	if (e > 15)
		return sign | 0x7C00;
	/* A carry out of the fraction gives the next exponent, or infinity. */
	steps = (uint32_t)nearbyint(x * emu_power_of_2(10 - e));
	if (steps == 0)
		return 0;
	return sign | (((uint32_t)(e + 14) << 10) + steps);
}

/* ---- infinities and NaN -------------------------------------------------- */

static enum class class_of_product(const struct emu_mma_operand *a, int at_a,
				   const struct emu_mma_operand *b, int at_b) {
	const enum class ca = a->kind[at_a], cb = b->kind[at_b];
	const double x = a->value[at_a], y = b->value[at_b];

	if (ca == FINITE && cb == FINITE) return FINITE;
	if (ca == NOT_A_NUMBER || cb == NOT_A_NUMBER || (ca == FINITE && x == 0) ||
	    (cb == FINITE && y == 0)) return NOT_A_NUMBER;
	if ((ca == MINUS_INFINITY || x < 0) !=
	    (cb == MINUS_INFINITY || y < 0)) return MINUS_INFINITY;
	return PLUS_INFINITY;
}

/* The class of the sum of row m and column n. */
static enum class class_of_sum(const struct emu_mma_operand *a,
			       const struct emu_mma_operand *b, int m, int n, float c) {
	bool seen[4] = {false};

	if (isnan(c)) seen[NOT_A_NUMBER] = true;
	else if (isinf(c)) seen[c < 0 ? MINUS_INFINITY : PLUS_INFINITY] = true;
	for (int i = 0; i < a->k; i++)
	    seen[class_of_product(a, i * a->rows + m, b, i * b->rows + n)] = true;
	if (seen[NOT_A_NUMBER] ||
	    (seen[PLUS_INFINITY] && seen[MINUS_INFINITY])) return NOT_A_NUMBER;
	if (seen[PLUS_INFINITY]) return PLUS_INFINITY;
	return seen[MINUS_INFINITY] ? MINUS_INFINITY : FINITE;
}

static uint32_t special_result(enum class class, bool is_f16)
{
	if (class == NOT_A_NUMBER)
		return is_f16 ? EMU_NAN_F16 : EMU_NAN_F32;
	if (is_f16)
		return class == MINUS_INFINITY ? 0xFC00 : 0x7C00;
	return bits_of(class == MINUS_INFINITY ? -INFINITY : INFINITY);
}

EMU_FAST void emu_fused_sums(const struct emu_mma_operand *a,
			     const struct emu_mma_operand *b, bool d_is_f16,
			     const uint32_t *c, uint32_t *d)
{
	const struct precision p = precision_of(a->type);
	const int n = b->rows;
	struct row row;

	for (int m = 0; m < a->rows; m++) {
		load_c(&row, n, d_is_f16, c ? c + m * n : NULL);
		align(a, b, m, p.terms, &row);
		add_products(a, b, m, &row);
		for (int j = 0; j < n; j++) {
			const double sum =
			    (row.sum[j] + trunc(row.finite_c[j] * row.scale[j])) *
			    emu_power_of_2(row.exponent[j] - p.terms);
			enum class class = FINITE;

			if (a->is_special[m] || b->is_special[j] || !isfinite(row.c[j]))
				class = class_of_sum(a, b, m, j, row.c[j]);
			if (class != FINITE)
				d[m * n + j] = special_result(class, d_is_f16);
			else
				d[m * n + j] = d_is_f16 ? emu_round_to_f16(sum)
							: emu_cut_to_f32(sum, p.result);
		}
	}
}
