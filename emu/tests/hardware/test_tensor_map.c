/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_tensor_map.c - tensor maps of the software GPU: maps that break a rule of
 * cuda.h are refused by name, and boxes are compared with a plain loop over their
 * elements.
 */
#include <stdlib.h>
#include <string.h>

#include "common/data.h"
#include "common/unit.h"
#include "common/verdict.h"
#include "hardware/tensor_map.h"

static struct rng rng;
static struct emu_error err;

static int setup(void **state)
{
	rng = rng_new(test_seed());
	return 0;
}

/* fp16 [3][20][100], boxes of [2][8][64], swizzled. */
static struct emu_tensor_map good_map(void)
{
	return (struct emu_tensor_map){
	    .address = 0x10000,
	    .sizes = {100, 20, 3},
	    .strides_bytes = {208, 208 * 20},
	    .box = {64, 8, 2},
	    .element_strides = {1, 1, 1},
	    .type = EMU_TENSOR_F16,
	    .rank = 3,
	    .swizzle = EMU_TENSOR_SWIZZLE_128B,
	    .l2_promotion = 3,
	};
}

/* ---- rules --------------------------------------------------------------- */

static void refused(const struct emu_tensor_map *map, const char *text)
{
	BAD(emu_tensor_map_check(map, &err), text);
}

static void taken(const struct emu_tensor_map *map)
{
	GOOD(emu_tensor_map_check(map, &err));
}

/* The good map with one member changed is refused with this text. */
#define REFUSED(member, value, text)                                                   \
	do {                                                                           \
		struct emu_tensor_map changed = good_map();                            \
		changed.member = value;                                                \
		refused(&changed, text);                                               \
	} while (0)

#define TAKEN(member, value)                                                           \
	do {                                                                           \
		struct emu_tensor_map changed = good_map();                            \
		changed.member = value;                                                \
		taken(&changed);                                                       \
	} while (0)

static void rules_of_one_argument(void **state)
{
	TAKEN(rank, 3);
	REFUSED(type, 16, "tensorDataType = 16: must be 0 to 15");
	REFUSED(type, -1, "tensorDataType = -1");
	REFUSED(interleave, 3, "interleave = 3");
	REFUSED(swizzle, 7, "swizzle = 7");
	REFUSED(l2_promotion, 4, "l2Promotion = 4");
	REFUSED(fill, 2, "oobFill = 2");
	TAKEN(fill, 1);
	REFUSED(rank, 0, "tensorRank = 0: must be 1 to 5");
	REFUSED(rank, 6, "tensorRank = 6");
	REFUSED(address, 0x10008, "globalAddress = 0x10008: must be 16-byte");
	REFUSED(sizes[2], 0, "globalDim[2] = 0: must be 1 to 2^32");
	REFUSED(sizes[1], (UINT64_C(1) << 32) + 1, "globalDim[1] = 4294967297");
	TAKEN(sizes[1], UINT64_C(1) << 32);
	REFUSED(strides_bytes[0], 216, "globalStrides[0] = 216: must be a mul");
	REFUSED(strides_bytes[1], UINT64_C(1) << 40, "globalStrides[1] = ");
	TAKEN(strides_bytes[1], (UINT64_C(1) << 40) - 16);
	REFUSED(box[1], 0, "boxDim[1] = 0: must be 1 to 256");
	REFUSED(box[2], 257, "boxDim[2] = 257");
	TAKEN(box[2], 256);
	REFUSED(box[0], 60, "must be a multiple of 16 bytes");
	REFUSED(box[0], 72, "its 144 bytes must be at most the 128");
	REFUSED(element_strides[1], 0, "elementStrides[1] = 0: must be 1 to 8");
	REFUSED(element_strides[2], 9, "elementStrides[2] = 9");
	REFUSED(element_strides[0], 9, "elementStrides[0] = 9");
	TAKEN(element_strides[0], 8);
}

