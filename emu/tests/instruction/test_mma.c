/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_mma.c - mma.sync of every type and shape, with random codes in registers that
 * are filled by the PTX ISA's tables.  The results are computed a second time here:
 * in integers, in double where that is exact, and for 16 and 32 bits by
 * tensor_core.h, whose sums tests/hardware/test_wgmma.c checks.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/data.h"
#include "common/run.h"
#include "common/unit.h"
#include "hardware/floats.h"
#include "hardware/tensor_core.h"

#define LANES	  32
#define ROW_BYTES 32
#define N	  8
#define WORDS	  12 /* of a lane's input: A 4, B 2, C 4, scales 2 */

enum family { HALF, SMALL, INTEGER, BITS };

static const struct type {
	const char *name;
	enum family family;
	int bits; /* in a register */
	int exponent_bits, fraction_bits, shift;
	enum emu_mma_type mma;
	bool is_signed;
} types[] = {
    {"f16", HALF, 16, 5, 10, 0, EMU_F16, true},
    {"bf16", HALF, 16, 8, 7, 0, EMU_BF16, true},
    {"tf32", HALF, 32, 8, 10, 13, EMU_TF32, true},
    {"e4m3", SMALL, 8, 4, 3, 0, EMU_E4M3, true},
    {"e5m2", SMALL, 8, 5, 2, 0, EMU_E5M2, true},
    {"e2m3", SMALL, 8, 2, 3, 0, EMU_F16, true},
    {"e3m2", SMALL, 8, 3, 2, 0, EMU_F16, true},
    {"e2m1", SMALL, 8, 2, 1, 2, EMU_F16, true},
    {"s8", INTEGER, 8, 0, 0, 0, EMU_S8, true},
    {"u8", INTEGER, 8, 0, 0, 0, EMU_MMA_U8, false},
    {"s4", INTEGER, 4, 0, 0, 0, EMU_S8, true},
    {"u4", INTEGER, 4, 0, 0, 0, EMU_MMA_U8, false},
    {"b1", BITS, 1, 0, 0, 0, EMU_S8, false},
};

struct form {
	const char *words;	 /* before the shape: ".kind::f8f6f4" */
	const char *a, *b, *sum; /* types by name */
	const char *end;	 /* after the types: ".satfinite" */
	int m, k;
	int scales;	  /* of a row: 0, 1, 2, 4 */
	const char *name; /* of the scales' type */
	bool is_finite;	  /* data without infinities and NaN */
};

/* The data of one instruction; rows of A and columns of B are bytes along k. */
struct data {
	uint8_t a[16][ROW_BYTES], b[N][ROW_BYTES];
	uint8_t scale_a[16][4], scale_b[N][4];
	uint32_t c[16][N];
	int byte_a, thread_a, byte_b, thread_b;
};

static const struct type *type_of(const char *name)
{
	for (size_t i = 0; i < sizeof(types) / sizeof(*types); i++)
		if (strcmp(types[i].name, name) == 0)
			return &types[i];
	fail_msg("%s is no type", name);
	return NULL;
}

static int bits_of(const struct form *f)
{
	return f->scales >= 2 ? 4 : type_of(f->a)->bits;
}

/* ---- the kernel ---------------------------------------------------------- */

static char *list(char *at, int first, int count)
{
	at += sprintf(at, "{");
	for (int i = 0; i < count; i++)
		at += sprintf(at, "%s%%r%d", i ? ", " : "", first + i);
	return at + sprintf(at, "}");
}

static int sums_of(const struct form *f)
{
	return f->m / 4 / (strcmp(f->sum, "f16") == 0 ? 2 : 1);
}

