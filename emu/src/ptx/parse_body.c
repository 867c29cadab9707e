/* SPDX-License-Identifier: Apache-2.0 */
/*
 * parse_body.c - a kernel's body: scopes, registers, labels, and statements
 * whose names are resolved before they are decoded.
 */
#include "ptx/parse_body.h"

#include <stdlib.h>
#include <string.h>

#include "ptx/functions.h"
#include "ptx/parse_call.h"
#include "ptx/parse_variable.h"
#include "ptx/registers.h"
#include "ptx/source.h"

#define MAX_REGISTERS (1u << 24)

/* ---- registers ----------------------------------------------------------- */

static bool add_registers(struct emu_parser *p, uint32_t count, uint8_t bytes)
{
	struct emu_builder *b = &p->build;

	for (uint32_t i = 0; i < count; i++) {
		uint8_t *grown = emu_grow(b->register_bytes, &b->registers_capacity,
					  b->registers, 1);

		if (!grown)
			return emu_fail(p->err, "no memory for registers");
		b->register_bytes = grown;
		grown[b->registers++] = bytes;
	}
	return true;
}

/* .reg .type name [<count>], ... ; */
static bool parse_registers(struct emu_parser *p)
{
	const struct emu_token *t = &p->lexer.token;
	enum emu_type type = t->kind == EMU_WORD && *t->text == '.'
				 ? emu_type_of(t->text + 1, t->length - 1)
				 : EMU_NO_TYPE;
	const int bytes = emu_type_bytes(type);

	if (type == EMU_NO_TYPE || bytes > 16)
		return emu_parse_fail(p, t->line, "'%.*s' is no type of registers here",
				      (int)(t->length < 40 ? t->length : 40), t->text);
	emu_lexer_next(&p->lexer);
	do {
		struct emu_name name = {0};
		uint64_t count = 1;

		if (t->kind != EMU_WORD)
			return emu_parse_fail(p, t->line, "a register has no name");
		name.text = t->text;
		name.length = t->length;
		name.kind = EMU_NAME_REGISTER;
		name.value = p->build.registers;
		emu_lexer_next(&p->lexer);
		if (emu_take_mark(p, '<')) {
			name.kind = EMU_NAME_RANGE;
			if (!emu_expect_number(p, &count) || !emu_expect_mark(p, '>'))
				return false;
		}
		if (count > MAX_REGISTERS - p->build.registers)
			return emu_parse_fail(
			    p, t->line, "over %u registers in a kernel", MAX_REGISTERS);
		name.count = (uint32_t)count;
		/* 8-bit registers behave as 16-bit ones. */
		if (!add_registers(p, (uint32_t)count,
				   type == EMU_PRED ? 1
				   : bytes == 1	    ? 2
						    : (uint8_t)bytes))
			return false;
		if (!emu_names_add(&p->names, &name))
			return emu_fail(p->err, "no memory for names");
	} while (emu_take_mark(p, ','));
	return emu_expect_mark(p, ';');
}

/* ---- arguments ----------------------------------------------------------- */

static bool find_special(const char *text, size_t length, int *special)
{
	for (int i = 0; i < EMU_SPECIALS; i++) {
		const char *name = emu_special_name((enum emu_special)i);

		if (name && strlen(name) == length && memcmp(name, text, length) == 0) {
			*special = i;
			return true;
		}
	}
	return false;
}

/*
 * A dynamic variable follows the static ones, which are all known where it
 * is used.
 */
static bool dynamic_symbol(struct emu_parser *p, const struct emu_name *n,
			   struct emu_argument *a)
{
	struct emu_kernel *k = p->build.kernel;

	if (n->space != EMU_SHARED || n->count == 0)
		return false;
	if (k->dynamic_align < n->count)
		k->dynamic_align = n->count;
	p->build.has_dynamic_symbol = true;
	a->special = EMU_SHARED_BASE;
	a->value = EMU_SHARED_RESERVED +
		   (k->shared_bytes + (uint64_t)n->count - 1) / n->count * n->count;
	return true;
}

static void resolve_symbol(struct emu_parser *p, const struct emu_name *n,
			   struct emu_argument *a)
{
	a->kind = EMU_ARG_SYMBOL;
	a->space = (uint8_t)n->space;
	a->special = n->special;
	a->value = n->value;
	(void)dynamic_symbol(p, n, a);
}

