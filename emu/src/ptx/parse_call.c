/* SPDX-License-Identifier: Apache-2.0 */
/* parse_call.c - see parse_call.h. */
#include "ptx/parse_call.h"

#include <string.h>

#include "ptx/parse_variable.h"

#define SKIP_LABEL  "after a call"
#define MOST_ACTUAL 64 /* arguments of a call, its result included */

/* ---- functions of the module ---------------------------------------------- */

/* Skips '(' to ')', without nesting. */
static void skip_parentheses(struct emu_parser *p)
{
	while (p->lexer.token.kind != EMU_END && !emu_take_mark(p, ')'))
		emu_lexer_next(&p->lexer);
}

bool emu_skip_function(struct emu_parser *p)
{
	const struct emu_token *t = &p->lexer.token;

	while (t->kind != EMU_END && !emu_token_is(t, '{')) {
		if (emu_take_mark(p, ';'))
			return true;
		emu_lexer_next(&p->lexer);
	}
	return emu_skip_braces(p) || emu_unexpected(p, "the end of the function");
}

static const struct emu_function *find_function(const struct emu_parser *p,
						const char *text, size_t length)
{
	const struct emu_function *found = NULL;

	for (size_t i = 0; i < p->n_functions; i++) {
		const struct emu_function *f = &p->functions[i];

		if (f->length == length && memcmp(f->text, text, length) == 0 &&
		    (!found || f->is_defined))
			found = f;
	}
	return found;
}

/* Accepts .func; continues after the function. */
static bool note_function(struct emu_parser *p)
{
	struct emu_function *grown = emu_grow(p->functions, &p->functions_capacity,
					      p->n_functions, sizeof(*grown));
	struct emu_function *f;

	if (!grown)
		return emu_fail(p->err, "no memory for functions");
	p->functions = grown;
	f = &grown[p->n_functions];
	memset(f, 0, sizeof(*f));
	f->at = p->lexer;
	if (emu_take_mark(p, '('))
		skip_parentheses(p);
	f->text = p->lexer.token.text;
	f->length = p->lexer.token.length;
	while (p->lexer.token.kind != EMU_END && !emu_token_is(&p->lexer.token, '{') &&
	       !emu_token_is(&p->lexer.token, ';'))
		emu_lexer_next(&p->lexer);
	f->is_defined = emu_token_is(&p->lexer.token, '{');
	p->n_functions++;
	return true;
}

bool emu_find_functions(struct emu_parser *p)
{
	const struct emu_lexer begin = p->lexer;
	bool ok = true;

	while (ok && p->lexer.token.kind != EMU_END) {
		if (emu_take_word(p, ".func"))
			ok = note_function(p);
		else
			emu_lexer_next(&p->lexer);
	}
	p->lexer = begin;
	return ok;
}

/* ---- calls ------------------------------------------------------------------ */

/* A list of .param variables of this body, from after the '('. */
static bool parse_actual(struct emu_parser *p, struct emu_argument *actual,
			 uint32_t *count)
{
	const struct emu_token *t = &p->lexer.token;

	if (emu_take_mark(p, ')'))
		return true;
	do {
		const struct emu_name *n =
		    t->kind == EMU_WORD
			? emu_names_find(&p->names, t->text, t->length, EMU_NAME_SYMBOL)
			: NULL;

		if (!n || n->space != EMU_LOCAL)
			return emu_unexpected(p, "a .param variable of the "
						 "call");
		if (*count == MOST_ACTUAL)
			return emu_parse_fail(p, t->line, "over %d arguments of a call",
					      MOST_ACTUAL);
		actual[*count] = (struct emu_argument){.kind = EMU_ARG_INTEGER,
						       .special = -1,
						       .value = n->value,
						       .count = n->count};
		++*count;
		emu_lexer_next(&p->lexer);
	} while (emu_take_mark(p, ','));
	return emu_expect_mark(p, ')');
}

static bool add_label(struct emu_parser *p, const char *text)
{
	const struct emu_name name = {.text = text,
				      .length = strlen(text),
				      .kind = EMU_NAME_LABEL,
				      .value = p->build.count};

	return emu_names_add(&p->names, &name) ||
	       emu_fail(p->err, "no memory for names");
}

/* Adds a branch around the call for the lanes that do not make it. */
static bool skip_by_guard(struct emu_parser *p, const struct emu_argument *guard)
{
	struct emu_statement *s = &p->statement;

	s->opcode = "bra";
	s->opcode_length = 3;
	s->has_guard = true;
	s->guard = *guard;
	s->guard.is_negated = !guard->is_negated;
	s->n_elements = 0;
	s->n_arguments = 1;
	s->arguments[0] = (struct emu_argument){.kind = EMU_ARG_LABEL,
						.special = -1,
						.text = SKIP_LABEL,
						.length = strlen(SKIP_LABEL)};
	return p->decode(p);
}

/* A call to CUDA's run-time library, which is an instruction here. */
static bool call_library(struct emu_parser *p, const char *opcode,
			 const struct emu_argument *actual, uint32_t count)
{
	struct emu_statement *s = &p->statement;

	s->opcode = opcode;
	s->opcode_length = strlen(opcode);
	s->has_guard = false;
	s->n_elements = 0;
	s->n_arguments = count < EMU_MAX_ARGUMENTS ? count : EMU_MAX_ARGUMENTS;
	memcpy(s->arguments, actual, s->n_arguments * sizeof(*actual));
	return p->decode(p);
}