static const char *write_body(const struct form *f, const struct data *x)
{
	static char body[4096];
	const int b_words = f->k * bits_of(f) / 128;
	char *at = body;

	at += sprintf(at,
		      "mad.wide.u32 %%d1, %%lane, %d, %%in;\n"
		      "mad.wide.u32 %%d2, %%lane, 16, %%out;\n",
		      4 * WORDS);
	for (int i = 0; i < WORDS; i++)
		at += sprintf(at, "ld.global.u32 %%r%d, [%%d1+%d];\n", i, 4 * i);
	at += sprintf(at, "mma.sync.aligned%s.m%dn8k%d.row.col%s.%s.%s.%s.%s%s ",
		      f->words, f->m, f->k, f->scales ? ".block_scale" : "", f->sum,
		      f->a, f->b, f->sum, f->end);
	at = list(at, 20, sums_of(f));
	at += sprintf(at, ", ");
	at = list(at, 0, b_words * f->m / N);
	at += sprintf(at, ", ");
	at = list(at, 4, b_words);
	at += sprintf(at, ", ");
	at = list(at, 6, sums_of(f));
	if (f->scales)
		at += sprintf(at, ", %%r10, {%d, %d}, {%%r11}, {%d, %d}", x->byte_a,
			      x->thread_a, x->byte_b, x->thread_b);
	at += sprintf(at, ";\n");
	for (int i = 0; i < sums_of(f); i++)
		at += sprintf(at, "st.global.u32 [%%d2+%d], %%r%d;\n", 4 * i, 20 + i);
	return body;
}

static void fill_registers(const struct form *f, const struct data *x,
			   uint32_t in[LANES][WORDS])
{
	const bool is_f16 = strcmp(f->sum, "f16") == 0;

	for (int l = 0; l < LANES; l++) {
		const int g = l / 4, t = l % 4;

		for (int i = 0; i < 4; i++)
			memcpy(&in[l][i],
			       f->m == 8 ? x->a[g] + 4 * t
					 : x->a[g + i % 2 * 8] + 4 * t + i / 2 * 16,
			       4);
		for (int i = 0; i < 2; i++)
			memcpy(&in[l][4 + i], x->b[g] + 4 * t + 16 * i, 4);
		for (int e = 0; e < f->m / 4; e++) {
			const uint32_t c = x->c[g + e / 2 * 8][2 * t + e % 2];

			if (!is_f16)
				in[l][6 + e] = c;
			else if (e % 2 == 0)
				in[l][6 + e / 2] = c;
			else
				in[l][6 + e / 2] |= c << 16;
		}
		/* Other lanes and bytes hold NaN. */
		in[l][10] = in[l][11] = UINT32_MAX;
		if (t / 2 == x->thread_a)
			memcpy((uint8_t *)&in[l][10] + x->byte_a,
			       x->scale_a[g + t % 2 * 8], (size_t)f->scales);
		if (t == x->thread_b)
			memcpy((uint8_t *)&in[l][11] + x->byte_b, x->scale_b[g],
			       (size_t)f->scales);
	}
}

/* ---- what must come out -------------------------------------------------- */

static uint32_t code_of(const uint8_t *row, int bits, int k)
{
	uint32_t code = 0;

	for (int i = 0; i < bits; i++) {
		const int at = k * bits + i;

		code |= (uint32_t)(row[at / 8] >> at % 8 & 1) << i;
	}
	return code;
}

static int64_t integer(const struct type *t, uint32_t code)
{
	const uint32_t sign = UINT32_C(1) << (t->bits - 1);

	return t->is_signed && (code & sign) ? (int64_t)code - 2 * (int64_t)sign : code;
}

static uint32_t integer_sum(const struct form *f, const uint8_t *a, const uint8_t *b,
			    uint32_t c)
{
	const struct type *ta = type_of(f->a), *tb = type_of(f->b);
	int64_t sum = (int32_t)c;

	for (int k = 0; k < f->k; k++) {
		const uint32_t x = code_of(a, ta->bits, k);
		const uint32_t y = code_of(b, tb->bits, k);

		if (ta->family == INTEGER)
			sum += integer(ta, x) * integer(tb, y);
		else
			sum += strstr(f->end, "xor") ? x != y : x && y;
	}
	if (strstr(f->end, "satfinite"))
		sum = sum > INT32_MAX ? INT32_MAX : sum < INT32_MIN ? INT32_MIN : sum;
	return (uint32_t)sum;
}

/* A number: its value, its exponent (of a subnormal the smallest) and its class. */
struct number {
	double value;
	int exponent;
	bool is_nan;
	int infinity;
};