static void rules_of_swizzles(void **state)
{
	struct emu_tensor_map map = good_map();

	REFUSED(swizzle, EMU_TENSOR_SWIZZLE_64B, "at most the 64 of");
	REFUSED(swizzle, EMU_TENSOR_SWIZZLE_32B, "at most the 32 of");
	TAKEN(swizzle, EMU_TENSOR_SWIZZLE_NONE);
	TAKEN(swizzle, EMU_TENSOR_SWIZZLE_128B_ATOM_64B);
	assert_true(emu_tensor_map_check_device(&map, 9, &err));
	map.swizzle = EMU_TENSOR_SWIZZLE_128B_ATOM_32B;
	assert_true(emu_tensor_map_check_device(&map, 10, &err));
	assert_false(emu_tensor_map_check_device(&map, 9, &err));
	assert_non_null(strstr(err.text, "swizzle = 4: must be 0 to 3"));
	map.box[0] = 16;
	map.swizzle = EMU_TENSOR_SWIZZLE_32B;
	taken(&map);
	map.swizzle = EMU_TENSOR_SWIZZLE_NONE;
	map.box[0] = 256;
	taken(&map);
}

static void rules_of_interleaved_layouts(void **state)
{
	struct emu_tensor_map map = good_map();

	map.interleave = EMU_TENSOR_INTERLEAVE_16B;
	taken(&map);
	map.element_strides[0] = 9;
	refused(&map, "elementStrides[0] = 9");
	map.element_strides[0] = 1;
	map.rank = 2;
	refused(&map, "tensorRank = 2: must be 3 or more");
	map.rank = 3;
	map.interleave = EMU_TENSOR_INTERLEAVE_32B;
	refused(&map, "swizzle = 3: must be 32B");
	map.swizzle = EMU_TENSOR_SWIZZLE_32B;
	refused(&map, "globalStrides[0] = 208: must be a multiple of 32");
	map.strides_bytes[0] = 224;
	map.strides_bytes[1] = 224 * 20;
	taken(&map);
	map.address += 16;
	refused(&map, "must be 32-byte aligned");
}

static void rules_of_packed_types(void **state)
{
	struct emu_tensor_map map = good_map();

	REFUSED(type, EMU_TENSOR_16U4_ALIGN16B,
		"globalDim[0] = 100: must be a multiple of 128");
	map.type = EMU_TENSOR_16U4_ALIGN8B;
	taken(&map);
	map.fill = 1;
	refused(&map, "oobFill = 1: NaN is for floating-point");
	map.fill = 0;
	map.sizes[0] = 101;
	refused(&map, "globalDim[0] = 101: must be a multiple of 2");
	map.sizes[0] = 256;
	map.type = EMU_TENSOR_16U6_ALIGN16B;
	refused(&map, "boxDim[0] = 64: must be 128");
	map.box[0] = 128;
	refused(&map, "globalStrides[0] = 208: must be a multiple of 32");
	map.strides_bytes[0] = 224;
	map.strides_bytes[1] = 224 * 20;
	taken(&map);
	map.swizzle = EMU_TENSOR_SWIZZLE_64B;
	refused(&map, "swizzle = 2: not one of those");
	map.swizzle = EMU_TENSOR_SWIZZLE_128B_ATOM_64B;
	taken(&map);
	map.type = EMU_TENSOR_16U4_ALIGN16B;
	refused(&map, "swizzle = 6: not one of those");
	map.swizzle = EMU_TENSOR_SWIZZLE_NONE;
	taken(&map);
	map.address += 16;
	refused(&map, "must be 32-byte aligned");
	map.address -= 16;
	map.type = EMU_TENSOR_16U6_ALIGN16B;
	map.interleave = EMU_TENSOR_INTERLEAVE_16B;
	refused(&map, "interleave = 1: must be NONE");
}

/* ---- the opaque bytes ---------------------------------------------------- */

