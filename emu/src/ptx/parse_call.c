/* SPDX-License-Identifier: Apache-2.0 */
/* parse_call.c - see parse_call.h. */
#include "ptx/parse_call.h"

#include <string.h>

#include "ptx/functions.h"
#include "ptx/parse_variable.h"
#include "ptx/registers.h"

#define SKIP_LABEL  "after a call"
#define MOST_ACTUAL 64 /* arguments of a call, its result included */

/* ---- functions of the module ---------------------------------------------- */

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
		name.element_bytes = d.element_bytes;
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

/* Adds the body of a function. */
static bool expand(struct emu_parser *p, const struct emu_function *f, uint32_t line,
		   const struct emu_argument *actual, uint32_t results, uint32_t count)
{
	const size_t scope = p->names.count, fixups = p->build.n_fixups;
	const struct emu_lexer after_call = p->lexer;

	if (!enter(p, f, line))
		return false;
	p->lexer = f->at;
	if (!read_function(p, actual, results, count))
		return false;
	emu_resolve_labels(p, fixups, scope);
	emu_names_cut(&p->names, scope);
	p->lexer = after_call;
	p->n_calls--;
	return true;
}

/* Dynamic parallelism: the functions of CUDA's device runtime. */
static bool refuse_launch(struct emu_parser *p, const struct emu_token *name)
{
	return emu_parse_fail(
	    p, name->line,
	    "call %.*s: dynamic parallelism is not modelled: launch this kernel from "
	    "the host",
	    (int)(name->length < 80 ? name->length : 80), name->text);
}

static bool call_function(struct emu_parser *p, const struct emu_token *name,
			  const struct emu_argument *actual, uint32_t results,
			  uint32_t count)
{
	const struct emu_function *f = emu_function_find(p, name->text, name->length);

	if (emu_token_is_word(name, "vprintf"))
		return call_library(p, "call.vprintf", actual, count);
	if (emu_token_is_word(name, "__assertfail"))
		return call_library(p, "call.assertfail", actual, count);
	if (emu_token_is_word(name, "malloc") && (!f || !f->is_defined))
		return call_library(p, "call.malloc", actual, count);
	if (emu_token_is_word(name, "free") && (!f || !f->is_defined))
		return call_library(p, "call.free", actual, count);
	if (emu_token_is_word(name, "cudaGraphSetConditional"))
		return call_library(p, "call.setconditional", actual, count);
	if (name->length > 4 && memcmp(name->text, "cuda", 4) == 0 &&
	    (!f || !f->is_defined))
		return refuse_launch(p, name);
	if (!f || !f->is_defined)
		return emu_parse_fail(p, name->line, "call %.*s: %s",
				      (int)(name->length < 80 ? name->length : 80),
				      name->text,
				      "the module defines no such function");
	return expand(p, f, name->line, actual, results, count);
}

/* ---- calls through a register ---------------------------------------------- */

/* The number of parameters from after the '(', if they have these sizes; else -1. */
static int formal_count(struct emu_parser *p, const struct emu_argument *actual,
			uint32_t count)
{
	uint32_t n = 0;

	if (emu_take_mark(p, ')'))
		return 0;
	do {
		struct emu_declaration d;

		if (!emu_take_word(p, ".param") || !emu_parse_declaration(p, &d) ||
		    n == count || actual[n].count != d.bytes)
			return -1;
		n++;
	} while (emu_take_mark(p, ','));
	return emu_take_mark(p, ')') ? (int)n : -1;
}

/* True for a function whose address is used, with such parameters, which is not being
 * called already. */
static bool is_callee(struct emu_parser *p, const struct emu_function *f,
		      const struct emu_argument *actual, uint32_t results,
		      uint32_t count)
{
	const struct emu_lexer after_call = p->lexer;
	int n_results = 0, n = 0;

	for (uint32_t i = 0; i < p->n_calls; i++)
		if (p->calls[i] == f)
			return false;
	if (!f->is_defined || !f->is_taken)
		return false;
	p->lexer = f->at;
	if (emu_take_mark(p, '('))
		n_results = formal_count(p, actual, results);
	emu_lexer_next(&p->lexer); /* its name */
	if (n_results >= 0 && emu_take_mark(p, '('))
		n = formal_count(p, actual + results, count - results);
	p->lexer = after_call;
	return n_results == (int)results && n == (int)(count - results);
}