static struct number number_of(const struct type *t, uint32_t code)
{
	const int width = t->exponent_bits + t->fraction_bits;
	const int bias = (1 << (t->exponent_bits - 1)) - 1;
	const int fraction = (int)(code & ((1u << t->fraction_bits) - 1));
	const int biased =
	    (int)(code >> t->fraction_bits) & ((1 << t->exponent_bits) - 1);
	const int sign = code >> width & 1 ? -1 : 1;
	struct number x = {0};

	x.exponent = (biased ? biased : 1) - bias;
	x.value = sign * ldexp(fraction + (biased ? 1 << t->fraction_bits : 0),
			       x.exponent - t->fraction_bits);
	if (t->mma == EMU_E4M3)
		x.is_nan = biased == 15 && fraction == 7;
	if (t->mma == EMU_E5M2 && biased == 31) {
		x.is_nan = fraction != 0;
		x.infinity = fraction ? 0 : sign;
	}
	return x;
}

static struct number number_of_c(uint32_t bits, bool is_f16)
{
	struct number x = {.value = is_f16 ? emu_widen(&emu_format_f16, bits)
					   : (double)float_of_bits(bits)};
	int e = 0;

	frexp(x.value, &e);
	x.exponent = e - 1;
	if (is_f16 && x.exponent < -14)
		x.exponent = -14;
	x.is_nan = isnan(x.value);
	x.infinity = isinf(x.value) ? (x.value > 0 ? 1 : -1) : 0;
	return x;
}

/* Truncates; beyond the largest number gives infinity, and zeros are +0. */
static uint32_t rounded(double x, bool is_f16)
{
	uint32_t bits;

	if (is_f16)
		bits = emu_narrow(&emu_format_f16, x, EMU_RN, false);
	else if (fabs(x) >= 0x1p128)
		bits = bits_of_float(x < 0 ? -INFINITY : INFINITY);
	else
		bits = emu_narrow_f32(x, EMU_RZ);
	return bits << (is_f16 ? 17 : 1) == 0 ? 0 : bits;
}

/* The sum of terms with exponents, each truncated to a number of bits after the
 * largest; the last term is c. */
static double cut_sum(const double *term, const int *exponent, int count,
		      bool counts_zeros, int bits)
{
	int e = -133;
	double sum = 0;

	for (int i = 0; i < count; i++)
		if ((term[i] != 0 || (counts_zeros && i < count - 1)) &&
		    exponent[i] > e)
			e = exponent[i];
	for (int i = 0; i < count; i++)
		sum += trunc(ldexp(term[i], bits - e));
	return ldexp(sum, e - bits);
}

/* Sums of products of 8, 6 or 4 bits, with two scales of 2^k or none. */
static uint32_t small_sum(const struct form *f, const struct data *x, int m, int n)
{
	const struct type *ta = type_of(f->a), *tb = type_of(f->b);
	const bool is_f16 = strcmp(f->sum, "f16") == 0;
	const struct number c = number_of_c(x->c[m][n], is_f16);
	const int scale = f->scales ? x->scale_a[m][0] + x->scale_b[n][0] - 254 : 0;
	double term[33], check = c.infinity ? c.value : 0;
	int exponent[33];
	bool is_nan = c.is_nan;

	for (int k = 0; k < f->k; k++) {
		const struct number a =
		    number_of(ta, code_of(x->a[m], 8, k) >> ta->shift);
		const struct number b =
		    number_of(tb, code_of(x->b[n], 8, k) >> tb->shift);

		term[k] = ldexp(a.value * b.value, scale);
		exponent[k] = a.exponent + b.exponent + scale;
		is_nan |= a.is_nan || b.is_nan;
		if (a.infinity || b.infinity)
			check +=
			    (a.infinity ? a.infinity * (double)INFINITY : a.value) *
			    (b.infinity ? b.infinity * (double)INFINITY : b.value);
	}
	if (f->scales)
		is_nan |= x->scale_a[m][0] == 255 || x->scale_b[n][0] == 255;
	if (is_nan || isnan(check))
		return is_f16 ? EMU_NAN_F16 : EMU_NAN_F32;
	if (isinf(check))
		return rounded(check, is_f16);
	term[f->k] = c.value;
	exponent[f->k] = c.exponent;
	return rounded(cut_sum(term, exponent, f->k + 1, false, 25), is_f16);
}

/* One scale: its significand's value and its exponent. */
static struct number scale_of(const struct form *f, uint8_t code)
{
	struct number x;

