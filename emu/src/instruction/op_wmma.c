/* SPDX-License-Identifier: Apache-2.0 */
/*
 * op_wmma.c - wmma.load, wmma.store and wmma.mma: the matrices of nvcuda::wmma.  PTX
 * leaves open which lane holds which element, so the places here are the software
 * GPU's own.  The elements of a matrix are numbered in the order of memory (those of C
 * and D by rows), and a lane holds as many consecutive ones as its share:
 *
 *	element e of lane l	number l * share + e % share
 *
 * fp16 fragments have more elements than a share where m or n is small, or m = n = 16;
 * the others are copies.  The arithmetic is that of mma.sync (op_mma.c).
 */
#include <math.h>
#include <string.h>

#include "hardware/tensor_core.h"
#include "instruction/binds.h"
#include "machine/access.h"
#include "machine/traffic.h"
#include "machine/warp.h"

#define MOST_ELEMENTS 1024 /* of a matrix: 8 x 128 bits */
#define MOST_K	      128
#define MOST_PIECE    16 /* bytes of an access: what CUDA promises of alignment */

enum family { FLOAT, INTEGER, ONE_BIT, DOUBLE };

/* code: the tensor core's name of a float type. */
static const struct element_type {
	enum emu_type type;
	enum family family;
	int bits, code;
	int k; /* of its shapes */
} element_types[] = {
    {EMU_T_F16, FLOAT, 16, EMU_F16, 16},  {EMU_T_BF16, FLOAT, 16, EMU_BF16, 16},
    {EMU_T_TF32, FLOAT, 32, EMU_TF32, 8}, {EMU_S8T, INTEGER, 8, 0, 16},
    {EMU_U8, INTEGER, 8, 0, 16},	  {EMU_T_S4, INTEGER, 4, 0, 32},
    {EMU_T_U4, INTEGER, 4, 0, 32},	  {EMU_T_B1, ONE_BIT, 1, 0, 128},
    {EMU_F64, DOUBLE, 64, 0, 4},
};

/* Bits of an instruction's option, after the index of its type. */
enum {
	A_IS_COLUMNS = 1 << 8,
	B_IS_ROWS = 1 << 9,
	D_IS_F16 = 1 << 10,
	C_IS_F16 = 1 << 11,
	SATURATES = 1 << 12,
	AND_OF_BITS = 1 << 13,
	SHAPE_AT = 16,
};

static const struct shape {
	int m, n;
} shapes[] = {{16, 16}, {32, 8}, {8, 32}, {8, 8}};

/*
 * A matrix of a fragment.  A line is a row or a column: elements that follow each other
 * in memory; by_lines: whether those of a lane do too.
 */
struct matrix {
	int lines, length; /* length: of a line, in elements */
	int bits, share, registers;
	bool by_lines;
};

/* ---- places of elements -------------------------------------------------- */

static int register_bits(const struct matrix *m)
{
	return m->bits == 64 ? 64 : 32;
}

static struct matrix matrix_of(int lines, int length, int bits, int elements)
{
	struct matrix m = {.lines = lines, .length = length, .bits = bits};

	m.share = lines * length / EMU_LANES;
	m.by_lines = true;
	if (elements < m.share)
		elements = m.share;
	m.registers = elements * bits / register_bits(&m);
	return m;
}

/* fp16 fragments of A and B have 16 elements in every shape. */
static int elements_of(const struct element_type *t)
{
	return t->type == EMU_T_F16 ? 16 : 0;
}

static struct matrix matrix_of_a(const struct element_type *t, const struct shape *s,
				 bool is_columns)
{
	return is_columns ? matrix_of(t->k, s->m, t->bits, elements_of(t))
			  : matrix_of(s->m, t->k, t->bits, elements_of(t));
}

static struct matrix matrix_of_b(const struct element_type *t, const struct shape *s,
				 bool is_rows)
{
	return is_rows ? matrix_of(t->k, s->n, t->bits, elements_of(t))
		       : matrix_of(s->n, t->k, t->bits, elements_of(t));
}

/* C or D; the lanes hold rows, also where columns follow each other in memory. */
static struct matrix matrix_of_c(const struct shape *s, int bits, bool is_columns)
{
	struct matrix m = matrix_of(s->m, s->n, bits, 0);

