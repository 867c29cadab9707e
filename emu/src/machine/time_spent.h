/* SPDX-License-Identifier: Apache-2.0 */
/* time_spent.h - categories of the cycles of a warp. */
#ifndef EMU_MACHINE_TIME_SPENT_H
#define EMU_MACHINE_TIME_SPENT_H

/* What a warp spends its cycles on. */
enum emu_spent {
	EMU_SPENT_ISSUE,
	EMU_SPENT_PIPE,	    /* waits for an issue slot or a pipe */
	EMU_SPENT_OPERANDS, /* for arithmetic and shared memory */
	EMU_SPENT_LOADS,    /* of global memory */
	EMU_SPENT_MBARRIER, /* for copies and other warps */
	EMU_SPENT_BARRIER,  /* bar.sync, the cluster's */
	EMU_SPENT_TENSOR,   /* wgmma.wait_group */
	EMU_SPENT_COPIES,   /* cp.async.wait_group, bulk groups */
	EMU_SPENT_GRID,	    /* griddepcontrol.wait */
	EMU_SPENT_FENCE,    /* for stores to be seen */
	EMU_SPENT_TCGEN05,  /* its queue, tensor memory */
	EMU_SPENTS,
};

/* An interval of a row that is not written yet, because it may be extended. */
struct emu_stretch {
	double from, to; /* cycles; to 0: nothing */
	int kind;
};

#endif
