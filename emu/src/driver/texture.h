/* SPDX-License-Identifier: Apache-2.0 */
/* texture.h - arrays of the driver: images that textures and surfaces read. */
#ifndef EMU_DRIVER_TEXTURE_H
#define EMU_DRIVER_TEXTURE_H

#include "driver/cuda_api.h"
#include "hardware/texture.h"

struct CUarray_st {
	struct emu_image image;
	unsigned flags;
	struct CUarray_st *next;
};

/* True for an array that exists.  The lock must be held. */
bool emu_array_is(const struct CUarray_st *array);

#endif
