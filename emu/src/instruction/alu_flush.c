/* SPDX-License-Identifier: Apache-2.0 */
/*
 * alu_flush.c - .ftz (subnormal sources and results become zeros of their sign), and
 * sources of 16 bits in arithmetic of .f32.  Both wrap the function of an
 * instruction, so that no other function tests these words.
 */
#include <string.h>

#include "hardware/floats.h"
#include "instruction/binds.h"
#include "machine/warp.h"

#define MOST_OPERANDS 6

static uint32_t flush_f32(uint32_t x)
{
	return x & 0x7F800000 ? x : x & 0x80000000;
}

static uint32_t flush_f16(uint32_t x)
{
	return x & 0x7C00 ? x : x & 0x8000;
}

/* Flushes a row of values of the type in place; other types do not change. */
static void flush_row(void *row, enum emu_type type, uint32_t lanes)
{
	uint16_t *halves = row;
	uint32_t *words = row;

	EMU_EACH_LANE(l)
	{
		if (!(lanes >> l & 1))
			continue;
		if (type == EMU_F32) {
			words[l] = flush_f32(words[l]);
		} else if (type == EMU_F32X2) {
			words[2 * l] = flush_f32(words[2 * l]);
			words[2 * l + 1] = flush_f32(words[2 * l + 1]);
		} else if (type == EMU_F16X2) {
			words[l] = flush_f16(words[l] & 0xFFFF) |
				   flush_f16(words[l] >> 16) << 16;
		} else if (type == EMU_T_F16) {
			halves[l] = (uint16_t)flush_f16(halves[l]);
		}
	}
}

static void flush(struct emu_warp *w, const struct emu_instr *i, uint32_t lanes,
		  bool only_f32)
{
	const enum emu_type to = (enum emu_type)i->type;
	const enum emu_type from =
	    i->type2 == EMU_NO_TYPE ? to : (enum emu_type)i->type2;
	struct emu_value operands[MOST_OPERANDS];
	uint64_t rows[MOST_OPERANDS][EMU_LANES];
	struct emu_instr plain = *i;

	w->bank[EMU_SCRATCH] = (uint8_t *)rows;
	for (uint32_t n = 0; n < i->operands; n++) {
		struct emu_value *o = &operands[n];

		*o = i->operand[n];
		if (o->is_written || o->bytes != emu_type_bytes(from) ||
		    (only_f32 && from != EMU_F32))
			continue;
		memcpy(rows[n], emu_row(w, o), (size_t)o->bytes * EMU_LANES);
		flush_row(rows[n], from, UINT32_MAX);
		o->bank = EMU_SCRATCH;
		o->row = n * (uint32_t)sizeof(rows[n]);
	}
	plain.operand = operands;
	i->wrapped(w, &plain, lanes);
	if (operands[0].bytes == emu_type_bytes(to) &&
	    (i->type2 == EMU_NO_TYPE || to == EMU_F32))
		flush_row(emu_row(w, &i->operand[0]), to, lanes);
}

static void run_flushed(struct emu_warp *w, const struct emu_instr *i, uint32_t lanes)
{
	flush(w, i, lanes, false);
}

static void run_flushed_f32(struct emu_warp *w, const struct emu_instr *i,
			    uint32_t lanes)
{
	flush(w, i, lanes, true);
}

static bool wrap(struct emu_bind *b, emu_run *run)
{
	const enum emu_type to = b->types[0];
	const enum emu_type from = b->n_types > 1 ? b->types[1] : to;

	if (!emu_has(b, "ftz"))
		return true;
	if (to != EMU_F32 && from != EMU_F32 && to != EMU_F32X2 && to != EMU_T_F16 &&
	    to != EMU_F16X2)
		return emu_bind_fail(b, ".ftz belongs to .f32, .f32x2, .f16 "
					"and .f16x2");
	if (b->n_operands > MOST_OPERANDS)
		return emu_bind_fail(b, "too many operands for .ftz");
	b->i->wrapped = b->i->run;
	b->i->run = run;
	return true;
}

bool emu_flush_by_words(struct emu_bind *b)
{
	return wrap(b, run_flushed);
}

bool emu_flush_f32_by_words(struct emu_bind *b)
{
	return wrap(b, run_flushed_f32);
}

/* ---- sources of 16 bits ---------------------------------------------------- */

static void run_widened(struct emu_warp *w, const struct emu_instr *i, uint32_t lanes)
{
	const struct emu_format *f =
	    i->type2 == EMU_T_F16 ? &emu_format_f16 : &emu_format_bf16;
	struct emu_value operands[MOST_OPERANDS];
	float rows[MOST_OPERANDS][EMU_LANES];
	struct emu_instr plain = *i;

	w->bank[EMU_SCRATCH] = (uint8_t *)rows;
	for (uint32_t n = 0; n < i->operands; n++) {
		struct emu_value *o = &operands[n];
		const uint16_t *from;

		*o = i->operand[n];
		if (o->bytes != 2)
			continue;
		from = emu_row(w, o);
		EMU_EACH_LANE(l) rows[n][l] = (float)emu_widen(f, from[l]);
		o->bank = EMU_SCRATCH;
		o->row = n * (uint32_t)sizeof(rows[n]);
		o->bytes = 4;
	}
	plain.operand = operands;
	i->wrapped(w, &plain, lanes);
}

bool emu_widen_by_types(struct emu_bind *b)
{
	b->i->wrapped = b->i->run;
	b->i->run = run_widened;
	return true;
}
