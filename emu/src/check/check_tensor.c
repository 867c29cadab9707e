/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check_tensor.c - order in tensor memory.  A cell is a column of 16 lanes; each
 * remembers its last writer and the readers since.  See check.h.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check/check_state.h"
#include "hardware/tensor_memory.h"

#define PARTS	   4  /* of 32 lanes, one a warp of a warpgroup */
#define HALF	   16 /* lanes */
#define TMEM_READS 6

struct tmem_word {
	epoch write; /* its bytes: halves of the 32 lanes */
	uint32_t line, tag;
	epoch reads[TMEM_READS];
	uint8_t write_use, read_uses[TMEM_READS];
	uint8_t count, next; /* of reads; the one to be forgotten */
};

/* For each use of cells: the instruction, its name for the cells, and its access. */
static const struct {
	const char *name, *as, *does;
} uses[EMU_TMEM_USES] = {
    [EMU_TMEM_MMA] = {"tcgen05.mma", "its accumulator, ", "writes it"},
    [EMU_TMEM_MMA_A] = {"tcgen05.mma", "its A, ", "reads it as A"},
    [EMU_TMEM_MMA_SCALE] = {"tcgen05.mma", "its scales, ", "reads it as scales"},
    [EMU_TMEM_CP] = {"tcgen05.cp", "", "writes it"},
    [EMU_TMEM_LD] = {"tcgen05.ld", "", "reads it"},
    [EMU_TMEM_ST] = {"tcgen05.st", "", "writes it"},
    [EMU_TMEM_ALLOC] = {"tcgen05.alloc", "", "allocates it"},
    [EMU_TMEM_DEALLOC] = {"tcgen05.dealloc", "", "gives it back"},
};

static bool is_write(enum emu_tmem_use use)
{
	return use != EMU_TMEM_MMA_A && use != EMU_TMEM_MMA_SCALE && use != EMU_TMEM_LD;
}

/* True for operations that the tensor core executes asynchronously. */
static bool is_core(enum emu_tmem_use use)
{
	return use <= EMU_TMEM_CP;
}

static uint32_t agent_for(uint32_t warp, enum emu_tmem_use use)
{
	if (is_core(use))
		return agent_of_async(warp, EMU_ASYNC_WGMMA);
	if (use == EMU_TMEM_LD)
		return agent_of_async(warp, EMU_ASYNC_TMEM_LD);
	if (use == EMU_TMEM_ST)
		return agent_of_async(warp, EMU_ASYNC_TMEM_ST);
	return agent_of_warp(warp);
}

/* ---- order --------------------------------------------------------------- */

struct tmem_step {
	const struct emu_tmem_access *a;
	uint32_t warp, column, part;
	epoch e;
	struct emu_error *err;
};

/*
 * True if the tensor core executes two operations that one warp issued in their
 * order.
 */
static bool is_pipelined(const struct emu_check *c, const struct emu_tmem_access *now,
			 enum emu_tmem_use before, uint32_t tag)
{
	if (!is_core(now->use) || !is_core(before))
		return false;
	if (!c->options.is_strict)
		return true;
	if (before == EMU_TMEM_CP)
		return now->use != EMU_TMEM_CP;
	return before == EMU_TMEM_MMA && now->use == EMU_TMEM_MMA && now->tag == tag;
}

static bool object(const struct emu_check *c, const struct tmem_step *s, epoch e,
		   enum emu_tmem_use use, uint32_t line, const char *rule)
{
	const uint32_t warp = agent_of(e) / AGENTS_PER_WARP;
	char where[40] = "";

	if (line)
		snprintf(where, sizeof(where), " (PTX line %u)", (unsigned)line);
	return emu_fail(
	    s->err,
	    "%stensor memory column %u, lanes %u to %u of CTA rank %u: %s of "
	    "warp %u of CTA rank %u %s%s, %s",
	    uses[s->a->use].as, (unsigned)s->column, (unsigned)(32 * s->part),
	    (unsigned)(32 * s->part + 31), (unsigned)s->a->cta, uses[use].name,
	    (unsigned)(warp % (c->warps / c->ctas)), (unsigned)c->warp[warp].cta,
	    uses[use].does, where, rule);
}

static const char *missing_order(enum emu_tmem_use use)
{
	switch (use) {
	case EMU_TMEM_LD:
		return "and nothing orders that before this: tcgen05.wait::ld, "
		       "then a barrier, must come between";
	case EMU_TMEM_ST:
		return "and nothing orders that before this: tcgen05.wait::st, "
		       "and for another warp a barrier, must come between";
	case EMU_TMEM_ALLOC:
	case EMU_TMEM_DEALLOC:
		return "and nothing orders that before this: no barrier, or no "
		       "wait for one";
	default:
		return "and nothing orders that before this: a later "
		       "tcgen05.commit must be waited for";
	}
}