static void maps_come_back(void **state)
{
	struct emu_tensor_map map = good_map(), back;
	uint8_t opaque[EMU_TENSOR_MAP_BYTES];

	map.sizes[1] = UINT64_C(1) << 32;
	map.strides_bytes[1] = (UINT64_C(1) << 40) - 16;
	map.box[1] = 256;
	map.element_strides[2] = 8;
	emu_tensor_map_encode(&map, opaque);
	if (!emu_tensor_map_decode(opaque, &back, &err))
		fail_msg("%s", err.text);
	assert_memory_equal(&map, &back, sizeof(map));
	/* A byte that changed is noticed, wherever something is kept. */
	for (int i = 0; i < 104; i++) {
		opaque[i] ^= 1;
		assert_false(emu_tensor_map_decode(opaque, &back, &err));
		assert_non_null(strstr(err.text, "128 bytes are not as"));
		opaque[i] ^= 1;
	}
	/* Except bit 21 of the second word, which libraries clear. */
	opaque[8 + 2] &= (uint8_t) ~(1 << 5);
	GOOD(emu_tensor_map_decode(opaque, &back, &err));
	assert_memory_equal(&map, &back, sizeof(map));
	memset(opaque, 0, sizeof(opaque));
	assert_false(emu_tensor_map_decode(opaque, &back, &err));
}

static void not_modelled(struct emu_tensor_map map, const char *what)
{
	uint8_t opaque[EMU_TENSOR_MAP_BYTES];
	struct emu_tensor_map back;

	taken(&map);
	emu_tensor_map_encode(&map, opaque);
	assert_false(emu_tensor_map_decode(opaque, &back, &err));
	assert_non_null(strstr(err.text, what));
}

static void what_is_not_modelled_is_refused(void **state)
{
	struct emu_tensor_map map = good_map();

	map.interleave = EMU_TENSOR_INTERLEAVE_16B;
	not_modelled(map, "interleaved");
	map = good_map();
	map.swizzle = EMU_TENSOR_SWIZZLE_128B_ATOM_32B_FLIP_8B;
	not_modelled(map, "flips 8 bytes");
	map.swizzle = EMU_TENSOR_SWIZZLE_128B_ATOM_64B;
	not_modelled(map, "64 bytes");
	map = good_map();
	map.box[0] = 32;
	not_modelled(map, "narrower than its swizzle");
	map = good_map();
	map.fill = 1;
	not_modelled(map, "NaN fill");
}

/* ---- boxes against a plain loop ------------------------------------------ */

#define TENSOR_BYTES (1 << 18)
#define SHARED_BYTES (1 << 17)

static uint8_t tensor[TENSOR_BYTES], shared[SHARED_BYTES];
static uint8_t want[SHARED_BYTES], stored[TENSOR_BYTES];

static int bits_of_type(int type)
{
	static const int bits[] = {8,  16, 32, 32, 64, 64, 16,
				   32, 64, 16, 32, 32, 32, 4};

	return bits[type];
}

/* The position of 16 bytes `chunk` of row `row`, by the figures of the CUDA guide. */
static uint32_t swizzle_by_figure(int swizzle, uint32_t at)
{
	const uint32_t width = swizzle == EMU_TENSOR_SWIZZLE_32B   ? 2
			       : swizzle == EMU_TENSOR_SWIZZLE_64B ? 4
								   : 8;
	const uint32_t row = at / 128, chunk = at % 128 / 16;
	uint32_t moved = chunk;

	if (swizzle == EMU_TENSOR_SWIZZLE_128B_ATOM_32B)
		moved = (chunk / 2 ^ row % 4) * 2 + chunk % 2;
	else if (swizzle != EMU_TENSOR_SWIZZLE_NONE)
		moved = chunk / width * width + (chunk % width ^ row % width);
	return row * 128 + moved * 16 + at % 16;
}

/* A random map over tensor whose boxes fit in shared. */
static struct emu_tensor_map random_map(void)
{
	struct emu_tensor_map map = {0};
	uint64_t bytes;
	int bits;

