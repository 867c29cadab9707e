/* SPDX-License-Identifier: Apache-2.0 */
/* umma.c - see umma.h. */
#include "hardware/umma.h"

#include <string.h>

/* ---- the instruction descriptor ------------------------------------------ */

static bool refuse(struct emu_error *err, uint32_t descriptor, const char *what,
		   uint32_t value, const char *rule)
{
	return emu_fail(err, "instruction descriptor 0x%08x: %s %u: %s", descriptor,
			what, value, rule);
}

static uint32_t bits(uint32_t descriptor, int low, int count)
{
	return descriptor >> low & ((1u << count) - 1);
}

/* The types that operands can have, and in kinds without block scales also D. */
struct types {
	int8_t codes[8]; /* -1: none */
	const char *rule;
	uint32_t d; /* the code of D's usual type */
	const char *d_rule;
};

#define F8F6F4                                                                         \
	{                                                                              \
		EMU_UMMA_TYPE_E4M3, EMU_UMMA_TYPE_E5M2, -1, EMU_UMMA_TYPE_E2M3,        \
		    EMU_UMMA_TYPE_E3M2, EMU_UMMA_TYPE_E2M1, -1, -1                     \
	}

static const struct types types[] = {
    [EMU_UMMA_F16] = {{EMU_UMMA_TYPE_F16, EMU_UMMA_TYPE_BF16, -1, -1, -1, -1, -1, -1},
		      "kind::f16 has F16 = 0, BF16 = 1",
		      1,
		      "F16 = 0, F32 = 1"},
    [EMU_UMMA_MXF8F6F4] = {F8F6F4,
			   ("kind::mxf8f6f4 has E4M3 = 0, E5M2 = 1, E2M3 = 3, "
			    "E3M2 = 4, E2M1 = 5"),
			   0, NULL},
    [EMU_UMMA_MXF4NVF4] = {{-1, EMU_UMMA_TYPE_E2M1, -1, -1, -1, -1, -1, -1},
			   "kind::mxf4nvf4 and kind::mxf4 have E2M1 = 1",
			   0,
			   NULL},
    [EMU_UMMA_F8F6F4] = {F8F6F4,
			 ("kind::f8f6f4 has E4M3 = 0, E5M2 = 1, E2M3 = 3, "
			  "E3M2 = 4, E2M1 = 5"),
			 1, "F16 = 0, F32 = 1"},
    [EMU_UMMA_TF32] = {{-1, -1, EMU_UMMA_TYPE_TF32, -1, -1, -1, -1, -1},
		       "kind::tf32 has TF32 = 2",
		       1,
		       "F32 = 1"},
    [EMU_UMMA_I8] = {{EMU_UMMA_TYPE_U8, EMU_UMMA_TYPE_S8, -1, -1, -1, -1, -1, -1},
		     "kind::i8 has U8 = 0, S8 = 1",
		     2,
		     "S32 = 2"},
};

static bool has_small_elements(enum emu_umma_type type)
{
	return type >= EMU_UMMA_TYPE_E2M3 && type <= EMU_UMMA_TYPE_E2M1;
}

static bool decode_types(uint32_t d, struct emu_umma *u, struct emu_error *err)
{
	const enum emu_umma_kind kind = u->form.kind;
	const struct types *t = &types[kind];
	const int width = kind == EMU_UMMA_MXF4NVF4 ? 2 : 3;
	const int a = t->codes[bits(d, 7, 3)];
	const int b = t->codes[bits(d, 10, width)];
	const uint32_t sum = bits(d, 4, 2);

	if (a < 0)
		return refuse(err, d, "A type", bits(d, 7, 3), t->rule);
	if (b < 0)
		return refuse(err, d, "B type", bits(d, 10, width), t->rule);
	u->a_type = (enum emu_umma_type)a;
	u->b_type = (enum emu_umma_type)b;
	u->d_is_f16 = (kind == EMU_UMMA_F16 || kind == EMU_UMMA_F8F6F4) && sum == 0;
	if (t->d_rule && sum != t->d && !u->d_is_f16)
		return refuse(err, d, "D type", sum, t->d_rule);
	if (u->d_is_f16 && (a == EMU_UMMA_TYPE_BF16 || b == EMU_UMMA_TYPE_BF16))
		return refuse(err, d, "D type", 0, "sums of BF16 operands are in F32");
	return true;
}

