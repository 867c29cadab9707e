/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bind.c - functions that the binders of opcodes share: they read an opcode's words,
 * and turn arguments into operands.
 */
#include "ptx/bind.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "ptx/registers.h"
#include "ptx/target.h"

/* ---- words --------------------------------------------------------------- */

bool emu_bind_fail(struct emu_bind *b, const char *format, ...)
{
	char text[400];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	return emu_parse_fail(
	    b->parser, b->s->line, "%.*s: %s",
	    (int)(b->s->opcode_length < 90 ? b->s->opcode_length : 90), b->s->opcode,
	    text);
}

bool emu_bind_needs(struct emu_bind *b, const char *need, const char *what)
{
	const char *target = b->parser->module->target;
	char who[64];

	if (emu_target_has(target, need))
		return true;
	emu_target_describe(need, who, sizeof(who));
	return emu_bind_fail(b, "%s needs .target %s, not %s", what ? what : "it", who,
			     target && *target ? target : "none");
}

bool emu_bind_aligned(struct emu_bind *b)
{
	return (emu_has(b, "sync") && emu_has(b, "aligned")) ||
	       emu_bind_fail(b, ".sync.aligned is missing");
}

bool emu_has(const struct emu_bind *b, const char *word)
{
	const size_t length = strlen(word);

	for (uint32_t i = 0; i < b->n_words; i++)
		if (b->lengths[i] == length && memcmp(b->words[i], word, length) == 0)
			return true;
	return false;
}

/* ---- arguments ----------------------------------------------------------- */

const struct emu_argument *emu_argument(const struct emu_bind *b, uint32_t n)
{
	return &b->s->arguments[n];
}

bool emu_arguments(struct emu_bind *b, uint32_t least, uint32_t most)
{
	if (b->s->n_arguments >= least && b->s->n_arguments <= most)
		return true;
	return emu_bind_fail(b, "%u arguments: it takes %u to %u", b->s->n_arguments,
			     least, most);
}

const struct emu_argument *emu_elements(const struct emu_bind *b,
					const struct emu_argument *a, uint32_t *count)
{
	*count = a->kind == EMU_ARG_VECTOR ? a->count : 1;
	return a->kind == EMU_ARG_VECTOR ? &b->s->elements[a->first] : a;
}

static struct emu_value *add_operand(struct emu_bind *b)
{
	struct emu_value *o;

	if (b->n_operands == EMU_MAX_ELEMENTS)
		return NULL;
	o = &b->operands[b->n_operands++];
	memset(o, 0, sizeof(*o));
	o->reg = EMU_NO_REGISTER;
	return o;
}

static int register_bytes(const struct emu_bind *b, uint32_t reg)
{
	return b->parser->build.register_bytes[reg];
}

/* A row that is written and never read, for the result _. */
static bool add_sink(struct emu_bind *b, int bytes)
{
	struct emu_value *o = add_operand(b);

	if (!o)
		return emu_bind_fail(b, "too many operands");
	o->row = emu_special_rows_bytes() - 256;
	o->bytes = (uint8_t)bytes;
	o->is_written = true;
	return true;
}

static bool add_register(struct emu_bind *b, const struct emu_argument *a,
			 bool is_written)
{
	struct emu_value *o = add_operand(b);

	if (!o)
		return emu_bind_fail(b, "too many operands");
	o->reg = a->reg;
	o->bytes = (uint8_t)register_bytes(b, a->reg);
	o->is_written = is_written;
	o->is_negated = a->is_negated;
	return true;
}

static bool add_constant(struct emu_bind *b, uint64_t value, int bytes)
{
	struct emu_value *o = add_operand(b);

	if (!o)
		return emu_bind_fail(b, "too many operands");
	o->bank = EMU_CONSTANTS;
	o->bytes = (uint8_t)bytes;
	o->row = emu_constant_row(&b->parser->build, value, (uint32_t)bytes);
	return o->row != UINT32_MAX || emu_bind_fail(b, "no memory for constants");
}

