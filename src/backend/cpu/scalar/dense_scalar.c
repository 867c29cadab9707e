/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dense_scalar.c - the definition of W4A16 and W4A32.  Each output is a sum
 * over k-blocks in ascending order, in fp32, every step fused:
 *   dot = fma(x, value of the code / 128, dot)   from 0, in the order of k
 *   sum = fma(dot, scale of the block * 128, sum)
 * The factor keeps dot finite where its block's part of the sum is.
 */
#include <math.h>
#include <string.h>

#include "backend/cpu/gemm_ops.h"

#include "backend/cpu/epilogue.inc.h"
#include "backend/cpu/pack.inc.h"

#define CPU_GEMM_OPS		  cpu_dense_ops_scalar
#define TILE_ROWS		  8
#define PACK_ROW(item, i)	  pack_dense_row(item, i, TILE_ROWS)
#define PACK_BLOCK(x, dtype, out) widen_block(x, dtype, (out)->word)

typedef struct cpu_fp32_record record;

#include "backend/cpu/pack_dense.inc.h"

/* A k-block of a panel, decoded: codes[j][n] meets word j of a record. */
struct decoded {
	float codes[NIB_NVFP4_BLOCK][PANEL_COLS];
	float scales[PANEL_COLS];
};

static void decode(const uint8_t *panel, int64_t blocks, int64_t block,
		   struct decoded *out)
{
	const uint8_t *codes = panel + cpu_codes_at(block);
	const uint8_t *scales = panel + cpu_scales_at(blocks, block);

	for (int n = 0; n < PANEL_COLS; n++) {
		for (int j = 0; j < NIB_NVFP4_BLOCK; j++) {
			const uint8_t byte = codes[j / 8 * 64 + 4 * n + j % 8 / 2];
			const int code = j % 2 ? byte >> 4 : byte & 15;

			out->codes[j][n] = (float)nib_e2m1_twice[code] * 0x1p-8f;
		}
		/* A NaN becomes 480 here; the epilogue's mask makes the result
		 * NaN. */
		out->scales[n] =
		    scales[n] == 0x7f ? 480.0f : nib_e4m3_to_float(scales[n]);
		out->scales[n] *= 128.0f;
	}
}

/* sums[16] of one row += one k-block. */
static void add_block(const record *a, const struct decoded *b, float *sums)
{
	float dot[PANEL_COLS] = {0};

	for (int j = 0; j < NIB_NVFP4_BLOCK; j++)
		for (int n = 0; n < PANEL_COLS; n++)
			dot[n] = fmaf(a->word[j], b->codes[j][n], dot[n]);
	for (int n = 0; n < PANEL_COLS; n++)
		sums[n] = fmaf(dot[n], b->scales[n], sums[n]);
}

#include "backend/cpu/scalar/units_scalar.inc.h"