/* variable[number]: the address of an element. */
static bool parse_index(struct emu_parser *p, const struct emu_name *n,
			struct emu_argument *a)
{
	uint64_t index = 0;

	if (!emu_take_mark(p, '['))
		return true;
	if (!emu_expect_number(p, &index) || !emu_expect_mark(p, ']'))
		return false;
	a->value += index * n->element_bytes;
	return true;
}

static bool parse_name(struct emu_parser *p, struct emu_argument *a)
{
	const struct emu_token *t = &p->lexer.token;
	const struct emu_function *f;
	const struct emu_name *n = NULL;

	a->text = t->text;
	a->length = t->length;
	if (t->length == 1 && *t->text == '_')
		a->kind = EMU_ARG_SINK;
	else if (emu_find_register(p, t->text, t->length, &a->reg))
		a->kind = EMU_ARG_REGISTER;
	else if (*t->text == '%' && find_special(t->text, t->length, &a->special))
		a->kind = EMU_ARG_SPECIAL;
	else if (emu_token_is_word(t, "WARP_SZ")) {
		a->kind = EMU_ARG_INTEGER;
		a->value = EMU_LANES;
	} else if (*t->text == '%')
		return emu_parse_fail(p, t->line,
				      "register %.*s is not declared, and no "
				      "special register known here",
				      (int)(t->length < 40 ? t->length : 40), t->text);
	else if ((n = emu_names_find(&p->names, t->text, t->length, EMU_NAME_SYMBOL)))
		resolve_symbol(p, n, a);
	else if ((f = emu_function_find(p, t->text, t->length))) {
		a->kind = EMU_ARG_INTEGER;
		a->value = emu_function_address(p, f);
	} else
		a->kind = EMU_ARG_LABEL;
	emu_lexer_next(&p->lexer);
	return a->kind != EMU_ARG_SYMBOL || parse_index(p, n, a);
}

static bool parse_number(struct emu_parser *p, struct emu_argument *a)
{
	const bool minus = emu_take_mark(p, '-');
	const struct emu_token *t = &p->lexer.token;

	a->value = t->value;
	a->kind = EMU_ARG_INTEGER;
	if (t->kind == EMU_FLOAT) {
		a->kind = EMU_ARG_FLOAT;
		a->float_bytes = (uint8_t)t->float_bytes;
		if (minus)
			a->value ^= UINT64_C(1) << (8 * a->float_bytes - 1);
	} else if (t->kind == EMU_NUMBER) {
		if (minus)
			a->value = 0 - a->value;
	} else {
		return emu_parse_fail(p, t->line, "'%.*s' instead of a number",
				      (int)(t->length < 40 ? t->length : 40), t->text);
	}
	emu_lexer_next(&p->lexer);
	return true;
}

/* A register, number or symbol; in an address also with "+ number". */
static bool parse_simple(struct emu_parser *p, struct emu_argument *a)
{
	memset(a, 0, sizeof(*a));
	a->special = -1;
	a->is_negated = emu_take_mark(p, '!');
	if (p->lexer.token.kind == EMU_WORD)
		return parse_name(p, a);
	return parse_number(p, a);
}

static bool add_element(struct emu_parser *p, const struct emu_argument *e)
{
	struct emu_statement *s = &p->statement;

	if (s->n_elements == EMU_MAX_ELEMENTS)
		return emu_parse_fail(p, p->lexer.token.line,
				      "over %d operands in an instruction",
				      EMU_MAX_ELEMENTS);
	s->elements[s->n_elements++] = *e;
	return true;
}

static bool parse_vector(struct emu_parser *p, struct emu_argument *a)
{
	memset(a, 0, sizeof(*a));
	a->kind = EMU_ARG_VECTOR;
	a->first = p->statement.n_elements;
	do {
		struct emu_argument e;

		if (!parse_simple(p, &e) || !add_element(p, &e))
			return false;
		a->count++;
	} while (emu_take_mark(p, ','));
	return emu_expect_mark(p, '}');
}

