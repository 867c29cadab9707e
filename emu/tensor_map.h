/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tensor_map.h - what cuTensorMapEncodeTiled checks and makes, and the pieces
 * that a copy of a box consists of.
 */
#ifndef EMU_TENSOR_MAP_H
#define EMU_TENSOR_MAP_H

#include "emu.h"

#define EMU_TENSOR_RANK 5

struct emu_tensor_map {
	uint64_t address;
	uint64_t sizes[EMU_TENSOR_RANK];
	uint64_t strides_bytes[EMU_TENSOR_RANK]; /* [0]: the element's size */
	uint32_t box[EMU_TENSOR_RANK];
	uint32_t element_strides[EMU_TENSOR_RANK];
	uint32_t element_bytes;
	int type, rank, interleave, swizzle, l2_promotion, fill;
};

/* All documented rules; the values are those of cuda.h. */
bool emu_tensor_map_check(const struct emu_tensor_map *map,
			  struct emu_error *err);

/* To and from the 128 opaque bytes; decode: false where they are no map. */
void emu_tensor_map_encode(const struct emu_tensor_map *map, void *opaque);
bool emu_tensor_map_decode(const void *opaque, struct emu_tensor_map *map,
			   struct emu_error *err);

/* Bytes of a box, which complete_tx counts even where it is outside. */
uint32_t emu_tensor_map_box_bytes(const struct emu_tensor_map *map);

/*
 * Piece i of a box at coordinates: 16 bytes (or the last of a row) at
 * shared_offset from the box's begin, swizzle included, from address; outside:
 * zeros (or the fill's NaN) and nothing is read.
 */
struct emu_tensor_piece {
	uint64_t address;
	uint32_t shared_offset;
	uint32_t bytes;	       /* at most 16 */
	uint32_t inside_bytes; /* the first of them that exist */
};
uint32_t emu_tensor_map_pieces(const struct emu_tensor_map *map);
void emu_tensor_map_piece(const struct emu_tensor_map *map,
			  const int32_t *coordinates, uint32_t shared_address,
			  uint32_t i, struct emu_tensor_piece *piece);

#endif