static bool decode_transposition(uint32_t d, struct emu_umma *u, struct emu_error *err)
{
	u->a_transposed = bits(d, 15, 1);
	u->b_transposed = bits(d, 16, 1);
	if ((u->a_transposed && has_small_elements(u->a_type)) ||
	    (u->b_transposed && has_small_elements(u->b_type)))
		return refuse(err, d, "transposition", 1,
			      "elements of 6 and 4 bits are K-major");
	if ((u->a_transposed || u->b_transposed) && u->form.kind == EMU_UMMA_TF32)
		return refuse(err, d, "transposition", 1,
			      "TF32 that is not K-major is not modelled");
	if (u->a_transposed && u->form.a_in_tensor_memory)
		return refuse(err, d, "transposition", 1, "A is in tensor memory");
	return true;
}

/* Bits that have the same meaning in all kinds. */
static bool decode_common(uint32_t d, struct emu_umma *u, struct emu_error *err)
{
	const bool is_fp4 = u->form.kind == EMU_UMMA_MXF4NVF4;
	const bool is_i8 = u->form.kind == EMU_UMMA_I8;

	if (bits(d, 2, 1))
		return refuse(err, d, "sparsity", 1,
			      "sparse operands are not modelled");
	u->saturates = is_i8 && bits(d, 3, 1);
	if (bits(d, 0, 2) || (!is_i8 && bits(d, 3, 1)) || bits(d, 6, 1) ||
	    (is_fp4 && bits(d, 12, 1)))
		return refuse(err, d, "reserved bits", bits(d, 0, 13) & 0x104B,
			      is_fp4  ? "bits 0, 1, 3, 6 and 12 are 0"
			      : is_i8 ? "bits 0, 1 and 6 are 0"
				      : "bits 0, 1, 3 and 6 are 0");
	u->a_negated = bits(d, 13, 1);
	u->b_negated = bits(d, 14, 1);
	if (is_i8 && bits(d, 13, 2))
		return refuse(err, d, "negation", bits(d, 13, 2), "kind::i8 has none");
	return decode_transposition(d, u, err);
}

static bool decode_scales(uint32_t d, struct emu_umma *u, struct emu_error *err)
{
	const int step = u->form.scales;

	u->scale_is_ue8m0 = bits(d, 23, 1);
	u->sfb_id = (int)bits(d, 4, 2);
	u->sfa_id = (int)bits(d, 29, 2);
	if (bits(d, 24, 3))
		return refuse(err, d, "reserved bits", bits(d, 24, 3),
			      "bits 24 to 26 are 0");
	if (bits(d, 31, 1))
		return refuse(err, d, "bit 31", 1,
			      u->form.kind == EMU_UMMA_MXF4NVF4
				  ? "K is 64: 96 is not of this architecture"
				  : "reserved, it is 0");
	if (!u->scale_is_ue8m0 && step != 4)
		return refuse(err, d, "scale type", 0, "blocks of 32 have UE8M0 = 1");
	if (u->sfa_id % step || u->sfb_id % step)
		return refuse(err, d, "scale id",
			      (uint32_t)(u->sfa_id % step ? u->sfa_id : u->sfb_id),
			      step == 4 ? "scale_vec::4X has only 0"
					: "scale_vec::2X has 0 and 2");
	u->m = 128 * (int)bits(d, 27, 2);
	if (u->form.ctas == 2 && u->m == 128)
		return refuse(err, d, "M", 128,
			      "of a pair: where B's scales lie is not "
			      "documented, and not modelled");
	return true;
}

