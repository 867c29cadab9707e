/* SPDX-License-Identifier: Apache-2.0 */
/*
 * op_mma.c - mma.sync: one matrix multiplication of a warp, of every dense type
 * except m8n8k4 of fp16.  The registers of a lane follow one pattern for all types,
 * with g = lane / 4 and t = lane % 4:
 *
 *	register i of A	 32-bit word t + i / 2 * 4 of the bits of k, in row g, or in
 *			 row g + 8 if i is odd
 *	register i of B	 word t + i * 4 of column g
 *	C and D		 columns 2t and 2t + 1 of row g, then of row g + 8
 *
 * The arithmetic of types of 16 and 32 bits is that of tensor_core.h.  That of 8, 6
 * and 4 bits is in block_sums.h, with 25 bits below the largest exponent in the
 * warp's instruction on 9.0, 10.0 and 12.0 (Xie et al., MMA-Sim, arXiv 2511.10909,
 * and its code).  fp64 is one fused multiply-add after the other.
 */
#include <math.h>
#include <string.h>

#include "hardware/block_sums.h"
#include "hardware/tensor_core.h"
#include "instruction/binds.h"
#include "machine/warp.h"

#define MAX_K 256
#define N     8

enum family { FLOAT, SMALL_FLOAT, INTEGER, ONE_BIT, DOUBLE };

enum scaling { NO_SCALES, KIND_F8F6F4, KIND_MXF8F6F4, KIND_MXF4 };

/* code: the engine's name of the type; bits: of an element in a register. */
static const struct element_type {
	enum emu_type type;
	enum family family;
	int bits, code;
} element_types[] = {
    {EMU_T_F16, FLOAT, 16, EMU_F16},
    {EMU_T_BF16, FLOAT, 16, EMU_BF16},
    {EMU_T_TF32, FLOAT, 32, EMU_TF32},
    {EMU_T_E4M3, SMALL_FLOAT, 8, EMU_UMMA_TYPE_E4M3},
    {EMU_T_E5M2, SMALL_FLOAT, 8, EMU_UMMA_TYPE_E5M2},
    {EMU_T_E2M3, SMALL_FLOAT, 8, EMU_UMMA_TYPE_E2M3},
    {EMU_T_E3M2, SMALL_FLOAT, 8, EMU_UMMA_TYPE_E3M2},
    {EMU_T_E2M1, SMALL_FLOAT, 8, EMU_UMMA_TYPE_E2M1},
    {EMU_S8T, INTEGER, 8, 0},
    {EMU_U8, INTEGER, 8, 0},
    {EMU_T_S4, INTEGER, 4, 0},
    {EMU_T_U4, INTEGER, 4, 0},
    {EMU_T_B1, ONE_BIT, 1, 0},
    {EMU_F64, DOUBLE, 64, 0},
};

/* Bits of an instruction's option, above the types of a (at 0) and b (at 4). */
enum {
	M_IS_8 = 1 << 8,
	D_IS_F16 = 1 << 9,
	SATURATES = 1 << 10,
	AND_OF_BITS = 1 << 11,
	SCALING_AT = 12,
	SCALES_AT = 16,
	UE8M0 = 1 << 20,
};

/* The decoded option, the elements of k, and the registers of each operand. */
struct form {
	const struct element_type *a, *b;
	enum scaling scaling;
	int m, k, bits, scales;
	int a_registers, b_registers, c_registers;
};

static struct form form_of(uint32_t option, int64_t k)
{
	struct form f = {
	    .a = &element_types[option & 15],
	    .b = &element_types[option >> 4 & 15],
	    .scaling = (enum scaling)(option >> SCALING_AT & 3),
	    .m = option & M_IS_8 ? 8 : 16,
	    .k = (int)k,
	    .scales = (int)(option >> SCALES_AT & 7),
	};

	f.bits = f.scaling == KIND_MXF4 ? 4 : f.a->bits;
	f.b_registers = N * f.k * f.bits / (32 * EMU_LANES);
	if (f.a->family == DOUBLE)
		f.b_registers /= 2;
	f.a_registers = f.b_registers * f.m / N;
	f.c_registers = f.m / 4 / (option & D_IS_F16 ? 2 : 1);
	return f;
}