static bool parse_offset(struct emu_parser *p, uint64_t *value)
{
	struct emu_argument number;

	while (emu_take_mark(p, '+') || emu_token_is(&p->lexer.token, '-')) {
		memset(&number, 0, sizeof(number));
		if (!parse_number(p, &number))
			return false;
		if (number.kind != EMU_ARG_INTEGER)
			return emu_parse_fail(p, p->lexer.token.line,
					      "an offset is an integer");
		*value += number.value;
	}
	return true;
}

/* [base + offset] or [base, {coordinates}], from after the '['. */
static bool parse_address(struct emu_parser *p, struct emu_argument *a)
{
	struct emu_argument base, coordinates;

	memset(a, 0, sizeof(*a));
	a->kind = EMU_ARG_ADDRESS;
	if (!parse_simple(p, &base) || !parse_offset(p, &a->value))
		return false;
	a->special = -1;
	if (base.kind == EMU_ARG_INTEGER || base.kind == EMU_ARG_SYMBOL)
		a->value += base.value;
	a->first = p->statement.n_elements;
	a->count = 1;
	if (!add_element(p, &base))
		return false;
	if (emu_take_mark(p, ',')) {
		if (!emu_expect_mark(p, '{'))
			return false;
		if (!parse_vector(p, &coordinates))
			return false;
		a->count += coordinates.count;
	}
	return emu_expect_mark(p, ']');
}

static bool parse_argument(struct emu_parser *p, struct emu_argument *a)
{
	struct emu_argument second;

	if (emu_take_mark(p, '{'))
		return parse_vector(p, a);
	if (emu_take_mark(p, '['))
		return parse_address(p, a);
	if (!parse_simple(p, a))
		return false;
	if (a->kind == EMU_ARG_SYMBOL && !parse_offset(p, &a->value))
		return false;
	if (!emu_take_mark(p, '|'))
		return true;
	if (!parse_simple(p, &second) || !add_element(p, &second))
		return false;
	a->second = p->statement.n_elements;
	return true;
}

/* ---- statements ---------------------------------------------------------- */

static bool is_opcode(const struct emu_statement *s, const char *opcode)
{
	return s->opcode_length == strlen(opcode) &&
	       memcmp(s->opcode, opcode, s->opcode_length) == 0;
}

/* brx.idx index, list: a branch for each label, then an error for other indices
 * (op_flow.c). */
static bool decode_indexed(struct emu_parser *p)
{
	struct emu_statement *s = &p->statement;
	const struct emu_argument list = s->arguments[1];
	const struct emu_name *n = NULL;

	if (s->n_arguments == 2 && list.kind == EMU_ARG_LABEL)
		n = emu_names_find(&p->names, list.text, list.length, EMU_NAME_TARGETS);
	s->n_arguments = n ? 3 : 1;
	if (!n)
		return p->decode(p);
	s->arguments[1].kind = EMU_ARG_INTEGER;
	for (uint32_t k = 0; k < n->count; k++) {
		s->arguments[1].value = k;
		s->arguments[2] = (struct emu_argument){
		    .kind = EMU_ARG_LABEL,
		    .text = p->build.targets[n->value + k].text,
		    .length = p->build.targets[n->value + k].length};
		if (!p->decode(p))
			return false;
	}
	s->arguments[1].value = n->count;
	s->n_arguments = 2;
	return p->decode(p);
}

/* "lop3 .b32": words with a point belong to the opcode, also after spaces. */
static bool join_opcode(struct emu_parser *p)
{
	struct emu_statement *s = &p->statement;
	const struct emu_token *t = &p->lexer.token;

	while (t->kind == EMU_WORD && t->text[0] == '.') {
		if (s->opcode_length + t->length > sizeof(p->opcode))
			return emu_parse_fail(p, s->line,
					      "an opcode of over %u letters",
					      (unsigned)sizeof(p->opcode));
		memmove(p->opcode, s->opcode, s->opcode_length);
		memcpy(p->opcode + s->opcode_length, t->text, t->length);
		s->opcode = p->opcode;
		s->opcode_length += t->length;
		emu_lexer_next(&p->lexer);
	}
	return true;
}

