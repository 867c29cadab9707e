/* SPDX-License-Identifier: Apache-2.0 */
/*
 * parse_module.c - the module's level of PTX: directives, entries and their
 * parameters.
 */
#include "ptx/parse_module.h"

#include <stdlib.h>
#include <string.h>

#include "ptx/functions.h"
#include "ptx/parse_body.h"
#include "ptx/parse_call.h"
#include "ptx/parse_variable.h"
#include "ptx/source.h"
#include "ptx/target.h"

/* Skips debug data: a name and the text inside the braces. */
static bool skip_section(struct emu_parser *p)
{
	while (p->lexer.token.kind != EMU_END && !emu_token_is(&p->lexer.token, '{'))
		emu_lexer_next(&p->lexer);
	return emu_skip_braces(p) || emu_unexpected(p, "the end of the .section");
}

/* ---- entries ------------------------------------------------------------- */

static bool parse_parameters(struct emu_parser *p, struct emu_kernel *k)
{
	if (emu_take_mark(p, ')'))
		return true;
	do {
		struct emu_parameter *all = emu_arena_take(
		    p->module->arena, (k->n_parameters + 1) * sizeof(*all));
		struct emu_name name = {0};
		struct emu_declaration d;
		uint64_t at;

		if (!all)
			return emu_fail(p->err, "no memory for parameters");
		if (!emu_take_word(p, ".param"))
			return emu_unexpected(p, ".param");
		if (!emu_parse_declaration(p, &d))
			return false;
		at = (k->parameter_bytes + d.align - 1) / d.align * d.align;
		if (at + d.bytes > 32764)
			return emu_parse_fail(p, p->lexer.line,
					      "over 32764 bytes of parameters");
		if (k->n_parameters)
			memcpy(all, k->parameters, k->n_parameters * sizeof(*all));
		k->parameters = all;
		all[k->n_parameters].name =
		    emu_arena_text(p->module->arena, d.text, d.length);
		all[k->n_parameters].offset = (uint32_t)at;
		all[k->n_parameters].bytes = (uint32_t)d.bytes;
		k->n_parameters++;
		k->parameter_bytes = (uint32_t)(at + d.bytes);
		name.text = d.text;
		name.length = d.length;
		name.kind = EMU_NAME_SYMBOL;
		name.space = EMU_PARAM;
		name.special = EMU_PARAM_BASE;
		name.value = at;
		name.element_bytes = d.element_bytes;
		if (!emu_names_add(&p->names, &name))
			return emu_fail(p->err, "no memory for names");
	} while (emu_take_mark(p, ','));
	return emu_expect_mark(p, ')');
}

static bool parse_three(struct emu_parser *p, uint32_t to[3])
{
	to[0] = to[1] = to[2] = 1;
	for (int i = 0; i < 3; i++) {
		uint64_t number = 0;

		if (!emu_expect_number(p, &number))
			return false;
		if (number == 0 || number > 1 << 20)
			return emu_parse_fail(p, p->lexer.line,
					      "%llu: a size is 1 to 2^20",
					      (unsigned long long)number);
		to[i] = (uint32_t)number;
		if (!emu_take_mark(p, ','))
			return true;
	}
	return true;
}

/* Fails if the module's .target has no clusters. */
static bool has_clusters(struct emu_parser *p, const char *directive)
{
	return emu_target_has(p->module->target, "90") ||
	       emu_parse_fail(p, p->lexer.token.line,
			      "%s: it needs .target sm_90 or later, not %s", directive,
			      p->module->target ? p->module->target : "none");
}

