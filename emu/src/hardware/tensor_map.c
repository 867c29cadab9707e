/* SPDX-License-Identifier: Apache-2.0 */
/* tensor_map.c - tensor maps and their boxes; see tensor_map.h. */
#include "hardware/tensor_map.h"

#include <string.h>

#include "hardware/floats.h"

static uint32_t element_bits(int type)
{
	static const uint8_t bits[] = {
	    [EMU_TENSOR_U8] = 8,
	    [EMU_TENSOR_U16] = 16,
	    [EMU_TENSOR_U32] = 32,
	    [EMU_TENSOR_S32] = 32,
	    [EMU_TENSOR_U64] = 64,
	    [EMU_TENSOR_S64] = 64,
	    [EMU_TENSOR_F16] = 16,
	    [EMU_TENSOR_F32] = 32,
	    [EMU_TENSOR_F64] = 64,
	    [EMU_TENSOR_BF16] = 16,
	    [EMU_TENSOR_F32_FTZ] = 32,
	    [EMU_TENSOR_TF32] = 32,
	    [EMU_TENSOR_TF32_FTZ] = 32,
	    [EMU_TENSOR_16U4_ALIGN8B] = 4,
	    [EMU_TENSOR_16U4_ALIGN16B] = 4,
	    [EMU_TENSOR_16U6_ALIGN16B] = 6,
	};

	return bits[type];
}

/* The most bytes that a row may have with a swizzle. */
static uint32_t swizzle_bytes(int swizzle)
{
	static const uint8_t bytes[] = {0, 32, 64, 128, 128, 128, 128};

	return bytes[swizzle];
}

static bool is_wide_packed(int type)
{
	return type == EMU_TENSOR_16U4_ALIGN16B || type == EMU_TENSOR_16U6_ALIGN16B;
}

/*
 * Bytes of a row of the box in shared memory, where 16 elements of packed types
 * that are aligned to 16 bytes take 16 bytes.
 */
static uint32_t row_bytes(const struct emu_tensor_map *map)
{
	return is_wide_packed(map->type) ? map->box[0]
					 : map->box[0] * element_bits(map->type) / 8;
}

/* The bytes of global memory that correspond to 16 bytes of shared memory. */
static uint32_t piece_bits(const struct emu_tensor_map *map)
{
	return is_wide_packed(map->type) ? EMU_TENSOR_PIECE * element_bits(map->type)
					 : EMU_TENSOR_PIECE * 8;
}

/* ---- the rules of cuTensorMapEncodeTiled --------------------------------- */

/* value of an argument must be below limit. */
static bool check_enum(const char *name, int value, int limit, struct emu_error *err)
{
	if (value < 0 || value >= limit)
		return emu_fail(err, "%s = %d: must be 0 to %d", name, value,
				limit - 1);
	return true;
}

static bool check_enums(const struct emu_tensor_map *map, struct emu_error *err)
{
	const bool is_float =
	    map->type >= EMU_TENSOR_F16 && map->type <= EMU_TENSOR_TF32_FTZ;

	if (!check_enum("tensorDataType", map->type, 16, err) ||
	    !check_enum("interleave", map->interleave, 3, err) ||
	    !check_enum("swizzle", map->swizzle, 7, err) ||
	    !check_enum("l2Promotion", map->l2_promotion, 4, err) ||
	    !check_enum("oobFill", map->fill, 2, err))
		return false;
	if (map->rank < 1 || map->rank > EMU_TENSOR_RANK)
		return emu_fail(err, "tensorRank = %d: must be 1 to %d", map->rank,
				EMU_TENSOR_RANK);
	if (map->interleave != EMU_TENSOR_INTERLEAVE_NONE && map->rank < 3)
		return emu_fail(
		    err,
		    "tensorRank = %d: must be 3 or more where interleave is "
		    "not NONE",
		    map->rank);
	if (map->fill && !is_float)
		return emu_fail(err,
				"oobFill = %d: NaN is for floating-point types, "
				"tensorDataType = %d is none",
				map->fill, map->type);
	return true;
}

