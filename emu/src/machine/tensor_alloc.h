/* SPDX-License-Identifier: Apache-2.0 */
/* tensor_alloc.h - tcgen05.alloc, .dealloc and .relinquish_alloc_permit. */
#ifndef EMU_TENSOR_ALLOC_H
#define EMU_TENSOR_ALLOC_H

#include "machine/tensor_unit.h"

emu_run emu_run_tmem_alloc, emu_run_tmem_dealloc, emu_run_tmem_relinquish;

#endif
