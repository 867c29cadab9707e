/* SPDX-License-Identifier: Apache-2.0 */
/* tensor_memory.c - see tensor_memory.h. */
#include "hardware/tensor_memory.h"

#include <string.h>

/* ---- allocation ---------------------------------------------------------- */

bool emu_tmem_may_alloc(const struct emu_tmem *t, uint32_t columns,
			struct emu_error *err)
{
	if (columns < EMU_TMEM_LEAST || columns > EMU_TMEM_COLUMNS ||
	    columns & (columns - 1))
		return emu_fail(err,
				"%u columns: it must be a power of two from 32 to 512",
				columns);
	if (t->is_relinquished)
		return emu_fail(err, "the CTA has given up its right to "
				     "allocate (relinquish_alloc_permit)");
	if (t->last_columns && columns > t->last_columns)
		return emu_fail(err,
				"%u columns after %u: the number may not grow "
				"from one allocation to the next",
				columns, t->last_columns);
	return true;
}

bool emu_tmem_is_free(const struct emu_tmem *t, uint32_t first, uint32_t columns)
{
	for (uint32_t c = 0; c < columns; c += EMU_TMEM_LEAST)
		if (t->is_taken[(first + c) / EMU_TMEM_LEAST])
			return false;
	return true;
}

uint32_t emu_tmem_places(const struct emu_tmem *t, uint32_t columns, uint32_t which,
			 uint32_t *first)
{
	uint32_t count = 0;

	for (uint32_t at = 0; at < EMU_TMEM_COLUMNS; at += columns) {
		if (!emu_tmem_is_free(t, at, columns))
			continue;
		if (count == which)
			*first = at;
		count++;
	}
	return count;
}

void emu_tmem_take(struct emu_tmem *t, uint32_t first, uint32_t columns)
{
	for (uint32_t c = 0; c < columns; c += EMU_TMEM_LEAST)
		t->is_taken[(first + c) / EMU_TMEM_LEAST] = true;
	t->columns[first / EMU_TMEM_LEAST] = (uint16_t)columns;
	t->last_columns = (uint16_t)columns;
	for (uint32_t lane = 0; lane < EMU_TMEM_LANES; lane++)
		memset(&t->written[lane][first], 0, columns);
}

bool emu_tmem_dealloc(struct emu_tmem *t, uint32_t address, uint32_t columns,
		      struct emu_error *err)
{
	const uint32_t first = emu_tmem_column(address);

	if (emu_tmem_lane(address) || first >= EMU_TMEM_COLUMNS ||
	    first % EMU_TMEM_LEAST || t->columns[first / EMU_TMEM_LEAST] == 0)
		return emu_fail(err, "no allocation begins at 0x%08x", address);
	if (t->columns[first / EMU_TMEM_LEAST] != columns)
		return emu_fail(err, "%u columns at 0x%08x, of an allocation of %u",
				columns, address, t->columns[first / EMU_TMEM_LEAST]);
	t->columns[first / EMU_TMEM_LEAST] = 0;
	for (uint32_t c = 0; c < columns; c += EMU_TMEM_LEAST)
		t->is_taken[(first + c) / EMU_TMEM_LEAST] = false;
	return true;
}

uint32_t emu_tmem_in_use(const struct emu_tmem *t)
{
	uint32_t columns = 0;

	for (uint32_t i = 0; i < EMU_TMEM_ALLOCATIONS; i++)
		columns += t->columns[i];
	return columns;
}

bool emu_tmem_has(const struct emu_tmem *t, uint32_t address, uint32_t columns,
		  struct emu_error *err)
{
	const uint32_t first = emu_tmem_column(address);