	do {
		uint64_t shared_bytes;

		map.type = (int)rng_below(&rng, EMU_TENSOR_16U4_ALIGN16B);
		map.rank = 1 + (int)rng_below(&rng, 5);
		map.swizzle = (int)rng_below(&rng, 5);
		bits = bits_of_type(map.type);
		map.sizes[0] = 2 + 2 * (uint64_t)rng_below(&rng, 150);
		map.box[0] =
		    map.swizzle
			? (map.swizzle > 3 ? 128 : 16u << map.swizzle) * 8 /
			      (uint32_t)bits
			: (1 + (uint32_t)rng_below(&rng, 8)) * 128 / (uint32_t)bits;
		map.element_strides[0] = 1;
		bytes = (map.sizes[0] * (uint64_t)bits / 8 + 15) / 16 * 16;
		shared_bytes = map.box[0] * (uint32_t)bits / 8;
		for (int i = 1; i < map.rank; i++) {
			map.strides_bytes[i - 1] =
			    bytes + 16 * (uint64_t)rng_below(&rng, 3);
			map.sizes[i] = 1 + (uint64_t)rng_below(&rng, 12);
			map.box[i] = 1 + (uint32_t)rng_below(&rng, 9);
			map.element_strides[i] = 1 + (uint32_t)rng_below(&rng, 3);
			bytes = map.strides_bytes[i - 1] * map.sizes[i];
			shared_bytes *= map.box[i];
		}
		if (shared_bytes > SHARED_BYTES - 4096)
			bytes = UINT64_MAX;
	} while (map.box[0] > 256 || bytes > TENSOR_BYTES);
	for (int i = map.rank; i < EMU_TENSOR_RANK; i++)
		map.sizes[i] = map.box[i] = map.element_strides[i] = 1;
	map.address = 1 << 20;
	return map;
}

/* Elements of the box along a dimension. */
static uint32_t steps(const struct emu_tensor_map *map, int d)
{
	uint32_t n = 0;

	for (uint32_t at = 0; at < map->box[d]; at += map->element_strides[d])
		n++;
	return n;
}

/* Copies one element, from from_bit of the tensor (or zeros), to a bit of the box. */
static void put_plainly(const struct emu_tensor_map *map, uint32_t bit, bool is_inside,
			uint64_t from_bit)
{
	const uint32_t bits = (uint32_t)bits_of_type(map->type);
	const uint32_t shift = bit % 8;
	uint8_t *to = want + swizzle_by_figure(map->swizzle, bit / 8);
	uint32_t x = 0;

	if (bits != 4 && is_inside) {
		memcpy(to, tensor + from_bit / 8, bits / 8);
	} else if (bits != 4) {
		memset(to, 0, bits / 8);
	} else {
		if (is_inside)
			x = (uint32_t)tensor[from_bit / 8] >> from_bit % 8 & 15;
		*to = (uint8_t)((*to & ~(15u << shift)) | x << shift);
	}
}

static void load_plainly(const struct emu_tensor_map *map, const int32_t *at,
			 uint32_t begin)
{
	const uint32_t bits = (uint32_t)bits_of_type(map->type);
	uint32_t count = 1;

	memset(want, 0xAA, sizeof(want));
	for (int d = 0; d < 5; d++)
		count *= steps(map, d);
	for (uint32_t e = 0; e < count; e++) {
		uint32_t rest = e;
		uint64_t from = 0;
		bool is_inside = true;

		for (int d = 0; d < 5; d++) {
			const int64_t x = at[d] + (int64_t)(rest % steps(map, d)) *
						      map->element_strides[d];

			rest /= steps(map, d);
			is_inside = is_inside && x >= 0 && x < (int64_t)map->sizes[d];
			from +=
			    (uint64_t)x * (d ? map->strides_bytes[d - 1] * 8 : bits);
		}
		put_plainly(map, begin * 8 + e * bits, is_inside, from);
	}
}

static void load(const struct emu_tensor_map *map, const int32_t *at, uint32_t begin)
{
	const uint32_t pieces = emu_tensor_map_pieces(map);
	const uint32_t whole = map->type == EMU_TENSOR_16U4_ALIGN16B   ? 8
			       : map->type == EMU_TENSOR_16U6_ALIGN16B ? 12
								       : 16;

	assert_int_equal(emu_tensor_map_box_bytes(map), pieces * 16);
	assert_int_equal(emu_tensor_map_tx_bytes(map), pieces * whole);
	memset(shared, 0xAA, sizeof(shared));
	for (uint32_t i = 0; i < pieces; i++) {
		struct emu_tensor_piece p;
		uint8_t *to;

		emu_tensor_map_piece(map, at, begin, i, &p);
		assert_true(p.shared_offset < pieces * 16);
		assert_true(p.skip_bytes + p.inside_bytes <= 16);
		assert_int_equal(p.stored_bytes,
				 p.inside_bytes ? whole - p.skip_bytes : 0);
		to = shared + begin + p.shared_offset;
		memset(to, 0, 16);
		if (!p.inside_bytes)
			continue;
		assert_true(p.address >= map->address);
		assert_true(p.address - map->address + p.inside_bytes <= TENSOR_BYTES);
		memcpy(to + p.skip_bytes, tensor + (p.address - map->address),
		       p.inside_bytes);
		/* And back, as a store. */
		memcpy(stored + (p.address - map->address), to + p.skip_bytes,
		       p.inside_bytes);
	}
}

