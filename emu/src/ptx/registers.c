/* SPDX-License-Identifier: Apache-2.0 */
/*
 * registers.c - constants as rows, and the storage of a program's registers in
 * a warp's memory.
 *
 * PTX has as many registers as results: tens of thousands, most of which live
 * for a few instructions. A register all of whose uses are in one basic block,
 * after its definition, shares storage with others before and after it; all
 * others, and those that an asynchronous instruction holds, have their own.
 * Lanes on different paths may share storage, because an instruction writes
 * only its own lanes.
 */
#include <stdlib.h>
#include <string.h>

#include "ptx/registers.h"

/* ---- constants ----------------------------------------------------------- */

static uint8_t *constant_memory(struct emu_builder *b, size_t more)
{
	if (b->constants_used + more > b->constants_capacity) {
		const size_t capacity = 2 * b->constants_capacity + 65536 + more;
		uint8_t *grown = realloc(b->constants, capacity);

		if (!grown)
			return NULL;
		b->constants = grown;
		b->constants_capacity = capacity;
	}
	return b->constants + b->constants_used;
}

uint32_t emu_constant_row(struct emu_builder *b, uint64_t value, uint32_t bytes)
{
	const size_t row_bytes = (size_t)bytes * EMU_LANES;
	const uint64_t mask = bytes == 8 ? UINT64_MAX : (UINT64_C(1) << 8 * bytes) - 1;
	const uint64_t mixed = ((value & mask) + bytes) * UINT64_C(0x9E3779B97F4A7C15);
	uint32_t *known = &b->constant_map[mixed >> 52];
	uint8_t *at;

	if (*known) {
		/*
		 * An entry does not keep its width: rows of all widths repeat
		 * their value, so equal bytes are enough.
		 */
		const uint8_t *row = b->constants + *known - 1;

		if ((size_t)(*known - 1) + row_bytes <= b->constants_used &&
		    memcmp(row, &value, bytes) == 0 &&
		    memcmp(row, row + bytes, row_bytes - bytes) == 0)
			return *known - 1;
	}
	if (b->constants_used > UINT32_MAX - 4096)
		return UINT32_MAX;
	at = constant_memory(b, row_bytes);
	if (!at)
		return UINT32_MAX;
	for (int lane = 0; lane < EMU_LANES; lane++)
		memcpy(at + lane * (int)bytes, &value, bytes);
	*known = (uint32_t)b->constants_used + 1;
	b->constants_used += row_bytes;
	return *known - 1;
}

/* ---- places -------------------------------------------------------------- */

struct life {
	uint32_t block; /* of the first use; UINT32_MAX: none yet */
	uint32_t last;	/* index of the last instruction that has it */
	uint32_t row;
	bool is_shared; /* may share its place */
	bool has_row;
};

/* Rows by their size: predicates, 16, 32, 64 and 128 bits. */
#define SIZES 5

struct placer {
	struct emu_builder *build;
	struct life *lives;
	uint32_t *free[SIZES];
	size_t n_free[SIZES], capacity[SIZES];
	uint32_t used;
};

static uint32_t row_bytes(int bytes)
{
	return bytes == 1 ? 4 : (uint32_t)bytes * EMU_LANES;
}

static int size_of(int bytes)
{
	return bytes == 1 ? 0 : bytes == 2 ? 1 : bytes == 4 ? 2 : bytes == 8 ? 3 : 4;
}

static void see(struct placer *p, uint32_t reg, uint32_t block, uint32_t at,
		bool is_written, bool is_async)
{
	struct life *life = &p->lives[reg];

	if (life->block == UINT32_MAX) {
		life->block = block;
		life->is_shared = is_written;
	} else if (life->block != block) {
		life->is_shared = false;
	}
	if (is_async)
		life->is_shared = false;
	life->last = at;
}

static void find_leaders(struct emu_builder *b)
{
	for (size_t i = 0; i < b->count; i++) {
		struct emu_instr *x = &b->code[i];

		if (x->target >= b->count) /* no branch */
			continue;
		b->code[x->target].is_leader = true;
		if (i + 1 < b->count)
			b->code[i + 1].is_leader = true;
	}
}

