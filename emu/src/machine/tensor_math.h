/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tensor_math.h - one tcgen05.mma: its operands, as the issuing thread gives them,
 * and its execution.  It reads shared and tensor memory, computes the sums of
 * tensor_core.h or block_sums.h, and writes tensor memory.
 */
#ifndef EMU_TENSOR_MATH_H
#define EMU_TENSOR_MATH_H

#include "machine/tensor_unit.h"

struct emu_umma_work {
	struct emu_umma umma;
	struct emu_umma_matrix a_matrix, b_matrix;
	uint32_t a, d, sfa, sfb; /* tensor memory */
	bool accumulates;
	int d_shift; /* scale-input-d: D is first divided by 2^d_shift */
	/* disable-output-lane: a bit for each lane that D keeps, 128 of each CTA. */
	uint32_t kept_lanes[8];
};

/* Decodes and checks the operands of a lane, and reports them to the checker.
 * False after a fault. */
bool emu_umma_take(struct emu_warp *w, const struct emu_instr *i, int lane,
		   struct emu_umma_work *work);
/* D is in this lane of tensor memory. */
bool emu_umma_has_lane(const struct emu_umma_work *work, int lane);
bool emu_umma_run(struct emu_warp *w, const struct emu_instr *i,
		  const struct emu_umma_work *work);

#endif
