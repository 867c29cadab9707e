/* SPDX-License-Identifier: Apache-2.0 */
/* stream.h - the functions of streams that other calls need. */
#ifndef EMU_STREAM_H
#define EMU_STREAM_H

#include "driver/state.h"

bool emu_stream_is_valid(CUstream stream);
bool emu_stream_is_capturing(CUstream stream);

#endif
