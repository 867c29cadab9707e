/* SPDX-License-Identifier: Apache-2.0 */
/*
 * decode.c - finds the row of a statement's opcode, sorts its words, and calls
 * the row's function to bind it. An opcode without a row is refused by name.
 */
#include "instruction/decode.h"

#include <stdio.h>
#include <string.h>

#include "check/check.h"
#include "instruction/bounds.h"
#include "instruction/opcodes.h"
#include "instruction/unused.h"
#include "instruction/volatile.h"
#include "ptx/bind.h"
#include "ptx/names.h"
#include "ptx/parse_module.h"
#include "ptx/target.h"

/* ---- rows of the table --------------------------------------------------- */

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

/* A letter and a number below 10,000. */
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
	return at == end || (take_size(&at, end, 'k', &b->shape_k) && at == end);
}

/* The word that the row does not accept, or NULL. */
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

/* Compares letter by letter: most rows differ in the first, and a call costs more. */
static bool begins_with(const struct emu_statement *s, const char *name)
{
	size_t n = 0;

	while (n < s->opcode_length && name[n] && name[n] == s->opcode[n])
		n++;
	return !name[n] && (n == s->opcode_length || s->opcode[n] == '.');
}

/* Finds the row with the longest name that accepts all words; NULL with the reason. */
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
		if (!sort_words(b, row, s->opcode + strlen(row->name), end, &length))
			best = row;
	}
	if (best) {
		sort_words(b, best, s->opcode + strlen(best->name), end, &length);
		return best;
	}
	if (!near) {
		emu_bind_fail(b, "this opcode is not known here");
		return NULL;
	}
	word = sort_words(b, near, s->opcode + strlen(near->name), end, &length);
	emu_bind_fail(b, ".%.*s is not known here; %s takes: %s%s%s",
		      word ? (int)length : 0, word ? word : "", near->name,
		      near->modifiers, *near->modifiers ? " " : "", near->types);
	return NULL;
}

/* ---- statements ---------------------------------------------------------- */

static bool append(struct emu_bind *b)
{
	struct emu_builder *build = &b->parser->build;
	struct emu_instr *grown =
	    emu_grow(build->code, &build->capacity, build->count, sizeof(*grown));
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

/*
 * True if other clusters may see effects of the instruction, or it sees theirs.
 * Plain loads do not count.
 */
static bool is_cross_cluster(const struct emu_bind *b)
{
	const struct emu_instr *i = b->i;

	if (emu_is_strong(i) || emu_has(b, "bulk_group"))
		return true;
	switch ((enum emu_cross_cluster)i->opcode->cross_cluster) {
	case EMU_CROSS_NEVER:
		return false;
	case EMU_CROSS_IN_GLOBAL:
		return i->space == EMU_GLOBAL || i->space == EMU_GENERIC;
	case EMU_CROSS_BY_SCOPE:
		return i->space == EMU_SCOPE_NONE;
	case EMU_CROSS_ALWAYS:
		break;
	}
	return true;
}

/* Fails if a word after the opcode's name needs another .target. */
static bool check_word(struct emu_bind *b, const char *word, size_t length)
{
	char need[8], what[40];

	if (!emu_target_of_word(b->i->opcode->word_targets, word, length, need))
		return true;
	snprintf(what, sizeof(what), ".%.*s", (int)length, word);
	return emu_bind_needs(b, need, what);
}

/* Fails if the .target of the module does not have the opcode, or a word of it. */
static bool check_target(struct emu_bind *b)
{
	const struct emu_opcode *row = b->i->opcode;
	const char *end = b->s->opcode + b->s->opcode_length;
	const char *word = b->s->opcode + strlen(row->name);

	if (row->target && !emu_bind_needs(b, row->target, NULL))
		return false;
	if (!row->word_targets)
		return true;
	while (word < end) {
		const char *dot = memchr(word + 1, '.', (size_t)(end - word - 1));

		dot = dot ? dot : end;
		if (!check_word(b, word + 1, (size_t)(dot - word - 1)))
			return false;
		word = dot;
	}
	return true;
}

static bool decode(struct emu_parser *p)
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
	i.source_line = p->build.source;
	i.type = b.n_types ? (uint8_t)b.types[0] : EMU_NO_TYPE;
	i.type2 = b.n_types > 1 ? (uint8_t)b.types[1] : EMU_NO_TYPE;
	i.guard_reg = EMU_NO_REGISTER;
	i.target = UINT32_MAX;
	if (b.s->has_guard) {
		i.guard_reg = b.s->guard.reg;
		i.guard_is_negated = b.s->guard.is_negated;
	}
	if (!check_target(&b) || !row->bind(&b))
		return false;
	i.is_cross_cluster = is_cross_cluster(&b);
	return append(&b);
}

struct emu_module *emu_module_read(const char *text, emu_place *place, void *context,
				   struct emu_error *err)
{
	struct emu_module *m = emu_parse_module(text, decode, place, context, err);

	if (m)
		m->hash = emu_text_hash(text);
	for (uint32_t k = 0; m && k < m->n_kernels; k++) {
		emu_find_volatile_data(m->kernels[k]);
		emu_find_bounds(m->kernels[k]);
		if (!emu_find_unused(m->kernels[k])) {
			emu_module_free(m);
			(void)emu_fail(err, "no memory for a kernel's registers");
			return NULL;
		}
	}
	return m;
}
