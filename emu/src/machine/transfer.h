/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transfer.h - asynchronous copies in flight: pieces that arrive late and in any
 * order, and what happens after the last one.  With seed 0 a copy completes when it
 * is issued.  Otherwise its source is read and its bytes arrive at random times, at
 * the latest at the wait that must see them.
 */
#ifndef EMU_TRANSFER_H
#define EMU_TRANSFER_H

#include "hardware/reduction.h"
#include "machine/machine.h"

enum emu_transfer_kind {
	EMU_CP_ASYNC,	/* of threads; groups by lane */
	EMU_CP_ARRIVE,	/* arrival at a barrier, after a thread's cp.async */
	EMU_BULK_LOAD,	/* to shared memory, bytes counted at a barrier */
	EMU_BULK_STORE, /* from shared memory; groups by lane */
};

#define EMU_PIECE_MOST 64 /* bytes */

struct emu_piece {
	const uint8_t *from, *from_shadow;
	uint8_t *to, *to_shadow;
	uint32_t bytes, copied; /* the rest becomes zero */
	uint32_t group;
	uint8_t lane;
	bool is_done;
	bool is_kept; /* its source has been read: from is a copy */
	bool is_tf32; /* rounded as it lands */
};

struct emu_transfer {
	enum emu_transfer_kind kind;
	struct emu_warp *warp;
	const struct emu_instr *instr;
	struct emu_piece *pieces;
	size_t n_pieces, capacity, left;
	uint64_t due;
	uint32_t lanes;	  /* of the pieces, or that arrive */
	uint64_t barrier; /* shared::cluster address; BULK_LOAD, CP_ARRIVE */
	uint64_t barriers[EMU_LANES]; /* CP_ARRIVE: one a lane */
	uint32_t tx_bytes;
	uint8_t inline_bytes[16]; /* a source that is in no memory */
	uint32_t mark;		  /* CP_ARRIVE: the checker's, of what came before */
	uint8_t *kept;		  /* copies of sources, and of their states */
	/* BULK_STORE that reduces: several to one address may be in flight. */
	bool reduces;
	struct emu_reduction reduction;
};

struct emu_transfers {
	struct emu_transfer **list; /* in the order of issue */
	size_t count, capacity;
	uint64_t tick;
};

/* NULL after a fault (no memory). */
struct emu_transfer *emu_transfer_new(struct emu_warp *w, const struct emu_instr *i,
				      enum emu_transfer_kind kind);
/*
 * Adds a piece and marks its destination as LANDING.  False after a fault: two
 * copies write the same bytes.
 */
bool emu_transfer_add(struct emu_transfer *t, const struct emu_piece *piece);
/*
 * A copy to a CTA's shared memory, whose bytes the barrier there counts.  NULL
 * after a fault.
 */
struct emu_transfer *emu_transfer_new_load(struct emu_warp *w,
					   const struct emu_instr *i, int lane,
					   uint64_t to, uint32_t bytes,
					   uint64_t barrier);
/*
 * A store to global memory.  operation: 0 for a plain store; otherwise 1 + the enum
 * emu_reduction_operation by which it reduces.  NULL after a fault.
 */
struct emu_transfer *emu_transfer_new_store(struct emu_warp *w,
					    const struct emu_instr *i,
					    uint32_t operation,
					    enum emu_reduction_type type);
/*
 * The CTAs of a multicast, from the lane's operand; false after a fault: the
 * cluster lacks one of them.
 */
bool emu_transfer_mask(struct emu_warp *w, const struct emu_instr *i, int lane,
		       const struct emu_value *operand, uint32_t *mask);
/* The same offset in another CTA. */
uint64_t emu_at_rank(uint64_t address, uint64_t rank);
/* Discards it after a fault. */
void emu_transfer_drop(struct emu_transfer *t);
/* Issues it; with seed 0 it also completes. */
void emu_transfer_issue(struct emu_transfer *t);
/*
 * Issues it with one piece, whose bytes (16 at most) are `value` instead of memory.
 * False after a fault, which also discards it.
 */
bool emu_transfer_send(struct emu_transfer *t, const void *value,
		       struct emu_piece *piece);

/*
 * Lands the pieces of the lanes, except those of their newest groups.  With is_read
 * it only reads their sources, and the bytes may land later.
 */
void emu_transfers_wait(struct emu_warp *w, enum emu_transfer_kind kind, uint32_t lanes,
			uint32_t newest, bool is_read);

/* Lets time pass, so that some pieces land.  False if nothing is in flight. */
bool emu_transfers_step(struct emu_cluster *c, bool is_idle);
/* False with a fault if a copy is still in flight at the end. */
bool emu_transfers_end(struct emu_cluster *c);

/* Counts an arrival, or bytes, at a barrier, and wakes the warps that wait.  False
 * after a fault. */
bool emu_arrive_at(struct emu_warp *w, const struct emu_instr *i, int lane,
		   uint64_t barrier, uint32_t arrivals, uint32_t tx_bytes);
/* The 64 bits of a barrier; NULL after a fault. */
uint64_t *emu_barrier_at(struct emu_warp *w, const struct emu_instr *i, int lane,
			 uint64_t address);

#endif