/* ---- places of elements -------------------------------------------------- */

/* Row (of B: column) of register i, and its place among the registers of k. */
static int row_of(int rows, int lane, int i)
{
	return lane / 4 + (rows == 16 ? i % 2 * 8 : 0);
}

static int word_of(int rows, int lane, int i)
{
	return lane % 4 + (rows == 16 ? i / 2 : i) * 4;
}

static void place_of_c(int lane, int element, int *row, int *column)
{
	*row = lane / 4 + element / 2 * 8;
	*column = lane % 4 * 2 + element % 2;
}

/* to[row][k of stride]: element codes, low bits first in a register. */
static void gather(const struct emu_warp *w, const struct emu_value *o, int registers,
		   int rows, int bits, int stride, uint32_t *to)
{
	const int share = 32 / bits;
	const uint32_t mask = UINT32_MAX >> (32 - bits);

	for (int i = 0; i < registers; i++) {
		const uint32_t *from = emu_row(w, &o[i]);

		EMU_EACH_LANE(l)
		for (int e = 0; e < share; e++)
			to[row_of(rows, l, i) * stride + word_of(rows, l, i) * share +
			   e] = from[l] >> e * bits & mask;
	}
}

static void gather_c(const struct emu_warp *w, const struct emu_value *o,
		     const struct form *f, bool is_f16, uint32_t *c)
{
	for (int e = 0; e < f->m / 4; e++) {
		const uint32_t *from = emu_row(w, &o[is_f16 ? e / 2 : e]);

		EMU_EACH_LANE(l)
		{
			int row, column;

			place_of_c(l, e, &row, &column);
			c[row * N + column] =
			    is_f16 ? from[l] >> e % 2 * 16 & 0xFFFF : from[l];
		}
	}
}

static void put_d(struct emu_warp *w, const struct emu_value *o, const struct form *f,
		  bool is_f16, const uint32_t *d, uint32_t lanes)
{
	uint32_t r[4][EMU_LANES] = {{0}};

	for (int e = 0; e < f->m / 4; e++)
		EMU_EACH_LANE(l)
		{
			int row, column;

			place_of_c(l, e, &row, &column);
			if (is_f16)
				r[e / 2][l] |= d[row * N + column] << e % 2 * 16;
			else
				r[e][l] = d[row * N + column];
		}
	for (int i = 0; i < f->c_registers; i++)
		emu_put_32(w, &o[i], r[i], lanes);
}

/* ---- arithmetic ---------------------------------------------------------- */

struct operands {
	uint32_t a[16 * MAX_K], b[N * MAX_K], c[16 * N];
};

/* The sums take operands of 32 bytes of k; missing elements are zeros. */
static void float_sums(const struct form *f, struct operands *x, bool is_f16)
{
	static _Thread_local struct emu_mma_operand a, b;

	emu_mma_operand_fill(&a, (enum emu_mma_type)f->a->code, f->m, x->a, false);
	emu_mma_operand_fill(&b, (enum emu_mma_type)f->b->code, N, x->b, false);
	emu_fused_sums(&a, &b, is_f16, x->c, x->c);
}

/* Elements of 4 bits are in the middle of a byte, of 6 bits at its low end. */
static uint8_t code_in_byte(const struct element_type *t, uint32_t byte)
{
	if (t->type == EMU_T_E2M1)
		return byte >> 2 & 0xF;
	if (t->type == EMU_T_E2M3 || t->type == EMU_T_E3M2)
		return byte & 0x3F;
	return (uint8_t)byte;
}

static void set_operand(const struct form *f, const struct element_type *t, int rows,
			int stride, const uint32_t *codes, struct emu_block_operand *to)
{
	const enum emu_umma_kind kind =
	    f->scaling == KIND_MXF4 ? EMU_UMMA_MXF4NVF4 : EMU_UMMA_MXF8F6F4;
	uint8_t bytes[EMU_UMMA_MAX_K] = {0};

	to->rows = rows;
	to->type = (enum emu_umma_type)t->code;
	to->scales = f->scales;
	for (int row = 0; row < rows; row++) {
		for (int k = 0; k < f->k; k++)
			bytes[k] = kind == EMU_UMMA_MXF4NVF4
				       ? (uint8_t)codes[row * stride + k]
				       : code_in_byte(t, codes[row * stride + k]);
		emu_block_operand_set(to, row, kind, bytes, false);
	}
}

