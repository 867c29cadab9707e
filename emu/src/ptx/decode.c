/* SPDX-License-Identifier: Apache-2.0 */
/*
 * decode.c - finds the row of a statement's opcode, sorts its words, and turns
 * arguments into operands.  What is not in the table is refused by name.
 */
#include "ptx/decode.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- types --------------------------------------------------------------- */

static const struct {
	const char *name;
	int bytes;
} types[EMU_TYPES] = {
    [EMU_PRED] = {"pred", 1},	  [EMU_B8] = {"b8", 1},
    [EMU_U8] = {"u8", 1},	  [EMU_S8T] = {"s8", 1},
    [EMU_B16] = {"b16", 2},	  [EMU_U16] = {"u16", 2},
    [EMU_S16] = {"s16", 2},	  [EMU_T_F16] = {"f16", 2},
    [EMU_T_BF16] = {"bf16", 2},	  [EMU_B32] = {"b32", 4},
    [EMU_U32] = {"u32", 4},	  [EMU_S32] = {"s32", 4},
    [EMU_F32] = {"f32", 4},	  [EMU_T_TF32] = {"tf32", 4},
    [EMU_F16X2] = {"f16x2", 4},	  [EMU_BF16X2] = {"bf16x2", 4},
    [EMU_E4M3X2] = {"e4m3x2", 2}, [EMU_E5M2X2] = {"e5m2x2", 2},
    [EMU_T_E4M3] = {"e4m3", 1},	  [EMU_T_E5M2] = {"e5m2", 1},
    [EMU_B64] = {"b64", 8},	  [EMU_U64] = {"u64", 8},
    [EMU_S64] = {"s64", 8},	  [EMU_F64] = {"f64", 8},
    [EMU_B128] = {"b128", 16},
};

int emu_type_bytes(enum emu_type type)
{
	return types[type].bytes;
}

const char *emu_type_name(enum emu_type type)
{
	return types[type].name ? types[type].name : "no type";
}

enum emu_type emu_type_of(const char *word, size_t length)
{
	for (int i = 1; i < EMU_TYPES; i++)
		if (types[i].name && strlen(types[i].name) == length &&
		    memcmp(types[i].name, word, length) == 0)
			return (enum emu_type)i;
	return EMU_NO_TYPE;
}

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
	    (int)(b->s->opcode_length < 90 ? b->s->opcode_length : 90),
	    b->s->opcode, text);
}

static bool list_has(const char *list, const char *word, size_t length)
{
	while (*list) {
		const size_t n = strcspn(list, " ");

		if (n == length && memcmp(list, word, n) == 0)
			return true;
		list += n;
		list += *list == ' ';
	}
	return false;
}

bool emu_has(const struct emu_bind *b, const char *word)
{
	const size_t length = strlen(word);

	for (uint32_t i = 0; i < b->n_words; i++)
		if (b->lengths[i] == length &&
		    memcmp(b->words[i], word, length) == 0)
			return true;
	return false;
}

/* A letter and a number below 10,000 behind it. */
static bool take_size(const char **at, const char *end, char letter, int *size)
{
	const char *p = *at;

	if (p == end || *p != letter)
		return false;
	*size = 0;
	for (p++; p < end && *p >= '0' && *p <= '9' && *size < 1000; p++)
		*size = *size * 10 + (*p - '0');
	if (p == *at + 1)
		return false;
	*at = p;
	return true;
}

/* m64n16k16 or m8n8. */
static bool parse_shape(struct emu_bind *b, const char *word, size_t length)
{
	const char *at = word, *end = word + length;

	b->shape_m = b->shape_n = b->shape_k = 0;
	if (!take_size(&at, end, 'm', &b->shape_m) ||
	    !take_size(&at, end, 'n', &b->shape_n))
		return false;
	return at == end ||
	       (take_size(&at, end, 'k', &b->shape_k) && at == end);
}