/* Checks the swizzle with the interleave and the packed types. */
static bool check_swizzle(const struct emu_tensor_map *map, struct emu_error *err)
{
	const int swizzle = map->swizzle;
	const uint32_t most = swizzle_bytes(swizzle);
	bool is_allowed = true;

	if (map->interleave == EMU_TENSOR_INTERLEAVE_32B &&
	    swizzle != EMU_TENSOR_SWIZZLE_32B)
		return emu_fail(err,
				"swizzle = %d: must be 32B (1) where interleave is 32B",
				swizzle);
	if (map->type == EMU_TENSOR_16U6_ALIGN16B &&
	    map->interleave != EMU_TENSOR_INTERLEAVE_NONE)
		return emu_fail(err, "interleave = %d: must be NONE for 16U6_ALIGN16B",
				map->interleave);
	if (map->type == EMU_TENSOR_16U6_ALIGN16B)
		is_allowed = swizzle == EMU_TENSOR_SWIZZLE_NONE ||
			     swizzle == EMU_TENSOR_SWIZZLE_128B ||
			     swizzle == EMU_TENSOR_SWIZZLE_128B_ATOM_32B ||
			     swizzle == EMU_TENSOR_SWIZZLE_128B_ATOM_64B;
	if (map->type == EMU_TENSOR_16U4_ALIGN16B)
		is_allowed = swizzle == EMU_TENSOR_SWIZZLE_NONE ||
			     swizzle == EMU_TENSOR_SWIZZLE_128B ||
			     swizzle == EMU_TENSOR_SWIZZLE_128B_ATOM_32B;
	if (!is_allowed)
		return emu_fail(
		    err,
		    "swizzle = %d: not one of those that tensorDataType = %d "
		    "can have",
		    swizzle, map->type);
	if (map->interleave == EMU_TENSOR_INTERLEAVE_NONE && most &&
	    row_bytes(map) > most)
		return emu_fail(
		    err,
		    "boxDim[0] = %u: its %u bytes must be at most the %u of "
		    "the swizzle",
		    (unsigned)map->box[0], (unsigned)row_bytes(map), (unsigned)most);
	return true;
}

static bool check_sizes(const struct emu_tensor_map *map, struct emu_error *err)
{
	const uint64_t unit = is_wide_packed(map->type)		     ? 128
			      : map->type == EMU_TENSOR_16U4_ALIGN8B ? 2
								     : 1;

	for (int i = 0; i < map->rank; i++) {
		if (map->sizes[i] < 1 || map->sizes[i] > UINT64_C(1) << 32)
			return emu_fail(err, "globalDim[%d] = %llu: must be 1 to 2^32",
					i, (unsigned long long)map->sizes[i]);
		if (map->box[i] < 1 || map->box[i] > 256)
			return emu_fail(err, "boxDim[%d] = %u: must be 1 to 256", i,
					(unsigned)map->box[i]);
		if (map->element_strides[i] < 1 || map->element_strides[i] > 8)
			return emu_fail(err, "elementStrides[%d] = %u: must be 1 to 8",
					i, (unsigned)map->element_strides[i]);
	}
	if (map->sizes[0] % unit != 0)
		return emu_fail(err,
				"globalDim[0] = %llu: must be a multiple of %llu for "
				"tensorDataType = %d",
				(unsigned long long)map->sizes[0],
				(unsigned long long)unit, map->type);
	return true;
}

static bool check_box(const struct emu_tensor_map *map, struct emu_error *err)
{
	if (is_wide_packed(map->type) && map->box[0] != 128)
		return emu_fail(err,
				"boxDim[0] = %u: must be 128 for tensorDataType = %d",
				(unsigned)map->box[0], map->type);
	if (map->interleave == EMU_TENSOR_INTERLEAVE_NONE &&
	    row_bytes(map) % EMU_TENSOR_PIECE != 0)
		return emu_fail(
		    err,
		    "boxDim[0] = %u: times the element's %u bits it must be a "
		    "multiple of 16 bytes",
		    (unsigned)map->box[0], (unsigned)element_bits(map->type));
	return true;
}

