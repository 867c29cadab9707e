/* SPDX-License-Identifier: Apache-2.0 */
/* alu_pair.c - arithmetic of .f32x2: two floats in a register of 64 bits. */
#include <math.h>
#include <string.h>

#include "hardware/floats.h"
#include "instruction/binds.h"
#include "machine/warp.h"

#define PAIR(name, expression)                                                         \
	static void name(struct emu_warp *w, const struct emu_instr *i,                \
			 uint32_t lanes)                                               \
	{                                                                              \
		const struct emu_value *o = i->operand;                                \
		const float *a = emu_row(w, &o[1]);                                    \
		const float *b = emu_row(w, &o[2]);                                    \
		const float *c = i->operands > 3 ? emu_row(w, &o[3]) : a;              \
		uint32_t r[2 * EMU_LANES];                                             \
		uint64_t both[EMU_LANES];                                              \
                                                                                       \
		(void)c;                                                               \
		for (int l = 0; l < 2 * EMU_LANES; l++) {                              \
			const float x = a[l], y = b[l], d = expression;                \
                                                                                       \
			memcpy(&r[l], &d, sizeof(d));                                  \
			r[l] = d != d ? EMU_NAN_F32 : r[l];                            \
		}                                                                      \
		memcpy(both, r, sizeof(both));                                         \
		emu_put_64(w, &o[0], both, lanes);                                     \
	}
PAIR(add, x + y)
PAIR(sub, x - y)
PAIR(mul, x *y)
PAIR(fma_pair, fmaf(x, y, c[l]))

const struct emu_alu emu_pair_alu[] = {
    {"add", EMU_F32X2, "ttt", add},  {"sub", EMU_F32X2, "ttt", sub},
    {"mul", EMU_F32X2, "ttt", mul},  {"fma", EMU_F32X2, "tttt", fma_pair},
    {NULL, EMU_NO_TYPE, NULL, NULL},
};