	m.by_lines = !is_columns;
	return m;
}

/* The bits of element e of a lane's fragment: its register and the place in it. */
static uint64_t read_element(const struct emu_warp *w, const struct emu_value *o,
			     const struct matrix *m, int lane, int e)
{
	const int bit = e * m->bits;
	const void *row = emu_row(w, &o[bit / register_bits(m)]);

	if (m->bits == 64)
		return ((const uint64_t *)row)[lane];
	return ((const uint32_t *)row)[lane] >> bit % 32 &
	       (uint32_t)(UINT64_MAX >> (64 - m->bits));
}

/* ---- loads and stores ----------------------------------------------------- */

/* The value that all lanes must have in common. */
static bool take_common(struct emu_warp *w, const struct emu_instr *i,
			const uint64_t *value, const char *name)
{
	EMU_EACH_LANE(l)
	if (value[l] != value[0]) {
		emu_fault(w, i, l,
			  "its %s differs between lanes: all 32 must have the same",
			  name);
		return false;
	}
	return true;
}

/* The addresses of the lanes' pieces number `piece`, of `bytes` bytes. */
static void piece_addresses(const struct matrix *m, uint64_t base, uint64_t stride,
			    int piece, int bytes, uint64_t *address)
{
	const int elements = bytes * 8 / m->bits;

	EMU_EACH_LANE(l)
	{
		const int at = l * m->share + piece * elements;
		const uint64_t line = (uint64_t)(at / m->length);
		const uint64_t place = (uint64_t)(at % m->length);
		const uint64_t element =
		    m->by_lines ? line * stride + place : place * stride + line;

		address[l] = base + element * (uint64_t)m->bits / 8;
	}
}

/* Bytes that a lane accesses at once, and how often it does. */
static int piece_bytes(const struct matrix *m, int *pieces)
{
	const int bytes = m->share * m->bits / 8;
	const int most = m->by_lines ? MOST_PIECE : m->bits / 8;
	const int each = bytes < most ? bytes : most;

	*pieces = bytes / each;
	return each;
}

/* The matrix of a load or a store. */
static struct matrix matrix_in_memory(const struct emu_instr *i)
{
	const struct element_type *t = &element_types[i->option & 15];
	const struct shape *s = &shapes[i->option >> SHAPE_AT & 3];

	switch (i->vector) {
	case 'a':
		return matrix_of_a(t, s, i->option & A_IS_COLUMNS);
	case 'b':
		return matrix_of_b(t, s, i->option & B_IS_ROWS);
	default:
		return matrix_of_c(s, 8 * emu_type_bytes((enum emu_type)i->type),
				   i->option & A_IS_COLUMNS);
	}
}

/* The common base and stride of a matrix in memory; operands from o on. */
static bool take_place(struct emu_warp *w, const struct emu_instr *i,
		       const struct emu_value *o, uint64_t *base, uint64_t *stride)
{
	uint64_t bases[EMU_LANES], strides[EMU_LANES];

	emu_addresses(w, i, &o[0], bases);
	emu_get_wide(w, &o[1], strides);
	*base = bases[0];
	*stride = strides[0];
	return take_common(w, i, bases, "address") &&
	       take_common(w, i, strides, "stride");
}

static void run_load(struct emu_warp *w, const struct emu_instr *i, uint32_t lanes)
{
	const struct matrix m = matrix_in_memory(i);
	const int share_bytes = m.share * m.bits / 8;
	uint8_t value[EMU_LANES][64] = {{0}};
	const uint8_t *from[EMU_LANES];
	uint64_t address[EMU_LANES], base, stride;
	int pieces, bytes = piece_bytes(&m, &pieces);

	if (!take_place(w, i, &i->operand[m.registers], &base, &stride))
		return;
	for (int p = 0; p < pieces; p++) {
		piece_addresses(&m, base, stride, p, bytes, address);
		emu_traffic_lanes(w, i, lanes, address, (uint32_t)bytes,
				  EMU_TRAFFIC_LOAD);
		if (!emu_load_lanes(w, i, lanes, address, (uint32_t)bytes, from))
			return;
		EMU_EACH_LANE(l) memcpy(value[l] + p * bytes, from[l], (size_t)bytes);
	}
	/* Registers after the share are copies. */
	for (int r = 0; r < m.registers; r++) {
		const int size = register_bits(&m) / 8, at = r * size % share_bytes;
		uint32_t words[EMU_LANES];
		uint64_t wide[EMU_LANES];

		EMU_EACH_LANE(l)
		{
			memcpy(&words[l], value[l] + at, 4);
			memcpy(&wide[l], value[l] + at, 8);
		}
		if (size == 8)
			emu_put_64(w, &i->operand[r], wide, lanes);
		else
			emu_put_32(w, &i->operand[r], words, lanes);
	}
}