bool emu_tensor_map_check(const struct emu_tensor_map *map, struct emu_error *err)
{
	uint64_t unit = 16;

	if (!check_enums(map, err) || !check_sizes(map, err) || !check_box(map, err) ||
	    !check_swizzle(map, err))
		return false;
	if (map->interleave == EMU_TENSOR_INTERLEAVE_32B || is_wide_packed(map->type))
		unit = 32;
	if (map->address % unit != 0)
		return emu_fail(
		    err, "globalAddress = 0x%llx: must be %llu-byte aligned",
		    (unsigned long long)map->address, (unsigned long long)unit);
	for (int i = 0; i < map->rank - 1; i++)
		if (map->strides_bytes[i] % unit != 0 ||
		    map->strides_bytes[i] >= UINT64_C(1) << 40)
			return emu_fail(
			    err,
			    "globalStrides[%d] = %llu: must be a multiple of "
			    "%llu below 2^40",
			    i, (unsigned long long)map->strides_bytes[i],
			    (unsigned long long)unit);
	return true;
}

bool emu_tensor_map_check_device(const struct emu_tensor_map *map, int major,
				 struct emu_error *err)
{
	if (major >= 10)
		return true;
	if (map->swizzle > EMU_TENSOR_SWIZZLE_128B)
		return emu_fail(err,
				"swizzle = %d: must be 0 to 3 on compute capability %d",
				map->swizzle, major);
	return true;
}

/* ---- the opaque bytes ---------------------------------------------------- */

/* The layout of the hardware is not documented; this one is ours. */
struct opaque {
	uint64_t magic, check;
	uint64_t address;
	uint64_t strides_bytes[EMU_TENSOR_RANK - 1];
	uint32_t last[EMU_TENSOR_RANK]; /* size - 1 */
	uint16_t box[EMU_TENSOR_RANK];
	uint8_t element_strides[EMU_TENSOR_RANK];
	uint8_t type, rank, interleave, swizzle, l2_promotion, fill;
	uint8_t zeros[7];
};

_Static_assert(sizeof(struct opaque) == 104, "all bytes have a name");

#define MAGIC UINT64_C(0x70616D726F736E65) /* "ensormap" */
/*
 * A bit that the checksum leaves out: CUTLASS and Triton clear bit 21 of a
 * map's second word on drivers up to 13.1, a workaround for small tensors.
 */
#define SPARE (UINT64_C(1) << 21)

/* FNV-1a of all fields except check. */
static uint64_t checksum(struct opaque o)
{
	uint8_t bytes[sizeof(o)];
	uint64_t hash = UINT64_C(0xCBF29CE484222325);

	o.check = 0;
	memcpy(bytes, &o, sizeof(o));
	for (size_t i = 0; i < sizeof(o); i++)
		hash = (hash ^ bytes[i]) * UINT64_C(0x100000001B3);
	return hash | SPARE;
}

void emu_tensor_map_encode(const struct emu_tensor_map *map, void *opaque)
{
	struct opaque o;

	memset(&o, 0, sizeof(o));
	o.magic = MAGIC;
	o.address = map->address;
	for (int i = 0; i < map->rank; i++) {
		if (i > 0)
			o.strides_bytes[i - 1] = map->strides_bytes[i - 1];
		o.last[i] = (uint32_t)(map->sizes[i] - 1);
		o.box[i] = (uint16_t)map->box[i];
		o.element_strides[i] = (uint8_t)map->element_strides[i];
	}
	o.type = (uint8_t)map->type;
	o.rank = (uint8_t)map->rank;
	o.interleave = (uint8_t)map->interleave;
	o.swizzle = (uint8_t)map->swizzle;
	o.l2_promotion = (uint8_t)map->l2_promotion;
	o.fill = (uint8_t)map->fill;
	o.check = checksum(o);
	memset(opaque, 0, EMU_TENSOR_MAP_BYTES);
	memcpy(opaque, &o, sizeof(o));
}

