/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tensor_unit.h - the tensor memories of a cluster, the operations that wait
 * for them, and the option bits of a tcgen05 instruction.
 */
#ifndef EMU_TENSOR_UNIT_H
#define EMU_TENSOR_UNIT_H

#include "hardware/tensor_memory.h"
#include "hardware/umma.h"
#include "machine/machine.h"

/* A warp that waits for capacity, or for the other CTA of its pair. */
struct emu_tmem_request {
	struct emu_warp *warp; /* NULL: no request */
	uint32_t columns, first;
	uint64_t to; /* where the address goes */
	bool is_done;
};

struct emu_tmem_owner {
	struct emu_warp *warp;
	const struct emu_instr *instr;
};

struct emu_tensor_op;

struct emu_tensor {
	struct emu_tmem *memory[EMU_CLUSTER_MAX]; /* by rank; NULL: not used */
	struct emu_tmem_request request[EMU_CLUSTER_MAX];
	struct emu_tmem_owner owner[EMU_CLUSTER_MAX]; /* of the last alloc */
	struct emu_tensor_op **ops;		      /* in the order of issue */
	size_t count, capacity;
	uint64_t tick;
};

/* Bits of an instruction's option. */
#define EMU_TCGEN05_PAIR 0x80 /* cta_group::2 */

/* mma: bits 0-2 are the kind, bits 3-5 the number of scales of a row.  scale-input-d
 * is in offset[1]. */
#define EMU_UMMA_SCALES_SHIFT 3
#define EMU_UMMA_A_IN_TMEM    0x40
#define EMU_UMMA_KEEPS	      0x100 /* has disable-output-lane */

static inline struct emu_umma_form emu_umma_form_of(const struct emu_instr *i)
{
	return (struct emu_umma_form){
	    .kind = (enum emu_umma_kind)(i->option & 7),
	    .scales = (int)(i->option >> EMU_UMMA_SCALES_SHIFT & 7),
	    .a_in_tensor_memory = i->option & EMU_UMMA_A_IN_TMEM,
	    .ctas = i->option & EMU_TCGEN05_PAIR ? 2 : 1,
	};
}

/* commit: has a multicast mask. */
#define EMU_COMMIT_MASK 1

/* ld, st: bits 0-2 are the shape; vector is the number of registers, offset[0] the
 * split of 16x32bx2. */
#define EMU_TMEM_PACK	8  /* two columns of 16 bits a register */
#define EMU_TMEM_STORES 16 /* wait::st, not wait::ld */

/* A CTA's tensor memory; NULL after a fault (no memory). */
struct emu_tmem *emu_tmem_of(struct emu_warp *w, const struct emu_instr *i,
			     uint32_t rank);
/* Checks that the columns are allocated in a CTA; false after a fault. */
bool emu_tmem_reach(struct emu_warp *w, const struct emu_instr *i, int lane,
		    uint32_t rank, uint32_t address, uint32_t columns);

/*
 * emu_is_whole_warp() checks that no lane has exited, emu_uniform() that all lanes have
 * the same value.  False after a fault.
 */
bool emu_is_whole_warp(struct emu_warp *w, const struct emu_instr *i);
bool emu_uniform(struct emu_warp *w, const struct emu_instr *i,
		 const struct emu_value *v, const char *what, uint32_t *value);

#endif