static bool is_of_clusters(int special)
{
	return special >= EMU_CLUSTERID_X && special <= EMU_CLUSTER_NCTARANK;
}

static bool add_special(struct emu_bind *b, int special)
{
	struct emu_value *o = add_operand(b);

	if (is_of_clusters(special) &&
	    !emu_bind_needs(b, "90", emu_special_name((enum emu_special)special)))
		return false;
	if (!o)
		return emu_bind_fail(b, "too many operands");
	o->row = emu_special_row((enum emu_special)special);
	o->bytes = special >= EMU_SPECIALS_32 ? 8 : 4;
	return true;
}

static bool check_width(struct emu_bind *b, const struct emu_argument *a, int bytes)
{
	const int has = register_bytes(b, a->reg);

	if (has == bytes)
		return true;
	if (has == 1 || bytes == 1)
		return emu_bind_fail(b, "register %.*s: %s a predicate", (int)a->length,
				     a->text, has == 1 ? "it is" : "it is not");
	return emu_bind_fail(b, "register %.*s has %d bits, not %d", (int)a->length,
			     a->text, 8 * has, 8 * bytes);
}

bool emu_dst(struct emu_bind *b, const struct emu_argument *a, int bytes)
{
	if (a->kind == EMU_ARG_SINK)
		return add_sink(b, bytes);
	if (a->kind != EMU_ARG_REGISTER)
		return emu_bind_fail(b, "a result that is no register");
	return check_width(b, a, bytes) && add_register(b, a, true);
}

bool emu_wide_dst(struct emu_bind *b, const struct emu_argument *a, int least)
{
	if (a->kind == EMU_ARG_SINK)
		return add_sink(b, least);
	if (a->kind != EMU_ARG_REGISTER)
		return emu_bind_fail(b, "a result that is no register");
	if (register_bytes(b, a->reg) == 1)
		return check_width(b, a, 2);
	if (register_bytes(b, a->reg) > 8)
		return check_width(b, a, 8);
	return register_bytes(b, a->reg) >= least ? add_register(b, a, true)
						  : check_width(b, a, least);
}

static bool is_float(enum emu_type type)
{
	return type == EMU_F32 || type == EMU_F64 || type == EMU_T_F16 ||
	       type == EMU_T_BF16;
}

/* A number of the type's width: decimal floats become floats of that width. */
static bool add_number(struct emu_bind *b, const struct emu_argument *a,
		       enum emu_type type, int bytes)
{
	uint64_t value = a->value;

	if (a->kind == EMU_ARG_FLOAT && a->float_bytes != bytes) {
		double wide;
		float narrow;
		uint32_t bits;

		memcpy(&wide, &value, sizeof(wide));
		if (a->float_bytes != 8 || bytes != 4)
			return emu_bind_fail(b, "a number of another size than "
						"the operand");
		narrow = (float)wide;
		memcpy(&bits, &narrow, sizeof(bits));
		value = bits;
	} else if (a->kind == EMU_ARG_INTEGER && is_float(type)) {
		return emu_bind_fail(b, "an integer where a float belongs");
	}
	return bytes > 8 ? emu_bind_fail(b, "a number cannot have 128 bits")
			 : add_constant(b, value, bytes);
}

static bool add_source(struct emu_bind *b, const struct emu_argument *a,
		       enum emu_type type, int bytes)
{
	switch (a->kind) {
	case EMU_ARG_SPECIAL:
		if (a->special >= EMU_SPECIALS_32 ? bytes == 8 : bytes == 4)
			return add_special(b, a->special);
		return emu_bind_fail(b, "%.*s has another width", (int)a->length,
				     a->text);
	case EMU_ARG_INTEGER:
	case EMU_ARG_FLOAT:
		return add_number(b, a, type, bytes);
	case EMU_ARG_LABEL:
		return emu_bind_fail(b, "%.*s is declared nowhere", (int)a->length,
				     a->text);
	default:
		return emu_bind_fail(b, "an operand of a kind that it does "
					"not take");
	}
}

