/* SPDX-License-Identifier: Apache-2.0 */
/*
 * op_tensormap.c - tensor maps that kernels change: tensormap.replace, the copy to
 * global memory that publishes one, and the fences of their proxy.  The order of
 * these accesses is not checked.
 */
#include <string.h>

#include "hardware/tensor_map.h"
#include "instruction/binds.h"
#include "machine/access.h"
#include "machine/report.h"
#include "machine/watch.h"

/* Bytes of one access. */
#define PART 16

/* Copies a map from memory or to it; false: a fault. */
static bool move_map(struct emu_warp *w, const struct emu_instr *i, int lane,
		     enum emu_state_space space, uint64_t address, bool is_write,
		     uint8_t *map)
{
	if (address % EMU_TENSOR_MAP_BYTES) {
		emu_fault(w, i, lane,
			  "the tensor map at 0x%llx is not aligned to %d bytes",
			  (unsigned long long)address, EMU_TENSOR_MAP_BYTES);
		return false;
	}
	for (uint32_t k = 0; k < EMU_TENSOR_MAP_BYTES; k += PART) {
		uint8_t *at = emu_access(w, i, lane, space, address + k, PART,
					 is_write ? EMU_WRITE : EMU_READ, NULL);

		if (!at)
			return false;
		if (is_write)
			memcpy(at, map + k, PART);
		else
			memcpy(map + k, at, PART);
	}
	return true;
}

/* ---- replace -------------------------------------------------------------- */

/* option: the field; offset[0]: its ordinal. */
static void run_replace(struct emu_warp *w, const struct emu_instr *i, uint32_t lanes)
{
	const struct emu_value *value = &i->operand[1];
	uint64_t address[EMU_LANES];

	emu_addresses(w, i, &i->operand[0], address);
	EMU_EACH_LANE(l)
	{
		uint8_t map[EMU_TENSOR_MAP_BYTES];
		struct emu_error err = {{0}};
		const void *row = emu_row(w, value);
		const uint64_t x = value->bytes == 8 ? ((const uint64_t *)row)[l]
						     : ((const uint32_t *)row)[l];

		if (!(lanes >> l & 1))
			continue;
		if (!move_map(w, i, l, (enum emu_state_space)i->space, address[l],
			      false, map))
			return;
		if (!emu_tensor_map_replace(map, (enum emu_tensor_field)i->option,
					    (int)i->offset[0], x, &err)) {
			emu_fault(w, i, l, "%s", err.text);
			return;
		}
		if (!move_map(w, i, l, (enum emu_state_space)i->space, address[l], true,
			      map))
			return;
	}
}

bool emu_bind_tensormap_replace(struct emu_bind *b)
{
	static const char *const fields[] = {
	    [EMU_TENSOR_FIELD_ADDRESS] = "global_address",
	    [EMU_TENSOR_FIELD_RANK] = "rank",
	    [EMU_TENSOR_FIELD_BOX] = "box_dim",
	    [EMU_TENSOR_FIELD_SIZE] = "global_dim",
	    [EMU_TENSOR_FIELD_STRIDE] = "global_stride",
	    [EMU_TENSOR_FIELD_ELEMENT_STRIDE] = "element_stride",
	    [EMU_TENSOR_FIELD_TYPE] = "elemtype",
	    [EMU_TENSOR_FIELD_INTERLEAVE] = "interleave_layout",
	    [EMU_TENSOR_FIELD_SWIZZLE] = "swizzle_mode",
	    [EMU_TENSOR_FIELD_ATOMICITY] = "swizzle_atomicity",
	    [EMU_TENSOR_FIELD_FILL] = "fill_mode",
	};
	const uint32_t count = sizeof(fields) / sizeof(*fields);
	uint32_t field = 0, arguments;
	int64_t ordinal = 0;
	bool is_wide, has_ordinal;

	if (!emu_has(b, "tile") || !emu_has(b, "b1024") ||
	    !emu_has_one(b, fields, count, &field))
		return emu_bind_fail(b, "it needs .tile, one field and .b1024");
	is_wide = field == EMU_TENSOR_FIELD_ADDRESS || field == EMU_TENSOR_FIELD_STRIDE;
	has_ordinal =
	    field >= EMU_TENSOR_FIELD_BOX && field <= EMU_TENSOR_FIELD_ELEMENT_STRIDE;
	arguments = has_ordinal ? 3 : 2;
	if (b->n_types != 1 || b->types[0] != (is_wide ? EMU_B64 : EMU_B32))
		return emu_bind_fail(b, ".%s is .%s", fields[field],
				     is_wide ? "b64" : "b32");
	if (!emu_arguments(b, arguments, arguments) ||
	    (has_ordinal &&
	     !emu_number(b, emu_argument(b, 1), 0, EMU_TENSOR_RANK - 1, &ordinal)))
		return false;
	b->i->option = field;
	b->i->space = (uint8_t)emu_space_of(b);
	b->i->run = run_replace;
	if (!emu_address(b, emu_argument(b, 0)))
		return false;
	b->i->offset[0] = ordinal;
	return emu_src(b, emu_argument(b, arguments - 1), b->types[0]);
}