static void run_store(struct emu_warp *w, const struct emu_instr *i, uint32_t lanes)
{
	const struct matrix m = matrix_in_memory(i);
	const int element = m.bits / 8;
	uint8_t value[EMU_LANES][32];
	uint64_t address[EMU_LANES], base, stride;
	int pieces, bytes = piece_bytes(&m, &pieces);

	if (!take_place(w, i, &i->operand[m.registers], &base, &stride))
		return;
	for (int p = 0; p < pieces; p++) {
		piece_addresses(&m, base, stride, p, bytes, address);
		emu_traffic_lanes(w, i, lanes, address, (uint32_t)bytes,
				  EMU_TRAFFIC_STORE);
		EMU_EACH_LANE(l)
		for (int e = 0; e < bytes / element; e++) {
			const uint64_t bits =
			    read_element(w, i->operand, &m, l, p * bytes / element + e);

			memcpy(value[l] + e * element, &bits, (size_t)element);
		}
		if (!emu_store_lanes(w, i, lanes, address, (uint32_t)bytes, value))
			return;
	}
	emu_machine_of(w)->effects++;
}

/* ---- products -------------------------------------------------------------- */

/*
 * The elements of a fragment by rows of A (or columns of B) and k; of C by rows and
 * columns.  is_turned: the matrix has k as lines.
 */
static void gather(const struct emu_warp *w, const struct emu_value *o,
		   const struct matrix *m, bool is_turned, uint64_t *to)
{
	EMU_EACH_LANE(l)
	for (int e = 0; e < m->share; e++) {
		const int at = l * m->share + e;
		const int line = at / m->length, place = at % m->length;

		to[is_turned ? place * m->lines + line : at] =
		    read_element(w, o, m, l, e);
	}
}

struct product {
	const struct element_type *t;
	const struct shape *s;
	struct matrix a, b, c, d;
	uint64_t x[MOST_ELEMENTS], y[MOST_ELEMENTS], sums[256];
};

static void float_sums(struct product *p, bool c_is_f16, bool d_is_f16)
{
	static _Thread_local struct emu_mma_operand a, b;
	static _Thread_local uint32_t codes[MOST_ELEMENTS];
	uint32_t sums[256];
	const int count = p->s->m * p->s->n;

	for (int e = 0; e < p->s->m * p->t->k; e++)
		codes[e] = (uint32_t)p->x[e];
	emu_mma_operand_fill(&a, (enum emu_mma_type)p->t->code, p->s->m, codes, false);
	for (int e = 0; e < p->s->n * p->t->k; e++)
		codes[e] = (uint32_t)p->y[e];
	emu_mma_operand_fill(&b, (enum emu_mma_type)p->t->code, p->s->n, codes, false);
	for (int e = 0; e < count; e++) {
		const float wide =
		    (float)emu_widen(&emu_format_f16, (uint32_t)p->sums[e] & 0xFFFF);

		sums[e] = (uint32_t)p->sums[e];
		if (c_is_f16 && !d_is_f16)
			memcpy(&sums[e], &wide, sizeof(wide));
	}
	emu_fused_sums(&a, &b, d_is_f16, sums, sums);
	for (int e = 0; e < count; e++)
		p->sums[e] = sums[e];
}

static int64_t integer_of(enum emu_type type, uint64_t code)
{
	switch (type) {
	case EMU_S8T:
		return (int8_t)code;
	case EMU_T_S4:
		return (int64_t)(code ^ 8) - 8;
	default:
		return (int64_t)code;
	}
}

