/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reduction.h - what cp.reduce.async.bulk does to memory: one operation on each
 * element of an array.
 */
#ifndef EMU_REDUCTION_H
#define EMU_REDUCTION_H

#include "hardware/emu.h"

enum emu_reduction_operation {
	EMU_REDUCE_ADD,
	EMU_REDUCE_MIN,
	EMU_REDUCE_MAX,
	EMU_REDUCE_INC,
	EMU_REDUCE_DEC,
	EMU_REDUCE_AND,
	EMU_REDUCE_OR,
	EMU_REDUCE_XOR,
};

enum emu_reduction_type {
	EMU_REDUCE_U32,
	EMU_REDUCE_S32,
	EMU_REDUCE_U64,
	EMU_REDUCE_S64,
	EMU_REDUCE_F16,
	EMU_REDUCE_BF16,
	EMU_REDUCE_F32,
	EMU_REDUCE_F64,
};

struct emu_reduction {
	enum emu_reduction_operation operation;
	enum emu_reduction_type type;
};

/* Bytes of an element. */
uint32_t emu_reduction_bytes(enum emu_reduction_type type);

/*
 * False: the PTX ISA has no such operation for the type.  Floats have add, floats
 * of 16 bits also min and max, and only U32 has inc and dec.
 */
bool emu_reduction_is_known(const struct emu_reduction *r);

/*
 * to[k] = to[k] op from[k], for bytes / size elements.  Sums are rounded to nearest
 * even.  Subnormal F32 operands and sums become zeros of their sign, as the PTX ISA
 * requires for global memory.
 */
void emu_reduce(const struct emu_reduction *r, uint8_t *to, const uint8_t *from,
		uint32_t bytes);

#endif
