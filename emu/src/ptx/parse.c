/* SPDX-License-Identifier: Apache-2.0 */
/*
 * parse.c - the functions that all levels of the parser share: marks, numbers,
 * lines and files.
 */
#include "ptx/parse.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool emu_parse_fail(struct emu_parser *p, uint32_t line, const char *format, ...)
{
	char text[600];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	p->is_refusal = true;
	return emu_fail(p->err, "PTX line %u: %s", line, text);
}

bool emu_unexpected(struct emu_parser *p, const char *wanted)
{
	const struct emu_token *t = &p->lexer.token;

	if (t->kind == EMU_END)
		return emu_parse_fail(p, t->line, "the text ends before %s", wanted);
	return emu_parse_fail(p, t->line, "'%.*s' instead of %s",
			      (int)(t->length < 40 ? t->length : 40), t->text, wanted);
}

bool emu_take_mark(struct emu_parser *p, char mark)
{
	if (!emu_token_is(&p->lexer.token, mark))
		return false;
	emu_lexer_next(&p->lexer);
	return true;
}

bool emu_expect_mark(struct emu_parser *p, char mark)
{
	const char wanted[] = {'\'', mark, '\'', '\0'};

	return emu_take_mark(p, mark) || emu_unexpected(p, wanted);
}

bool emu_expect_number(struct emu_parser *p, uint64_t *value)
{
	if (p->lexer.token.kind != EMU_NUMBER)
		return emu_unexpected(p, "a number");
	*value = p->lexer.token.value;
	emu_lexer_next(&p->lexer);
	return true;
}

bool emu_take_word(struct emu_parser *p, const char *word)
{
	if (!emu_token_is_word(&p->lexer.token, word))
		return false;
	emu_lexer_next(&p->lexer);
	return true;
}

bool emu_skip_braces(struct emu_parser *p)
{
	uint32_t depth = 0;

	while (p->lexer.token.kind != EMU_END) {
		const bool opens = emu_token_is(&p->lexer.token, '{');
		const bool closes = emu_token_is(&p->lexer.token, '}');

		emu_lexer_next(&p->lexer);
		depth += opens;
		if (closes && --depth == 0)
			return true;
	}
	return false;
}

void emu_resolve_labels(struct emu_parser *p, size_t fixups, size_t scope)
{
	struct emu_builder *b = &p->build;
	size_t left = fixups;

	for (size_t i = fixups; i < b->n_fixups; i++) {
		const struct emu_fixup *f = &b->fixups[i];
		struct emu_name wanted = {
		    .text = f->text, .length = f->length, .kind = EMU_NAME_LABEL};

		if (emu_names_has_since(&p->names, scope, &wanted))
			b->code[f->instr].target =
			    (uint32_t)emu_names_find(&p->names, f->text, f->length,
						     EMU_NAME_LABEL)
				->value;
		else
			b->fixups[left++] = *f;
	}
	b->n_fixups = left;
}