static void integer_sums(struct product *p, uint32_t option)
{
	const int k = p->t->k, n = p->s->n;

	for (int at = 0; at < p->s->m * n; at++) {
		const uint64_t *x = p->x + at / n * k, *y = p->y + at % n * k;
		int64_t sum = (int32_t)p->sums[at];

		for (int e = 0; e < k; e++)
			sum += p->t->family == ONE_BIT
				   ? (int64_t)(option & AND_OF_BITS ? x[e] & y[e]
								    : x[e] ^ y[e])
				   : integer_of(p->t->type, x[e]) *
					 integer_of(p->t->type, y[e]);
		if (option & SATURATES && sum > INT32_MAX)
			sum = INT32_MAX;
		if (option & SATURATES && sum < INT32_MIN)
			sum = INT32_MIN;
		p->sums[at] = (uint32_t)sum;
	}
}

/* One fused multiply-add after the other. */
static void double_sums(struct product *p)
{
	const int k = p->t->k, n = p->s->n;

	for (int at = 0; at < p->s->m * n; at++) {
		double sum, x, y;

		memcpy(&sum, &p->sums[at], sizeof(sum));
		for (int e = 0; e < k; e++) {
			memcpy(&x, &p->x[at / n * k + e], sizeof(x));
			memcpy(&y, &p->y[at % n * k + e], sizeof(y));
			sum = fma(x, y, sum);
		}
		memcpy(&p->sums[at], &sum, sizeof(sum));
	}
}

/* Writes the sums to the registers of D. */
static void put_d(struct emu_warp *w, const struct emu_instr *i,
		  const struct product *p, uint32_t lanes)
{
	const int bits = register_bits(&p->d), in_one = bits / p->d.bits;

	for (int r = 0; r < p->d.registers; r++) {
		uint64_t wide[EMU_LANES] = {0};

		EMU_EACH_LANE(l)
		for (int e = 0; e < in_one; e++)
			wide[l] |= p->sums[l * p->d.share + r * in_one + e]
				   << e * p->d.bits;
		emu_put_wide(w, &i->operand[r], wide, lanes);
	}
}

static void open_product(struct product *p, uint32_t option)
{
	const int wide = option & D_IS_F16 ? 16 : 32;

	p->t = &element_types[option & 15];
	p->s = &shapes[option >> SHAPE_AT & 3];
	p->a = matrix_of_a(p->t, p->s, option & A_IS_COLUMNS);
	p->b = matrix_of_b(p->t, p->s, option & B_IS_ROWS);
	p->d = matrix_of_c(p->s, p->t->family == DOUBLE ? 64 : wide, false);
	p->c = p->d;
	if (option & C_IS_F16)
		p->c = matrix_of_c(p->s, 16, false);
}

static void run_mma(struct emu_warp *w, const struct emu_instr *i, uint32_t lanes)
{
	static _Thread_local struct product p;
	const struct emu_value *a, *b, *c;

	open_product(&p, i->option);
	a = i->operand + p.d.registers;
	b = a + p.a.registers;
	c = b + p.b.registers;
	gather(w, a, &p.a, i->option & A_IS_COLUMNS, p.x);
	gather(w, b, &p.b, i->option & B_IS_ROWS, p.y);
	gather(w, c, &p.c, false, p.sums);
	if (p.t->family == FLOAT)
		float_sums(&p, i->option & C_IS_F16, i->option & D_IS_F16);
	else if (p.t->family == DOUBLE)
		double_sums(&p);
	else
		integer_sums(&p, i->option);
	put_d(w, i, &p, lanes);
}

/* ---- binding --------------------------------------------------------------- */

static bool find_type(struct emu_bind *b, enum emu_type type)
{
	for (uint32_t k = 0; k < sizeof(element_types) / sizeof(*element_types); k++)
		if (element_types[k].type == type) {
			b->i->option |= k;
			return true;
		}
	return emu_bind_fail(b, ".%s is no type of its matrices", emu_type_name(type));
}

