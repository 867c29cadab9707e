/* SPDX-License-Identifier: Apache-2.0 */
/*
 * time_tcgen05.h - virtual time of tcgen05: when an SM's tensor core, its copies
 * to tensor memory and the ports of tensor memory are free, and what each of its
 * instructions costs.  Every call does nothing where the machine has no time.
 */
#ifndef EMU_MACHINE_TIME_TCGEN05_H
#define EMU_MACHINE_TIME_TCGEN05_H

#include "engine/tensor_memory.h"
#include "engine/umma.h"
#include "machine/machine.h"

#define EMU_TCGEN05_QUARTERS 4
#define EMU_TCGEN05_DEPTH    8 /* at least umma_depth of the table */

/* When each engine of an SM is free, in cycles. */
struct emu_tcgen05_pipe {
	double mma, copy;
	double begun;			   /* the last mma or copy */
	double port[EMU_TCGEN05_QUARTERS]; /* of 32 lanes */
	/* When the last operations of a quarter's warps began. */
	double queue[EMU_TCGEN05_QUARTERS][EMU_TCGEN05_DEPTH];
	uint32_t queued[EMU_TCGEN05_QUARTERS];
};

/* When what a warp has asked for has ended. */
struct emu_tcgen05_clock {
	double done;   /* mma and cp: what a commit waits for */
	double copied; /* cp: what its next mma waits for */
	double copies; /* from when on the warp's next cp can begin */
	double loaded, stored;
};

/* An mma is issued, a copy, a commit (its arrivals follow), a load or store. */
void emu_time_umma(struct emu_warp *w, const struct emu_umma *u);
void emu_time_tmem_copy(struct emu_warp *w, enum emu_tmem_copy copy,
			uint32_t ctas);
void emu_time_tmem_commit(struct emu_warp *w);
void emu_time_tmem_committed(struct emu_warp *w);
void emu_time_tmem_move(struct emu_warp *w, enum emu_tmem_shape shape,
			uint32_t registers, uint32_t column, bool is_store);
void emu_time_tmem_wait(struct emu_warp *w, bool of_stores);
/* Columns are given to a warp, or come back from it. */
void emu_time_tmem_alloc(struct emu_warp *w);

#endif