/* True if this access follows e, an earlier one. */
static bool follows(const struct emu_check *c, const struct tmem_step *s, epoch e,
		    enum emu_tmem_use use, uint32_t tag, uint32_t line)
{
	const struct warp *w = &c->warp[s->warp];
	const uint32_t agent = agent_of(e);
	const bool is_mine = agent / AGENTS_PER_WARP == s->warp;

	if (is_mine && is_pipelined(c, s->a, use, tag))
		return true;
	/* The two CTAs of a pair deallocate the same columns, in any order. */
	if (use == EMU_TMEM_DEALLOC && s->a->use >= EMU_TMEM_ALLOC &&
	    c->warp[agent / AGENTS_PER_WARP].cta != c->warp[s->warp].cta)
		return true;
	if (!knows(w->knows.seen, e))
		return object(c, s, e, use, line, missing_order(use));
	if (!c->options.is_strict || is_mine || use >= EMU_TMEM_ALLOC ||
	    s->a->use >= EMU_TMEM_ALLOC || knows(w->after, e))
		return true;
	if (!knows(w->knows.before, e))
		return object(
		    c, s, e, use, line,
		    "and there was no tcgen05.fence::before_thread_sync after "
		    "it");
	return object(c, s, e, use, line,
		      "and between the wait and this there was no "
		      "tcgen05.fence::after_thread_sync");
}

static bool overlaps(epoch a, epoch b)
{
	return a & b & 15;
}

static void add_read(const struct emu_check *c, struct tmem_word *w,
		     const struct tmem_step *s)
{
	const uint32_t *seen = c->warp[s->warp].knows.seen;
	uint32_t at;

	for (at = 0; at < w->count; at++)
		if (w->read_uses[at] == s->a->use &&
		    ((w->reads[at] ^ s->e) < 16 ||
		     (knows(seen, w->reads[at]) && (w->reads[at] & 15 & ~s->e) == 0)))
			break;
	if (at == w->count && at == TMEM_READS) {
		at = w->next;
		w->next = (uint8_t)((w->next + 1) % TMEM_READS);
	} else if (at == w->count) {
		w->count++;
		w->reads[at] = 0;
	}
	w->reads[at] = (w->reads[at] ^ s->e) < 16 ? w->reads[at] | s->e : s->e;
	w->read_uses[at] = (uint8_t)s->a->use;
}

static void set_write(struct tmem_word *w, const struct tmem_step *s)
{
	uint8_t kept = 0;

	for (uint32_t i = 0; i < w->count; i++)
		if (!overlaps(w->reads[i], s->e)) {
			w->read_uses[kept] = w->read_uses[i];
			w->reads[kept++] = w->reads[i];
		}
	w->count = kept;
	w->next = 0;
	w->write = s->e;
	w->write_use = (uint8_t)s->a->use;
	w->line = s->a->line;
	w->tag = s->a->tag;
}

static bool touch(const struct emu_check *c, struct tmem_word *w,
		  const struct tmem_step *s, bool is_good)
{
	const enum emu_tmem_use use = s->a->use;

	for (uint32_t i = 0; is_good && is_write(use) && i < w->count; i++)
		if (overlaps(w->reads[i], s->e))
			is_good = follows(c, s, w->reads[i],
					  (enum emu_tmem_use)w->read_uses[i], 0, 0);
	if (is_good && w->write && overlaps(w->write, s->e))
		is_good = follows(c, s, w->write, (enum emu_tmem_use)w->write_use,
				  w->tag, w->line);
	if (is_write(use))
		set_write(w, s);
	else
		add_read(c, w, s);
	return is_good;
}

/* ---- calls --------------------------------------------------------------- */

void emu_check_tmem_close(struct emu_check *c)
{
	for (uint32_t i = 0; c->tmem && i < c->ctas; i++)
		free(c->tmem[i]);
	free(c->tmem);
}

static struct tmem_word *words_of(struct emu_check *c, uint32_t cta)
{
	if (!c->tmem)
		c->tmem = calloc(c->ctas, sizeof(c->tmem[0]));
	if (c->tmem && !c->tmem[cta])
		c->tmem[cta] = calloc(PARTS * EMU_TMEM_COLUMNS, sizeof(c->tmem[0][0]));
	return c->tmem ? c->tmem[cta] : NULL;
}

/* The halves of a part's 32 lanes that an access touches, one bit each. */
static uint32_t halves(const struct emu_tmem_access *a, uint32_t part)
{
	uint32_t mask = 0;

	for (uint32_t h = 0; h < 2; h++) {
		const uint32_t begin = 32 * part + HALF * h;

		if (a->lane < begin + HALF && a->lane + a->lanes > begin)
			mask |= 1u << h;
	}
	return mask;
}

