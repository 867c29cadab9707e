/* SPDX-License-Identifier: Apache-2.0 */
/* memory.h - what cudaMemset3D does, for which CUDA's driver has no function. */
#ifndef EMU_DRIVER_MEMORY_H
#define EMU_DRIVER_MEMORY_H

#include <stdbool.h>

#include "driver/cuda_api.h"

/* extent: bytes of a row, rows of a slice, slices. */
CUresult emu_memset_3d(CUdeviceptr to, size_t pitch, size_t rows_of_slice,
		       unsigned char value, const size_t extent[3], CUstream stream,
		       bool waits);

#endif
