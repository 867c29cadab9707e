/* SPDX-License-Identifier: Apache-2.0 */
/*
 * link.c - see link.h.  Modules are cut into the parts of their highest level, whose
 * tokens are copied.  Variables come before functions, which may use them all.
 */
#include "ptx/link.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hardware/arena.h"
#include "ptx/lexer.h"

enum linkage { STATIC, EXTERN, VISIBLE, WEAK };
enum part_kind { FUNCTION, VARIABLE, SHARED, OTHER };

/* A part of a module: begin to end, of the highest level. */
struct part {
	enum part_kind kind;
	enum linkage linkage;
	bool is_defined, has_initial, is_dropped;
	bool is_renamed; /* another module has the name, too */
	const char *name;
	size_t length;
	const char *begin, *end;
	uint32_t input;
};

struct linker {
	const struct emu_link_input *inputs;
	struct part *parts;
	size_t count, capacity;
	uint32_t *first_file; /* by input: what is added to numbers of files */
	uint32_t files;
	double version;
	char target[40];
	uint32_t sm;  /* of the target */
	bool renames; /* any part */
	struct emu_error *err;
};

/* ---- cutting ------------------------------------------------------------------- */

static bool is_word(const struct emu_lexer *x, const char *word)
{
	return emu_token_is_word(&x->token, word);
}

/* To after the mark that ends what the current token opens. */
static void skip_pair(struct emu_lexer *x, char open, char close)
{
	uint32_t depth = 0;

	do {
		depth += emu_token_is(&x->token, open);
		depth -= emu_token_is(&x->token, close);
		if (depth)
			emu_lexer_next(x);
	} while (depth && x->token.kind != EMU_END);
}

/* The name of a function or a variable: the next word without a dot. */
static void find_name(struct emu_lexer *x, struct part *p)
{
	while (x->token.kind != EMU_END && !emu_token_is(&x->token, ';') &&
	       !emu_token_is(&x->token, '{')) {
		if (x->token.kind == EMU_WORD && *x->token.text != '.') {
			p->name = x->token.text;
			p->length = x->token.length;
			return;
		}
		if (emu_token_is(&x->token, '('))
			skip_pair(x, '(', ')');
		emu_lexer_next(x);
	}
}

/* Ends a part at the current ';', or after the braces of a function. */
static void end_part(struct emu_lexer *x, struct part *p)
{
	while (x->token.kind != EMU_END && !emu_token_is(&x->token, ';')) {
		p->has_initial |= emu_token_is(&x->token, '=');
		if (emu_token_is(&x->token, '{')) {
			skip_pair(x, '{', '}');
			if (p->kind == FUNCTION) {
				p->is_defined = true;
				break;
			}
		}
		emu_lexer_next(x);
	}
	p->end = x->at;
	emu_lexer_next(x);
}

static bool add_part(struct linker *l, const struct part *p)
{
	struct part *grown = emu_grow(l->parts, &l->capacity, l->count, sizeof(*grown));

	if (!grown)
		return emu_fail(l->err, "no memory for the parts of modules");
	l->parts = grown;
	grown[l->count++] = *p;
	return true;
}

static bool fail_at(const struct linker *l, uint32_t input, uint32_t line,
		    const char *what)
{
	return emu_fail(l->err, "%s: PTX line %u: %s", l->inputs[input].name, line,
			what);
}

/* A function or a variable, with the words before it. */
static bool cut_symbol(struct linker *l, struct emu_lexer *x, uint32_t input)
{
	struct part p = {.kind = OTHER, .begin = x->token.text, .input = input};
	const uint32_t line = x->token.line;

	for (;; emu_lexer_next(x)) {
		if (is_word(x, ".extern"))
			p.linkage = EXTERN;
		else if (is_word(x, ".visible"))
			p.linkage = VISIBLE;
		else if (is_word(x, ".weak"))
			p.linkage = WEAK;
		else
			break;
	}
	if (is_word(x, ".func") || is_word(x, ".entry"))
		p.kind = FUNCTION;
	else if (is_word(x, ".shared"))
		p.kind = SHARED;
	else if (is_word(x, ".global") || is_word(x, ".const"))
		p.kind = VARIABLE;
	else
		return fail_at(l, input, line, "a directive that cannot be linked");
	if (is_word(x, ".entry"))
		p.linkage = VISIBLE;
	emu_lexer_next(x);
	find_name(x, &p);
	if (!p.name)
		return fail_at(l, input, line, "a function or a variable has no name");
	end_part(x, &p);
	p.is_defined |= p.kind != FUNCTION && p.linkage != EXTERN;
	return add_part(l, &p);
}

