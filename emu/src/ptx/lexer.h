/* SPDX-License-Identifier: Apache-2.0 */
/* lexer.h - PTX text as tokens. */
#ifndef EMU_LEXER_H
#define EMU_LEXER_H

#include "hardware/emu.h"

enum emu_token_kind {
	EMU_END,
	EMU_WORD,   /* add, %r1, $L__BB0_1, .reg, x.y::z: a name with its dots */
	EMU_NUMBER, /* an integer */
	EMU_FLOAT,  /* 0f..., 0d... or decimal: bits in value */
	EMU_TEXT,   /* in quotes, without them */
	EMU_MARK,   /* one character of punctuation */
	EMU_BAD,
};

struct emu_token {
	enum emu_token_kind kind;
	const char *text; /* in the source, not ended */
	size_t length;
	uint32_t line;
	uint64_t value;
	int float_bytes; /* of FLOAT: 4 or 8 */
};

struct emu_lexer {
	const char *at;
	uint32_t line;
	struct emu_token token; /* the current one */
};

void emu_lexer_begin(struct emu_lexer *lexer, const char *text);
/* Goes on to the next token. */
void emu_lexer_next(struct emu_lexer *lexer);

static inline bool emu_token_is(const struct emu_token *t, char mark)
{
	return t->kind == EMU_MARK && *t->text == mark;
}

bool emu_token_is_word(const struct emu_token *t, const char *word);

#endif