static bool parse_entry_directives(struct emu_parser *p, struct emu_kernel *k)
{
	const struct emu_token *t = &p->lexer.token;
	uint32_t size[3];
	uint64_t number = 0;

	while (!emu_token_is(t, '{')) {
		if (emu_take_word(p, ".maxntid")) {
			if (!parse_three(p, size))
				return false;
			k->max_threads = size[0] * size[1] * size[2];
		} else if (emu_take_word(p, ".reqntid")) {
			if (!parse_three(p, k->required_threads))
				return false;
		} else if (emu_take_word(p, ".reqnctapercluster")) {
			if (!has_clusters(p, ".reqnctapercluster") ||
			    !parse_three(p, k->cluster))
				return false;
		} else if (emu_take_word(p, ".maxclusterrank")) {
			if (!has_clusters(p, ".maxclusterrank") ||
			    !emu_expect_number(p, &number))
				return false;
		} else if (emu_take_word(p, ".explicitcluster")) {
			if (!has_clusters(p, ".explicitcluster"))
				return false;
		} else if (emu_take_word(p, ".minnctapersm")) {
			if (!emu_expect_number(p, &number))
				return false;
			k->min_ctas = (uint32_t)number;
		} else if (emu_take_word(p, ".maxnreg")) {
			if (!emu_expect_number(p, &number))
				return false;
			k->max_registers = (uint32_t)number;
		} else if (emu_take_word(p, ".pragma")) {
			emu_lexer_next(&p->lexer);
			if (!emu_expect_mark(p, ';'))
				return false;
		} else if (!emu_take_word(p, ".noreturn")) {
			return emu_unexpected(p, "'{' or a directive of a kernel");
		}
	}
	return true;
}

static bool add_kernel(struct emu_parser *p, struct emu_kernel *k)
{
	struct emu_module *m = p->module;
	struct emu_kernel **all =
	    emu_arena_take(m->arena, (m->n_kernels + 1) * sizeof(*all));

	if (!all)
		return emu_fail(p->err, "no memory for kernels");
	if (m->n_kernels)
		memcpy(all, m->kernels, m->n_kernels * sizeof(*all));
	m->kernels = all;
	all[m->n_kernels++] = k;
	return true;
}

/* Parameters, directives and body. */
static bool parse_kernel(struct emu_parser *p, struct emu_kernel *k)
{
	if (emu_take_mark(p, '(') && !parse_parameters(p, k))
		return false;
	return parse_entry_directives(p, k) && emu_parse_body(p, k);
}

/*
 * After a failure, the kernel keeps the reason, and parsing continues after its
 * body.  False if the end of the body cannot be found.
 */
static bool refuse_kernel(struct emu_parser *p, struct emu_kernel *k,
			  const struct emu_lexer *begin, const struct emu_error *why)
{
	p->lexer = *begin;
	p->depth = 0;
	p->n_calls = 0;
	p->build.kernel = NULL;
	while (!emu_token_is(&p->lexer.token, '{')) {
		if (p->lexer.token.kind == EMU_END)
			return false;
		emu_lexer_next(&p->lexer);
	}
	k->refusal = emu_arena_text(p->module->arena, why->text, strlen(why->text));
	return k->refusal && emu_skip_braces(p);
}

static bool parse_entry(struct emu_parser *p)
{
	const struct emu_token *t = &p->lexer.token;
	const size_t names = p->names.count;
	struct emu_kernel *k = emu_arena_take(p->module->arena, sizeof(*k));
	struct emu_error *all = p->err;
	struct emu_error why = {{0}};
	struct emu_lexer begin;

	if (!k)
		return emu_fail(p->err, "no memory for a kernel");
	if (t->kind != EMU_WORD)
		return emu_unexpected(p, "the name of an entry");
	k->name = emu_arena_text(p->module->arena, t->text, t->length);
	k->module = p->module;
	k->line = t->line;
	emu_lexer_next(&p->lexer);
	begin = p->lexer;
	p->is_refusal = false;
	p->err = &why;
	if (!parse_kernel(p, k) &&
	    !(p->is_refusal && refuse_kernel(p, k, &begin, &why))) {
		p->err = all;
		return emu_fail(all, "%s", why.text);
	}
	p->err = all;
	emu_names_cut(&p->names, names);
	return add_kernel(p, k);
}

/* ---- the module ---------------------------------------------------------- */

/*
 * The version is a number with a point: a FLOAT for the lexer.  There is no newest
 * one: what a newer version has added is refused by its name.
 */
static bool parse_version(struct emu_parser *p)
{
	const struct emu_token *t = &p->lexer.token;
	double version = 0;

	if (t->kind != EMU_FLOAT)
		return emu_unexpected(p, "a version such as 9.0");
	memcpy(&version, &t->value, sizeof(version));
	if (version < 7.0)
		return emu_parse_fail(
		    p, t->line, ".version %.1f: 7.0 and later are known", version);
	emu_lexer_next(&p->lexer);
	return true;
}