/* .version and .target: the newest of all modules. */
static void read_version(struct linker *l, struct emu_lexer *x)
{
	double version = 0;

	emu_lexer_next(x);
	if (x->token.kind == EMU_FLOAT)
		memcpy(&version, &x->token.value, sizeof(version));
	l->version = version > l->version ? version : l->version;
	emu_lexer_next(x);
}

static void read_target(struct linker *l, struct emu_lexer *x)
{
	size_t length;
	uint32_t sm;

	emu_lexer_next(x);
	length = x->token.length;
	sm = length > 3 ? (uint32_t)strtoul(x->token.text + 3, NULL, 10) : 0;
	/* A letter makes a target newer than the same number without it. */
	sm = 2 * sm + (length > 3 && strchr("af", x->token.text[length - 1]) != NULL);
	if (sm > l->sm && length < sizeof(l->target)) {
		l->sm = sm;
		memcpy(l->target, x->token.text, length);
		l->target[length] = '\0';
	}
	do
		emu_lexer_next(x);
	while (emu_token_is(&x->token, ',') ||
	       (x->token.kind == EMU_WORD && *x->token.text != '.'));
}

/* .file number "name" [, time, size] */
static bool cut_file(struct linker *l, struct emu_lexer *x, uint32_t input)
{
	struct part p = {.kind = OTHER, .begin = x->token.text, .input = input};

	emu_lexer_next(x);
	if (x->token.kind == EMU_NUMBER &&
	    l->files < l->first_file[input] + (uint32_t)x->token.value)
		l->files = l->first_file[input] + (uint32_t)x->token.value;
	emu_lexer_next(x);
	p.end = x->at;
	emu_lexer_next(x);
	while (emu_token_is(&x->token, ',')) {
		emu_lexer_next(x);
		p.end = x->at;
		emu_lexer_next(x);
	}
	return add_part(l, &p);
}

static bool cut(struct linker *l, uint32_t input)
{
	struct emu_lexer x;
	bool ok = true;

	l->first_file[input] = l->files;
	emu_lexer_begin(&x, l->inputs[input].text);
	if (!is_word(&x, ".version"))
		return fail_at(l, input, x.token.line,
			       "PTX begins with .version: it is no PTX");
	while (ok && x.token.kind != EMU_END) {
		if (is_word(&x, ".version")) {
			read_version(l, &x);
		} else if (is_word(&x, ".target")) {
			read_target(l, &x);
		} else if (is_word(&x, ".address_size")) {
			emu_lexer_next(&x);
			emu_lexer_next(&x);
		} else if (is_word(&x, ".file")) {
			ok = cut_file(l, &x, input);
		} else if (is_word(&x, ".section")) {
			while (x.token.kind != EMU_END && !emu_token_is(&x.token, '{'))
				emu_lexer_next(&x);
			skip_pair(&x, '{', '}');
			emu_lexer_next(&x);
		} else if (is_word(&x, ".pragma")) {
			while (x.token.kind != EMU_END && !emu_token_is(&x.token, ';'))
				emu_lexer_next(&x);
			emu_lexer_next(&x);
		} else {
			ok = cut_symbol(l, &x, input);
		}
	}
	return ok;
}

/* ---- resolving ----------------------------------------------------------------- */

static bool is_same(const struct part *a, const struct part *b)
{
	return a->name && b->name && a->length == b->length &&
	       memcmp(a->name, b->name, a->length) == 0;
}

static bool is_public(const struct part *p)
{
	return p->is_defined && (p->linkage == VISIBLE || p->linkage == WEAK);
}

/* Drops a weak definition where there is another, and reports two strong ones. */
static bool choose(struct linker *l, struct part *a, struct part *b)
{
	if (a->linkage == VISIBLE && b->linkage == VISIBLE)
		return emu_fail(l->err, "%s and %s: both define %.*s",
				l->inputs[a->input].name, l->inputs[b->input].name,
				(int)a->length, a->name);
	(b->linkage == WEAK ? b : a)->is_dropped = true;
	return true;
}

/* What the run-time library of devices has. */
static bool is_of_library(const struct part *p)
{
	static const char *const names[] = {"vprintf", "__assertfail", "malloc", "free",
					    "cudaGraphSetConditional"};

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		if (strlen(names[i]) == p->length &&
		    memcmp(names[i], p->name, p->length) == 0)
			return true;
	return false;
}

/* Drops an .extern declaration whose name is defined; or else it must have one. */
static bool resolve_extern(struct linker *l, struct part *p)
{
	const bool is_kept =
	    p->kind == SHARED || (p->kind == FUNCTION && is_of_library(p));

	for (size_t i = 0; i < l->count; i++) {
		const struct part *other = &l->parts[i];

		if (other == p || other->is_dropped || !is_same(p, other))
			continue;
		if (is_public(other) || (is_kept && other->linkage == EXTERN)) {
			p->is_dropped = true;
			return true;
		}
	}
	return is_kept ||
	       emu_fail(l->err, "%s: %.*s is .extern, and no module defines it",
			l->inputs[p->input].name, (int)p->length, p->name);
}

