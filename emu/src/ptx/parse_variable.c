/* SPDX-License-Identifier: Apache-2.0 */
/*
 * parse_variable.c - declarations of variables and parameters, their initial values
 * and their addresses in device memory or a kernel's shared or local memory.
 */
#include <string.h>

#include "ptx/functions.h"
#include "ptx/parse_variable.h"

static bool parse_shape(struct emu_parser *p, struct emu_declaration *d)
{
	uint64_t number = 0;

	d->elements = 1;
	while (emu_take_mark(p, '[')) {
		if (emu_take_mark(p, ']')) {
			d->is_open = true;
			d->elements = 0;
			continue;
		}
		if (!emu_expect_number(p, &number) || !emu_expect_mark(p, ']'))
			return false;
		if (number && d->elements > (UINT64_C(1) << 40) / number)
			return emu_parse_fail(p, p->lexer.line,
					      "an array of over 2^40 elements");
		d->elements *= number;
	}
	d->bytes = d->elements * d->element_bytes;
	return true;
}

/* [.attribute(.managed)]: the host can access all memory of the software GPU. */
static bool parse_attribute(struct emu_parser *p)
{
	if (!emu_take_word(p, ".attribute"))
		return true;
	if (!emu_expect_mark(p, '('))
		return false;
	return emu_take_word(p, ".managed") ? emu_expect_mark(p, ')')
					    : emu_unexpected(p, ".managed");
}

/* [.attribute(...)] [.align n] [.v2|.v4] .type [.ptr ...] name [dimensions] */
bool emu_parse_declaration(struct emu_parser *p, struct emu_declaration *d)
{
	const struct emu_token *t = &p->lexer.token;
	enum emu_type type;
	uint32_t vector = 1;

	memset(d, 0, sizeof(*d));
	if (!parse_attribute(p))
		return false;
	if (emu_take_word(p, ".align") && !emu_expect_number(p, &d->align))
		return false;
	if (d->align & (d->align - 1) || d->align > 4096)
		return emu_parse_fail(p, t->line,
				      ".align %llu is not a power of two up to 4096",
				      (unsigned long long)d->align);
	if (emu_take_word(p, ".v2"))
		vector = 2;
	else if (emu_take_word(p, ".v4"))
		vector = 4;
	type = t->kind == EMU_WORD && *t->text == '.'
		   ? emu_type_of(t->text + 1, t->length - 1)
		   : EMU_NO_TYPE;
	if (type == EMU_NO_TYPE || type == EMU_PRED)
		return emu_unexpected(p, "the type of a variable");
	emu_lexer_next(&p->lexer);
	if (emu_take_word(p, ".ptr"))
		while (t->kind == EMU_WORD && *t->text == '.') {
			const bool aligned = emu_token_is_word(t, ".align");
			uint64_t number;

			emu_lexer_next(&p->lexer);
			if (aligned && !emu_expect_number(p, &number))
				return false;
		}
	if (t->kind != EMU_WORD || *t->text == '.')
		return emu_unexpected(p, "the name of a variable");
	d->text = t->text;
	d->length = t->length;
	d->element_bytes = (uint32_t)emu_type_bytes(type) * vector;
	if (d->align == 0)
		d->align = d->element_bytes;
	emu_lexer_next(&p->lexer);
	return parse_shape(p, d);
}

/* [+ number | - number] after a name. */
static bool parse_offset(struct emu_parser *p, uint64_t *value)
{
	const bool minus = emu_take_mark(p, '-');
	uint64_t number = 0;

	if (!minus && !emu_take_mark(p, '+'))
		return true;
	if (!emu_expect_number(p, &number))
		return false;
	*value += minus ? 0 - number : number;
	return true;
}

/*
 * name or generic(name), with an offset, for a variable that is declared before.
 * Addresses of .global and .const variables are generic here.  Any other name is
 * that of a function.
 */