/* The word that the row does not take, or NULL. */
static const char *sort_words(struct emu_bind *b, const struct emu_opcode *row,
			      const char *at, const char *end, size_t *length)
{
	b->n_words = b->n_types = 0;
	b->shape_m = b->shape_n = b->shape_k = 0;
	while (at < end) {
		const char *word = at + 1;
		const char *dot = memchr(word, '.', (size_t)(end - word));
		const size_t n = (size_t)((dot ? dot : end) - word);

		at = word + n;
		*length = n;
		if (list_has(row->types, word, n)) {
			if (b->n_types == EMU_MAX_TYPES)
				return word;
			b->types[b->n_types++] = emu_type_of(word, n);
		} else if (list_has(row->modifiers, word, n)) {
			if (b->n_words == EMU_MAX_WORDS)
				return word;
			b->lengths[b->n_words] = n;
			b->words[b->n_words++] = word;
		} else if (!list_has(row->modifiers, "shape", 5) ||
			   !parse_shape(b, word, n)) {
			return word;
		}
	}
	return NULL;
}

static bool begins_with(const struct emu_statement *s, const char *name)
{
	const size_t n = strlen(name);

	return s->opcode_length >= n && memcmp(s->opcode, name, n) == 0 &&
	       (s->opcode_length == n || s->opcode[n] == '.');
}

/* The row with the longest name that takes all words; else says why not. */
static const struct emu_opcode *find_row(struct emu_bind *b)
{
	const struct emu_statement *s = b->s;
	const char *end = s->opcode + s->opcode_length;
	const struct emu_opcode *best = NULL, *near = NULL;
	const char *word = NULL;
	size_t length = 0;

	for (size_t i = 0; i < emu_opcode_count; i++) {
		const struct emu_opcode *row = &emu_opcodes[i];

		if (!begins_with(s, row->name))
			continue;
		if (!near || strlen(row->name) > strlen(near->name))
			near = row;
		if (best && strlen(best->name) >= strlen(row->name))
			continue;
		if (!sort_words(b, row, s->opcode + strlen(row->name), end,
				&length))
			best = row;
	}
	if (best) {
		sort_words(b, best, s->opcode + strlen(best->name), end,
			   &length);
		return best;
	}
	if (!near) {
		emu_bind_fail(b, "this opcode is not known here");
		return NULL;
	}
	word =
	    sort_words(b, near, s->opcode + strlen(near->name), end, &length);
	emu_bind_fail(b, ".%.*s is not known here; %s takes: %s%s%s",
		      word ? (int)length : 0, word ? word : "", near->name,
		      near->modifiers, *near->modifiers ? " " : "",
		      near->types);
	return NULL;
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
	return emu_bind_fail(b, "%u arguments: it takes %u to %u",
			     b->s->n_arguments, least, most);
}

const struct emu_argument *emu_elements(const struct emu_bind *b,
					const struct emu_argument *a,
					uint32_t *count)
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

/* A row that is written and never read: behind the special ones. */
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
	return o->row != UINT32_MAX ||
	       emu_bind_fail(b, "no memory for constants");
}

static bool add_special(struct emu_bind *b, int special)
{
	struct emu_value *o = add_operand(b);

	if (!o)
		return emu_bind_fail(b, "too many operands");
	o->row = emu_special_row((enum emu_special)special);
	o->bytes = special >= EMU_SPECIALS_32 ? 8 : 4;
	return true;
}

static bool check_width(struct emu_bind *b, const struct emu_argument *a,
			int bytes)
{
	const int has = register_bytes(b, a->reg);

	if (has == bytes)
		return true;
	if (has == 1 || bytes == 1)
		return emu_bind_fail(b, "register %.*s: %s a predicate",
				     (int)a->length, a->text,
				     has == 1 ? "it is" : "it is not");
	return emu_bind_fail(b, "register %.*s has %d bits, not %d",
			     (int)a->length, a->text, 8 * has, 8 * bytes);
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
			return emu_bind_fail(b, "a number of another size");
		narrow = (float)wide;
		memcpy(&bits, &narrow, sizeof(bits));
		value = bits;
	} else if (a->kind == EMU_ARG_INTEGER && is_float(type)) {
		return emu_bind_fail(b, "an integer where a float belongs");
	}
	return bytes > 8 ? emu_bind_fail(b, "a number of 128 bits")
			 : add_constant(b, value, bytes);
}

