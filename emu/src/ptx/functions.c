/* SPDX-License-Identifier: Apache-2.0 */
/* functions.c - see functions.h. */
#include "ptx/functions.h"

#include <string.h>

#define FIRST_ADDRESS (UINT64_C(0x7F0) << 44)

/* Skips '(' to ')', without nesting. */
static void skip_parentheses(struct emu_parser *p)
{
	while (p->lexer.token.kind != EMU_END && !emu_take_mark(p, ')'))
		emu_lexer_next(&p->lexer);
}

static struct emu_function *find(const struct emu_parser *p, const char *text,
				 size_t length)
{
	struct emu_function *found = NULL;

	for (size_t i = 0; i < p->n_functions; i++) {
		struct emu_function *f = &p->functions[i];

		if (f->length == length && memcmp(f->text, text, length) == 0 &&
		    (!found || f->is_defined))
			found = f;
	}
	return found;
}

const struct emu_function *emu_function_find(const struct emu_parser *p,
					     const char *text, size_t length)
{
	return find(p, text, length);
}

uint64_t emu_function_address(const struct emu_parser *p, const struct emu_function *f)
{
	return FIRST_ADDRESS + 16 * (uint64_t)(f - p->functions);
}

/* Accepts .func; continues after the function's head. */
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

/*
 * Marks a function whose address is used: its name is an operand or an initial value.
 * In a call the arguments follow the name.
 */
static void note_use(struct emu_parser *p, const struct emu_token *before)
{
	const struct emu_token name = p->lexer.token;
	struct emu_function *f;
	bool is_first;

	emu_lexer_next(&p->lexer);
	if (name.kind != EMU_WORD || *name.text == '.' || *name.text == '%' ||
	    !(emu_token_is(before, ',') || emu_token_is(before, '{') ||
	      emu_token_is(before, '=') || emu_token_is(before, '(')))
		return;
	is_first = emu_token_is(&p->lexer.token, ',');
	f = find(p, name.text, name.length);
	if (f && is_first) {
		struct emu_lexer next = p->lexer;

		emu_lexer_next(&next);
		is_first = emu_token_is(&next.token, '(');
	}
	if (f && !is_first)
		f->is_taken = true;
}

bool emu_find_functions(struct emu_parser *p)
{
	const struct emu_lexer begin = p->lexer;
	struct emu_token before = {0};
	bool ok = true;

	while (ok && p->lexer.token.kind != EMU_END) {
		if (emu_take_word(p, ".func"))
			ok = note_function(p);
		else
			emu_lexer_next(&p->lexer);
	}
	p->lexer = begin;
	while (ok && p->n_functions && p->lexer.token.kind != EMU_END) {
		const struct emu_token token = p->lexer.token;

		note_use(p, &before);
		before = token;
	}
	p->lexer = begin;
	return ok;
}