static bool parse_address(struct emu_parser *p, uint64_t *value)
{
	const struct emu_token *t = &p->lexer.token;
	const bool is_generic = emu_take_word(p, "generic");
	const struct emu_function *f;
	const struct emu_name *n;

	if (is_generic && !emu_expect_mark(p, '('))
		return false;
	if (t->kind != EMU_WORD)
		return emu_unexpected(p, "the name of a variable");
	n = emu_names_find(&p->names, t->text, t->length, EMU_NAME_SYMBOL);
	if (n && n->space != EMU_GLOBAL && n->space != EMU_CONST)
		return emu_unexpected(p, "a .global or .const variable");
	f = n ? NULL : emu_function_find(p, t->text, t->length);
	if (!n && !f)
		return emu_unexpected(p, "a variable or a function of the module");
	*value = n ? n->value : emu_function_address(p, f);
	emu_lexer_next(&p->lexer);
	return (!is_generic || emu_expect_mark(p, ')')) && parse_offset(p, value);
}

/* One value, at most as large as an element of d. */
static bool parse_value(struct emu_parser *p, const struct emu_declaration *d,
			uint64_t *value)
{
	const struct emu_token *t = &p->lexer.token;
	bool minus;

	if (t->kind == EMU_WORD && d->element_bytes == 8)
		return parse_address(p, value);
	minus = emu_take_mark(p, '-');
	if (t->kind != EMU_NUMBER && t->kind != EMU_FLOAT)
		return emu_unexpected(p, "a number, or in an element of 8 "
					 "bytes an address");
	if (t->kind == EMU_FLOAT && t->float_bytes != (int)d->element_bytes)
		return emu_unexpected(p, "a number of the element's size");
	*value = minus ? 0 - t->value : t->value;
	emu_lexer_next(&p->lexer);
	return true;
}

static bool parse_initial(struct emu_parser *p, const struct emu_declaration *d,
			  uint8_t *to)
{
	const bool braces = emu_take_mark(p, '{');
	uint64_t at = 0;

	do {
		const uint32_t line = p->lexer.token.line;
		uint64_t value = 0;

		if (!parse_value(p, d, &value))
			return false;
		if (at + d->element_bytes > d->bytes)
			return emu_parse_fail(p, line,
					      "more initial values than the "
					      "variable has elements");
		memcpy(to + at, &value, d->element_bytes < 8 ? d->element_bytes : 8);
		at += d->element_bytes;
	} while (braces && emu_take_mark(p, ','));
	return !braces || emu_expect_mark(p, '}');
}

static bool place_global(struct emu_parser *p, enum emu_state_space space,
			 const struct emu_declaration *d, uint8_t *initial,
			 struct emu_name *name)
{
	struct emu_module *m = p->module;
	struct emu_variable *all =
	    emu_arena_take(m->arena, (m->n_variables + 1) * sizeof(*all));
	struct emu_variable *v;

	if (!all)
		return emu_fail(p->err, "no memory for variables");
	if (m->n_variables)
		memcpy(all, m->variables, m->n_variables * sizeof(*all));
	m->variables = all;
	v = &all[m->n_variables++];
	v->name = emu_arena_text(m->arena, d->text, d->length);
	v->bytes = d->bytes;
	v->align = d->align;
	v->initial = initial;
	v->space = space;
	if (!p->place)
		return emu_parse_fail(p, p->lexer.line,
				      "no device memory for variables");
	v->address = p->place(p->place_context, v, p->err);
	name->value = v->address;
	return v->address != 0;
}

/* Adds a shared variable to the kernel's list; false: no memory. */
static bool note_shared(struct emu_parser *p, const struct emu_declaration *d,
			uint64_t at)
{
	struct emu_kernel *k = p->build.kernel;
	struct emu_parameter *all = k->shared;

	/* Grown at powers of two. */
	if (!(k->n_shared & (k->n_shared - 1)) || !all)
		all = emu_arena_take(p->module->arena,
				     2 * (k->n_shared + 1u) * sizeof(*all));
	if (!all)
		return emu_fail(p->err, "no memory for variables");
	if (all != k->shared && k->shared)
		memcpy(all, k->shared, k->n_shared * sizeof(*all));
	k->shared = all;
	all[k->n_shared++] = (struct emu_parameter){
	    .name = emu_arena_text(p->module->arena, d->text, d->length),
	    .offset = (uint32_t)at,
	    .bytes = (uint32_t)d->bytes,
	};
	return true;
}