static bool read_opaque(const void *opaque, struct opaque *o, struct emu_error *err)
{
	memcpy(o, opaque, sizeof(*o));
	return (o->magic == MAGIC && (o->check | SPARE) == checksum(*o)) ||
	       emu_fail(err, "the tensor map's 128 bytes are not as "
			     "cuTensorMapEncodeTiled made them");
}

/* Kernels that make a map begin with 128 bytes of zeros (Triton does). */
static bool read_blank(const void *opaque, struct opaque *o)
{
	static const uint8_t zeros[EMU_TENSOR_MAP_BYTES];

	if (memcmp(opaque, zeros, sizeof(zeros)) != 0)
		return false;
	memset(o, 0, sizeof(*o));
	o->magic = MAGIC;
	return true;
}

static void set_field(struct opaque *o, enum emu_tensor_field field, int at,
		      uint64_t value)
{
	/* PTX's order of the types from 8 on differs from cuda.h's. */
	static const uint8_t types[] = {0,  1, 2, 3,  4,  5,  6,  7,
					10, 8, 9, 11, 12, 13, 14, 15};

	switch (field) {
	case EMU_TENSOR_FIELD_ADDRESS:
		o->address = value;
		break;
	case EMU_TENSOR_FIELD_RANK:
		o->rank = (uint8_t)(value + 1);
		break;
	case EMU_TENSOR_FIELD_BOX:
		o->box[at] = (uint16_t)value;
		break;
	case EMU_TENSOR_FIELD_SIZE:
		o->last[at] = (uint32_t)value - 1;
		break;
	case EMU_TENSOR_FIELD_STRIDE:
		o->strides_bytes[at] = value;
		break;
	case EMU_TENSOR_FIELD_ELEMENT_STRIDE:
		o->element_strides[at] = (uint8_t)value;
		break;
	case EMU_TENSOR_FIELD_TYPE:
		o->type = types[value];
		break;
	case EMU_TENSOR_FIELD_INTERLEAVE:
		o->interleave = (uint8_t)value;
		break;
	case EMU_TENSOR_FIELD_SWIZZLE:
		o->swizzle = (uint8_t)value;
		break;
	case EMU_TENSOR_FIELD_ATOMICITY: /* of the mode of 128 bytes */
		if (o->swizzle >= EMU_TENSOR_SWIZZLE_128B)
			o->swizzle = (uint8_t)(EMU_TENSOR_SWIZZLE_128B + value);
		break;
	case EMU_TENSOR_FIELD_FILL:
		o->fill = (uint8_t)value;
	}
}