bool emu_check_tmem(struct emu_check *c, uint32_t warp, const struct emu_tmem_access *a,
		    struct emu_error *err)
{
	struct tmem_word *words = words_of(c, a->cta);
	const uint32_t agent = agent_for(warp, a->use);
	const struct warp *w = &c->warp[warp];
	uint32_t clock = w->knows.seen[agent_of_warp(warp)];
	bool is_good = true;

	if (!words || c->is_blind)
		return true;
	if (agent != agent_of_warp(warp))
		clock = w->committed[agent - agent_of_warp(warp) - 1] + 1;
	for (uint32_t part = 0; part < PARTS; part++) {
		const uint32_t mask = halves(a, part);

		for (uint32_t k = 0; mask && k < a->columns; k++) {
			const uint32_t column = a->column + k;
			const struct tmem_step s = {
			    a, warp, column, part, epoch_of(agent, clock, mask), err};

			is_good = touch(c, &words[part * EMU_TMEM_COLUMNS + column], &s,
					is_good);
		}
	}
	return is_good;
}

void emu_check_tmem_wait(struct emu_check *c, uint32_t warp, enum emu_async_kind kind)
{
	struct warp *w = &c->warp[warp];

	raise_clock(w->knows.seen, agent_of_async(warp, kind), ++w->committed[kind]);
}

/* Fences the warp's own work that has ended, and what it has fenced of others' work. */
void emu_check_tmem_before(struct emu_check *c, uint32_t warp)
{
	struct frontier *f = &c->warp[warp].knows;

	if (!f->before)
		return;
	for (uint32_t i = 0; i < AGENTS_PER_WARP; i++) {
		const uint32_t agent = agent_of_warp(warp) + i;

		raise_clock(f->before, agent, f->seen[agent]);
	}
	for (uint32_t i = 0; i < c->agents; i++)
		raise_clock(f->before, i, c->warp[warp].after[i]);
}

void emu_check_tmem_after(struct emu_check *c, uint32_t warp)
{
	struct warp *w = &c->warp[warp];

	if (w->knows.before)
		memcpy(w->after, w->knows.before, c->agents * sizeof(w->after[0]));
}

void emu_check_tmem_pair(struct emu_check *c, uint32_t warp, uint32_t other)
{
	const uint32_t a = agent_of_warp(warp), b = agent_of_warp(other);
	uint32_t *mine = c->warp[warp].knows.seen;
	uint32_t *yours = c->warp[other].knows.seen;

	raise_clock(mine, b, yours[b]);
	raise_clock(yours, a, mine[a]);
	mine[a] += mine[a] < MOST_CLOCK;
	yours[b] += yours[b] < MOST_CLOCK;
}

/* ---- commits ------------------------------------------------------------- */

/*
 * What a commit's arrival publishes: the warp's earlier work for the tensor core,
 * and all that the warp had waited for (what others wrote, and their fences).  What
 * the warp's own threads do is published only by their arrivals.
 */
struct emu_check_mark {
	uint32_t warp, clock;
	uint32_t clocks[]; /* seen, then fenced */
};

struct emu_check_mark *emu_check_mark(struct emu_check *c, uint32_t warp)
{
	struct warp *w = &c->warp[warp];
	const size_t bytes = c->agents * sizeof(w->knows.seen[0]);
	struct emu_check_mark *m = malloc(sizeof(*m) + 2 * bytes);

	if (!m)
		return NULL;
	m->warp = warp;
	m->clock = ++w->committed[EMU_ASYNC_WGMMA];
	memcpy(m->clocks, w->knows.seen, bytes);
	memcpy(m->clocks + c->agents, w->knows.fenced, bytes);
	return m;
}

void emu_check_mark_arrive(struct emu_check *c, const struct emu_check_mark *m,
			   uint64_t barrier)
{
	const uint32_t tensor = agent_of_async(m->warp, EMU_ASYNC_WGMMA);
	struct barrier *b = emu_check_barrier(c, barrier);
	struct frontier *f;

	if (!b)
		return;
	f = &b->sync.arrived;
	for (uint32_t i = 0; i < c->agents; i++)
		if (i < agent_of_warp(m->warp) ||
		    i >= agent_of_warp(m->warp) + AGENTS_PER_WARP) {
			raise_clock(f->seen, i, m->clocks[i]);
			raise_clock(f->fenced, i, m->clocks[c->agents + i]);
		}
	raise_clock(f->seen, tensor, m->clock);
	if (f->before)
		raise_clock(f->before, tensor, m->clock);
}