/* Gives the call's parameters the function's names for them, from after the '('. */
static bool bind_formal(struct emu_parser *p, const struct emu_argument *actual,
			uint32_t count, uint32_t *bound)
{
	if (emu_take_mark(p, ')'))
		return true;
	do {
		struct emu_name name = {0};
		struct emu_declaration d;

		if (!emu_take_word(p, ".param"))
			return emu_unexpected(p, ".param");
		if (!emu_parse_declaration(p, &d))
			return false;
		if (*bound < count && actual[*bound].count != d.bytes)
			return emu_parse_fail(p, p->lexer.line,
					      "%.*s: has %u bytes in the call "
					      "and %u in the function",
					      (int)d.length, d.text,
					      actual[*bound].count, (uint32_t)d.bytes);
		name.count = (uint32_t)d.bytes;
		name.text = d.text;
		name.length = d.length;
		name.kind = EMU_NAME_SYMBOL;
		name.space = EMU_LOCAL;
		name.special = -1;
		name.value = *bound < count ? actual[*bound].value : 0;
		++*bound;
		if (!emu_names_add(&p->names, &name))
			return emu_fail(p->err, "no memory for names");
	} while (emu_take_mark(p, ','));
	return emu_expect_mark(p, ')');
}

/* Reads the function's text, from after .func to after its body. */
static bool read_function(struct emu_parser *p, const struct emu_argument *actual,
			  uint32_t results, uint32_t count)
{
	const struct emu_token *t = &p->lexer.token;
	uint32_t bound = 0;

	if (emu_take_mark(p, '(') && !bind_formal(p, actual, results, &bound))
		return false;
	emu_lexer_next(&p->lexer); /* its name */
	if (bound == results && emu_take_mark(p, '(') &&
	    !bind_formal(p, actual, count, &bound))
		return false;
	if (bound != count)
		return emu_parse_fail(p, t->line,
				      "a call with %u parameters of a function "
				      "with %u",
				      count, bound);
	while (t->kind == EMU_WORD && *t->text == '.')
		emu_lexer_next(&p->lexer); /* .noreturn and the like */
	return emu_expect_mark(p, '{') && p->read_scope(p) &&
	       add_label(p, EMU_RETURN_LABEL);
}

static bool enter(struct emu_parser *p, const struct emu_function *f, uint32_t line)
{
	for (uint32_t i = 0; i < p->n_calls; i++)
		if (p->calls[i] == f)
			return emu_parse_fail(p, line,
					      "call %.*s: recursion is not "
					      "known here",
					      (int)f->length, f->text);
	if (p->n_calls == EMU_MAX_CALLS || p->build.count > 1u << 22 ||
	    p->n_expanded == EMU_MAX_EXPANDED)
		return emu_parse_fail(p, line,
				      "call %.*s: over %d calls deep, %u calls "
				      "in a module, or 2^22 instructions",
				      (int)f->length, f->text, EMU_MAX_CALLS,
				      EMU_MAX_EXPANDED);
	p->n_expanded++;
	p->calls[p->n_calls++] = f;
	return true;
}

static bool call_function(struct emu_parser *p, const struct emu_token *name,
			  const struct emu_argument *actual, uint32_t results,
			  uint32_t count)
{
	const struct emu_function *f = find_function(p, name->text, name->length);
	const size_t scope = p->names.count, fixups = p->build.n_fixups;
	const struct emu_lexer behind = p->lexer;

	if (emu_token_is_word(name, "vprintf"))
		return call_library(p, "call.vprintf", actual, count);
	if (emu_token_is_word(name, "__assertfail"))
		return call_library(p, "call.assertfail", actual, count);
	if (!f || !f->is_defined)
		return emu_parse_fail(
		    p, name->line, "call %.*s: %s",
		    (int)(name->length < 80 ? name->length : 80), name->text,
		    *name->text == '%' ? "calls through a register are not "
					 "known here"
				       : "the module defines no such function");
	if (!enter(p, f, name->line))
		return false;
	p->lexer = f->at;
	if (!read_function(p, actual, results, count))
		return false;
	emu_resolve_labels(p, fixups, scope);
	emu_names_cut(&p->names, scope);
	p->lexer = behind;
	p->n_calls--;
	return true;
}

bool emu_parse_call(struct emu_parser *p, const struct emu_argument *guard)
{
	const size_t scope = p->names.count, fixups = p->build.n_fixups;
	struct emu_argument actual[MOST_ACTUAL];
	uint32_t results = 0, count;
	struct emu_token name;

	p->statement.line = p->lexer.token.line;
	if (emu_take_mark(p, '(') &&
	    (!parse_actual(p, actual, &results) || !emu_expect_mark(p, ',')))
		return false;
	count = results;
	name = p->lexer.token;
	if (name.kind != EMU_WORD)
		return emu_unexpected(p, "the name of a function");
	emu_lexer_next(&p->lexer);
	if (emu_take_mark(p, ',') &&
	    (!emu_expect_mark(p, '(') || !parse_actual(p, actual, &count)))
		return false;
	if (emu_token_is(&p->lexer.token, ','))
		return emu_parse_fail(p, name.line,
				      "calls through a register are not known "
				      "here");
	if (!emu_expect_mark(p, ';') || (guard && !skip_by_guard(p, guard)) ||
	    !call_function(p, &name, actual, results, count))
		return false;
	if (guard && !add_label(p, SKIP_LABEL))
		return false;
	emu_resolve_labels(p, fixups, scope);
	emu_names_cut(&p->names, scope);
	return true;
}
