/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check_state.h - the state that the parts of the checker share: check_sync.c
 * (order), check_words.c (shared memory), check_tensor.c, check_lanes.c.
 */
#ifndef EMU_CHECK_STATE_H
#define EMU_CHECK_STATE_H

#include "check/check.h"

/* ---- agents -------------------------------------------------------------- */

/*
 * An agent has a clock of its own: a warp, one of its kinds of asynchronous
 * operations, or an mbarrier.  Their numbers:
 *
 *   warp 0 | its kinds (enum emu_async_kind) | warp 1 | its kinds | ... | mbarriers
 */
#define AGENTS_PER_WARP (1 + EMU_ASYNC_KINDS)
#define MOST_AGENTS	4096
#define MOST_BARRIERS	1024 /* of a cluster of 16 CTAs */

/*
 * An epoch: an access at a value of an agent's clock, and the bytes of the word:
 * [31:20] agent, [19:4] clock, [3:0] bytes.  0: none.
 */
typedef uint32_t epoch;

#define MOST_CLOCK 0xFFFFu

static inline epoch epoch_of(uint32_t agent, uint32_t clock, uint32_t bytes)
{
	return agent << 20 | (clock < MOST_CLOCK ? clock : MOST_CLOCK) << 4 | bytes;
}

static inline uint32_t agent_of(epoch e)
{
	return e >> 20;
}

static inline uint32_t clock_of(epoch e)
{
	return e >> 4 & MOST_CLOCK;
}

/* ---- vector clocks ------------------------------------------------------- */

/*
 * Three clocks for each agent: up to which its work has been seen, up to which a
 * proxy fence has followed it, and, if the options require it, up to which a
 * tcgen05.fence::before_thread_sync has followed it.
 */
struct frontier {
	uint32_t *seen, *fenced, *before;
};

static inline bool knows(const uint32_t *clocks, epoch e)
{
	return clocks[agent_of(e)] >= clock_of(e);
}

/* What arrivals leave for the waits of a barrier. */
struct sync {
	struct frontier arrived, opened;
	/* From warps of other CTAs.  A wait of .cta scope does not acquire it. */
	struct frontier far_arrived, far_opened;
};

#define RING 64

/* A group of asynchronous operations: the lanes that started it, and the number of
 * the instruction by which they had waited for it; 0: they have not. */
struct group {
	uint32_t clock, lanes, waited;
};

struct warp {
	struct frontier knows;
	struct emu_lanes lanes;
	struct group copies[RING], stores[RING]; /* by clock */
	uint32_t cta;
	uint32_t init_clock; /* of its last fence.mbarrier_init */
	/*
	 * What preceded its last fence that releases, what preceded the last of a
	 * scope wider than the CTA, and what its relaxed waits have found.
	 * Allocated when they are needed.
	 */
	struct frontier released, far_released, found;
	uint32_t committed[EMU_ASYNC_KINDS]; /* groups */
	uint32_t marks;			     /* of cp.async: groups and arrivals */
	uint32_t marks_of_groups[RING];	     /* of the last groups */
	/* What was before its last tcgen05.fence::after_thread_sync; or NULL.
	 */
	uint32_t *after;
};

struct barrier {
	uint64_t address;
	epoch init;
	uint32_t phases; /* ended */
	struct sync sync;
};

/* ---- memory -------------------------------------------------------------- */

#define WORD_BYTES  4
#define BLOCK_WORDS 4
#define BLOCK_BYTES (BLOCK_WORDS * WORD_BYTES)
#define READERS	    9 /* so that a word's history is one cache line */

struct word {
	epoch write;
	uint32_t line : 23;	      /* of the write */
	uint32_t needs_no_fence : 1;  /* the write */
	uint32_t count : 4, next : 4; /* of reads; the one to be forgotten */
	epoch reads[READERS];
	struct emu_lane_word lanes;
};

