/* SPDX-License-Identifier: Apache-2.0 */
/*
 * time_tcgen05.h - predicted time of tcgen05: the cost of each instruction.
 * Without predicted time every call does nothing.
 */
#ifndef EMU_MACHINE_TIME_TCGEN05_H
#define EMU_MACHINE_TIME_TCGEN05_H

#include "hardware/tensor_memory.h"
#include "hardware/umma.h"
#include "machine/machine.h"

/* Issue of an mma, a copy, a commit (its arrivals follow), and a load or store. */
void emu_time_umma(struct emu_warp *w, const struct emu_umma *u);
void emu_time_tmem_copy(struct emu_warp *w, enum emu_tmem_copy copy, uint32_t ctas);
void emu_time_tmem_commit(struct emu_warp *w);
void emu_time_tmem_committed(struct emu_warp *w);
void emu_time_tmem_move(struct emu_warp *w, enum emu_tmem_shape shape,
			uint32_t registers, uint32_t column, bool is_store);
void emu_time_tmem_wait(struct emu_warp *w, bool of_stores);
/* A warp allocates or deallocates columns. */
void emu_time_tmem_alloc(struct emu_warp *w);

#endif