/* The shape belongs to the type that option has. */
static bool bind_shape(struct emu_bind *b)
{
	const struct element_type *t = &element_types[b->i->option & 15];
	const bool is_small = t->bits < 8 || t->bits == 64;

	for (uint32_t k = 0; k < sizeof(shapes) / sizeof(*shapes); k++)
		if (shapes[k].m == b->shape_m && shapes[k].n == b->shape_n &&
		    t->k == b->shape_k && is_small == (k == 3) &&
		    (k == 0 || k == 3 || t->type != EMU_T_TF32)) {
			b->i->option |= k << SHAPE_AT;
			return true;
		}
	return emu_bind_fail(b, "m%dn%dk%d of .%s is not known here", b->shape_m,
			     b->shape_n, b->shape_k, emu_type_name(t->type));
}

/* C and D have a type of their own; the shape gives that of A and B. */
static bool bind_sum_type(struct emu_bind *b)
{
	const enum emu_type sum = b->types[0];
	enum emu_type of = EMU_T_F16;

	if (sum == EMU_F64)
		of = EMU_F64;
	else if (sum == EMU_S32)
		of = b->shape_k == 16	? EMU_S8T
		     : b->shape_k == 32 ? EMU_T_S4
					: EMU_T_B1;
	else if (sum == EMU_F32 && b->shape_k == 8)
		of = EMU_T_TF32;
	else if (sum != EMU_F32 && sum != EMU_T_F16)
		return emu_bind_fail(b, ".%s is no type of C and D",
				     emu_type_name(sum));
	b->i->type = (uint8_t)sum;
	return find_type(b, of) && bind_shape(b);
}

static bool bind_registers(struct emu_bind *b, uint32_t n, const struct matrix *m,
			   bool is_written)
{
	uint32_t count;
	const struct emu_argument *e = emu_elements(b, emu_argument(b, n), &count);
	const bool is_wide = m->bits == 64;

	if (count != (uint32_t)m->registers)
		return emu_bind_fail(b, "%u registers, not %d", count, m->registers);
	for (uint32_t k = 0; k < count; k++)
		if (is_written ? !emu_dst(b, &e[k], is_wide ? 8 : 4)
			       : !emu_src(b, &e[k], is_wide ? EMU_F64 : EMU_B32))
			return false;
	return true;
}

/* The stride is optional: that of a matrix without gaps. */
static bool bind_stride(struct emu_bind *b, uint32_t n, const struct matrix *m)
{
	const struct emu_argument packed = {
	    .kind = EMU_ARG_INTEGER,
	    .special = -1,
	    .value = (uint64_t)(m->by_lines ? m->length : m->lines)};

	return emu_src(b, n < b->s->n_arguments ? emu_argument(b, n) : &packed,
		       EMU_B32);
}

static bool bind_memory(struct emu_bind *b, char which)
{
	const bool is_row = emu_has(b, "row");

	if (!emu_bind_aligned(b))
		return false;
	if (is_row == emu_has(b, "col") || b->n_types != 1 || !emu_arguments(b, 2, 3))
		return emu_bind_fail(b, "it needs .row or .col, and one type");
	b->i->option = 0;
	if (which == 'c' ? !bind_sum_type(b)
			 : !find_type(b, b->types[0]) || !bind_shape(b))
		return false;
	if (which == 'b' ? is_row : !is_row)
		b->i->option |= which == 'b' ? B_IS_ROWS : A_IS_COLUMNS;
	if (which != 'c' && element_types[b->i->option & 15].bits < 8 &&
	    b->i->option & (A_IS_COLUMNS | B_IS_ROWS))
		return emu_bind_fail(b, "elements of less than 8 bits are in rows of A "
					"and columns of B");
	b->i->vector = (uint8_t)which;
	b->i->space = (uint8_t)emu_space_of(b);
	b->i->traits = EMU_MATRIX;
	b->i->is_converged = true;
	return true;
}

static bool bind_load(struct emu_bind *b, char which)
{
	struct matrix m;

	if (!bind_memory(b, which))
		return false;
	m = matrix_in_memory(b->i);
	b->i->run = run_load;
	return bind_registers(b, 0, &m, true) && emu_address(b, emu_argument(b, 1)) &&
	       bind_stride(b, 2, &m);
}

bool emu_bind_wmma_load_a(struct emu_bind *b)
{
	return bind_load(b, 'a');
}