	if (strcmp(f->name, "ue8m0") == 0)
		return (struct number){.value = ldexp(1, code - 127),
				       .exponent = code - 127,
				       .is_nan = code == 255};
	x = number_of(type_of("e4m3"), code & 0x7F);
	if (x.value == 0)
		x.exponent = -126;
	return x;
}

/* Sums of 16 products of e2m1, each truncated to 35 bits after the largest. */
static uint32_t fp4_sum(const struct form *f, const struct data *x, int m, int n)
{
	const struct type *t = type_of("e2m1");
	const struct number c = number_of_c(x->c[m][n], false);
	double term[5];
	int exponent[5];

	for (int g = 0; g < 4; g++) {
		const int at = g * f->scales / 4;
		const struct number a = scale_of(f, x->scale_a[m][at]);
		const struct number b = scale_of(f, x->scale_b[n][at]);
		double sum = 0;

		if (a.is_nan || b.is_nan)
			return EMU_NAN_F32;
		for (int k = 16 * g; k < 16 * g + 16; k++)
			sum += number_of(t, code_of(x->a[m], 4, k)).value *
			       number_of(t, code_of(x->b[n], 4, k)).value;
		term[g] = sum * a.value * b.value;
		exponent[g] = a.exponent + b.exponent;
	}
	if (c.is_nan)
		return EMU_NAN_F32;
	if (c.infinity)
		return x->c[m][n];
	term[4] = c.value;
	exponent[4] = c.exponent;
	return rounded(cut_sum(term, exponent, 5, true, 35), false);
}

static void half_sums(const struct form *f, const struct data *x, uint32_t want[16][N])
{
	static struct emu_mma_operand a, b;
	const struct type *t = type_of(f->a);
	const int all = ROW_BYTES * 8 / t->bits;
	uint32_t codes[16][16] = {{0}}, codes_b[16 * N] = {0}, flat[16 * 16];

	for (int i = 0; i < 16 * f->k; i++)
		codes[i / f->k][i % f->k] = code_of(x->a[i / f->k], t->bits, i % f->k);
	for (int i = 0; i < 16 * all; i++)
		flat[i] = codes[i / all][i % all];
	for (int i = 0; i < N * f->k; i++)
		codes_b[i / f->k * all + i % f->k] =
		    code_of(x->b[i / f->k], t->bits, i % f->k);
	emu_mma_operand_fill(&a, t->mma, 16, flat, false);
	emu_mma_operand_fill(&b, t->mma, N, codes_b, false);
	emu_fused_sums(&a, &b, strcmp(f->sum, "f16") == 0, x->c[0], want[0]);
}

static void all_sums(const struct form *f, const struct data *x, uint32_t want[16][N])
{
	const enum family family = type_of(f->a)->family;

	if (family == HALF) {
		half_sums(f, x, want);
		return;
	}
	for (int i = 0; i < f->m * N; i++) {
		const int m = i / N, n = i % N;

		want[m][n] = family != SMALL
				 ? integer_sum(f, x->a[m], x->b[n], x->c[m][n])
			     : f->scales >= 2 ? fp4_sum(f, x, m, n)
					      : small_sum(f, x, m, n);
	}
}

/* ---- checking one form --------------------------------------------------- */

static uint8_t any_scale(const struct form *f)
{
	const uint32_t x = emu_test_random();

	if (x % 64 == 0) /* any code */
		return (uint8_t)(x >> 8);
	return strcmp(f->name, "ue8m0") == 0 ? (uint8_t)(118 + (x >> 8) % 20)
					     : (uint8_t)(x >> 8 & 0xFF);
}