bool emu_tensor_map_replace(void *opaque, enum emu_tensor_field field, int ordinal,
			    uint64_t value, struct emu_error *err)
{
	static const struct {
		const char *name;
		uint64_t least, most;
		int ordinals;
	} rules[] = {
	    [EMU_TENSOR_FIELD_ADDRESS] = {"global_address", 0, UINT64_MAX, 1},
	    [EMU_TENSOR_FIELD_RANK] = {"rank", 0, EMU_TENSOR_RANK - 1, 1},
	    [EMU_TENSOR_FIELD_BOX] = {"box_dim", 1, 256, EMU_TENSOR_RANK},
	    [EMU_TENSOR_FIELD_SIZE] = {"global_dim", 0, UINT32_MAX, EMU_TENSOR_RANK},
	    [EMU_TENSOR_FIELD_STRIDE] = {"global_stride", 0, UINT64_MAX,
					 EMU_TENSOR_RANK - 1},
	    [EMU_TENSOR_FIELD_ELEMENT_STRIDE] = {"element_stride", 1, 8,
						 EMU_TENSOR_RANK},
	    [EMU_TENSOR_FIELD_TYPE] = {"elemtype", 0, 15, 1},
	    [EMU_TENSOR_FIELD_INTERLEAVE] = {"interleave_layout", 0, 2, 1},
	    [EMU_TENSOR_FIELD_SWIZZLE] = {"swizzle_mode", 0, 3, 1},
	    [EMU_TENSOR_FIELD_ATOMICITY] = {"swizzle_atomicity", 0, 3, 1},
	    [EMU_TENSOR_FIELD_FILL] = {"fill_mode", 0, 1, 1},
	};
	struct opaque o;

	if (!read_blank(opaque, &o) && !read_opaque(opaque, &o, err))
		return false;
	if (ordinal < 0 || ordinal >= rules[field].ordinals)
		return emu_fail(err, "%s %d: must be below %d", rules[field].name,
				ordinal, rules[field].ordinals);
	if (value < rules[field].least || value > rules[field].most)
		return emu_fail(err, "%s = %llu: must be %llu to %llu",
				rules[field].name, (unsigned long long)value,
				(unsigned long long)rules[field].least,
				(unsigned long long)rules[field].most);
	set_field(&o, field, ordinal, value);
	o.check = checksum(o);
	memcpy(opaque, &o, sizeof(o));
	return true;
}

/* What a copy with this map needs that is not modelled; NULL: nothing. */
static const char *not_modelled(const struct emu_tensor_map *map)
{
	if (map->interleave != EMU_TENSOR_INTERLEAVE_NONE)
		return "an interleaved layout";
	if (map->swizzle == EMU_TENSOR_SWIZZLE_128B_ATOM_32B_FLIP_8B)
		return "a swizzle that flips 8 bytes";
	if (map->swizzle == EMU_TENSOR_SWIZZLE_128B_ATOM_64B)
		return "a swizzle of 64 bytes";
	if (map->swizzle && row_bytes(map) != swizzle_bytes(map->swizzle))
		return "a box with rows narrower than its swizzle";
	if (map->fill)
		return "the NaN fill";
	return NULL;
}

bool emu_tensor_map_decode(const void *opaque, struct emu_tensor_map *map,
			   struct emu_error *err)
{
	struct opaque o;
	const char *what;

	if (!read_opaque(opaque, &o, err))
		return false;
	*map = (struct emu_tensor_map){
	    .address = o.address,
	    .type = o.type,
	    .rank = o.rank,
	    .interleave = o.interleave,
	    .swizzle = o.swizzle,
	    .l2_promotion = o.l2_promotion,
	    .fill = o.fill,
	};
	memcpy(map->strides_bytes, o.strides_bytes, sizeof(o.strides_bytes));
	for (int i = 0; i < map->rank; i++) {
		map->sizes[i] = (uint64_t)o.last[i] + 1;
		map->box[i] = o.box[i];
		map->element_strides[i] = o.element_strides[i];
	}
	if (!emu_tensor_map_check(map, err))
		return false;
	what = not_modelled(map);
	if (what)
		return emu_fail(err, "a tensor map with %s is not modelled", what);
	return true;
}

/* ---- boxes --------------------------------------------------------------- */

const char *emu_tensor_map_refuses(const struct emu_tensor_map *map,
				   const int32_t *coordinates, bool is_store)
{
	if (is_wide_packed(map->type) && coordinates[0] % 128 != 0)
		return "along a row a box of a packed type that is aligned to "
		       "16 bytes must begin at a multiple of 128 elements";
	if ((int64_t)coordinates[0] * element_bits(map->type) % 128 != 0)
		return "along a row a box must begin at a multiple of 16 bytes";
	for (int i = 0; is_store && i < map->rank; i++)
		if (coordinates[i] < 0)
			return "a box that is stored may not begin at a "
			       "negative coordinate";
	return NULL;
}

