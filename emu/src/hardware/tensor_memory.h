/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tensor_memory.h - a CTA's tensor memory: 512 columns of 128 lanes of 32 bits,
 * who has allocated which columns, and which lanes and columns the shapes of
 * tcgen05.ld, .st and .cp name.  Knows no warps.
 *
 * An address is lane << 16 | column.  Sources: PTX ISA, "Tensor Memory",
 * "Tensor Memory Allocation", "Data Movement Shape"; CUTLASS's
 * copy_traits_sm100.hpp for the fragments that PTX has as pictures.
 */
#ifndef EMU_TENSOR_MEMORY_H
#define EMU_TENSOR_MEMORY_H

#include "hardware/emu.h"

#define EMU_TMEM_LANES	     128
#define EMU_TMEM_COLUMNS     512
#define EMU_TMEM_LEAST	     32 /* columns of an allocation */
#define EMU_TMEM_ALLOCATIONS (EMU_TMEM_COLUMNS / EMU_TMEM_LEAST)

struct emu_tmem {
	uint32_t cell[EMU_TMEM_LANES][EMU_TMEM_COLUMNS];
	/* Bytes of a cell that were written, a bit each. */
	uint8_t written[EMU_TMEM_LANES][EMU_TMEM_COLUMNS];
	/* Operations that are going to write a cell. */
	uint8_t pending[EMU_TMEM_LANES][EMU_TMEM_COLUMNS];
	uint16_t columns[EMU_TMEM_ALLOCATIONS]; /* by their first 32; 0: none */
	bool is_taken[EMU_TMEM_ALLOCATIONS];
	uint16_t last_columns; /* of the allocation before; 0: none */
	bool is_relinquished;
};

static inline uint32_t emu_tmem_lane(uint32_t address)
{
	return address >> 16;
}

static inline uint32_t emu_tmem_column(uint32_t address)
{
	return address & 0xFFFF;
}

/* ---- allocation ---------------------------------------------------------- */

/* False with err if an allocation may not have this many columns. */
bool emu_tmem_may_alloc(const struct emu_tmem *t, uint32_t columns,
			struct emu_error *err);
/*
 * Free places for this many columns, at multiples of their number; *first: of
 * place `which` of them.
 */
uint32_t emu_tmem_places(const struct emu_tmem *t, uint32_t columns, uint32_t which,
			 uint32_t *first);
bool emu_tmem_is_free(const struct emu_tmem *t, uint32_t first, uint32_t columns);
/* Takes a place; what is there is undefined. */
void emu_tmem_take(struct emu_tmem *t, uint32_t first, uint32_t columns);
/* Exactly what was allocated. */
bool emu_tmem_dealloc(struct emu_tmem *t, uint32_t address, uint32_t columns,
		      struct emu_error *err);
/* Columns that are allocated. */
uint32_t emu_tmem_in_use(const struct emu_tmem *t);
/* All of these columns are allocated, and the lane exists. */
bool emu_tmem_has(const struct emu_tmem *t, uint32_t address, uint32_t columns,
		  struct emu_error *err);

/* ---- ld and st ----------------------------------------------------------- */

enum emu_tmem_shape {
	EMU_TMEM_32X32B,
	EMU_TMEM_16X64B,
	EMU_TMEM_16X128B,
	EMU_TMEM_16X256B,
	EMU_TMEM_16X32BX2,
	EMU_TMEM_SHAPES
};

/* Lanes that a warp's access of a shape spans, registers a thread at x1, and
 * columns (of 32 bits) at x1. */
uint32_t emu_tmem_shape_lanes(enum emu_tmem_shape shape);
uint32_t emu_tmem_shape_registers(enum emu_tmem_shape shape);
uint32_t emu_tmem_shape_columns(enum emu_tmem_shape shape);
/*
 * Register `i` of a thread: lane and column relative to the address, and for
 * the upper 16 threads of 16x32bx2 to that of their half.
 */
void emu_tmem_fragment(enum emu_tmem_shape shape, int thread, int i, uint32_t *lane,
		       uint32_t *column);

/* ---- cp ------------------------------------------------------------------ */

enum emu_tmem_copy {
	EMU_TMEM_CP_128X256B,
	EMU_TMEM_CP_128X128B,
	EMU_TMEM_CP_4X256B,
	EMU_TMEM_CP_64X128B_02_13,
	EMU_TMEM_CP_64X128B_01_23,
	EMU_TMEM_CP_32X128B_X4,
	EMU_TMEM_COPIES
};

/* Rows of shared memory, and pieces of 16 bytes (4 columns) of each. */
uint32_t emu_tmem_copy_rows(enum emu_tmem_copy copy);
uint32_t emu_tmem_copy_pieces(enum emu_tmem_copy copy);
/* The lanes that row `row` goes to, relative to the address; their number. */
uint32_t emu_tmem_copy_lanes(enum emu_tmem_copy copy, uint32_t row, uint32_t lanes[4]);

#endif
