/* SPDX-License-Identifier: Apache-2.0 */
/* source.c - see source.h. */
#include "ptx/source.h"

#include <stdlib.h>
#include <string.h>

/* ---- .file --------------------------------------------------------------- */

bool emu_parse_file(struct emu_parser *p)
{
	struct emu_module *m = p->module;
	const struct emu_token *t = &p->lexer.token;
	uint64_t number = 0, skipped;

	if (!emu_expect_number(p, &number))
		return false;
	if (t->kind != EMU_TEXT || number == 0 || number > 4096)
		return emu_unexpected(p, "a file's name, of number 1 to 4096");
	if (number >= m->n_files) {
		char **files = emu_arena_take(m->arena, (number + 1) * sizeof(*files));

		if (!files)
			return emu_fail(p->err, "no memory for file names");
		if (m->n_files)
			memcpy(files, m->files, m->n_files * sizeof(*files));
		m->files = files;
		m->n_files = (uint32_t)number + 1;
	}
	m->files[number] = emu_arena_text(m->arena, t->text, t->length);
	emu_lexer_next(&p->lexer);
	while (emu_take_mark(p, ','))
		if (!emu_expect_number(p, &skipped))
			return false;
	return true;
}

/* ---- .loc ---------------------------------------------------------------- */

static uint32_t *bucket_of(struct emu_locs *l, const struct emu_loc *at)
{
	const uint32_t mixed = (at->file * 31 + at->line) * 31 + at->column;

	return &l->buckets[mixed % (sizeof(l->buckets) / sizeof(*l->buckets))];
}

/* The newest place of the same file, line and column: its index + 1; 0: none. */
static uint32_t newest(struct emu_locs *l, const struct emu_loc *at)
{
	uint32_t k = *bucket_of(l, at);

	while (k &&
	       (l->list[k - 1].file != at->file || l->list[k - 1].line != at->line ||
		l->list[k - 1].column != at->column))
		k = l->list[k - 1].next;
	return k;
}

/* The index + 1 of a place that is the newest of its line; 0: no memory. */
static uint32_t add(struct emu_locs *l, struct emu_loc at)
{
	const uint32_t known = newest(l, &at);
	struct emu_loc *grown;

	if (known && l->list[known - 1].caller == at.caller)
		return known;
	grown = emu_grow(l->list, &l->capacity, l->count, sizeof(*grown));
	if (!grown)
		return 0;
	l->list = grown;
	at.next = *bucket_of(l, &at);
	grown[l->count++] = at;
	return *bucket_of(l, &at) = (uint32_t)l->count;
}

static bool parse_place(struct emu_parser *p, struct emu_loc *at)
{
	uint64_t file = 0, line = 0, column = 0;

	if (!emu_expect_number(p, &file) || !emu_expect_number(p, &line) ||
	    !emu_expect_number(p, &column))
		return false;
	*at = (struct emu_loc){
	    .file = (uint32_t)file, .line = (uint32_t)line, .column = (uint32_t)column};
	return true;
}

/*
 * .loc file line column [, function_name label [+ n], inlined_at file line column].
 * The place of a call that was inlined itself has had a .loc before.
 */
bool emu_parse_loc(struct emu_parser *p)
{
	struct emu_locs *l = &p->locs;
	struct emu_loc at, caller;
	uint64_t number;

	if (!parse_place(p, &at))
		return false;
	while (emu_take_mark(p, ',')) {
		if (emu_take_word(p, "function_name")) {
			emu_lexer_next(&p->lexer);
			if (emu_take_mark(p, '+') && !emu_expect_number(p, &number))
				return false;
		} else if (emu_take_word(p, "inlined_at")) {
			if (!parse_place(p, &caller))
				return false;
			at.caller = newest(l, &caller);
			if (!at.caller)
				at.caller = add(l, caller);
		} else {
			return emu_unexpected(p, "function_name or inlined_at");
		}
	}
	p->build.source = add(l, at);
	return p->build.source || emu_fail(p->err, "no memory for source lines");
}

/* ---- lines of users ------------------------------------------------------ */

/* True for a header of the CUDA toolkit, by its place in a folder include/. */
static bool is_of_toolkit(const char *path)
{
	static const char *const begins[] = {"cccl/",
					     "cub/",
					     "thrust/",
					     "cuda/",
					     "crt/",
					     "nv/",
					     "cooperative_groups",
					     "cuda_fp",
					     "cuda_bf16",
					     "cuda_pipeline",
					     "cuda_awbarrier",
					     "cuda_runtime",
					     "cuda_device_",
					     "sm_20_",
					     "sm_30_",
					     "sm_32_",
					     "sm_35_",
					     "sm_60_",
					     "sm_61_",
					     "device_functions",
					     "device_atomic",
					     "device_double",
					     "math_functions",
					     "mma.h"};
	const char *at = path;

	while ((at = strstr(at, "/include/"))) {
		at += strlen("/include/");
		for (size_t i = 0; i < sizeof(begins) / sizeof(*begins); i++)
			if (strncmp(at, begins[i], strlen(begins[i])) == 0)
				return true;
	}
	return false;
}

/* Whose a file is: the user's, of an installed Python package, of the CUDA toolkit. */
enum owner { OF_USER, OF_PACKAGE, OF_TOOLKIT };

static enum owner owner_of(const char *path)
{
	if (is_of_toolkit(path))
		return OF_TOOLKIT;
	return strstr(path, "/site-packages/") || strstr(path, "/dist-packages/")
		   ? OF_PACKAGE
		   : OF_USER;
}

/* The innermost place that is not in the files of `least` or more, or the outermost. */
static const struct emu_loc *place_outside(const struct emu_locs *l, uint32_t source,
					   const enum owner *owners, uint32_t n_files,
					   enum owner least)
{
	const struct emu_loc *at = &l->list[source - 1];

	while (at->caller && at->file < n_files && owners[at->file] >= least)
		at = &l->list[at->caller - 1];
	return at;
}

/*
 * From the place of an inlined function to that of the call in the user's file.  A
 * kernel of a package has no such file: its place is outside the toolkit's headers.
 */
static const struct emu_loc *place_of_user(const struct emu_locs *l, uint32_t source,
					   const enum owner *owners, uint32_t n_files)
{
	const struct emu_loc *at =
	    place_outside(l, source, owners, n_files, OF_PACKAGE);

	if (at->file < n_files && owners[at->file] == OF_USER)
		return at;
	return place_outside(l, source, owners, n_files, OF_TOOLKIT);
}

bool emu_find_source_lines(struct emu_parser *p)
{
	const struct emu_module *m = p->module;
	enum owner *owners = calloc(m->n_files + 1u, sizeof(*owners));

	if (!owners)
		return emu_fail(p->err, "no memory for source lines");
	for (uint32_t i = 1; i < m->n_files; i++)
		owners[i] = m->files[i] ? owner_of(m->files[i]) : OF_USER;
	for (uint32_t k = 0; k < m->n_kernels; k++)
		for (uint32_t i = 0; i < m->kernels[k]->count; i++) {
			struct emu_instr *x = &m->kernels[k]->code[i];
			const struct emu_loc *at;

			if (!x->source_line)
				continue;
			at =
			    place_of_user(&p->locs, x->source_line, owners, m->n_files);
			x->source_line = at->line;
			x->source_file = (uint16_t)at->file;
		}
	free(owners);
	return true;
}