/* Gives a shared or local variable its address in the kernel's memory. */
static bool place_in_kernel(struct emu_parser *p, enum emu_state_space space,
			    const struct emu_declaration *d, struct emu_name *name)
{
	struct emu_kernel *k = p->build.kernel;
	uint32_t *used = space == EMU_SHARED ? &k->shared_bytes : &k->local_bytes;
	const uint64_t align = d->align ? d->align : 1;
	const uint64_t at = (*used + align - 1) / align * align;

	if (space == EMU_SHARED && p->n_calls)
		return emu_parse_fail(p, p->lexer.line,
				      "%.*s: static .shared of a function is "
				      "not known here",
				      (int)d->length, d->text);
	if (space == EMU_SHARED && p->build.has_dynamic_symbol)
		return emu_parse_fail(p, p->lexer.line,
				      "%.*s: a static .shared after the use "
				      "of a dynamic one",
				      (int)d->length, d->text);
	if (at + d->bytes > (UINT64_C(1) << 20))
		return emu_parse_fail(p, p->lexer.line,
				      "%.*s: over 2^20 bytes in one kernel",
				      (int)d->length, d->text);
	*used = (uint32_t)(at + d->bytes);
	name->value = at;
	if (space == EMU_LOCAL)
		name->count = (uint32_t)d->bytes;
	if (space == EMU_SHARED) {
		name->special = EMU_SHARED_BASE;
		name->value += EMU_SHARED_RESERVED;
		return note_shared(p, d, name->value);
	}
	return true;
}

/* True if the body, which begins at the current token, has the word or calls
 * functions, which may have it. */
static bool body_has(const struct emu_parser *p, const char *text, size_t length)
{
	struct emu_lexer l = p->lexer;
	uint32_t depth = 0;

	for (; l.token.kind != EMU_END; emu_lexer_next(&l)) {
		const struct emu_token *t = &l.token;

		depth += emu_token_is(t, '{');
		if (emu_token_is(t, '}') && --depth == 0)
			return false;
		if (t->kind == EMU_WORD &&
		    ((t->length == length && memcmp(t->text, text, length) == 0) ||
		     emu_token_is_word(t, "call") || emu_token_is_word(t, "call.uni")))
			return true;
	}
	return false;
}

bool emu_place_module_shared(struct emu_parser *p)
{
	const size_t count = p->names.count;

	for (size_t i = 0; i < count; i++) {
		struct emu_name name = p->names.names[i];
		const struct emu_declaration d = {.text = name.text,
						  .length = name.length,
						  .bytes = name.module_bytes,
						  .align = name.module_align};

		if (!name.module_bytes || !body_has(p, d.text, d.length))
			continue;
		name.module_bytes = 0;
		if (!place_in_kernel(p, EMU_SHARED, &d, &name))
			return false;
		if (!emu_names_add(&p->names, &name))
			return emu_fail(p->err, "no memory for names");
	}
	return true;
}

bool emu_parse_variable(struct emu_parser *p, enum emu_state_space space,
			bool is_extern)
{
	struct emu_declaration d;
	struct emu_name name = {0};
	uint8_t *initial = NULL;

	if (!emu_parse_declaration(p, &d))
		return false;
	name.text = d.text;
	name.length = d.length;
	name.kind = EMU_NAME_SYMBOL;
	name.space = (int)space;
	name.special = -1;
	name.element_bytes = d.element_bytes;
	if (emu_take_mark(p, '=')) {
		initial = emu_arena_take(p->module->arena, d.bytes + 1);
		if (!initial)
			return emu_fail(p->err, "no memory for a variable");
		if (!parse_initial(p, &d, initial))
			return false;
	}
	if (space == EMU_SHARED && is_extern) {
		/* Dynamic: after the static ones of each kernel; count is its
		 * alignment, value is set where it is used. */
		name.special = EMU_SHARED_BASE;
		name.count = (uint32_t)d.align;
	} else if (is_extern) {
		return emu_parse_fail(p, p->lexer.line,
				      "%.*s: variables of other modules are "
				      "not known here",
				      (int)d.length, d.text);
	} else if (space == EMU_SHARED && !p->build.kernel) {
		/* Each kernel that uses it gets its own
		 * (emu_place_module_shared). */
		name.special = EMU_SHARED_BASE;
		name.module_bytes = d.bytes;
		name.module_align = (uint32_t)d.align;
	} else if (space == EMU_SHARED || space == EMU_LOCAL) {
		if (!place_in_kernel(p, space, &d, &name))
			return false;
	} else if (!place_global(p, space, &d, initial, &name)) {
		return false;
	}
	if (!emu_names_add(&p->names, &name))
		return emu_fail(p->err, "no memory for names");
	return emu_expect_mark(p, ';');
}