static void random_boxes(void **state)
{
	int nonzero = 0;

	rng_fill(&rng, tensor, sizeof(tensor));
	for (int round = 0; round < 400; round++) {
		const struct emu_tensor_map map = random_map();
		const uint32_t begin = 128 * (uint32_t)rng_below(&rng, 8);
		int32_t at[5] = {0};

		taken(&map);
		for (int d = 0; d < map.rank; d++)
			at[d] =
			    (int32_t)rng_below(&rng, (int64_t)map.sizes[d] + 20) - 10;
		at[0] &= ~1;
		memcpy(stored, tensor, sizeof(stored));
		load_plainly(&map, at, begin);
		load(&map, at, begin);
		if (memcmp(shared, want, sizeof(want)) != 0)
			fail_msg("round %d: type %d rank %d swizzle %d", round,
				 map.type, map.rank, map.swizzle);
		assert_memory_equal(stored, tensor, sizeof(stored));
		nonzero += shared[begin] != 0;
	}
	assert_in_range(nonzero, 50, 400);
}

/* 16 elements of the tensor, of 4 or 6 bits, to 16 bytes each. */
static void packed_boxes(void **state)
{
	rng_fill(&rng, tensor, sizeof(tensor));
	for (int round = 0; round < 40; round++) {
		const uint32_t wide = round % 2 ? 12 : 8; /* of 16 elements */
		const struct emu_tensor_map map = {
		    .address = 1 << 20,
		    .type =
			round % 2 ? EMU_TENSOR_16U6_ALIGN16B : EMU_TENSOR_16U4_ALIGN16B,
		    .rank = 2,
		    .sizes = {384, 9},
		    .strides_bytes = {384 / 16 * wide + 32 * (uint64_t)(round % 3)},
		    .box = {128, 4},
		    .element_strides = {1, 1},
		    .swizzle = round % 4 < 2   ? EMU_TENSOR_SWIZZLE_NONE
			       : round % 8 < 4 ? EMU_TENSOR_SWIZZLE_128B
					       : EMU_TENSOR_SWIZZLE_128B_ATOM_32B,
		};
		const int32_t at[5] = {128 * (round % 5 - 1), round % 12 - 2};

		taken(&map);
		assert_null(emu_tensor_map_refuses(&map, at, false));
		memset(want, 0xAA, sizeof(want));
		for (uint32_t e = 0; e < 32; e++) {
			const int64_t x = at[0] / 16 + (int64_t)e % 8;
			const int64_t y = at[1] + (int64_t)e / 8;
			uint8_t *to = want + swizzle_by_figure(map.swizzle, 16 * e);

			memset(to, 0, 16);
			if (x >= 0 && x < 384 / 16 && y >= 0 && y < 9)
				memcpy(to,
				       tensor + (uint64_t)y * map.strides_bytes[0] +
					   (uint64_t)x * wide,
				       wide);
		}
		memcpy(stored, tensor, sizeof(stored));
		load(&map, at, 0);
		assert_memory_equal(shared, want, sizeof(want));
		assert_memory_equal(stored, tensor, sizeof(stored));
	}
}

static bool is_refused(const struct emu_tensor_map *map, const int32_t *at)
{
	return emu_tensor_map_refuses(map, at, false) != NULL;
}

