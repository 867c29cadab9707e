/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pool.h - pools of memory.  They are settings and sums: freed memory returns to the
 * device at once, so that a pool keeps none.
 */
#ifndef EMU_POOL_H
#define EMU_POOL_H

#include "driver/state.h"

/* The lock must be held, but for emu_pool_current. */
bool emu_pool_is_valid(const struct CUmemPoolHandle_st *pool);
CUmemoryPool emu_pool_current(void);
CUresult emu_pool_alloc(CUmemoryPool pool, CUdeviceptr *pointer, size_t bytes);
/* Memory was freed; it need not be of a pool. */
void emu_pool_forget(CUdeviceptr pointer);

#endif
