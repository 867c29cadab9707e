/* SPDX-License-Identifier: Apache-2.0 */
/*
 * order_state.h - the state that the parts of the checker of global memory share:
 * order_sync.c (what warps have seen) and order_words.c (the words that they access).
 */
#ifndef EMU_ORDER_STATE_H
#define EMU_ORDER_STATE_H

#include "check/order.h"

/* What a warp has seen from a value of its clock on: a clock for each agent. */
struct acquisition {
	uint32_t clock;
	uint32_t grids;	  /* grids below this index have ended */
	uint32_t *clocks; /* by agent; NULL: none */
};

/* What a warp of the run has seen; each warp is an agent. */
struct agent {
	struct acquisition *acquired;
	size_t count, capacity;
	uint32_t *fenced;  /* what a later relaxed write publishes */
	uint32_t *pending; /* what relaxed reads found, for a fence */
	/* When bulk groups had been waited for: clock + 1; 0: not yet. */
	uint32_t *stored;
	size_t n_stored, stored_capacity;
	/* The last address that it acquired, so that polling costs nothing. */
	uint64_t polled;
	uint32_t polled_version;
};

struct emu_order {
	uint32_t grids;
	uint32_t *first;    /* agent, by grid; then how many there are */
	uint32_t *warps;    /* of a cluster, by grid */
	struct agent *list; /* by agent */
	struct sync *syncs; /* open addressing */
	size_t n_syncs, sync_capacity;
	struct table {
		struct page **pages; /* open addressing, by number */
		size_t count, capacity;
		bool is_short; /* there were too many */
		/* Memory of words; the last block has `left` bytes of it at next. */
		struct block {
			void *memory;
			uint8_t *next;
			size_t left;
		} * blocks;
		size_t n_blocks, blocks_capacity;
	} tables[EMU_ORDER_TABLES]; /* by number */
	uint32_t page_shift;
	size_t most_pages; /* of a table */
	/* Tracks one cluster after another; forgets pages when there are too many. */
	bool is_of_cluster;
	struct page *spare; /* cleared when they are used */
	struct page *last;  /* of a cluster: the page that was used last */
};

/* What was released at an address. */
struct sync {
	uint64_t address; /* 0: none */
	uint32_t *wide, *near;
	uint32_t near_cluster; /* + 1, of the run */
	uint32_t version;
};

#define MOST_AGENTS (1u << 23)

/* ---- words --------------------------------------------------------------- */

#define WORD_BYTES 4
#define READERS	   3

/* An epoch: a value of an agent's clock, and the bytes of the access. */
struct touch {
	uint32_t agent : 24; /* + 1; 0: none */
	uint32_t bytes : 4, kind : 4;
	uint32_t clock; /* of STORE: its group */
};

/* There are many of them, so each has only 56 bytes. */
struct word {
	struct touch write, reads[READERS];
	uint32_t line : 30; /* of the write */
	uint32_t next : 2;  /* reader to be forgotten */
	struct emu_lane_word lanes;
};

#define LINE_WORDS 32
#define LINE_BYTES (LINE_WORDS * WORD_BYTES)
/* Bytes of a page of words: 4096, and for one cluster 256, because its pages are
 * cleared for each cluster. */
#define PAGE_SHIFT	   12
#define CLUSTER_PAGE_SHIFT 8
#define CLUSTER_LINES	   ((1 << CLUSTER_PAGE_SHIFT) / LINE_BYTES)

/*
 * Words that only whole rows of one warp have accessed, so that each lane has its own
 * ones, share a history.  Any other access splits the line.  Only the order of one
 * cluster has lines.
 */
struct line {
	uint8_t width; /* words of a lane; 0: no access yet */
	uint8_t first; /* lane of the first word */
	bool is_split; /* its words have their histories */
	struct touch write, read;
	uint32_t write_line, write_instruction, read_line, read_instruction;
};

struct page {
	uint64_t number;
	struct page *next; /* spare */
	bool is_written;
	bool is_in_block; /* its words, of the table */
	struct line lines[CLUSTER_LINES];
	struct word *words; /* of one cluster: NULL until a line is split */
};

/* ---- what the parts call ------------------------------------------------- */

static inline uint32_t emu_order_agent(const struct emu_order *o,
				       const struct emu_order_warp *w)
{
	return o->first[w->grid] + w->cluster * o->warps[w->grid] + w->warp;
}

uint32_t emu_order_grid_of(const struct emu_order *o, uint32_t agent);
/* True if w has seen what an agent did up to a value of its clock. */
bool emu_order_knows(const struct emu_order *o, const struct emu_order_warp *w,
		     uint32_t agent, uint32_t clock);

/* Zeros, which emu_order_free_pages() frees; NULL: no memory. */
void *emu_order_take(struct table *t, size_t bytes);
/* Makes all pages of words spare, and frees spare ones. */
void emu_order_forget_pages(struct emu_order *o);
void emu_order_free_pages(struct emu_order *o);

#endif
