/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tensor_map.h - what cuTensorMapEncodeTiled checks and encodes, and the pieces of
 * a copy of a box.
 */
#ifndef EMU_TENSOR_MAP_H
#define EMU_TENSOR_MAP_H

#include "hardware/emu.h"

#define EMU_TENSOR_RANK	     5
#define EMU_TENSOR_MAP_BYTES 128
#define EMU_TENSOR_PIECE     16
#define EMU_TENSOR_BOX_ALIGN 128 /* of a box in shared memory */

/* The numbers of cuda.h. */
enum emu_tensor_type {
	EMU_TENSOR_U8,
	EMU_TENSOR_U16,
	EMU_TENSOR_U32,
	EMU_TENSOR_S32,
	EMU_TENSOR_U64,
	EMU_TENSOR_S64,
	EMU_TENSOR_F16,
	EMU_TENSOR_F32,
	EMU_TENSOR_F64,
	EMU_TENSOR_BF16,
	EMU_TENSOR_F32_FTZ,
	EMU_TENSOR_TF32,
	EMU_TENSOR_TF32_FTZ,
	EMU_TENSOR_16U4_ALIGN8B,
	EMU_TENSOR_16U4_ALIGN16B,
	EMU_TENSOR_16U6_ALIGN16B,
};

enum emu_tensor_interleave {
	EMU_TENSOR_INTERLEAVE_NONE,
	EMU_TENSOR_INTERLEAVE_16B,
	EMU_TENSOR_INTERLEAVE_32B,
};

enum emu_tensor_swizzle {
	EMU_TENSOR_SWIZZLE_NONE,
	EMU_TENSOR_SWIZZLE_32B,
	EMU_TENSOR_SWIZZLE_64B,
	EMU_TENSOR_SWIZZLE_128B,
	EMU_TENSOR_SWIZZLE_128B_ATOM_32B,
	EMU_TENSOR_SWIZZLE_128B_ATOM_32B_FLIP_8B,
	EMU_TENSOR_SWIZZLE_128B_ATOM_64B,
};

/* The arguments of cuTensorMapEncodeTiled; sizes in elements. */
struct emu_tensor_map {
	uint64_t address;
	uint64_t sizes[EMU_TENSOR_RANK];
	uint64_t strides_bytes[EMU_TENSOR_RANK - 1]; /* of dimension 1 on */
	uint32_t box[EMU_TENSOR_RANK];
	uint32_t element_strides[EMU_TENSOR_RANK];
	int type, rank, interleave, swizzle, l2_promotion, fill;
};

/*
 * Checks every rule that cuda.h documents, and one of an H200's driver:
 * elementStrides[0] is 1 to 8 also where it is not used.  err names the argument
 * and its value.
 */
bool emu_tensor_map_check(const struct emu_tensor_map *map, struct emu_error *err);
/* Checks what needs compute capability 10.0 or higher. */
bool emu_tensor_map_check_device(const struct emu_tensor_map *map, int major,
				 struct emu_error *err);

/* Encodes a map that was checked in its 128 opaque bytes. */
void emu_tensor_map_encode(const struct emu_tensor_map *map, void *opaque);

/* What tensormap.replace can change; those from RANK on have no ordinal. */
enum emu_tensor_field {
	EMU_TENSOR_FIELD_ADDRESS,
	EMU_TENSOR_FIELD_RANK,
	EMU_TENSOR_FIELD_BOX,
	EMU_TENSOR_FIELD_SIZE,
	EMU_TENSOR_FIELD_STRIDE,
	EMU_TENSOR_FIELD_ELEMENT_STRIDE,
	EMU_TENSOR_FIELD_TYPE,
	EMU_TENSOR_FIELD_INTERLEAVE,
	EMU_TENSOR_FIELD_SWIZZLE,
	EMU_TENSOR_FIELD_ATOMICITY,
	EMU_TENSOR_FIELD_FILL,
};

/*
 * Changes a field of the 128 bytes to a value of tensormap.replace (rank and types
 * in the PTX ISA's numbers).  128 zeros are a map without fields.  False with err if
 * the bytes are no map, or if no map can have the value.  Whether the fields fit each
 * other is checked when the map is used.
 */
bool emu_tensor_map_replace(void *opaque, enum emu_tensor_field field, int ordinal,
			    uint64_t value, struct emu_error *err);

/*
 * Back again, for a copy.  False with err where the bytes are no map (one that
 * was changed in place, say), or one whose copies are not modelled: interleaved
 * layouts, swizzles of atoms of 64 bytes or with flipped halves, a row of the
 * box narrower than the swizzle, the NaN fill.
 */
bool emu_tensor_map_decode(const void *opaque, struct emu_tensor_map *map,
			   struct emu_error *err);

/*
 * Says why a GPU refuses a box at these coordinates (an illegal instruction);
 * NULL: it takes it.  Along a row the box begins at a multiple of 16 bytes,
 * also outside of the tensor; a box that is stored begins at no negative
 * coordinate.
 */
const char *emu_tensor_map_refuses(const struct emu_tensor_map *map,
				   const int32_t *coordinates, bool is_store);

/* Bytes of shared memory that a box takes. */
uint32_t emu_tensor_map_box_bytes(const struct emu_tensor_map *map);
/*
 * Bytes that complete_tx counts for a box: those of its elements, also outside
 * of the tensor, without the padding of packed types that are aligned to 16
 * bytes.  Sources: what DeepGEMM's fp8 x fp4 kernels and CUTLASS's
 * sizeof_bits<float_e2m1_unpacksmem_t> expect on a B200.
 */
uint32_t emu_tensor_map_tx_bytes(const struct emu_tensor_map *map);

/*
 * 16 bytes of a box: at shared_offset from the box's begin, swizzle included.
 * inside_bytes of them, from skip_bytes on, are the tensor's bytes at address;
 * the others lie outside and are zeros in a load.  A store writes stored_bytes:
 * all 16 if one is inside, also those past the end of the row; nothing if none is.
 * In packed types that are aligned to 16 bytes the first 8 bytes (elements of 4
 * bits) or 12 (of 6 bits) are the tensor's; the others are padding, which a
 * load makes zero.
 */
struct emu_tensor_piece {
	uint64_t address;
	uint32_t shared_offset;
	uint32_t skip_bytes, inside_bytes, stored_bytes;
};

/* Whether elements are rounded to TF32 as they are loaded (not stored). */
bool emu_tensor_map_rounds(const struct emu_tensor_map *map);
/* Rounds to nearest even; every NaN becomes the same one. */
void emu_tensor_round_tf32(uint8_t *elements, uint32_t bytes);

/* Pieces of a box, and piece i of the box at coordinates. */
uint32_t emu_tensor_map_pieces(const struct emu_tensor_map *map);
void emu_tensor_map_piece(const struct emu_tensor_map *map, const int32_t *coordinates,
			  uint32_t shared_address, uint32_t i,
			  struct emu_tensor_piece *piece);

#endif
