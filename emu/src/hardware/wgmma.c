/* SPDX-License-Identifier: Apache-2.0 */
/* wgmma.c - layouts and arithmetic of warpgroup matrix multiplication. */
#include "hardware/wgmma.h"

/* ---- operands in shared memory ------------------------------------------- */

struct matrix {
	uint32_t start, lead, stride; /* bytes */
	uint32_t base;		      /* of the swizzle's pattern, 128 bytes */
	uint32_t swizzle;	      /* bytes; 16: none */
};

#define RESERVED_BITS UINT64_C(0x3FF1C000C000C000)

static bool decode(uint64_t descriptor, struct matrix *m, struct emu_error *err)
{
	static const uint32_t swizzles[] = {16, 128, 64, 32};

	if (descriptor & RESERVED_BITS) {
		emu_fail(err,
			 "matrix descriptor 0x%016llx: bits 14-15, 30-31, 46-48 and "
			 "52-61 must be 0",
			 (unsigned long long)descriptor);
		return false;
	}
	m->start = (uint32_t)(descriptor & 0x3FFF) << 4;
	m->lead = (uint32_t)(descriptor >> 16 & 0x3FFF) << 4;
	m->stride = (uint32_t)(descriptor >> 32 & 0x3FFF) << 4;
	m->base = (uint32_t)(descriptor >> 49 & 7);
	m->swizzle = swizzles[descriptor >> 62];
	if (m->base > 0 && m->base >= m->swizzle / 16) {
		emu_fail(err,
			 "matrix descriptor 0x%016llx: base offset %u, must be "
			 "below %u, the 128-byte rows of its swizzle's pattern",
			 (unsigned long long)descriptor, (unsigned)m->base,
			 (unsigned)m->swizzle / 16);
		return false;
	}
	return true;
}

/*
 * The pattern of a swizzle of 32, 64, 128 bytes repeats after 2, 4, 8 rows of 128
 * bytes and begins at the row that the base offset names.  The number of the row in
 * the pattern is XORed with the number of the 16 bytes in the row.
 */
static uint32_t swizzled(const struct matrix *m, uint32_t address)
{
	const uint32_t row = (address >> 7) - m->base;

	return address ^ (row & (m->swizzle / 16 - 1)) << 4;
}

bool emu_wgmma_offset(uint64_t descriptor, const struct emu_wgmma_shape *shape,
		      bool is_transposed, int row, int piece, uint32_t *offset,
		      struct emu_error *err)
{
	const uint32_t r = (uint32_t)row % 8, block = (uint32_t)row / 8;
	const uint32_t p = (uint32_t)piece;
	struct matrix m;
	uint32_t wide, at;

	if (is_transposed && emu_mma_type_bytes(shape->a_type) != 2)
		return emu_fail(
		    err, "wgmma: only operands of 16-bit elements can be transposed");
	if (!decode(descriptor, &m, err))
		return false;
	wide = m.swizzle / 16;
	at = m.start + r * m.swizzle;
	/* Without a swizzle the two strides have other meanings. */
	if (!is_transposed)
		at += block * m.stride + p * (wide > 1 ? 16 : m.lead);
	else if (wide > 1)
		at += block * m.stride + p % wide * 16 + p / wide * m.lead;
	else
		at += block * m.lead + p * m.stride;
	*offset = swizzled(&m, at);
	return true;
}

/* ---- operands in registers ----------------------------------------------- */

void emu_wgmma_d_place(int lane, int i, int *row, int *column)
{
	*row = lane / 4 + i / 2 % 2 * 8;
	*column = i / 4 * 8 + lane % 4 * 2 + i % 2;
}

void emu_wgmma_a_place(const struct emu_wgmma_shape *shape, int lane, int i, int *row,
		       int *k)
{
	const int elements = 4 / emu_mma_type_bytes(shape->a_type);

	*row = lane / 4 + i % 2 * 8;
	*k = (lane % 4 + i / 2 * 4) * elements;
}

void emu_mma_b_place(const struct emu_wgmma_shape *shape, int lane, int i, int *column,
		     int *k)
{
	const int elements = 4 / emu_mma_type_bytes(shape->b_type);

	*column = lane / 4;
	*k = (lane % 4 + i * 4) * elements;
}

/* ---- arithmetic ---------------------------------------------------------- */

#define ROWS 16

static int64_t integer_of(enum emu_mma_type type, uint32_t code)
{
	return type == EMU_S8 ? (int8_t)code : (uint8_t)code;
}

static void integer_rows(const struct emu_wgmma_shape *shape, const uint32_t *a,
			 const uint32_t *b, const uint32_t *c, uint32_t *d)
{
	for (int i = 0; i < ROWS * shape->n; i++) {
		const uint32_t *x = a + i / shape->n * shape->k;
		const uint32_t *y = b + i % shape->n * shape->k;
		int64_t sum = c ? (int32_t)c[i] : 0;

		for (int k = 0; k < shape->k; k++)
			sum += integer_of(shape->a_type, x[k]) *
			       integer_of(shape->b_type, y[k]);
		if (shape->saturates && sum > INT32_MAX)
			sum = INT32_MAX;
		if (shape->saturates && sum < INT32_MIN)
			sum = INT32_MIN;
		d[i] = (uint32_t)sum;
	}
}

void emu_wgmma_rows(const struct emu_wgmma_shape *shape, const uint32_t *a,
		    const uint32_t *b, const uint32_t *c, uint32_t *d)
{
	struct emu_mma_operand operand_a, operand_b;

	if (shape->a_type >= EMU_S8) {
		integer_rows(shape, a, b, c, d);
		return;
	}
	emu_mma_operand_fill(&operand_a, shape->a_type, ROWS, a, shape->a_negated);
	emu_mma_operand_fill(&operand_b, shape->b_type, shape->n, b, shape->b_negated);
	emu_fused_sums(&operand_a, &operand_b, shape->d_is_f16, c, d);
}