static void fill(const struct form *f, struct data *x)
{
	const uint32_t starts = f->scales ? 4 / (uint32_t)f->scales : 1;

	for (size_t i = 0; i < sizeof(*x); i++)
		((uint8_t *)x)[i] = (uint8_t)emu_test_random();
	for (int i = 0; f->is_finite && i < ROW_BYTES * (16 + N); i++)
		((uint8_t *)x)[i] &= 0xBB; /* A and B */
	for (int i = 0; f->scales && i < 16 * 4; i++) {
		x->scale_a[i / 4][i % 4] = any_scale(f);
		x->scale_b[i / 8][i % 4] = any_scale(f);
	}
	for (int i = 0; i < 16 * N; i++) {
		/* Some of C has a product's size. */
		if (strcmp(f->sum, "f32") == 0 && emu_test_random() % 4)
			x->c[i / N][i % N] =
			    (x->c[i / N][i % N] & 0x87FFFFFF) | UINT32_C(0x38) << 24;
		if (strcmp(f->sum, "f16") == 0)
			x->c[i / N][i % N] &= 0xFFFF;
	}
	x->byte_a = (int)(emu_test_random() % starts) * f->scales;
	x->byte_b = (int)(emu_test_random() % starts) * f->scales;
	x->thread_a = (int)(emu_test_random() % 2);
	x->thread_b = (int)(emu_test_random() % 4);
}

static void check(const struct form *f)
{
	uint32_t in[LANES][WORDS] = {{0}}, out[LANES][4], want[16][N] = {{0}};
	struct emu_job job = {.in = in,
			      .in_bytes = sizeof(in),
			      .out = out,
			      .out_bytes = sizeof(out),
			      .target = f->words[0] ? "sm_120a" : NULL};
	const bool is_f16 = strcmp(f->sum, "f16") == 0;
	static struct data x;

	fill(f, &x);
	fill_registers(f, &x, in);
	all_sums(f, &x, want);
	emu_must_run(write_body(f, &x), &job);
	for (int l = 0; l < LANES; l++)
		for (int e = 0; e < f->m / 4; e++) {
			const int m = l / 4 + e / 2 * 8;
			const int n = 2 * (l % 4) + e % 2;
			const uint32_t got =
			    is_f16 ? out[l][e / 2] >> e % 2 * 16 & 0xFFFF : out[l][e];

			if (got != want[m][n])
				fail_msg("%s m%dk%d %s.%s.%s%s, row %d column "
					 "%d: %08x, not %08x",
					 f->words, f->m, f->k, f->sum, f->a, f->b,
					 f->end, m, n, got, want[m][n]);
		}
}

/* ---- tests --------------------------------------------------------------- */

static void halves(void **state)
{
	static const struct form forms[] = {
	    {"", "f16", "f16", "f32", "", 16, 8, 0, "", false},
	    {"", "f16", "f16", "f32", "", 16, 16, 0, "", false},
	    {"", "f16", "f16", "f16", "", 16, 8, 0, "", false},
	    {"", "f16", "f16", "f16", "", 16, 16, 0, "", false},
	    {"", "bf16", "bf16", "f32", "", 16, 8, 0, "", false},
	    {"", "bf16", "bf16", "f32", "", 16, 16, 0, "", false},
	    {"", "tf32", "tf32", "f32", "", 16, 4, 0, "", false},
	    {"", "tf32", "tf32", "f32", "", 16, 8, 0, "", false},
	};

	for (size_t i = 0; i < 4 * sizeof(forms) / sizeof(*forms); i++)
		check(&forms[i / 4]);
}

static void integers(void **state)
{
	static const char *const names[] = {"s8", "u8", "s4", "u4"};
	static const char *const ends[] = {"", ".satfinite"};

	for (int i = 0; i < 2 * 2 * 2 * 2 * 3; i++) {
		const int of_bits = i % 2 * 2; /* eight or four */
		struct form f = {.words = "",
				 .a = names[of_bits + i / 2 % 2],
				 .b = names[of_bits + i / 4 % 2],
				 .sum = "s32",
				 .end = ends[i / 8 % 2],
				 .m = i / 16 == 0 ? 8 : 16};

		f.k = (i / 16 == 2 ? 256 : 128) / type_of(f.a)->bits;
		check(&f);
	}
	for (int i = 0; i < 6; i++)
		check(&(struct form){.words = "",
				     .a = "b1",
				     .b = "b1",
				     .sum = "s32",
				     .end = i % 2 ? ".xor.popc" : ".and.popc",
				     .m = i / 2 == 0 ? 8 : 16,
				     .k = i / 2 == 2 ? 256 : 128});
}

