/* SPDX-License-Identifier: Apache-2.0 */
/* advice.h - advice that is kept for ranges of memory. */
#ifndef EMU_ADVICE_H
#define EMU_ADVICE_H

#include "driver/state.h"

/* The memory is freed. */
void emu_advice_forget(uint64_t begin, uint64_t bytes);

#endif
