/* SPDX-License-Identifier: Apache-2.0 */
/* lexer.c - see lexer.h. */
#include "ptx/lexer.h"

#include <stdlib.h>
#include <string.h>

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static bool is_letter(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
	       c == '$' || c == '%';
}

static bool is_name(char c)
{
	return is_letter(c) || is_digit(c);
}

static int hex_digit(char c)
{
	if (is_digit(c))
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return 99;
}

static void skip_space(struct emu_lexer *x)
{
	for (;;) {
		while (*x->at == ' ' || *x->at == '\t' || *x->at == '\r' ||
		       *x->at == '\n')
			x->line += *x->at++ == '\n';
		if (x->at[0] == '/' && x->at[1] == '/') {
			while (*x->at && *x->at != '\n')
				x->at++;
		} else if (x->at[0] == '/' && x->at[1] == '*') {
			x->at += 2;
			while (*x->at && !(x->at[0] == '*' && x->at[1] == '/'))
				x->line += *x->at++ == '\n';
			if (*x->at)
				x->at += 2;
		} else {
			return;
		}
	}
}

/* A name with its dots and double colons; %f1.x too. */
static void lex_word(struct emu_lexer *x)
{
	const char *p = x->at;

	for (;;) {
		while (is_name(*p))
			p++;
		if (*p == '.' && is_name(p[1]))
			p++;
		else if (p[0] == ':' && p[1] == ':' && is_name(p[2]))
			p += 2;
		else
			break;
	}
	x->token.kind = p > x->at ? EMU_WORD : EMU_BAD;
	x->at = p > x->at ? p : x->at + 1;
}

static uint64_t lex_digits(const char **at, int base)
{
	uint64_t value = 0;

	while (hex_digit(**at) < base) {
		value = value * (uint64_t)base + (uint64_t)hex_digit(**at);
		(*at)++;
	}
	return value;
}

/* 0f and 0d: the bits of a float or a double. */
static bool lex_float_bits(struct emu_lexer *x)
{
	const char kind = (char)(x->at[1] | 0x20);
	const char *p = x->at + 2;
	uint64_t value;

	if (x->at[0] != '0' || (kind != 'f' && kind != 'd'))
		return false;
	value = lex_digits(&p, 16);
	x->token.float_bytes = kind == 'f' ? 4 : 8;
	x->token.kind = p - x->at == 2 + 2 * x->token.float_bytes ? EMU_FLOAT : EMU_BAD;
	x->token.value = value;
	x->at = p;
	return true;
}

static bool lex_decimal_float(struct emu_lexer *x)
{
	const char *p = x->at;
	double number;
	char *end;

	while (is_digit(*p))
		p++;
	if (*p != '.' || !is_digit(p[1]))
		return false;
	number = strtod(x->at, &end);
	memcpy(&x->token.value, &number, sizeof(number));
	x->token.kind = EMU_FLOAT;
	x->token.float_bytes = 8;
	x->at = end;
	return true;
}

static void lex_number(struct emu_lexer *x)
{
	int base = 10;

	if (lex_float_bits(x) || lex_decimal_float(x))
		return;
	if (x->at[0] == '0' && (x->at[1] | 0x20) == 'x')
		base = 16;
	else if (x->at[0] == '0' && (x->at[1] | 0x20) == 'b')
		base = 2;
	else if (x->at[0] == '0' && is_digit(x->at[1]))
		base = 8;
	if (base == 16 || base == 2)
		x->at += 2;
	x->token.kind = EMU_NUMBER;
	x->token.value = lex_digits(&x->at, base);
	if (*x->at == 'U')
		x->at++;
	if (is_name(*x->at)) {
		x->token.kind = EMU_BAD;
		x->at++;
	}
}

static void lex_text(struct emu_lexer *x)
{
	const char *p = ++x->at;

	while (*p && *p != '"' && *p != '\n')
		p++;
	x->token.kind = *p == '"' ? EMU_TEXT : EMU_BAD;
	x->token.text = x->at;
	x->token.length = (size_t)(p - x->at);
	x->at = *p == '"' ? p + 1 : p;
}

void emu_lexer_next(struct emu_lexer *x)
{
	struct emu_token *t = &x->token;

	skip_space(x);
	memset(t, 0, sizeof(*t));
	t->text = x->at;
	t->line = x->line;
	if (!*x->at) {
		t->kind = EMU_END;
	} else if (is_digit(*x->at)) {
		lex_number(x);
	} else if (is_letter(*x->at) || (*x->at == '.' && is_name(x->at[1]))) {
		x->at += *x->at == '.';
		lex_word(x);
	} else if (*x->at == '"') {
		lex_text(x);
		return;
	} else {
		t->kind = strchr("{}[]()<>;,:@!|+-=", *x->at) ? EMU_MARK : EMU_BAD;
		x->at++;
	}
	t->length = (size_t)(x->at - t->text);
}

void emu_lexer_begin(struct emu_lexer *x, const char *text)
{
	memset(x, 0, sizeof(*x));
	x->at = text;
	x->line = 1;
	emu_lexer_next(x);
}

bool emu_token_is_word(const struct emu_token *t, const char *word)
{
	return t->kind == EMU_WORD && t->length == strlen(word) &&
	       memcmp(t->text, word, t->length) == 0;
}