static int64_t integer_of(enum emu_type type, uint32_t code)
{
	switch (type) {
	case EMU_S8T:
		return (int8_t)code;
	case EMU_T_S4:
		return (int64_t)(code ^ 8) - 8;
	default:
		return code;
	}
}

static void integer_sums(const struct form *f, struct operands *x, int stride,
			 uint32_t option)
{
	const bool saturates = option & SATURATES, is_and = option & AND_OF_BITS;

	for (int at = 0; at < f->m * N; at++) {
		const uint32_t *a = x->a + at / N * stride;
		const uint32_t *b = x->b + at % N * stride;
		int64_t sum = (int32_t)x->c[at];

		for (int k = 0; k < f->k; k++)
			sum += f->a->family == INTEGER
				   ? integer_of(f->a->type, a[k]) *
					 integer_of(f->b->type, b[k])
				   : (is_and ? a[k] & b[k] : a[k] ^ b[k]);
		if (saturates && sum > INT32_MAX)
			sum = INT32_MAX;
		if (saturates && sum < INT32_MIN)
			sum = INT32_MIN;
		x->c[at] = (uint32_t)sum;
	}
}

/* ---- block scales -------------------------------------------------------- */

/* A 16-bit operand that is the same in the whole warp, and below most. */
static bool take_selector(struct emu_warp *w, const struct emu_instr *i,
			  const struct emu_value *o, const char *name, uint32_t step,
			  uint32_t most, uint32_t *value)
{
	const uint16_t *row = emu_row(w, o);

	EMU_EACH_LANE(l)
	if (row[l] != row[0]) {
		emu_fault(w, i, l,
			  "its %s differs between lanes: all 32 must have the "
			  "same",
			  name);
		return false;
	}
	*value = row[0];
	if (*value > most || *value % step) {
		emu_fault(w, i, -1, "its %s is %u: must be 0 to %u, a multiple of %u",
			  name, (unsigned)*value, (unsigned)most, (unsigned)step);
		return false;
	}
	return true;
}

/*
 * The lower (thread-id 0) or upper two lanes of each four have the scales of 16
 * rows of A: row g in the even lane, row g + 8 in the odd one.  Lane thread-id of
 * the four has the scales of column g of B.  byte-id is the first byte in the word.
 */
static bool take_scales(struct emu_warp *w, const struct emu_instr *i,
			const struct emu_value *o, const struct form *f, int rows,
			struct emu_block_operand *to)
{
	const uint32_t count = (uint32_t)f->scales;
	const uint32_t *words = emu_row(w, &o[0]);
	uint32_t byte, thread;

	if (!take_selector(w, i, &o[1], "byte-id", count, 4 - count, &byte) ||
	    !take_selector(w, i, &o[2], "thread-id", 1, rows == 16 ? 1 : 3, &thread))
		return false;
	to->scale_is_ue8m0 = i->option & UE8M0;
	for (int row = 0; row < rows; row++) {
		const uint32_t lane =
		    (uint32_t)row % 8 * 4 +
		    (rows == 16 ? thread * 2 + (uint32_t)row / 8 : thread);
		uint8_t scales[4];

		for (uint32_t k = 0; k < count; k++)
			scales[k] = (uint8_t)(words[lane] >> 8 * (byte + k));
		emu_block_operand_scale(to, row, scales);
	}
	return true;
}

/* ue8m0: 127 is 1. */
static void set_scales_of_1(struct emu_block_operand *o)
{
	const uint8_t one = 127;

	o->scales = 1;
	o->scale_is_ue8m0 = true;
	for (int row = 0; row < o->rows; row++)
		emu_block_operand_scale(o, row, &one);
}