/* ---- publishing ----------------------------------------------------------- */

/* All lanes copy together, so all must give the same map. */
static void run_copy(struct emu_warp *w, const struct emu_instr *i, uint32_t lanes)
{
	const int first = __builtin_ctz(lanes);
	uint64_t to[EMU_LANES], from[EMU_LANES];
	uint8_t map[EMU_TENSOR_MAP_BYTES];

	emu_offset_addresses(w, &i->operand[0], i->immediate, to);
	emu_offset_addresses(w, &i->operand[1], i->offset[0], from);
	EMU_EACH_LANE(l)
	if (lanes >> l & 1 && (to[l] != to[first] || from[l] != from[first])) {
		emu_fault(w, i, l,
			  "its addresses differ between lanes: all must have "
			  "the same");
		return;
	}
	if (!move_map(w, i, first, EMU_SHARED, from[first], false, map) ||
	    !move_map(w, i, first, EMU_GLOBAL, to[first], true, map) ||
	    !emu_watch_global(w, i, first, EMU_ORDER_WRITE, to[first],
			      EMU_TENSOR_MAP_BYTES))
		return;
	emu_watch_fence(w, EMU_ORDER_WIDE);
}

/* Checks that the size in an instruction is that of a map. */
static bool is_size_of_map(struct emu_bind *b, uint32_t n)
{
	int64_t bytes;

	return emu_number(b, emu_argument(b, n), EMU_TENSOR_MAP_BYTES,
			  EMU_TENSOR_MAP_BYTES, &bytes);
}

bool emu_bind_tensormap_copy(struct emu_bind *b)
{
	if (!emu_has(b, "global") || !emu_has(b, "shared::cta") ||
	    !emu_has(b, "tensormap::generic") || !emu_has(b, "release") ||
	    !emu_has(b, "sync") || !emu_has(b, "aligned"))
		return emu_bind_fail(b, "it needs .global.shared::cta."
					"tensormap::generic.release, a scope "
					"and .sync.aligned");
	b->i->is_converged = true;
	b->i->run = run_copy;
	return emu_arguments(b, 3, 3) && emu_address(b, emu_argument(b, 0)) &&
	       emu_address(b, emu_argument(b, 1)) && is_size_of_map(b, 2);
}

static void run_fence(struct emu_warp *w, const struct emu_instr *i, uint32_t lanes)
{
	(void)lanes;
	emu_watch_fence(w, i->vector ? EMU_ORDER_NEAR : EMU_ORDER_WIDE);
}

bool emu_bind_tensormap_fence(struct emu_bind *b)
{
	const bool is_acquire = emu_has(b, "acquire");

	if (is_acquire == emu_has(b, "release"))
		return emu_bind_fail(b, "it needs .acquire or .release");
	b->i->vector = emu_has(b, "cta") || emu_has(b, "cluster");
	b->i->run = run_fence;
	if (!is_acquire)
		return emu_arguments(b, 0, 0);
	return emu_arguments(b, 2, 2) && emu_address(b, emu_argument(b, 0)) &&
	       is_size_of_map(b, 1);
}
