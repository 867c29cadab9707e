/* SPDX-License-Identifier: Apache-2.0 */
/* tensor_cases.c - see tensor_cases.h. */
#include "tensor_cases.h"

#include <string.h>

static uint64_t mixed(uint64_t x)
{
	x = (x ^ x >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
	x = (x ^ x >> 27) * UINT64_C(0x94D049BB133111EB);
	return x ^ x >> 31;
}

static uint32_t below(uint64_t *state, uint32_t n)
{
	*state += UINT64_C(0x9E3779B97F4A7C15);
	return (uint32_t)((mixed(*state) >> 32) * n >> 32);
}

uint8_t tensor_global_byte(uint32_t at)
{
	return (uint8_t)mixed(at + UINT64_C(0x9E3779B97F4A7C15));
}

uint8_t tensor_shared_byte(uint32_t at)
{
	return (uint8_t)mixed(at + UINT64_C(0x123456789ABCDEF));
}

/* ---- maps ---------------------------------------------------------------- */

/* Types up to TF32, by their bits. */
static uint32_t bits_of(int type)
{
	static const uint8_t bits[] = {8,  16, 32, 32, 64, 64, 16,
				       32, 64, 16, 32, 32, 32, 4};

	return bits[type];
}

/* A map that may be too large. */
static void try_map(struct emu_tensor_map *map, bool is_store, uint64_t *state)
{
	uint64_t row;

	memset(map, 0, sizeof(*map));
	map->type = (int)below(state, EMU_TENSOR_16U4_ALIGN8B);
	map->rank = 1 + (int)below(state, 5);
	map->swizzle = (int)below(state, 4);
	map->address = 16 * below(state, 16);
	map->sizes[0] = 1 + below(state, 300);
	map->box[0] =
	    (map->swizzle ? 16u << map->swizzle : 16 + 16 * below(state, 10)) * 8 /
	    bits_of(map->type);
	row = (map->sizes[0] * bits_of(map->type) / 8 + 15) / 16 * 16;
	for (int i = 0; i < EMU_TENSOR_RANK; i++) {
		map->element_strides[i] = i == 0 || is_store ? 1 : 1 + below(state, 3);
		if (i == 0 || i >= map->rank)
			continue;
		map->strides_bytes[i - 1] = row + 16 * below(state, 3);
		map->sizes[i] = 1 + below(state, 12);
		map->box[i] = 1 + below(state, 9);
		row = map->strides_bytes[i - 1] * map->sizes[i];
	}
}

static bool fits(const struct emu_tensor_map *map)
{
	uint64_t row = map->sizes[0] * 8;

	if (map->rank > 1)
		row = map->strides_bytes[map->rank - 2] * map->sizes[map->rank - 1];
	return map->box[0] <= 256 && map->address + row <= TENSOR_BYTES &&
	       emu_tensor_map_box_bytes(map) <= TENSOR_SHARED - 1024;
}

void tensor_case_make(struct tensor_case *made, bool is_store, int index)
{
	uint64_t state = (uint64_t)(2 * index + is_store) << 32;

	do
		try_map(&made->map, is_store, &state);
	while (!fits(&made->map));
	memset(made->coordinates, 0, sizeof(made->coordinates));
	made->begin = 128 * below(&state, 8);
	/* One coordinate in four may be outside. */
	for (int i = 0; i < made->map.rank; i++) {
		const uint32_t size = (uint32_t)made->map.sizes[i];

		made->coordinates[i] = below(&state, 4)
					   ? (int32_t)below(&state, size)
					   : (int32_t)below(&state, size + 12) - 6;
	}
	/* A GPU accepts coordinates along a row that give multiples of 16 bytes. */
	if (below(&state, 16))
		made->coordinates[0] &= ~(128 / (int)bits_of(made->map.type) - 1);
}

/* ---- the model ----------------------------------------------------------- */

void tensor_case_load(const struct tensor_case *asked, const uint8_t *global,
		      uint8_t *shared)
{
	for (uint32_t i = 0; i < emu_tensor_map_pieces(&asked->map); i++) {
		struct emu_tensor_piece p;
		uint8_t *to;

		emu_tensor_map_piece(&asked->map, asked->coordinates, asked->begin, i,
				     &p);
		to = shared + asked->begin + p.shared_offset;
		memset(to, 0, EMU_TENSOR_PIECE);
		if (p.inside_bytes)
			memcpy(to + p.skip_bytes, global + p.address, p.inside_bytes);
		if (emu_tensor_map_rounds(&asked->map))
			emu_tensor_round_tf32(to, EMU_TENSOR_PIECE);
	}
}

void tensor_case_store(const struct tensor_case *asked, uint8_t *global,
		       const uint8_t *shared)
{
	for (uint32_t i = 0; i < emu_tensor_map_pieces(&asked->map); i++) {
		struct emu_tensor_piece p;

		emu_tensor_map_piece(&asked->map, asked->coordinates, asked->begin, i,
				     &p);
		if (p.stored_bytes)
			memcpy(global + p.address,
			       shared + asked->begin + p.shared_offset + p.skip_bytes,
			       p.stored_bytes);
	}
}

uint64_t tensor_hash(const uint8_t *bytes, uint32_t count)
{
	uint64_t hash = UINT64_C(0xCBF29CE484222325);

	for (uint32_t i = 0; i < count; i++)
		hash = (hash ^ bytes[i]) * UINT64_C(0x100000001B3);
	return hash;
}

/* ---- rules --------------------------------------------------------------- */

/* Changes one thing, near what a rule allows. */
static void bend(struct emu_tensor_map *map, uint64_t *state)
{
	const int i = (int)below(state, (uint32_t)map->rank);

	switch (below(state, 12)) {
	case 0:
		map->address += 1u << below(state, 6);
		break;
	case 1:
		map->sizes[i] =
		    below(state, 2) ? 0 : (UINT64_C(1) << 32) + below(state, 2);
		break;
	case 2:
		map->strides_bytes[below(state, EMU_TENSOR_RANK - 1)] +=
		    1u << below(state, 6);
		break;
	case 3:
		map->strides_bytes[0] = (UINT64_C(1) << 40) - 16 * below(state, 2);
		break;
	case 4:
		map->box[i] = below(state, 2) ? 0 : 256 + below(state, 2);
		break;
	case 5:
		map->box[0] += 1 + below(state, 16);
		break;
	case 6:
		map->element_strides[i] = below(state, 2) * 8 + below(state, 2);
		break;
	case 7:
		map->swizzle = (int)below(state, 5);
		break;
	case 8:
		map->fill = 1;
		break;
	case 9:
		map->interleave = (int)below(state, 3);
		break;
	case 10:
		map->l2_promotion = (int)below(state, 5);
		break;
	default:
		break; /* keeps all rules */
	}
}

void tensor_rule_make(struct emu_tensor_map *made, int index, uint64_t base)
{
	uint64_t state = (uint64_t)(index + 1000) << 32;

	do
		try_map(made, false, &state);
	while (!fits(made));
	made->address += base;
	bend(made, &state);
}
