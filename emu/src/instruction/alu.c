/* SPDX-License-Identifier: Apache-2.0 */
/*
 * alu.c - binds plain arithmetic, whose arguments a signature describes
 * (binds.h).
 */
#include <string.h>

#include "instruction/binds.h"

static enum emu_type wide_type(enum emu_type type)
{
	switch (type) {
	case EMU_U16:
		return EMU_U32;
	case EMU_S16:
		return EMU_S32;
	case EMU_U32:
		return EMU_U64;
	default:
		return EMU_S64;
	}
}

static const struct emu_alu *find_alu(const struct emu_bind *b)
{
	static const struct emu_alu *const tables[] = {
	    emu_integer_alu, emu_bits_alu, emu_float_alu};

	for (size_t t = 0; t < sizeof(tables) / sizeof(*tables); t++)
		for (const struct emu_alu *a = tables[t]; a->name; a++)
			if (a->type == b->types[0] &&
			    strcmp(a->name, b->i->opcode->name) == 0)
				return a;
	return NULL;
}

static bool bind_letter(struct emu_bind *b, char letter, uint32_t n)
{
	const struct emu_argument *a = emu_argument(b, n);
	const enum emu_type type = letter == 't'   ? b->types[0]
				   : letter == 'w' ? wide_type(b->types[0])
				   : letter == 'p' ? EMU_PRED
						   : EMU_U32;
	int64_t number = 0;

	if (n == 0)
		return emu_dst(b, a, emu_type_bytes(type));
	if (letter == 'z') {
		if (!emu_number(b, a, 0, 255, &number))
			return false;
		b->i->option = (uint32_t)number;
		return true;
	}
	return emu_src(b, a, type);
}

bool emu_bind_alu(struct emu_bind *b)
{
	const struct emu_alu *alu = find_alu(b);
	uint32_t n;

	if (b->n_types != 1 || !alu)
		return emu_bind_fail(b, "its type is none that the opcode "
					"takes");
	n = (uint32_t)strlen(alu->signature);
	if (!emu_arguments(b, n, n))
		return false;
	for (uint32_t i = 0; i < n; i++)
		if (!bind_letter(b, alu->signature[i], i))
			return false;
	b->i->run = alu->run;
	return emu_round_by_words(b);
}

/* It names the type of a and that of b. */
bool emu_bind_dp4a(struct emu_bind *b)
{
	if (b->n_types != 2 || b->types[0] != b->types[1])
		return emu_bind_fail(b, "its two types must be the same");
	b->n_types = 1;
	return emu_bind_alu(b);
}