	if (emu_tmem_lane(address) >= EMU_TMEM_LANES)
		return emu_fail(err,
				"tensor memory address 0x%08x: lane %u, there "
				"are 128",
				address, emu_tmem_lane(address));
	if (first + columns > EMU_TMEM_COLUMNS)
		return emu_fail(err,
				"tensor memory address 0x%08x: columns %u to "
				"%u, there are 512",
				address, first, first + columns - 1);
	for (uint32_t c = first; c < first + columns; c++)
		if (!t->is_taken[c / EMU_TMEM_LEAST])
			return emu_fail(err,
					"tensor memory address 0x%08x: column "
					"%u is not allocated",
					address, c);
	return true;
}

/* ---- ld and st ----------------------------------------------------------- */

static const struct {
	uint8_t lanes, registers, columns;
} shapes[EMU_TMEM_SHAPES] = {
    [EMU_TMEM_32X32B] = {32, 1, 1},   [EMU_TMEM_16X64B] = {16, 1, 2},
    [EMU_TMEM_16X128B] = {16, 2, 4},  [EMU_TMEM_16X256B] = {16, 4, 8},
    [EMU_TMEM_16X32BX2] = {16, 1, 1},
};

uint32_t emu_tmem_shape_lanes(enum emu_tmem_shape shape)
{
	return shapes[shape].lanes;
}

uint32_t emu_tmem_shape_registers(enum emu_tmem_shape shape)
{
	return shapes[shape].registers;
}

uint32_t emu_tmem_shape_columns(enum emu_tmem_shape shape)
{
	return shapes[shape].columns;
}

void emu_tmem_fragment(enum emu_tmem_shape shape, int thread, int i, uint32_t *lane,
		       uint32_t *column)
{
	const uint32_t t = (uint32_t)thread, r = (uint32_t)i;

	switch (shape) {
	case EMU_TMEM_16X64B:
		*lane = t % 2 * 8 + t / 4;
		*column = t / 2 % 2 + 2 * r;
		break;
	case EMU_TMEM_16X128B:
		*lane = t / 4 + r % 2 * 8;
		*column = t % 4 + r / 2 * 4;
		break;
	case EMU_TMEM_16X256B:
		*lane = t / 4 + r / 2 % 2 * 8;
		*column = t % 4 * 2 + r % 2 + r / 4 * 8;
		break;
	case EMU_TMEM_16X32BX2:
		*lane = t % 16;
		*column = r;
		break;
	default:
		*lane = t;
		*column = r;
	}
}

/* ---- cp ------------------------------------------------------------------ */

static const struct {
	uint8_t rows, pieces;
} copies[EMU_TMEM_COPIES] = {
    [EMU_TMEM_CP_128X256B] = {128, 2},	   [EMU_TMEM_CP_128X128B] = {128, 1},
    [EMU_TMEM_CP_4X256B] = {4, 2},	   [EMU_TMEM_CP_64X128B_02_13] = {64, 1},
    [EMU_TMEM_CP_64X128B_01_23] = {64, 1}, [EMU_TMEM_CP_32X128B_X4] = {32, 1},
};

uint32_t emu_tmem_copy_rows(enum emu_tmem_copy copy)
{
	return copies[copy].rows;
}

uint32_t emu_tmem_copy_pieces(enum emu_tmem_copy copy)
{
	return copies[copy].pieces;
}

uint32_t emu_tmem_copy_lanes(enum emu_tmem_copy copy, uint32_t row, uint32_t lanes[4])
{
	switch (copy) {
	case EMU_TMEM_CP_4X256B:
		lanes[0] = 32 * row;
		return 1;
	case EMU_TMEM_CP_64X128B_02_13:
		lanes[0] = row;
		lanes[1] = row + 64;
		return 2;
	case EMU_TMEM_CP_64X128B_01_23:
		lanes[0] = row / 32 * 64 + row % 32;
		lanes[1] = lanes[0] + 32;
		return 2;
	case EMU_TMEM_CP_32X128B_X4:
		for (uint32_t i = 0; i < 4; i++)
			lanes[i] = row + 32 * i;
		return 4;
	default:
		lanes[0] = row;
		return 1;
	}
}