static void eight_bits(void **state)
{
	static const char *const names[] = {"e4m3", "e5m2"};

	for (int i = 0; i < 32; i++)
		check(&(struct form){.words = "",
				     .a = names[i % 2],
				     .b = names[i / 2 % 2],
				     .sum = i / 4 % 2 ? "f16" : "f32",
				     .end = "",
				     .m = 16,
				     .k = i / 8 % 2 ? 16 : 32,
				     .is_finite = i / 16});
}

static void small_floats(void **state)
{
	static const char *const names[] = {"e4m3", "e5m2", "e2m3", "e3m2", "e2m1"};

	for (int i = 0; i < 25 * 6; i++) {
		struct form f = {.words = ".kind::f8f6f4",
				 .a = names[i / 6 % 5],
				 .b = names[i / 30],
				 .sum = i % 3 == 1 ? "f16" : "f32",
				 .end = "",
				 .m = 16,
				 .k = 32,
				 .is_finite = i / 3 % 2};

		if (i % 3 == 2) {
			f.words = ".kind::mxf8f6f4";
			f.scales = 1;
			f.name = "ue8m0";
			f.end = ".ue8m0";
		}
		check(&f);
	}
}

static void four_bits(void **state)
{
	static const struct form forms[] = {
	    {".kind::mxf4", "e2m1", "e2m1", "f32", ".ue8m0", 16, 64, 2, "ue8m0", false},
	    {".kind::mxf4nvf4.scale_vec::2X", "e2m1", "e2m1", "f32", ".ue8m0", 16, 64,
	     2, "ue8m0", false},
	    {".kind::mxf4nvf4.scale_vec::4X", "e2m1", "e2m1", "f32", ".ue8m0", 16, 64,
	     4, "ue8m0", false},
	    {".kind::mxf4nvf4.scale_vec::4X", "e2m1", "e2m1", "f32", ".ue4m3", 16, 64,
	     4, "ue4m3", false},
	};

	for (size_t i = 0; i < 16 * sizeof(forms) / sizeof(*forms); i++)
		check(&forms[i / 16]);
}

/* PTX: a0 a1 ... at row g or g + 8 and k t, t + 4, ...; one fma after another
 * in the order of k. */
static void check_doubles(int m, int k)
{
	const int b_words = k / 4, a_words = b_words * m / N, sums = m / 4;
	double a[16][16], b[N][16], c[16][N], in[LANES][16], out[LANES][4];
	struct emu_job job = {
	    .in = in, .in_bytes = sizeof(in), .out = out, .out_bytes = sizeof(out)};
	char body[4096], *at = body;
	static const char *const lists[] = {
	    "{%g20, %g21}, {%g0}, {%g8}, {%g12, %g13}",
	    "{%g20, %g21, %g22, %g23}, {%g0, %g1}, {%g8}, {%g12, %g13, %g14, "
	    "%g15}",
	    "{%g20, %g21, %g22, %g23}, {%g0, %g1, %g2, %g3}, {%g8, %g9}, "
	    "{%g12, %g13, %g14, %g15}",
	    "{%g20, %g21, %g22, %g23}, {%g0, %g1, %g2, %g3, %g4, %g5, %g6, "
	    "%g7}, {%g8, %g9, %g10, %g11}, {%g12, %g13, %g14, %g15}"};

	for (int i = 0; i < 16 * 16; i++)
		a[i / 16][i % 16] = ldexp((int32_t)emu_test_random(), -20);
	for (int i = 0; i < 16 * N; i++) {
		b[i / 16][i % 16] = ldexp((int32_t)emu_test_random(), -40);
		c[i / N][i % N] = ldexp((int32_t)emu_test_random(), -30) / 3;
	}
	for (int l = 0; l < LANES; l++) {
		for (int i = 0; i < a_words; i++)
			in[l][i] = m == 8 ? a[l / 4][l % 4]
					  : a[l / 4 + i % 2 * 8][l % 4 + i / 2 * 4];
		for (int i = a_words; i < 8; i++)
			in[l][i] = NAN;
		for (int i = 0; i < 4; i++)
			in[l][8 + i] = b[l / 4][l % 4 + i * 4];
		for (int i = 0; i < 4; i++)
			in[l][12 + i] = c[l / 4 + i / 2 * 8][l % 4 * 2 + i % 2];
	}
	at += sprintf(at, "mad.wide.u32 %%d1, %%lane, 128, %%in;\n"
			  "mad.wide.u32 %%d2, %%lane, 32, %%out;\n");
	for (int i = 0; i < 16; i++)
		at += sprintf(at, "ld.global.f64 %%g%d, [%%d1+%d];\n", i, 8 * i);
	at += sprintf(at, "mma.sync.aligned.m%dn8k%d.row.col.f64.f64.f64.f64 %s;\n", m,
		      k, lists[m == 8 ? 0 : k / 8 + 1]);
	for (int i = 0; i < sums; i++)
		at += sprintf(at, "st.global.f64 [%%d2+%d], %%g%d;\n", 8 * i, 20 + i);
	emu_must_run(body, &job);
	for (int l = 0; l < LANES; l++)
		for (int i = 0; i < sums; i++) {
			const int row = l / 4 + i / 2 * 8;
			const int column = l % 4 * 2 + i % 2;
			double want = c[row][column];

			for (int j = 0; j < k; j++)
				want = fma(a[row][j], b[column][j], want);
			assert_true(out[l][i] == want);
		}
}

