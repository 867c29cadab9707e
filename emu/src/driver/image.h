/* SPDX-License-Identifier: Apache-2.0 */
/* image.h - the PTX in the image that a program loads: a text or a fat binary. */
#ifndef EMU_IMAGE_H
#define EMU_IMAGE_H

#include "driver/cuda_api.h"
#include "machine/device.h"

/*
 * *text is the PTX of an image, to be freed: the image itself, or the newest PTX in a
 * fat binary (also in cuda_runtime's wrapper) that the device accepts.  After an
 * error err names what the image has instead.
 */
CUresult emu_image_text(const void *image, const struct emu_device *device, char **text,
			struct emu_error *err);

#endif