#define MOST_CALLEES	256
#define OTHERWISE_LABEL "after a function"

/* A statement with a register, addresses of functions, and for `label` a branch. */
static bool decode_register(struct emu_parser *p, const char *opcode,
			    const struct emu_argument *reg, const uint64_t *addresses,
			    uint32_t count, const char *label)
{
	struct emu_statement *s = &p->statement;

	s->opcode = opcode;
	s->opcode_length = strlen(opcode);
	s->has_guard = false;
	s->n_elements = 0;
	s->n_arguments = label ? 3 : 2;
	s->arguments[0] = *reg;
	s->arguments[1] = (struct emu_argument){
	    .kind = EMU_ARG_INTEGER, .special = -1, .value = addresses[0]};
	for (uint32_t k = 0; k < count && !label; k++)
		s->elements[s->n_elements++] = (struct emu_argument){
		    .kind = EMU_ARG_INTEGER, .special = -1, .value = addresses[k]};
	if (label)
		s->arguments[2] = (struct emu_argument){.kind = EMU_ARG_LABEL,
							.special = -1,
							.text = label,
							.length = strlen(label)};
	else
		s->arguments[1] = (struct emu_argument){
		    .kind = EMU_ARG_VECTOR, .special = -1, .count = count};
	return p->decode(p);
}

/* The bodies of all functions that the register may call, each for its lanes. */
static bool call_register(struct emu_parser *p, const struct emu_token *name,
			  const struct emu_argument *actual, uint32_t results,
			  uint32_t count)
{
	uint64_t addresses[MOST_CALLEES];
	size_t callees[MOST_CALLEES];
	struct emu_argument reg = {.kind = EMU_ARG_REGISTER, .special = -1};
	uint32_t n = 0;

	if (!emu_find_register(p, name->text, name->length, &reg.reg))
		return emu_parse_fail(p, name->line, "register %.*s is not declared",
				      (int)(name->length < 80 ? name->length : 80),
				      name->text);
	for (size_t k = 0; k < p->n_functions; k++)
		if (is_callee(p, &p->functions[k], actual, results, count)) {
			if (n == MOST_CALLEES)
				return emu_parse_fail(p, name->line,
						      "over %d functions that the "
						      "register may call",
						      MOST_CALLEES);
			callees[n] = k;
			addresses[n++] = emu_function_address(p, &p->functions[k]);
		}
	if (!n)
		return emu_parse_fail(
		    p, name->line,
		    "call %.*s: no function whose address is used has "
		    "these parameters, or recursion, which is not known "
		    "here",
		    (int)(name->length < 80 ? name->length : 80), name->text);
	if (!decode_register(p, "call.check", &reg, addresses, n, NULL))
		return false;
	for (uint32_t k = 0; k < n; k++) {
		const size_t scope = p->names.count, fixups = p->build.n_fixups;

		if (!decode_register(p, "call.unless", &reg, &addresses[k], 1,
				     OTHERWISE_LABEL) ||
		    !expand(p, &p->functions[callees[k]], name->line, actual, results,
			    count) ||
		    !add_label(p, OTHERWISE_LABEL))
			return false;
		emu_resolve_labels(p, fixups, scope);
		emu_names_cut(&p->names, scope);
	}
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
	/* The prototype of a call through a register. */
	if (*name.text == '%' && emu_take_mark(p, ','))
		emu_lexer_next(&p->lexer);
	if (!emu_expect_mark(p, ';') || (guard && !skip_by_guard(p, guard)))
		return false;
	if (*name.text == '%' ? !call_register(p, &name, actual, results, count)
			      : !call_function(p, &name, actual, results, count))
		return false;
	if (guard && !add_label(p, SKIP_LABEL))
		return false;
	emu_resolve_labels(p, fixups, scope);
	emu_names_cut(&p->names, scope);
	return true;
}
