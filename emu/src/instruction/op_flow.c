/* SPDX-License-Identifier: Apache-2.0 */
/* op_flow.c - branches, ends, and opcodes without an effect here. */
#include <string.h>

#include "instruction/binds.h"
#include "machine/warp.h"
#include "ptx/parse_call.h"

static void run_bra(struct emu_warp *w, const struct emu_instr *i, uint32_t lanes)
{
	emu_branch(w, i->target, lanes);
}

/* bra.uni, when some lanes of a path execute it. */
static void run_bra_uni(struct emu_warp *w, const struct emu_instr *i, uint32_t lanes)
{
	if (lanes != w->lanes) {
		emu_fault(w, i, -1,
			  ".uni says that all lanes branch alike, "
			  "and only lanes %08x of %08x do",
			  lanes, w->lanes);
		return;
	}
	emu_branch(w, i->target, lanes);
}

/* Binds a branch to a label whose position may not be known yet. */
static bool bind_branch(struct emu_bind *b, const char *label, size_t length)
{
	struct emu_builder *build = &b->parser->build;
	struct emu_fixup *grown = emu_grow(build->fixups, &build->fixups_capacity,
					   build->n_fixups, sizeof(*grown));

	if (!grown)
		return emu_bind_fail(b, "no memory for labels");
	build->fixups = grown;
	grown[build->n_fixups++] =
	    (struct emu_fixup){label, length, (uint32_t)build->count, b->s->line};
	b->i->target = 0;
	b->i->run = emu_has(b, "uni") ? run_bra_uni : run_bra;
	return true;
}

bool emu_bind_bra(struct emu_bind *b)
{
	const struct emu_argument *a = emu_argument(b, 0);

	if (!emu_arguments(b, 1, 1))
		return false;
	if (a->kind != EMU_ARG_LABEL)
		return emu_bind_fail(b, "a label is missing");
	return bind_branch(b, a->text, a->length);
}

/*
 * The lanes whose index is the number of a label.  brx.idx is one such branch for each
 * label of its list, and then one instruction for indices past the list.
 */
static void run_brx(struct emu_warp *w, const struct emu_instr *i, uint32_t lanes)
{
	const uint32_t *index = emu_row(w, &i->operand[0]);
	uint32_t taken = 0;

	EMU_EACH_LANE(l) taken |= (uint32_t)(index[l] == i->option) << l;
	if (taken & lanes)
		emu_branch(w, i->target, taken & lanes);
}

static void run_brx_past(struct emu_warp *w, const struct emu_instr *i, uint32_t lanes)
{
	const int lane = __builtin_ctz(lanes);
	const uint32_t *index = emu_row(w, &i->operand[0]);

	emu_fault(w, i, lane, "index %u: its list has %u labels", index[lane],
		  i->option);
}

/* Arguments from parse_body.c: the index, its number, and unless it is past the list
 * a label. */
bool emu_bind_brx(struct emu_bind *b)
{
	const struct emu_argument *label = emu_argument(b, 2);
	int64_t number;

	if (b->s->n_arguments < 2 || emu_argument(b, 1)->kind != EMU_ARG_INTEGER)
		return emu_bind_fail(b, "a list of .branchtargets is missing");
	if (!emu_src(b, emu_argument(b, 0), EMU_U32) ||
	    !emu_number(b, emu_argument(b, 1), 0, UINT32_MAX, &number))
		return false;
	b->i->option = (uint32_t)number;
	b->i->run = run_brx_past;
	if (b->s->n_arguments == 2)
		return true;
	if (!bind_branch(b, label->text, label->length))
		return false;
	b->i->run = run_brx;
	return true;
}

/*
 * A call through a register is its check, and for each function that it may call a
 * branch of the other lanes around the function's body (parse_call.c).
 */
static void run_call_check(struct emu_warp *w, const struct emu_instr *i,
			   uint32_t lanes)
{
	const uint64_t *to = emu_row(w, &i->operand[0]);

	for (; lanes; lanes &= lanes - 1) {
		const int lane = __builtin_ctz(lanes);
		bool is_known = false;

		for (int k = 1; k < i->operands && !is_known; k++)
			is_known =
			    *(const uint64_t *)emu_row(w, &i->operand[k]) == to[lane];
		if (!is_known) {
			emu_fault(w, i, lane,
				  "call of 0x%llx, which is no address of a function "
				  "with these parameters, or recursion, which is not "
				  "known here",
				  (unsigned long long)to[lane]);
			return;
		}
	}
}

/* The register, and the addresses of functions. */
bool emu_bind_call_check(struct emu_bind *b)
{
	const struct emu_argument *e;
	uint32_t count;

	if (!emu_arguments(b, 2, 2) || !emu_src(b, emu_argument(b, 0), EMU_U64))
		return false;
	e = emu_elements(b, emu_argument(b, 1), &count);
	for (uint32_t k = 0; k < count; k++)
		if (!emu_src(b, &e[k], EMU_U64))
			return false;
	b->i->run = run_call_check;
	return true;
}

static void run_call_unless(struct emu_warp *w, const struct emu_instr *i,
			    uint32_t lanes)
{
	const uint64_t *to = emu_row(w, &i->operand[0]);
	const uint64_t *address = emu_row(w, &i->operand[1]);
	uint32_t others = 0;

	EMU_EACH_LANE(l) others |= (uint32_t)(to[l] != address[l]) << l;
	if (others & lanes)
		emu_branch(w, i->target, others & lanes);
}

/* The register, the address of a function, and a label after its body. */
bool emu_bind_call_unless(struct emu_bind *b)
{
	const struct emu_argument *label = emu_argument(b, 2);

	if (!emu_arguments(b, 3, 3) || label->kind != EMU_ARG_LABEL ||
	    !emu_src(b, emu_argument(b, 0), EMU_U64) ||
	    !emu_src(b, emu_argument(b, 1), EMU_U64) ||
	    !bind_branch(b, label->text, label->length))
		return emu_bind_fail(b, "a register, an address and a label");
	b->i->run = run_call_unless;
	return true;
}

static void run_exit(struct emu_warp *w, const struct emu_instr *i, uint32_t lanes)
{
	(void)i;
	emu_exit_lanes(w, lanes);
}

bool emu_bind_exit(struct emu_bind *b)
{
	b->i->run = run_exit;
	return emu_arguments(b, 0, 0);
}

/* ret ends a thread of a kernel; in a function it continues after the call. */
bool emu_bind_ret(struct emu_bind *b)
{
	if (!emu_in_function(b->parser))
		return emu_bind_exit(b);
	return emu_arguments(b, 0, 0) &&
	       bind_branch(b, EMU_RETURN_LABEL, strlen(EMU_RETURN_LABEL));
}

static void run_trap(struct emu_warp *w, const struct emu_instr *i, uint32_t lanes)
{
	emu_fault(w, i, __builtin_ctz(lanes),
		  "the kernel has executed trap, as assert() does%s%s",
		  w->printed[0] ? ", after it printed: " : "", w->printed);
}

bool emu_bind_trap(struct emu_bind *b)
{
	b->i->run = run_trap;
	return emu_arguments(b, 0, 0);
}

static void run_nothing(struct emu_warp *w, const struct emu_instr *i, uint32_t lanes)
{
	(void)w;
	(void)i;
	(void)lanes;
}

bool emu_bind_nothing(struct emu_bind *b)
{
	b->i->run = run_nothing;
	return true;
}