static bool add_source(struct emu_bind *b, const struct emu_argument *a,
		       enum emu_type type, int bytes)
{
	switch (a->kind) {
	case EMU_ARG_SPECIAL:
		if (a->special >= EMU_SPECIALS_32 ? bytes == 8 : bytes == 4)
			return add_special(b, a->special);
		return emu_bind_fail(b, "%.*s has another width",
				     (int)a->length, a->text);
	case EMU_ARG_INTEGER:
	case EMU_ARG_FLOAT:
		return add_number(b, a, type, bytes);
	case EMU_ARG_LABEL:
		return emu_bind_fail(b, "%.*s is declared nowhere",
				     (int)a->length, a->text);
	default:
		return emu_bind_fail(b, "an operand of a kind that it does "
					"not take");
	}
}

bool emu_src(struct emu_bind *b, const struct emu_argument *a,
	     enum emu_type type)
{
	const int bytes = emu_type_bytes(type) == 1 && type != EMU_PRED
			      ? 2
			      : emu_type_bytes(type);

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

bool emu_wide_src(struct emu_bind *b, const struct emu_argument *a,
		  enum emu_type type)
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
		return emu_bind_fail(b, "a predicate that is no register");
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
		return emu_bind_fail(b, "over three addresses");
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
		return emu_bind_fail(b, "%.*s is declared nowhere",
				     (int)base->length, base->text);
	default:
		return emu_bind_fail(b, "no register and no variable in []");
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
	    {"global", EMU_GLOBAL},
	    {"shared", EMU_SHARED},
	    {"shared::cta", EMU_SHARED},
	    {"shared::cluster", EMU_SHARED_CLUSTER},
	    {"param", EMU_PARAM},
	    {"param::entry", EMU_PARAM},
	    {"local", EMU_LOCAL},
	    {"const", EMU_CONST},
	};

	for (size_t i = 0; i < sizeof(spaces) / sizeof(*spaces); i++)
		if (emu_has(b, spaces[i].word))
			return spaces[i].space;
	return EMU_GENERIC;
}

/* ---- plain arithmetic ---------------------------------------------------- */

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
		return emu_bind_fail(b, "a type that it has not");
	n = (uint32_t)strlen(alu->signature);
	if (!emu_arguments(b, n, n))
		return false;
	for (uint32_t i = 0; i < n; i++)
		if (!bind_letter(b, alu->signature[i], i))
			return false;
	b->i->run = alu->run;
	return emu_round_by_words(b);
}

/* ---- statements ---------------------------------------------------------- */

static bool append(struct emu_bind *b)
{
	struct emu_builder *build = &b->parser->build;
	struct emu_instr *grown = emu_grow(build->code, &build->capacity,
					   build->count, sizeof(*grown));
	const size_t bytes = b->n_operands * sizeof(struct emu_value);

	if (!grown)
		return emu_bind_fail(b, "no memory for code");
	build->code = grown;
	b->i->operand = emu_arena_take(b->parser->module->arena, bytes + 1);
	if (!b->i->operand)
		return emu_bind_fail(b, "no memory for operands");
	if (bytes)
		memcpy(b->i->operand, b->operands, bytes);
	b->i->operands = (uint16_t)b->n_operands;
	grown[build->count++] = *b->i;
	return true;
}

bool emu_decode(struct emu_parser *p)
{
	static _Thread_local struct emu_bind b;
	struct emu_instr i;
	const struct emu_opcode *row;

	memset(&i, 0, sizeof(i));
	b.parser = p;
	b.s = &p->statement;
	b.i = &i;
	b.n_operands = b.n_addresses = 0;
	row = find_row(&b);
	if (!row)
		return false;
	i.opcode = row;
	i.line = b.s->line;
	i.source_line = p->build.source_line;
	i.source_file = (uint16_t)p->build.source_file;
	i.type = b.n_types ? (uint8_t)b.types[0] : EMU_NO_TYPE;
	i.type2 = b.n_types > 1 ? (uint8_t)b.types[1] : EMU_NO_TYPE;
	i.guard_reg = EMU_NO_REGISTER;
	i.target = UINT32_MAX;
	if (b.s->has_guard) {
		i.guard_reg = b.s->guard.reg;
		i.guard_is_negated = b.s->guard.is_negated;
	}
	return row->bind(&b) && append(&b);
}