static void doubles(void **state)
{
	check_doubles(8, 4);
	check_doubles(16, 4);
	check_doubles(16, 8);
	check_doubles(16, 16);
}

/* ---- what is refused ----------------------------------------------------- */

#define A4  "{%r0, %r1, %r2, %r3}"
#define D4  "{%r4, %r5, %r6, %r7}"
#define ALL D4 ", " A4 ", {%r8, %r9}, " D4

static void refused(const char *target, const char *words, const char *arguments,
		    const char *why)
{
	struct emu_job job = {.target = target};
	char body[512];

	snprintf(body, sizeof(body), "mma.sync.aligned.%s %s;\n", words, arguments);
	emu_must_fail(body, &job, why, NULL);
}

static void what_is_refused(void **state)
{
	static const char *const scaled =
	    "m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32."
	    "e2m1.e2m1.f32.ue4m3";

	refused(NULL, "m16n8k16.row.col.f32.f16.bf16.f32", ALL,
		"A and B such as can be multiplied");
	refused(NULL, "m16n8k16.row.col.f16.bf16.bf16.f16", ALL,
		"one type that .bf16 is summed in");
	refused(NULL, "m16n8k32.row.col.f32.f16.f16.f32", ALL, "m16n8k32 of .f16");
	refused(NULL, "m8n8k4.row.col.f32.f16.f16.f32", ALL, "m8n8k4 of .f16");
	refused(NULL, "m16n8k16.row.col.satfinite.f32.f16.f16.f32", ALL,
		".satfinite is for integers");
	refused(NULL, "m16n8k256.row.col.s32.b1.b1.s32", ALL, ".popc");
	refused(NULL, "m16n8k16.row.f32.f16.f16.f32", ALL, "is missing");
	refused("sm_90a", scaled, ALL, ".target sm_120a or sm_120f");
	refused("sm_120", scaled, ALL, ".target sm_120a or sm_120f");
	refused("sm_120a", scaled, ALL, "arguments");
	refused("sm_120a", scaled, ALL ", {%r1, %r2}, {0, 0}, %r2, {0, 0}",
		"2 words of scales");
	refused("sm_120a", scaled, ALL ", %r1, {1, 0}, %r2, {0, 0}",
		"its byte-id is 1");
	refused("sm_120a", scaled, ALL ", %r1, {0, 2}, %r2, {0, 0}",
		"its thread-id is 2");
	refused("sm_120a", scaled, ALL ", %r1, {0, 0}, %r2, {0, 4}",
		"its thread-id is 4");
	refused("sm_120a",
		"m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::2X."
		"f32.e2m1.e2m1.f32.ue4m3",
		ALL ", %r1, {0, 0}, %r2, {0, 0}", "must be .ue8m0");
	refused("sm_120a",
		"m16n8k32.row.col.kind::f8f6f4.block_scale.f32.e2m1.e2m1.f32", ALL,
		"has no .block_scale");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(halves),	       cmocka_unit_test(integers),
	    cmocka_unit_test(eight_bits),      cmocka_unit_test(small_floats),
	    cmocka_unit_test(four_bits),       cmocka_unit_test(doubles),
	    cmocka_unit_test(what_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