static bool small_float_sums(struct emu_warp *w, const struct emu_instr *i,
			     const struct form *f, struct operands *x, int stride)
{
	static _Thread_local struct emu_block_operand a, b;
	const struct emu_value *scales =
	    i->operand + 2 * f->c_registers + f->a_registers + f->b_registers;

	set_operand(f, f->a, 16, stride, x->a, &a);
	set_operand(f, f->b, N, stride, x->b, &b);
	if (!f->scales) {
		set_scales_of_1(&a);
		set_scales_of_1(&b);
	}
	if (f->scales && (!take_scales(w, i, scales, f, 16, &a) ||
			  !take_scales(w, i, scales + 3, f, N, &b)))
		return false;
	if (f->scaling == KIND_MXF4)
		emu_fp4_sums(&a, &b, x->c, x->c);
	else
		emu_mx_sums(&a, &b, i->option & D_IS_F16, x->c, x->c);
	return true;
}

/* ---- running ------------------------------------------------------------- */

static void run_mma(struct emu_warp *w, const struct emu_instr *i, uint32_t lanes)
{
	static _Thread_local struct operands x;
	const struct form f = form_of(i->option, i->immediate);
	const bool is_f16 = i->option & D_IS_F16;
	const struct emu_value *a = i->operand + f.c_registers;
	const struct emu_value *b = a + f.a_registers;
	const struct emu_value *c = b + f.b_registers;
	const int stride = f.a->family == FLOAT ? EMU_UMMA_K_BYTES * 8 / f.bits : f.k;

	if (stride > f.k)
		memset(&x, 0, sizeof(x));
	gather(w, a, f.a_registers, f.m, f.bits, stride, x.a);
	gather(w, b, f.b_registers, N, f.bits, stride, x.b);
	gather_c(w, c, &f, is_f16, x.c);
	if (f.a->family == FLOAT)
		float_sums(&f, &x, is_f16);
	else if (f.a->family != SMALL_FLOAT)
		integer_sums(&f, &x, stride, i->option);
	else if (!small_float_sums(w, i, &f, &x, stride))
		return;
	put_d(w, i->operand, &f, is_f16, x.c, lanes);
}

static void run_mma_f64(struct emu_warp *w, const struct emu_instr *i, uint32_t lanes)
{
	const struct form f = form_of(i->option, i->immediate);
	const struct emu_value *o = i->operand + f.c_registers;
	const struct emu_value *c = o + f.a_registers + f.b_registers;
	double a[16][16] = {{0}}, b[N][16] = {{0}}, r[4][EMU_LANES];

	for (int k = 0; k < f.a_registers; k++) {
		const double *from = emu_row(w, &o[k]);

		EMU_EACH_LANE(l)
		a[row_of(f.m, l, k)][word_of(f.m, l, k)] = from[l];
	}
	for (int k = 0; k < f.b_registers; k++) {
		const double *from = emu_row(w, &o[f.a_registers + k]);

		EMU_EACH_LANE(l)
		b[row_of(N, l, k)][word_of(N, l, k)] = from[l];
	}
	for (int e = 0; e < f.c_registers; e++) {
		const double *from = emu_row(w, &c[e]);

		EMU_EACH_LANE(l)
		{
			int row, column;

			place_of_c(l, e, &row, &column);
			r[e][l] = from[l];
			for (int k = 0; k < f.k; k++)
				r[e][l] = fma(a[row][k], b[column][k], r[e][l]);
		}
	}
	for (int e = 0; e < f.c_registers; e++) {
		uint64_t bits[EMU_LANES];

		memcpy(bits, r[e], sizeof(bits));
		emu_put_64(w, &i->operand[e], bits, lanes);
	}
}

/* ---- binding ------------------------------------------------------------- */

static const struct element_type *find_type(enum emu_type type)
{
	for (size_t k = 0; k < sizeof(element_types) / sizeof(*element_types); k++)
		if (element_types[k].type == type)
			return &element_types[k];
	return NULL;
}