/* A name that is of one module only stays apart from those of others. */
static void find_renamed(struct linker *l, struct part *p)
{
	for (size_t i = 0; i < l->count && p->linkage == STATIC; i++)
		p->is_renamed |=
		    l->parts[i].input != p->input && is_same(&l->parts[i], p);
	l->renames |= p->is_renamed;
}

static bool resolve(struct linker *l)
{
	bool ok = true;

	for (size_t i = 0; i < l->count && ok; i++)
		for (size_t k = i + 1; k < l->count && ok; k++)
			if (is_public(&l->parts[i]) && !l->parts[i].is_dropped &&
			    is_public(&l->parts[k]) && !l->parts[k].is_dropped &&
			    is_same(&l->parts[i], &l->parts[k]))
				ok = choose(l, &l->parts[i], &l->parts[k]);
	for (size_t i = 0; i < l->count && ok; i++)
		if (l->parts[i].linkage == EXTERN)
			ok = resolve_extern(l, &l->parts[i]);
	for (size_t i = 0; i < l->count && ok; i++)
		find_renamed(l, &l->parts[i]);
	return ok;
}

/* ---- writing ------------------------------------------------------------------- */

static bool is_renamed(const struct linker *l, uint32_t input,
		       const struct emu_token *t)
{
	const struct part word = {.name = t->text, .length = t->length};

	for (size_t i = 0; l->renames && t->kind == EMU_WORD && i < l->count; i++)
		if (l->parts[i].is_renamed && l->parts[i].input == input &&
		    is_same(&l->parts[i], &word))
			return true;
	return false;
}

/* Copies a part, with other numbers of files and other names of its own module. */
static void write_part(const struct linker *l, const struct part *p, FILE *to)
{
	const uint32_t more = l->first_file[p->input];
	const char *copied = p->begin;
	bool is_file = false;
	struct emu_lexer x;

	emu_lexer_begin(&x, p->begin);
	for (; x.token.kind != EMU_END && x.token.text < p->end; emu_lexer_next(&x)) {
		const struct emu_token *t = &x.token;

		if (is_file && t->kind == EMU_NUMBER && more) {
			fwrite(copied, 1, (size_t)(t->text - copied), to);
			fprintf(to, "%u", (uint32_t)t->value + more);
			copied = t->text + t->length;
		} else if (is_renamed(l, p->input, t)) {
			fwrite(copied, 1, (size_t)(t->text - copied), to);
			fprintf(to, "%.*s$%u", (int)t->length, t->text, p->input);
			copied = t->text + t->length;
		}
		is_file = emu_token_is_word(t, ".file") ||
			  emu_token_is_word(t, ".loc") ||
			  emu_token_is_word(t, "inlined_at");
	}
	fwrite(copied, 1, (size_t)(p->end - copied), to);
	fputc('\n', to);
}

/* In which round a part is written: an initial value may have a variable's address. */
static int round_of(const struct part *p)
{
	if (p->kind == OTHER)
		return 0;
	if (p->kind == FUNCTION)
		return 3;
	return p->has_initial ? 2 : 1;
}

static char *write_all(const struct linker *l)
{
	char *text = NULL;
	size_t bytes = 0;
	FILE *to = open_memstream(&text, &bytes);

	if (!to) {
		(void)emu_fail(l->err, "no memory for the linked text");
		return NULL;
	}
	fprintf(to, ".version %.1f\n.target %s\n.address_size 64\n", l->version,
		l->target);
	for (int round = 0; round < 4; round++)
		for (size_t i = 0; i < l->count; i++)
			if (round_of(&l->parts[i]) == round && !l->parts[i].is_dropped)
				write_part(l, &l->parts[i], to);
	if (fclose(to) == 0)
		return text;
	(void)emu_fail(l->err, "no memory for the linked text");
	free(text);
	return NULL;
}

char *emu_link(const struct emu_link_input *inputs, size_t count, struct emu_error *err)
{
	struct linker l = {.inputs = inputs, .err = err};
	char *text = NULL;
	bool ok;

	l.first_file = calloc(count + 1, sizeof(*l.first_file));
	if (!l.first_file) {
		(void)emu_fail(err, "no memory for modules");
		return NULL;
	}
	ok = true;
	for (size_t i = 0; i < count && ok; i++)
		ok = cut(&l, (uint32_t)i);
	if (ok && count == 0)
		ok = emu_fail(err, "there is no input");
	if (ok && !l.sm)
		ok = emu_fail(err, "no module has a .target");
	if (ok && resolve(&l))
		text = write_all(&l);
	free(l.parts);
	free(l.first_file);
	return text;
}