/*
 * The histories of a CTA's shared memory.  The words of a block of 16 bytes (a
 * lane's vector, or a row of a core matrix) usually share one history.  A block
 * that is accessed in part is split until all of it is written at once.  Histories are
 * not initialised before a block is used, so that a CTA of few accesses costs little.
 */
enum block_state { BLOCK_UNUSED, BLOCK_WHOLE, BLOCK_SPLIT };

struct words {
	struct word *memory; /* that block is in */
	struct word *block;  /* by block, of whole ones */
	struct word *word;   /* by word, of split blocks */
	uint8_t *state;	     /* of enum block_state, by block */
};

struct emu_check {
	struct emu_check_options options;
	uint32_t ctas, warps, bytes; /* bytes of a CTA's shared memory */
	uint32_t agents;	     /* there is space for */
	uint32_t vectors;	     /* of a frontier */
	struct warp *warp;
	struct words *words;	 /* by CTA */
	struct tmem_word **tmem; /* by CTA, once it is used */
	uint16_t **barrier_ids;	 /* by CTA, by offset / 8; 0: none */
	struct barrier barriers[MOST_BARRIERS];
	uint32_t barrier_count;
	/* There is more than it can track.  From then on it reports nothing. */
	bool is_blind;
	struct sync *joins; /* 16 a CTA, then the cluster's */
};

static inline uint32_t agent_of_warp(uint32_t warp)
{
	return warp * AGENTS_PER_WARP;
}

static inline uint32_t agent_of_async(uint32_t warp, enum emu_async_kind kind)
{
	return warp * AGENTS_PER_WARP + 1 + (uint32_t)kind;
}

/* Frees the words of tensor memory; in check_tensor.c. */
void emu_check_tmem_close(struct emu_check *c);
/* "a wgmma of warp 3 of CTA rank 0" */
void emu_check_describe(const struct emu_check *c, uint32_t agent, char *text,
			size_t size);

static inline void raise_clock(uint32_t *clocks, uint32_t agent, uint32_t to)
{
	clocks[agent] = clocks[agent] > to ? clocks[agent] : to;
}

static inline bool is_barrier(const struct emu_check *c, uint32_t agent)
{
	return agent >= c->warps * AGENTS_PER_WARP;
}

/* True for a warp itself and for its cp.async, which write as threads do. */
static inline bool is_generic(const struct emu_check *c, uint32_t agent)
{
	return !is_barrier(c, agent) && (agent % AGENTS_PER_WARP == 0 ||
					 agent % AGENTS_PER_WARP == 1 + EMU_ASYNC_COPY);
}

/* An access to a word, as check_words.c describes it in reports. */
struct access {
	uint32_t warp;
	const char *what; /* "load of" */
	uint64_t address;
	struct emu_place place;
	struct emu_error *err;
};

/* check_lanes.c: false with a sentence if another lane of the access's warp
 * accessed the word before, and nothing orders the two. */
bool emu_check_lanes_order(const struct emu_check *c, const struct access *a,
			   const struct word *w, epoch e, bool is_write);
bool emu_check_lanes_store(const struct emu_check *c, const struct access *a,
			   epoch read);
/* A cp.async or a bulk store is in its group. */
void emu_check_lanes_begin(struct emu_check *c, uint32_t warp, enum emu_async_kind kind,
			   uint32_t clock, uint32_t lanes);
/* Its groups first .. end - 1 have been waited for by wait_group. */
void emu_check_lanes_waited(struct emu_check *c, uint32_t warp,
			    enum emu_async_kind kind, uint32_t first, uint32_t end,
			    uint32_t now);

/*
 * The slot of the barrier number for address; NULL outside shared memory.
 */
uint16_t *emu_check_id_at(const struct emu_check *c, uint64_t address);
/* The barrier initialised at address; NULL: none. */
struct barrier *emu_check_barrier(struct emu_check *c, uint64_t address);
/* False with err if its init does not happen before what warp does now. */
bool emu_check_is_ready(const struct emu_check *c, uint32_t warp,
			const struct barrier *b, struct emu_error *err);

#endif