/* kind::*, block_scale and the words that belong to them. */
static bool bind_kind(struct emu_bind *b)
{
	static const char *const kinds[] = {"kind::f8f6f4", "kind::mxf8f6f4",
					    "kind::mxf4", "kind::mxf4nvf4"};
	static const char *const vectors[] = {"scale_vec::1X", "scale_vec::2X",
					      "scale_vec::4X"};
	const char *target = b->parser->module->target;
	uint32_t kind = 0, vector = 0;

	if (!emu_has_one(b, kinds, 4, &kind))
		return !emu_has(b, "block_scale") ||
		       emu_bind_fail(b, ".block_scale needs one .kind");
	if (strncmp(target, "sm_12", 5) != 0 ||
	    !strchr("af", target[strlen(target) - 1]))
		return emu_bind_fail(b,
				     ".target sm_120a or sm_120f has .%s, "
				     "not %s",
				     kinds[kind], target);
	if (emu_has(b, "block_scale") != (kind > 0))
		return emu_bind_fail(b, ".%s %s .block_scale", kinds[kind],
				     kind ? "needs" : "has no");
	b->i->option |= (uint32_t)(kind == 3 ? KIND_MXF4 : (int)kind + 1) << SCALING_AT;
	if (kind == 0)
		return true;
	if (!emu_has_one(b, vectors, 3, &vector)) {
		if (kind == 3)
			return emu_bind_fail(b, ".kind::mxf4nvf4 needs "
						".scale_vec::2X or 4X");
		vector = kind == 2;
	}
	if (kind == 3 ? vector == 0 : vector != (kind == 2))
		return emu_bind_fail(b, ".%s does not have .%s", kinds[kind],
				     vectors[vector]);
	if (b->n_types != 5 || !(b->types[4] == EMU_T_UE8M0 ||
				 (b->types[4] == EMU_T_UE4M3 && vector == 2)))
		return emu_bind_fail(b, "its scales must be .ue8m0, or .ue4m3 "
					"with .scale_vec::4X");
	b->i->option |= UINT32_C(1) << vector << SCALES_AT |
			(b->types[4] == EMU_T_UE8M0 ? UE8M0 : 0);
	return true;
}

/* True for the shapes of the PTX ISA, which depend on the bits of k in a row. */
static bool is_shape(const struct emu_bind *b, const struct element_type *a,
		     enum scaling scaling)
{
	const int bits = b->shape_k * (scaling == KIND_MXF4 ? 4 : a->bits);

	if (b->shape_n != N || (b->shape_m != 8 && b->shape_m != 16))
		return false;
	switch (a->family) {
	case DOUBLE:
		return b->shape_m == 8 ? bits == 256
				       : bits == 256 || bits == 512 || bits == 1024;
	case INTEGER:
	case ONE_BIT:
		return b->shape_m == 8 ? bits == 128 : bits == 128 || bits == 256;
	default:
		return b->shape_m == 16 &&
		       (bits == 256 || (bits == 128 && scaling == NO_SCALES));
	}
}

static bool is_sum_of(enum emu_type sum, const struct element_type *a, bool has_scales)
{
	switch (a->family) {
	case DOUBLE:
		return sum == EMU_F64;
	case INTEGER:
	case ONE_BIT:
		return sum == EMU_S32;
	case SMALL_FLOAT:
		return sum == EMU_F32 || (sum == EMU_T_F16 && !has_scales);
	default:
		return sum == EMU_F32 || (sum == EMU_T_F16 && a->type == EMU_T_F16);
	}
}

/* True for types that may be multiplied with each other. */
static bool is_pair(const struct element_type *a, const struct element_type *b,
		    enum scaling scaling)
{
	if (scaling == KIND_MXF4)
		return a->type == EMU_T_E2M1 && b->type == EMU_T_E2M1;
	if (scaling != NO_SCALES)
		return a->family == SMALL_FLOAT && b->family == SMALL_FLOAT;
	if (a->family == SMALL_FLOAT)
		return a->code <= EMU_UMMA_TYPE_E5M2 && b->family == SMALL_FLOAT &&
		       b->code <= EMU_UMMA_TYPE_E5M2;
	if (a->family == INTEGER)
		return b->family == INTEGER && a->bits == b->bits;
	return a == b;
}