/* Multiples of the type's size, inside and outside the tensor. */
static void boxes_begin_at_multiples_of_16_bytes(void **state)
{
	struct emu_tensor_map map = {.type = EMU_TENSOR_F16, .rank = 2};

	for (int32_t x = -32; x <= 32; x++) {
		const int32_t at[] = {x, 3};

		map.type = EMU_TENSOR_U8;
		assert_int_equal(is_refused(&map, at), x % 16 != 0);
		map.type = EMU_TENSOR_F16;
		assert_int_equal(is_refused(&map, at), x % 8 != 0);
		map.type = EMU_TENSOR_F64;
		assert_int_equal(is_refused(&map, at), x % 2 != 0);
		map.type = EMU_TENSOR_16U4_ALIGN8B;
		assert_int_equal(is_refused(&map, at), x % 32 != 0);
		map.type = EMU_TENSOR_16U4_ALIGN16B;
		assert_int_equal(is_refused(&map, at), x % 128 != 0);
	}
}

static void boxes_are_not_stored_at_negative_coordinates(void **state)
{
	const struct emu_tensor_map map = good_map();

	for (int d = 0; d < 3; d++) {
		int32_t at[] = {0, 0, 0};

		at[d] = -8;
		assert_null(emu_tensor_map_refuses(&map, at, false));
		assert_non_null(emu_tensor_map_refuses(&map, at, true));
		at[d] = 1000;
		assert_null(emu_tensor_map_refuses(&map, at, true));
	}
}

/*
 * Expected bits: adds half a unit of the last kept bit, less one unless it is odd.
 */
static void loads_round_tf32_to_even(void **state)
{
	static const uint32_t special[] = {
	    0,		0x80000000, 0x00000001, 0x00001000, 0x00003000,
	    0x7F7FFFFF, 0xFF7FFFFF, 0x7F800000, 0xFF800000, 0x3F801000,
	    0x3F803000, 0x3F800FFF, 0x3F801001, 0x007FFFFF};

	for (int i = 0; i < 100000; i++) {
		const bool is_special = i < (int)(sizeof(special) / sizeof(*special));
		const uint32_t x = is_special ? special[i] : (uint32_t)rng_next(&rng);
		uint32_t even = (x + 0xFFF + (x >> 13 & 1)) & 0xFFFFE000;
		uint32_t got[4] = {0, 0, x, 0};

		if ((x & 0x7FFFFFFF) > 0x7F800000)
			even = 0x7FFFE000;
		emu_tensor_round_tf32((uint8_t *)got, sizeof(got));
		if (got[2] != even)
			fail_msg("%08x becomes %08x, not %08x", x, got[2], even);
	}
}

/* ---- tensormap.replace --------------------------------------------------- */

static void replace(void *opaque, enum emu_tensor_field field, int ordinal,
		    uint64_t value)
{

	if (!emu_tensor_map_replace(opaque, field, ordinal, value, &err))
		fail_msg("%s", err.text);
}

static struct emu_tensor_map map_of_rank_5(void)
{
	struct emu_tensor_map map;

	do
		map = random_map();
	while (map.rank < 5);
	return map;
}

