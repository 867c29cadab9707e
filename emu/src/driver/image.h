/* SPDX-License-Identifier: Apache-2.0 */
/* image.h - the PTX of what a program loads: a text, or one in a fat binary. */
#ifndef EMU_IMAGE_H
#define EMU_IMAGE_H

#include "driver/cuda_api.h"
#include "machine/device.h"

/*
 * *text is the PTX of an image, to be freed: the image itself, or of a fat
 * binary (cuda_runtime's wrapper around it, too) the newest PTX that the device
 * takes.  An error says in err what the image holds instead.
 */
CUresult emu_image_text(const void *image, const struct emu_device *device, char **text,
			struct emu_error *err);

#endif
