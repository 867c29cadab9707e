/* SPDX-License-Identifier: Apache-2.0 */
/*
 * alu.c - binds plain arithmetic, whose arguments a signature describes
 * (binds.h).
 */
#include <stdio.h>
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

/* The row with the statement's name and type; if there are several, the one with its
 * number of arguments. */
static const struct emu_alu *find_alu(const struct emu_bind *b, const char *name)
{
	static const struct emu_alu *const tables[] = {
	    emu_integer_alu, emu_bits_alu,	  emu_float_alu,
	    emu_pair_alu,    emu_approximate_alu, emu_carry_alu};
	const struct emu_alu *found = NULL;

	for (size_t t = 0; t < sizeof(tables) / sizeof(*tables); t++)
		for (const struct emu_alu *a = tables[t]; a->name; a++)
			if (a->type == b->types[0] && strcmp(a->name, name) == 0 &&
			    (!found || strlen(a->signature) == b->s->n_arguments))
				found = a;
	return found;
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

static bool bind_named(struct emu_bind *b, const char *name)
{
	const struct emu_alu *alu = find_alu(b, name);
	uint32_t n;

	if (b->n_types != 1 || !alu)
		return emu_bind_fail(b, "the opcode does not accept "
					"this type");
	n = (uint32_t)strlen(alu->signature);
	if (!emu_arguments(b, n, n))
		return false;
	for (uint32_t i = 0; i < n; i++)
		if (!bind_letter(b, alu->signature[i], i))
			return false;
	b->i->run = alu->run;
	return emu_round_by_words(b) && emu_flush_by_words(b);
}

bool emu_bind_alu(struct emu_bind *b)
{
	return bind_named(b, b->i->opcode->name);
}

/* add, sub and fma of .f32 whose first sources are .f16 or .bf16. */
bool emu_bind_mixed(struct emu_bind *b)
{
	const struct emu_alu *alu = find_alu(b, b->i->opcode->name);
	uint32_t n;

	if (b->n_types == 1)
		return emu_bind_alu(b);
	if (b->n_types != 2 || b->types[0] != EMU_F32 || !alu ||
	    (b->types[1] != EMU_T_F16 && b->types[1] != EMU_T_BF16) ||
	    emu_has(b, "ftz"))
		return emu_bind_fail(b, "the opcode does not accept "
					"these types");
	n = (uint32_t)strlen(alu->signature);
	if (!emu_arguments(b, n, n) || !emu_dst(b, emu_argument(b, 0), 4))
		return false;
	for (uint32_t k = 1; k < n; k++)
		if (!emu_src(b, emu_argument(b, k), k + 1 < n ? b->types[1] : EMU_F32))
			return false;
	b->i->run = alu->run;
	return emu_round_by_words(b) && emu_widen_by_types(b);
}

/* min and max, whose words select other functions: .NaN, .xorsign.abs. */
bool emu_bind_extreme(struct emu_bind *b)
{
	const bool has_sign = emu_has(b, "xorsign");
	char name[32];

	if (has_sign != emu_has(b, "abs"))
		return emu_bind_fail(b, ".xorsign and .abs go together");
	(void)snprintf(name, sizeof(name), "%s%s%s", b->i->opcode->name,
		       emu_has(b, "NaN") ? ".NaN" : "", has_sign ? ".xorsign" : "");
	return bind_named(b, name);
}

/* vabsdiff4 names the types of d, a and b; without .add d would be four bytes. */
bool emu_bind_vabsdiff4(struct emu_bind *b)
{
	if (b->n_types != 3 || !emu_has(b, "add"))
		return emu_bind_fail(b, "it needs .u32.u32.u32.add");
	b->n_types = 1;
	return emu_bind_alu(b);
}