/* N is a multiple of this number. */
static int n_step(const struct emu_umma *u)
{
	const bool is_i8 = u->form.kind == EMU_UMMA_I8;

	if (u->form.ctas == 2)
		return u->form.a_in_tensor_memory || is_i8 ? 32 : 16;
	if (u->form.scales || (u->m == 64 && (!is_i8 || u->n <= 32)))
		return 8;
	return 16;
}

static bool decode_sizes(uint32_t d, struct emu_umma *u, struct emu_error *err)
{
	static const uint8_t ks[] = {
	    [EMU_UMMA_F16] = 16,    [EMU_UMMA_MXF8F6F4] = 32, [EMU_UMMA_MXF4NVF4] = 64,
	    [EMU_UMMA_F8F6F4] = 32, [EMU_UMMA_TF32] = 8,      [EMU_UMMA_I8] = 32};
	const int pair = u->form.ctas == 2;
	int step;

	u->n = 8 * (int)bits(d, 17, 6);
	u->k = ks[u->form.kind];
	step = n_step(u);
	if (pair ? u->m != 128 && u->m != 256
		 : u->m != 128 && (u->m != 64 || u->form.scales))
		return refuse(err, d, "M", (uint32_t)u->m,
			      pair		? "of a pair 128 or 256"
			      : !u->form.scales ? "64 or 128"
						: "128");
	if (u->n == 0 || u->n > 256 || u->n % step)
		return refuse(err, d, "N", (uint32_t)u->n,
			      step == 8	   ? "8 to 256 by 8"
			      : step == 16 ? "16 to 256 by 16"
					   : "32 to 256 by 32");
	if (pair && u->m == 128 && u->form.a_in_tensor_memory)
		return refuse(err, d, "M", 128,
			      "of a pair with A in tensor memory is not "
			      "modelled");
	return true;
}

bool emu_umma_decode(uint32_t d, const struct emu_umma_form *form, struct emu_umma *u,
		     struct emu_error *err)
{
	memset(u, 0, sizeof(*u));
	u->form = *form;
	if (!decode_types(d, u, err) || !decode_common(d, u, err))
		return false;
	if (form->scales) {
		if (!decode_scales(d, u, err))
			return false;
	} else {
		u->m = 16 * (int)bits(d, 24, 5);
		if (bits(d, 23, 1) || bits(d, 29, 3))
			return refuse(err, d, "reserved bits",
				      bits(d, 23, 1) | bits(d, 29, 3) << 6,
				      "bits 23 and 29 to 31 are 0");
	}
	if (form->a_in_tensor_memory && form->kind != EMU_UMMA_MXF4NVF4 &&
	    has_small_elements(u->a_type))
		return refuse(err, d, "A type", bits(d, 7, 3),
			      "elements of 6 and 4 bits in tensor memory are "
			      "not modelled");
	return decode_sizes(d, u, err);
}

int emu_umma_a_rows(const struct emu_umma *u)
{
	return u->m / u->form.ctas;
}

int emu_umma_b_rows(const struct emu_umma *u)
{
	return u->n / u->form.ctas;
}

/* True for a pair with 64 rows in each CTA, where the two halves of D's columns are
 * in different lanes. */
static bool is_two_by_two(const struct emu_umma *u)
{
	return u->form.ctas == 2 && u->m == 128;
}

int emu_umma_d_columns(const struct emu_umma *u)
{
	return is_two_by_two(u) ? u->n / 2 : u->n;
}

/* ---- shared memory ------------------------------------------------------- */

bool emu_umma_matrix_decode(uint64_t d, struct emu_umma_matrix *m,
			    struct emu_error *err)
{
	static const uint8_t swizzles[8] = {16, 0, 128, 0, 64, 0, 32, 0};
	const unsigned long long shown = d;