static bool parse_instruction(struct emu_parser *p)
{
	struct emu_statement *s = &p->statement;
	const struct emu_token *t = &p->lexer.token;

	s->n_arguments = s->n_elements = 0;
	s->has_guard = emu_take_mark(p, '@');
	s->line = t->line;
	if (s->has_guard) {
		if (!parse_simple(p, &s->guard))
			return false;
		if (s->guard.kind != EMU_ARG_REGISTER ||
		    p->build.register_bytes[s->guard.reg] != 1)
			return emu_parse_fail(p, s->line,
					      "@ wants a predicate register");
	}
	if (t->kind != EMU_WORD)
		return emu_parse_fail(p, t->line, "'%.*s' begins no instruction",
				      (int)(t->length < 40 ? t->length : 40), t->text);
	s->opcode = t->text;
	s->opcode_length = t->length;
	s->line = t->line;
	emu_lexer_next(&p->lexer);
	if (!join_opcode(p))
		return false;
	if (is_opcode(s, "call") || is_opcode(s, "call.uni")) {
		const struct emu_argument guard = s->guard;

		return emu_parse_call(p, s->has_guard ? &guard : NULL);
	}
	while (!emu_token_is(t, ';')) {
		if (s->n_arguments == EMU_MAX_ARGUMENTS)
			return emu_parse_fail(p, s->line, "over %d arguments",
					      EMU_MAX_ARGUMENTS);
		if (!parse_argument(p, &s->arguments[s->n_arguments++]))
			return false;
		if (!emu_take_mark(p, ',') && !emu_token_is(t, ';'))
			return emu_parse_fail(
			    p, t->line, "'%.*s' instead of ',' or ';'",
			    (int)(t->length < 40 ? t->length : 40), t->text);
	}
	emu_lexer_next(&p->lexer);
	return is_opcode(s, "brx.idx") || is_opcode(s, "brx.idx.uni")
		   ? decode_indexed(p)
		   : p->decode(p);
}

static bool parse_label(struct emu_parser *p, const struct emu_token *word,
			size_t scope)
{
	struct emu_name name = {.text = word->text,
				.length = word->length,
				.kind = EMU_NAME_LABEL,
				.value = p->build.count};

	if (emu_names_has_since(&p->names, scope, &name))
		return emu_parse_fail(p, word->line, "a second label %.*s",
				      (int)name.length, name.text);
	return emu_names_add(&p->names, &name) ||
	       emu_fail(p->err, "no memory for names");
}

/* .branchtargets label, ...;  after the label that names the list. */
static bool parse_targets(struct emu_parser *p)
{
	struct emu_builder *b = &p->build;
	const struct emu_token *t = &p->lexer.token;
	struct emu_name name;

	if (p->names.count == 0 ||
	    p->names.names[p->names.count - 1].kind != EMU_NAME_LABEL)
		return emu_parse_fail(p, t->line, "a list of labels has no label");
	name = p->names.names[p->names.count - 1];
	name.kind = EMU_NAME_TARGETS;
	name.value = b->n_targets;
	do {
		struct emu_branch_target *grown = emu_grow(
		    b->targets, &b->targets_capacity, b->n_targets, sizeof(*grown));

		if (!grown)
			return emu_fail(p->err, "no memory for labels");
		b->targets = grown;
		if (t->kind != EMU_WORD)
			return emu_unexpected(p, "a label");
		grown[b->n_targets++] = (struct emu_branch_target){t->text, t->length};
		name.count++;
		emu_lexer_next(&p->lexer);
	} while (emu_take_mark(p, ','));
	return emu_expect_mark(p, ';') && (emu_names_add(&p->names, &name) ||
					   emu_fail(p->err, "no memory for names"));
}

static bool parse_scope(struct emu_parser *p);

/* A directive, a label, a block or an instruction. */
/* ".reg.pred" as ".reg .pred": the lexer takes it for one word. */
static bool is_joined_reg(struct emu_token *word)
{
	if (word->kind != EMU_WORD || word->length <= 5 ||
	    memcmp(word->text, ".reg.", 5) != 0)
		return false;
	word->text += 4;
	word->length -= 4;
	return true;
}