static bool parse_target(struct emu_parser *p)
{
	const struct emu_token *t = &p->lexer.token;

	if (t->kind != EMU_WORD)
		return emu_unexpected(p, "a target such as sm_90a");
	p->module->target = emu_arena_text(p->module->arena, t->text, t->length);
	do
		emu_lexer_next(&p->lexer);
	while (emu_take_mark(p, ','));
	return true;
}

/* Takes a linking directive; true for .extern.  Modules are not linked here. */
static bool take_linking(struct emu_parser *p)
{
	if (emu_take_word(p, ".extern"))
		return true;
	if (!emu_take_word(p, ".visible") && !emu_take_word(p, ".weak"))
		(void)emu_take_word(p, ".common");
	return false;
}

static bool parse_top(struct emu_parser *p)
{
	const struct emu_token *t = &p->lexer.token;
	bool is_extern;
	uint64_t number = 0;

	if (emu_take_word(p, ".version"))
		return parse_version(p);
	if (emu_take_word(p, ".target"))
		return parse_target(p);
	if (emu_take_word(p, ".address_size")) {
		if (t->kind == EMU_NUMBER && t->value != 64)
			return emu_parse_fail(p, t->line, ".address_size is 64");
		return emu_expect_number(p, &number);
	}
	if (emu_take_word(p, ".file"))
		return emu_parse_file(p);
	if (emu_take_word(p, ".section"))
		return skip_section(p);
	if (emu_take_word(p, ".pragma")) {
		emu_lexer_next(&p->lexer);
		return emu_expect_mark(p, ';');
	}
	is_extern = take_linking(p);
	if (emu_take_word(p, ".entry"))
		return parse_entry(p);
	if (emu_take_word(p, ".func"))
		return emu_skip_function(p);
	if (emu_take_word(p, ".shared"))
		return emu_parse_variable(p, EMU_SHARED, is_extern);
	if (emu_take_word(p, ".global"))
		return emu_parse_variable(p, EMU_GLOBAL, is_extern);
	if (emu_take_word(p, ".const"))
		return emu_parse_variable(p, EMU_CONST, is_extern);
	return emu_unexpected(p, "a directive that is known here");
}

static void free_builder(struct emu_builder *b)
{
	free(b->code);
	free(b->register_bytes);
	free(b->fixups);
	free(b->targets);
	free(b->constants);
	memset(b, 0, sizeof(*b));
}

/* A module whose entries are all refused is refused with the reason of the first. */
static bool can_run(const struct emu_module *m, struct emu_error *err)
{
	for (uint32_t i = 0; i < m->n_kernels; i++)
		if (!m->kernels[i]->refusal)
			return true;
	return m->n_kernels == 0 || emu_fail(err, "%s", m->kernels[0]->refusal);
}

struct emu_module *emu_parse_module(const char *text, emu_decode *decode,
				    emu_place *place, void *context,
				    struct emu_error *err)
{
	struct emu_parser *p = calloc(1, sizeof(*p));
	struct emu_arena *arena = emu_arena_new();
	struct emu_module *m = arena ? emu_arena_take(arena, sizeof(*m)) : NULL;
	bool ok = p && m;

	if (ok) {
		m->arena = arena;
		p->module = m;
		p->decode = decode;
		p->place = place;
		p->place_context = context;
		p->err = err;
		emu_lexer_begin(&p->lexer, text);
		if (!emu_token_is_word(&p->lexer.token, ".version"))
			ok = emu_unexpected(p, ".version, with which PTX begins");
		if (ok && strstr(text, ".func"))
			ok = emu_find_functions(p);
		while (ok && p->lexer.token.kind != EMU_END)
			ok = parse_top(p);
		ok = ok && emu_find_source_lines(p);
	} else {
		emu_fail(err, "no memory for a module");
	}
	if (p) {
		free_builder(&p->build);
		emu_names_free(&p->names);
		free(p->functions);
		free(p->locs.list);
	}
	free(p);
	if (ok && can_run(m, err))
		return m;
	emu_arena_free(arena);
	return NULL;
}
