/* SPDX-License-Identifier: Apache-2.0 */
/*
 * texture.h - images in device memory, and what a texture unit makes of them: address
 * modes, filters and conversions, as the CUDA programming guide has them ("Texture
 * Fetching").  Weights of a linear filter have 8 fractional bits.  An image is stored
 * by rows; instructions are not known here.
 */
#ifndef EMU_TEXTURE_H
#define EMU_TEXTURE_H

#include "hardware/emu.h"

/* Numbers of the driver. */
enum emu_texel {
	EMU_TEXEL_U8 = 1,
	EMU_TEXEL_U16 = 2,
	EMU_TEXEL_U32 = 3,
	EMU_TEXEL_S8 = 8,
	EMU_TEXEL_S16 = 9,
	EMU_TEXEL_S32 = 10,
	EMU_TEXEL_F16 = 16,
	EMU_TEXEL_F32 = 32,
};

enum emu_texture_edge {
	EMU_EDGE_WRAP,
	EMU_EDGE_CLAMP,
	EMU_EDGE_MIRROR,
	EMU_EDGE_BORDER,
};

/* Bytes of a component; 0: no such format. */
uint32_t emu_texel_bytes(uint32_t format);

struct emu_image {
	uint64_t address, pitch, slice; /* bytes from row to row, and between slices */
	/* In elements.  0: the image has no such dimension. */
	uint32_t width, height, depth;
	uint32_t layers; /* 0: not layered; faces of a cube are layers */
	uint32_t format, channels;
	bool is_cube;
	bool is_linear; /* bytes of an allocation without rows */
};

/* Bytes of an element. */
static inline uint32_t emu_image_bytes(const struct emu_image *m)
{
	return emu_texel_bytes(m->format) * m->channels;
}

/* A texture object, or a surface object, which has only an image. */
struct emu_texture {
	struct emu_image image;
	uint8_t edge[3];	     /* of enum emu_texture_edge */
	bool filters, is_normalised; /* is_normalised: coordinates of 0 to 1 */
	bool reads_integers;	     /* integers of 8 and 16 bits are not scaled to 1 */
	float border[4];
	bool is_surface, is_live;
};

/* True if what is read are floats. */
bool emu_texture_has_floats(const struct emu_texture *t);

/*
 * Reads the element at an address of the image; NULL after a fault.
 */
typedef const uint8_t *emu_read_texel(void *context, uint64_t address, uint32_t bytes);

struct emu_sample {
	const struct emu_texture *texture;
	int dimensions; /* of at[] */
	float at[3];
	int32_t place[3]; /* instead of at, if is_fetch: elements */
	bool is_fetch;
	uint32_t layer;
	emu_read_texel *read;
	void *context;
};

/* Components, as bits of floats or integers.  False after a fault. */
bool emu_texture_sample(const struct emu_sample *s, uint32_t result[4]);
/* One component of the four elements that a linear filter of two dimensions reads. */
bool emu_texture_gather(const struct emu_sample *s, int component, uint32_t result[4]);
/* The face of a cube to which a direction points, and the place on it. */
uint32_t emu_texture_face(const float direction[3], float at[2]);

/* ---- objects -------------------------------------------------------------- */

struct emu_textures {
	struct emu_texture *list;
	size_t count, capacity;
};

/* A handle; 0: no memory. */
uint64_t emu_texture_add(struct emu_textures *all, const struct emu_texture *texture);
/* NULL: no object has this handle. */
struct emu_texture *emu_texture_of(const struct emu_textures *all, uint64_t handle);

#endif