bool emu_src(struct emu_bind *b, const struct emu_argument *a, enum emu_type type)
{
	const int bytes =
	    emu_type_bytes(type) == 1 && type != EMU_PRED ? 2 : emu_type_bytes(type);

	/* True is -1, or any number but 0; a row is 32 bits, here four bytes.
	 */
	if (type == EMU_PRED && a->kind == EMU_ARG_INTEGER)
		return add_constant(b, a->value ? 0xFF : 0, bytes);
	if (type == EMU_PRED)
		return emu_predicate(b, a);
	if (a->kind == EMU_ARG_REGISTER)
		return check_width(b, a, bytes) && add_register(b, a, false);
	return add_source(b, a, type, bytes);
}

bool emu_wide_src(struct emu_bind *b, const struct emu_argument *a, enum emu_type type)
{
	if (a->kind != EMU_ARG_REGISTER)
		return emu_src(b, a, type);
	if (register_bytes(b, a->reg) == 1)
		return check_width(b, a, 2);
	if (register_bytes(b, a->reg) > 8)
		return check_width(b, a, 8);
	if (register_bytes(b, a->reg) < emu_type_bytes(type))
		return check_width(b, a, emu_type_bytes(type));
	return add_register(b, a, false);
}

bool emu_predicate(struct emu_bind *b, const struct emu_argument *a)
{
	if (a->kind != EMU_ARG_REGISTER)
		return emu_bind_fail(b, "the predicate must be a register");
	return check_width(b, a, 1) && add_register(b, a, false);
}

bool emu_address(struct emu_bind *b, const struct emu_argument *a)
{
	const struct emu_argument *base = &b->s->elements[a->first];

	if (a->kind != EMU_ARG_ADDRESS)
		return emu_bind_fail(b, "[address] is missing");
	if (b->n_addresses == 0)
		b->i->immediate = (int64_t)a->value;
	else if (b->n_addresses <= 2)
		b->i->offset[b->n_addresses - 1] = (int64_t)a->value;
	else
		return emu_bind_fail(b, "more than three addresses");
	b->n_addresses++;
	switch (base->kind) {
	case EMU_ARG_REGISTER:
		if (register_bytes(b, base->reg) < 4)
			return emu_bind_fail(b, "an address has 32 or 64 bits");
		return add_register(b, base, false);
	case EMU_ARG_SYMBOL:
		if (base->special == EMU_SHARED_BASE)
			return add_special(b, EMU_SHARED_BASE);
		if (base->special == EMU_PARAM_BASE)
			return add_special(b, EMU_PARAM_BASE);
		return add_constant(b, 0, 8);
	case EMU_ARG_INTEGER:
		return add_constant(b, 0, 8);
	case EMU_ARG_LABEL:
		return emu_bind_fail(b, "%.*s is declared nowhere", (int)base->length,
				     base->text);
	default:
		return emu_bind_fail(b, "[] must hold a register, a variable "
					"or a number");
	}
}

bool emu_number(struct emu_bind *b, const struct emu_argument *a, int64_t least,
		int64_t most, int64_t *value)
{
	if (a->kind != EMU_ARG_INTEGER || (int64_t)a->value < least ||
	    (int64_t)a->value > most)
		return emu_bind_fail(b, "a number from %lld to %lld is wanted",
				     (long long)least, (long long)most);
	*value = (int64_t)a->value;
	return true;
}

enum emu_state_space emu_space_of(const struct emu_bind *b)
{
	static const struct {
		const char *word;
		enum emu_state_space space;
	} spaces[] = {
	    {"global", EMU_GLOBAL},	 {"shared", EMU_SHARED},
	    {"shared::cta", EMU_SHARED}, {"shared::cluster", EMU_SHARED_CLUSTER},
	    {"param", EMU_PARAM},	 {"param::entry", EMU_PARAM},
	    {"param::func", EMU_PARAM},	 {"local", EMU_LOCAL},
	    {"const", EMU_CONST},
	};

	for (size_t i = 0; i < sizeof(spaces) / sizeof(*spaces); i++)
		if (emu_has(b, spaces[i].word))
			return spaces[i].space;
	return EMU_GENERIC;
}