/* Sources are seen before results, because x = x + 1 reads the earlier x. */
static void find_lives(struct placer *p)
{
	struct emu_builder *b = p->build;
	uint32_t block = 0;

	for (uint32_t i = 0; i < b->count; i++) {
		const struct emu_instr *x = &b->code[i];

		block += x->is_leader;
		if (x->guard_reg != EMU_NO_REGISTER)
			see(p, x->guard_reg, block, i, false, false);
		for (int written = 0; written < 2; written++)
			for (uint32_t k = 0; k < x->operands; k++) {
				const struct emu_value *o = &x->operand[k];

				if (o->reg != EMU_NO_REGISTER &&
				    o->is_written == written)
					see(p, o->reg, block, i, written, o->is_async);
			}
	}
}

static bool give_row(struct placer *p, uint32_t reg)
{
	const int bytes = p->build->register_bytes[reg];
	const int size = size_of(bytes);
	struct life *life = &p->lives[reg];

	if (life->has_row)
		return true;
	life->has_row = true;
	if (life->is_shared && p->n_free[size]) {
		life->row = p->free[size][--p->n_free[size]];
		return true;
	}
	if (p->used > UINT32_MAX / 2)
		return false;
	/* Rows keep the alignment of their size. */
	p->used =
	    (p->used + row_bytes(bytes) - 1) / row_bytes(bytes) * row_bytes(bytes);
	life->row = p->used;
	p->used += row_bytes(bytes);
	return true;
}

static bool end_life(struct placer *p, uint32_t reg, uint32_t at)
{
	const int size = size_of(p->build->register_bytes[reg]);
	struct life *life = &p->lives[reg];
	uint32_t *grown;

	if (!life->is_shared || life->last != at)
		return true;
	/* Only once, although an instruction may name it twice. */
	life->last = UINT32_MAX;
	grown = emu_grow(p->free[size], &p->capacity[size], p->n_free[size],
			 sizeof(*grown));
	if (!grown)
		return false;
	p->free[size] = grown;
	grown[p->n_free[size]++] = life->row;
	return true;
}

/* A result never takes the place of a source of its own instruction. */
static bool place_instruction(struct placer *p, uint32_t at)
{
	struct emu_instr *x = &p->build->code[at];
	bool ok = true;

	if (x->guard_reg != EMU_NO_REGISTER) {
		ok = give_row(p, x->guard_reg);
		x->guard_row = p->lives[x->guard_reg].row;
	}
	for (uint32_t k = 0; ok && k < x->operands; k++) {
		struct emu_value *o = &x->operand[k];

		if (o->reg == EMU_NO_REGISTER)
			continue;
		ok = give_row(p, o->reg);
		o->row = p->lives[o->reg].row;
	}
	if (ok && x->guard_reg != EMU_NO_REGISTER)
		ok = end_life(p, x->guard_reg, at);
	for (uint32_t k = 0; ok && k < x->operands; k++)
		if (x->operand[k].reg != EMU_NO_REGISTER)
			ok = end_life(p, x->operand[k].reg, at);
	return ok;
}

bool emu_place_registers(struct emu_builder *b, struct emu_error *err)
{
	struct placer p = {.build = b, .used = emu_special_rows_bytes()};
	bool ok;

	p.lives = calloc(b->registers + 1, sizeof(*p.lives));
	ok = p.lives;
	if (ok) {
		for (size_t i = 0; i < b->registers; i++)
			p.lives[i].block = UINT32_MAX;
		find_leaders(b);
		find_lives(&p);
		for (uint32_t i = 0; ok && i < b->count; i++)
			ok = place_instruction(&p, i);
	}
	b->kernel->register_bytes = (p.used + 255) / 256 * 256;
	for (int i = 0; i < SIZES; i++)
		free(p.free[i]);
	free(p.lives);
	return ok || emu_fail(err, "no memory for registers");
}

bool emu_find_register(const struct emu_parser *p, const char *text, size_t length,
		       uint32_t *reg)
{
	const struct emu_name *n =
	    emu_names_find(&p->names, text, length, EMU_NAME_REGISTER);
	size_t stem = length;
	uint64_t number = 0;

	if (n) {
		*reg = (uint32_t)n->value;
		return true;
	}
	while (stem > 0 && text[stem - 1] >= '0' && text[stem - 1] <= '9')
		stem--;
	if (stem == length || length - stem > 9)
		return false;
	for (size_t i = stem; i < length; i++)
		number = number * 10 + (uint64_t)(text[i] - '0');
	/* %r01 is not %r1. */
	if (text[stem] == '0' && length - stem > 1)
		return false;
	n = emu_names_find(&p->names, text, stem, EMU_NAME_RANGE);
	if (!n || number >= n->count)
		return false;
	*reg = (uint32_t)(n->value + number);
	return true;
}