/* A map whose fields are all replaced is the other map. */
static void fields_are_replaced(void **state)
{
	/* PTX ISA, tensormap.replace: the types in its order. */
	static const int types[] = {
	    EMU_TENSOR_U8,	     EMU_TENSOR_U16,	      EMU_TENSOR_U32,
	    EMU_TENSOR_S32,	     EMU_TENSOR_U64,	      EMU_TENSOR_S64,
	    EMU_TENSOR_F16,	     EMU_TENSOR_F32,	      EMU_TENSOR_F32_FTZ,
	    EMU_TENSOR_F64,	     EMU_TENSOR_BF16,	      EMU_TENSOR_TF32,
	    EMU_TENSOR_TF32_FTZ,     EMU_TENSOR_16U4_ALIGN8B, EMU_TENSOR_16U4_ALIGN16B,
	    EMU_TENSOR_16U6_ALIGN16B};

	for (int round = 0; round < 200; round++) {
		struct emu_tensor_map from = map_of_rank_5();
		struct emu_tensor_map to = map_of_rank_5();
		uint8_t a[EMU_TENSOR_MAP_BYTES], b[EMU_TENSOR_MAP_BYTES];
		uint64_t type = 0;

		to.l2_promotion = from.l2_promotion;
		while (types[type] != to.type)
			type++;
		emu_tensor_map_encode(&from, a);
		emu_tensor_map_encode(&to, b);
		replace(a, EMU_TENSOR_FIELD_ADDRESS, 0, to.address);
		replace(a, EMU_TENSOR_FIELD_RANK, 0, (uint64_t)to.rank - 1);
		replace(a, EMU_TENSOR_FIELD_TYPE, 0, type);
		replace(a, EMU_TENSOR_FIELD_INTERLEAVE, 0, (uint64_t)to.interleave);
		replace(a, EMU_TENSOR_FIELD_SWIZZLE, 0,
			to.swizzle > 3 ? 3 : (uint64_t)to.swizzle);
		replace(a, EMU_TENSOR_FIELD_ATOMICITY, 0,
			to.swizzle > 3 ? (uint64_t)to.swizzle - 3 : 0);
		replace(a, EMU_TENSOR_FIELD_FILL, 0, (uint64_t)to.fill);
		for (int i = 0; i < 5; i++) {
			replace(a, EMU_TENSOR_FIELD_SIZE, i, to.sizes[i]);
			if (i)
				replace(a, EMU_TENSOR_FIELD_STRIDE, i - 1,
					to.strides_bytes[i - 1]);
			replace(a, EMU_TENSOR_FIELD_BOX, i, to.box[i]);
			replace(a, EMU_TENSOR_FIELD_ELEMENT_STRIDE, i,
				to.element_strides[i]);
		}
		assert_memory_equal(a, b, sizeof(a));
	}
}

static void replaced_values_have_limits(void **state)
{
	static const struct {
		enum emu_tensor_field field;
		int ordinal;
		uint64_t value;
		const char *why;
	} cases[] = {
	    {EMU_TENSOR_FIELD_RANK, 0, 5, "rank = 5: must be 0 to 4"},
	    {EMU_TENSOR_FIELD_BOX, 0, 257, "box_dim = 257"},
	    {EMU_TENSOR_FIELD_BOX, 5, 1, "box_dim 5: must be below 5"},
	    {EMU_TENSOR_FIELD_STRIDE, 4, 16, "global_stride 4"},
	    {EMU_TENSOR_FIELD_ELEMENT_STRIDE, 0, 0, "element_stride = 0"},
	    {EMU_TENSOR_FIELD_TYPE, 0, 16, "elemtype = 16"},
	    {EMU_TENSOR_FIELD_SWIZZLE, 0, 4, "swizzle_mode = 4"},
	    {EMU_TENSOR_FIELD_FILL, 0, 2, "fill_mode = 2"},
	};
	struct emu_tensor_map map = random_map();
	uint8_t opaque[EMU_TENSOR_MAP_BYTES];

	emu_tensor_map_encode(&map, opaque);
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		assert_false(emu_tensor_map_replace(
		    opaque, cases[i].field, cases[i].ordinal, cases[i].value, &err));
		assert_non_null(strstr(err.text, cases[i].why));
	}
	opaque[20] ^= 1;
	assert_false(emu_tensor_map_replace(opaque, EMU_TENSOR_FIELD_RANK, 0, 0, &err));
	assert_non_null(strstr(err.text, "cuTensorMapEncodeTiled"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(fields_are_replaced),
	    cmocka_unit_test(replaced_values_have_limits),
	    cmocka_unit_test(rules_of_one_argument),
	    cmocka_unit_test(rules_of_swizzles),
	    cmocka_unit_test(rules_of_interleaved_layouts),
	    cmocka_unit_test(rules_of_packed_types),
	    cmocka_unit_test(maps_come_back),
	    cmocka_unit_test(what_is_not_modelled_is_refused),
	    cmocka_unit_test(random_boxes),
	    cmocka_unit_test(packed_boxes),
	    cmocka_unit_test(boxes_begin_at_multiples_of_16_bytes),
	    cmocka_unit_test(boxes_are_not_stored_at_negative_coordinates),
	    cmocka_unit_test(loads_round_tf32_to_even),
	};

	return cmocka_run_group_tests(tests, setup, NULL);
}