	if (d & UINT64_C(0xC000C000))
		return emu_fail(err,
				"matrix descriptor 0x%016llx: bits 14, 15, 30 "
				"and 31 are 0",
				shown);
	if ((d >> 46 & 7) != 1)
		return emu_fail(err,
				"matrix descriptor 0x%016llx: bits 46 to 48 "
				"are %u: on Blackwell 1",
				shown, (unsigned)(d >> 46 & 7));
	if (d >> 52 & 1)
		return emu_fail(err,
				"matrix descriptor 0x%016llx: bit 52: an "
				"absolute leading offset is not modelled",
				shown);
	if (d >> 53 & 0xFF)
		return emu_fail(err,
				"matrix descriptor 0x%016llx: bits 53 to 60 "
				"are 0",
				shown);
	m->start = (uint32_t)(d & 0x3FFF) << 4;
	m->lead = (uint32_t)(d >> 16 & 0x3FFF) << 4;
	m->stride = (uint32_t)(d >> 32 & 0x3FFF) << 4;
	m->base = (uint32_t)(d >> 49 & 7);
	m->swizzle = swizzles[d >> 61];
	if (m->swizzle == 0)
		return emu_fail(err, "matrix descriptor 0x%016llx: swizzle %u: %s",
				shown, (unsigned)(d >> 61),
				d >> 61 == 1
				    ? "128 bytes with atoms of 32 are not modelled"
				    : "0, 2, 4 and 6 are known");
	if (m->base > 0 && m->base >= m->swizzle / 16)
		return emu_fail(err,
				"matrix descriptor 0x%016llx: base offset %u, "
				"below %u for its swizzle",
				shown, (unsigned)m->base, (unsigned)m->swizzle / 16);
	return true;
}

uint32_t emu_umma_offset(const struct emu_umma_matrix *m, bool is_transposed, int row,
			 int piece)
{
	const uint32_t r = (uint32_t)row % 8, block = (uint32_t)row / 8;
	const uint32_t p = (uint32_t)piece, wide = m->swizzle / 16;
	uint32_t at = m->start + r * m->swizzle;

	/* Without a swizzle the two strides have other meanings. */
	if (!is_transposed)
		at += block * m->stride + p * (wide > 1 ? 16 : m->lead);
	else if (wide > 1)
		at += block * m->stride + p % wide * 16 + p / wide * m->lead;
	else
		at += block * m->lead + p * m->stride;
	/* The number of the 128-byte row is XORed with that of the piece. */
	return at ^ (((at >> 7) - m->base) & (wide - 1)) << 4;
}

static uint32_t bits_of_type(enum emu_umma_type type)
{
	static const uint8_t sizes[] = {16, 16, 8, 8, 6, 6, 4, 32, 8, 8};

	return sizes[type];
}

void emu_umma_unpack(const struct emu_umma *u, enum emu_umma_type type,
		     const uint8_t bytes[EMU_UMMA_K_BYTES], uint8_t *codes)
{
	const uint32_t size = bits_of_type(type);
	const uint32_t in_piece = u->form.kind == EMU_UMMA_MXF4NVF4 ? 32 : 16;

	for (uint32_t k = 0; k < (uint32_t)u->k; k++) {
		const uint32_t bit = k % in_piece * size;
		const uint8_t *from = bytes + k / in_piece * 16 + bit / 8;
		uint32_t word = *from;

		if (bit % 8 + size > 8)
			word |= (uint32_t)from[1] << 8;
		codes[k] = (uint8_t)(word >> bit % 8 & ((1u << size) - 1));
	}
}

/* ---- tensor memory ------------------------------------------------------- */

void emu_umma_d_place(const struct emu_umma *u, int row, int column, int *cta,
		      int *lane, int *tmem_column)
{
	const int rows = emu_umma_a_rows(u);
	const int half = u->n / 2;

	*cta = row / rows;
	*tmem_column = column;
	if (is_two_by_two(u)) {
		*lane = row % rows + (column >= half ? 64 : 0);
		*tmem_column = column % half;
	} else {
		*lane = emu_umma_a_lane(u, row % rows);
	}
}

int emu_umma_a_lane(const struct emu_umma *u, int row)
{
	/* 64 rows of a CTA without a pair: 16 of each 32 lanes. */
	return u->m == 64 ? row / 16 * 32 + row % 16 : row;
}

void emu_umma_scale_place(int row, int id, int block, int *tmem_column, int *byte)
{
	*tmem_column = row / 32;
	*byte = id + block;
}