/* Elements of the box along a dimension other than the first. */
static uint32_t steps(const struct emu_tensor_map *map, int i)
{
	const uint32_t stride = map->element_strides[i];

	return (map->box[i] + stride - 1) / stride;
}

uint32_t emu_tensor_map_pieces(const struct emu_tensor_map *map)
{
	uint32_t pieces = row_bytes(map) / EMU_TENSOR_PIECE;

	for (int i = 1; i < map->rank; i++)
		pieces *= steps(map, i);
	return pieces;
}

uint32_t emu_tensor_map_box_bytes(const struct emu_tensor_map *map)
{
	return emu_tensor_map_pieces(map) * EMU_TENSOR_PIECE;
}

uint32_t emu_tensor_map_tx_bytes(const struct emu_tensor_map *map)
{
	return emu_tensor_map_pieces(map) * piece_bits(map) / 8;
}

/*
 * The chunks of 128 bytes, of 16 or of 32, change places from row to row.
 * Source of those of 32: CUTLASS's Swizzle<2, 5, 2> for this mode.
 */
static uint32_t swizzled(int swizzle, uint32_t address)
{
	const uint32_t mask = swizzle ? swizzle_bytes(swizzle) / 16 - 1 : 0;

	if (swizzle == EMU_TENSOR_SWIZZLE_128B_ATOM_32B)
		return address ^ (address >> 7 & 3) << 5;
	return address ^ (address >> 7 & mask) << 4;
}

void emu_tensor_map_piece(const struct emu_tensor_map *map, const int32_t *coordinates,
			  uint32_t shared_address, uint32_t i,
			  struct emu_tensor_piece *piece)
{
	const int64_t bits = element_bits(map->type);
	const uint32_t in_row = row_bytes(map) / EMU_TENSOR_PIECE;
	/* The piece's bits in its row of the tensor, and those inside the tensor. */
	const int64_t begin =
	    coordinates[0] * bits + (int64_t)(i % in_row) * piece_bits(map);
	const int64_t size = (int64_t)map->sizes[0] * bits;
	const int64_t first = begin < 0 ? 0 : begin;
	const int64_t end =
	    begin + piece_bits(map) < size ? begin + piece_bits(map) : size;
	bool is_inside = first < end;

	piece->shared_offset =
	    swizzled(map->swizzle, shared_address + i * EMU_TENSOR_PIECE) -
	    shared_address;
	piece->address = map->address + (uint64_t)first / 8;
	i /= in_row;
	for (int d = 1; d < map->rank; d++) {
		const int64_t at = coordinates[d] + (int64_t)(i % steps(map, d)) *
							map->element_strides[d];

		is_inside = is_inside && at >= 0 && (uint64_t)at < map->sizes[d];
		piece->address += (uint64_t)at * map->strides_bytes[d - 1];
		i /= steps(map, d);
	}
	piece->skip_bytes = is_inside ? (uint32_t)(first - begin) / 8 : 0;
	piece->inside_bytes = is_inside ? (uint32_t)(end - first) / 8 : 0;
	piece->stored_bytes = is_inside ? piece_bits(map) / 8 - piece->skip_bytes : 0;
}

bool emu_tensor_map_rounds(const struct emu_tensor_map *map)
{
	return map->type == EMU_TENSOR_TF32 || map->type == EMU_TENSOR_TF32_FTZ;
}

void emu_tensor_round_tf32(uint8_t *elements, uint32_t bytes)
{
	const int cut = 23 - emu_format_tf32.mantissa_bits;

	for (uint32_t i = 0; i < bytes; i += 4) {
		uint32_t rounded;
		float x;

		memcpy(&x, elements + i, sizeof(x));
		rounded = emu_narrow(&emu_format_tf32, x, EMU_RN, false) << cut;
		memcpy(elements + i, &rounded, sizeof(rounded));
	}
}