static bool parse_one(struct emu_parser *p, size_t scope)
{
	struct emu_token word = p->lexer.token;
	struct emu_lexer before = p->lexer;

	if (emu_take_mark(p, '{'))
		return parse_scope(p);
	if (emu_take_mark(p, ';'))
		return true;
	if (word.kind != EMU_WORD)
		return parse_instruction(p);
	if (is_joined_reg(&p->lexer.token))
		return parse_registers(p);
	emu_lexer_next(&p->lexer);
	if (*word.text != '.') {
		if (emu_take_mark(p, ':'))
			return parse_label(p, &word, scope);
		p->lexer = before;
		return parse_instruction(p);
	}
	if (emu_token_is_word(&word, ".reg"))
		return parse_registers(p);
	if (emu_token_is_word(&word, ".loc"))
		return emu_parse_loc(p);
	if (emu_token_is_word(&word, ".file"))
		return emu_parse_file(p);
	if (emu_token_is_word(&word, ".shared"))
		return emu_parse_variable(p, EMU_SHARED, false);
	if (emu_token_is_word(&word, ".local"))
		return emu_parse_variable(p, EMU_LOCAL, false);
	if (emu_token_is_word(&word, ".branchtargets"))
		return parse_targets(p);
	/* Parameters of a call are in the thread's own memory. */
	if (emu_token_is_word(&word, ".param"))
		return emu_parse_variable(p, EMU_LOCAL, false);
	/* A call through a register has the sizes of its arguments. */
	if (emu_token_is_word(&word, ".callprototype")) {
		while (p->lexer.token.kind != EMU_END && !emu_take_mark(p, ';'))
			emu_lexer_next(&p->lexer);
		return true;
	}
	if (emu_token_is_word(&word, ".pragma")) {
		emu_lexer_next(&p->lexer);
		return emu_expect_mark(p, ';');
	}
	return emu_parse_fail(p, word.line, "%.*s is not known here",
			      (int)(word.length < 40 ? word.length : 40), word.text);
}

/* From after the '{'. */
static bool parse_scope(struct emu_parser *p)
{
	const size_t scope = p->names.count, fixups = p->build.n_fixups;

	if (++p->depth > EMU_MAX_DEPTH)
		return emu_parse_fail(p, p->lexer.token.line,
				      "blocks nested over %d deep", EMU_MAX_DEPTH);
	while (!emu_take_mark(p, '}')) {
		if (p->lexer.token.kind == EMU_END)
			return emu_parse_fail(p, p->lexer.token.line,
					      "the text ends inside a kernel");
		if (!parse_one(p, scope))
			return false;
	}
	emu_resolve_labels(p, fixups, scope);
	emu_names_cut(&p->names, scope);
	p->depth--;
	return true;
}

/* The end of a body returns. */
static bool add_exit(struct emu_parser *p)
{
	struct emu_statement *s = &p->statement;

	s->opcode = "exit";
	s->opcode_length = 4;
	s->line = p->lexer.token.line;
	s->n_arguments = s->n_elements = 0;
	s->has_guard = false;
	return p->decode(p);
}

bool emu_parse_body(struct emu_parser *p, struct emu_kernel *kernel)
{
	struct emu_builder *b = &p->build;

	b->kernel = kernel;
	p->read_scope = parse_scope;
	b->count = b->n_fixups = b->n_targets = 0;
	b->registers = b->constants_used = 0;
	b->source = 0;
	b->has_dynamic_symbol = false;
	memset(b->constant_map, 0, sizeof(b->constant_map));
	if (!emu_place_module_shared(p) || !emu_expect_mark(p, '{') ||
	    !parse_scope(p) || !add_exit(p))
		return false;
	if (b->n_fixups)
		return emu_parse_fail(p, b->fixups[0].line,
				      "label %.*s is not in sight",
				      (int)b->fixups[0].length, b->fixups[0].text);
	if (!emu_place_registers(b, p->err))
		return false;
	kernel->code = emu_arena_take(p->module->arena, b->count * sizeof(*b->code));
	kernel->constants = emu_arena_take(p->module->arena, b->constants_used + 16);
	if (!kernel->code || !kernel->constants)
		return emu_fail(p->err, "no memory for a kernel's code");
	memcpy(kernel->code, b->code, b->count * sizeof(*b->code));
	if (b->constants_used)
		memcpy(kernel->constants, b->constants, b->constants_used);
	kernel->count = (uint32_t)b->count;
	b->kernel = NULL;
	return true;
}