static bool bind_types(struct emu_bind *b)
{
	const enum scaling scaling = (enum scaling)(b->i->option >> SCALING_AT & 3);
	const bool has_scales = scaling > KIND_F8F6F4;
	const struct element_type *t[2] = {NULL, NULL};

	if (b->n_types == (has_scales ? 5 : 4)) {
		t[0] = find_type(b->types[1]);
		t[1] = find_type(b->types[2]);
	}
	if (!t[0] || !t[1] || !is_pair(t[0], t[1], scaling))
		return emu_bind_fail(b, "its types must be those of D, A, B "
					"and C, A and B such as can be "
					"multiplied");
	if (b->types[0] != b->types[3] || !is_sum_of(b->types[0], t[0], has_scales))
		return emu_bind_fail(b,
				     "C and D must be of one type that "
				     ".%s is summed in",
				     emu_type_name(t[0]->type));
	if (!is_shape(b, t[0], scaling))
		return emu_bind_fail(b, "m%dn%dk%d of .%s is not known here",
				     b->shape_m, b->shape_n, b->shape_k,
				     emu_type_name(t[0]->type));
	if (t[0]->family == DOUBLE && b->shape_m == 16 &&
	    !emu_bind_needs(b, "90", "this shape of .f64"))
		return false;
	if (emu_has(b, "satfinite") && t[0]->family != INTEGER)
		return emu_bind_fail(b, ".satfinite is for integers");
	if (emu_has(b, "popc") != (t[0]->family == ONE_BIT) ||
	    (emu_has(b, "xor") != emu_has(b, "and")) != (t[0]->family == ONE_BIT))
		return emu_bind_fail(b, ".xor.popc or .and.popc is for .b1");
	b->i->option |=
	    (uint32_t)(t[0] - element_types) | (uint32_t)(t[1] - element_types) << 4 |
	    (b->shape_m == 8 ? M_IS_8 : 0) | (b->types[0] == EMU_T_F16 ? D_IS_F16 : 0) |
	    (emu_has(b, "satfinite") ? SATURATES : 0) |
	    (emu_has(b, "and") ? AND_OF_BITS : 0);
	b->i->immediate = b->shape_k;
	return true;
}

static bool bind_matrix(struct emu_bind *b, uint32_t n, int wanted, int bytes)
{
	uint32_t count;
	const struct emu_argument *e = emu_elements(b, emu_argument(b, n), &count);

	if (count != (uint32_t)wanted)
		return emu_bind_fail(b, "%u registers, not %d", count, wanted);
	for (uint32_t k = 0; k < count; k++)
		if (n == 0 ? !emu_dst(b, &e[k], bytes)
			   : !emu_src(b, &e[k], bytes == 8 ? EMU_F64 : EMU_B32))
			return false;
	return true;
}

/* scale-data or {scale-data}, {byte-id, thread-id}, from argument n on. */
static bool bind_scales(struct emu_bind *b, uint32_t n)
{
	uint32_t words, count;
	const struct emu_argument *data = emu_elements(b, emu_argument(b, n), &words);
	const struct emu_argument *ids =
	    emu_elements(b, emu_argument(b, n + 1), &count);

	if (words != 1)
		return emu_bind_fail(b, "%u words of scales, not 1", words);
	if (count != 2)
		return emu_bind_fail(b, "{byte-id, thread-id} is missing");
	return emu_src(b, data, EMU_B32) && emu_src(b, &ids[0], EMU_U16) &&
	       emu_src(b, &ids[1], EMU_U16);
}

bool emu_bind_mma(struct emu_bind *b)
{
	struct form f;
	uint32_t arguments;
	int bytes;

	b->i->option = 0;
	if (!emu_has(b, "sync") || !emu_has(b, "aligned") || !emu_has(b, "row") ||
	    !emu_has(b, "col"))
		return emu_bind_fail(b, ".sync.aligned.row.col is missing");
	if (!bind_kind(b) || !bind_types(b))
		return false;
	f = form_of(b->i->option, b->i->immediate);
	arguments = f.scales ? 8 : 4;
	bytes = f.a->family == DOUBLE ? 8 : 4;
	if (!emu_arguments(b, arguments, arguments) ||
	    !bind_matrix(b, 0, f.c_registers, bytes) ||
	    !bind_matrix(b, 1, f.a_registers, bytes) ||
	    !bind_matrix(b, 2, f.b_registers, bytes) ||
	    !bind_matrix(b, 3, f.c_registers, bytes))
		return false;
	if (f.scales && (!bind_scales(b, 4) || !bind_scales(b, 6)))
		return false;
	b->i->is_converged = true;
	b->i->run = f.a->family == DOUBLE ? run_mma_f64 : run_mma;
	return true;
}