bool emu_bind_wmma_load_b(struct emu_bind *b)
{
	return bind_load(b, 'b');
}

bool emu_bind_wmma_load_c(struct emu_bind *b)
{
	return bind_load(b, 'c');
}

/* Operands: the registers, then the address and the stride, as of a load. */
bool emu_bind_wmma_store(struct emu_bind *b)
{
	struct matrix m;

	if (!bind_memory(b, 'c'))
		return false;
	m = matrix_in_memory(b->i);
	b->i->run = run_store;
	return bind_registers(b, 1, &m, false) && emu_address(b, emu_argument(b, 0)) &&
	       bind_stride(b, 2, &m);
}

/* The types of D, A, B and C; fp16 products name only those of D and C. */
static bool bind_types(struct emu_bind *b)
{
	const bool is_f16 = b->n_types == 2;
	const enum emu_type a = is_f16 ? EMU_T_F16 : b->types[1];
	const enum emu_type d = b->types[0], c = b->types[b->n_types - 1];

	if (!is_f16 && (b->n_types != 4 || b->types[2] != a))
		return emu_bind_fail(b, "its types must be those of D, A, B and C, A "
					"and B alike");
	if (!find_type(b, a) || !bind_shape(b))
		return false;
	switch (element_types[b->i->option & 15].family) {
	case DOUBLE:
		return (d == EMU_F64 && c == EMU_F64) ||
		       emu_bind_fail(b, "C and D must be .f64");
	case FLOAT:
		if (is_f16 && d == EMU_T_F16 && c == EMU_F32)
			return emu_bind_fail(b, "D of .f16 with C of .f32 is not "
						"known here");
		return (d == EMU_F32 || (is_f16 && d == EMU_T_F16)) &&
			       (c == EMU_F32 || (is_f16 && c == EMU_T_F16))
			   ? true
			   : emu_bind_fail(b, "C and D must be .f32, or .f16 with A "
					      "of .f16");
	default:
		return (d == EMU_S32 && c == EMU_S32) ||
		       emu_bind_fail(b, "C and D must be .s32");
	}
}

bool emu_bind_wmma_mma(struct emu_bind *b)
{
	static const char *const layouts[] = {"row", "col"};
	const char *first = NULL, *second = NULL;
	struct product p;

	for (uint32_t k = 0; k < b->n_words; k++)
		if (b->lengths[k] == 3 && (!memcmp(b->words[k], layouts[0], 3) ||
					   !memcmp(b->words[k], layouts[1], 3))) {
			second = first ? b->words[k] : NULL;
			first = first ? first : b->words[k];
		}
	if (!emu_bind_aligned(b))
		return false;
	if (!first || !second)
		return emu_bind_fail(b, "the layouts of A and B are missing");
	b->i->option = 0;
	if (b->n_types < 2 || !bind_types(b))
		return b->n_types < 2 ? emu_bind_fail(b, "its types are missing")
				      : false;
	b->i->option |= (*first == 'c' ? A_IS_COLUMNS : 0) |
			(*second == 'r' ? B_IS_ROWS : 0) |
			(b->types[0] == EMU_T_F16 ? D_IS_F16 : 0) |
			(b->types[b->n_types - 1] == EMU_T_F16 ? C_IS_F16 : 0) |
			(emu_has(b, "satfinite") ? SATURATES : 0) |
			(emu_has(b, "and") ? AND_OF_BITS : 0);
	open_product(&p, b->i->option);
	if (emu_has(b, "satfinite") && p.t->family != INTEGER)
		return emu_bind_fail(b, ".satfinite is for integers");
	if (emu_has(b, "popc") != (p.t->family == ONE_BIT) ||
	    (emu_has(b, "xor") != emu_has(b, "and")) != (p.t->family == ONE_BIT))
		return emu_bind_fail(b, ".xor.popc or .and.popc is for .b1");
	b->i->is_converged = true;
	b->i->run = run_mma;
	return emu_arguments(b, 4, 4) && bind_registers(b, 0, &p.d, true) &&
	       bind_registers(b, 1, &p.a, false) && bind_registers(b, 2, &p.b, false) &&
	       bind_registers(b, 3, &p.c, false);
}
