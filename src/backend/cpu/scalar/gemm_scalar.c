/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemm_scalar.c - the definition of the CPU backend's multiplication.  Each
 * output is a sum over k-blocks in ascending order, in fp32:
 *   sum += (integer dot product of the block) * (record's scale * scale of b /
 *          256)
 * This product is exact (at most 23 bits), so each step rounds once, at the
 * addition, and a fused multiply-add gives the same bits.
 */
#include <string.h>

#include "backend/cpu/gemm_ops.h"

#include "backend/cpu/epilogue.inc.h"
#include "backend/cpu/pack.inc.h"
#include "backend/cpu/pack_int8.inc.h"

#define CPU_GEMM_OPS	  cpu_gemm_ops_scalar
#define TILE_ROWS	  8
#define PACK_ROW(item, i) pack_row(item, i, TILE_ROWS)

typedef struct cpu_record record;

/* A k-block of a panel, decoded: codes[j][n] meets record.codes[j]. */
struct decoded {
	int16_t codes[NIB_NVFP4_BLOCK][PANEL_COLS];
	float scales[PANEL_COLS]; /* / 256 */
};

static void decode(const uint8_t *panel, int64_t blocks, int64_t block,
		   struct decoded *out)
{
	const uint8_t *codes = panel + cpu_codes_at(block);
	const uint8_t *scales = panel + cpu_scales_at(blocks, block);

	for (int n = 0; n < PANEL_COLS; n++) {
		for (int i = 0; i < 4; i++) {
			uint8_t z0 = codes[4 * n + i], z1 = codes[64 + 4 * n + i];

			out->codes[i][n] = nib_e2m1_twice[z0 & 15];
			out->codes[4 + i][n] = nib_e2m1_twice[z0 >> 4];
			out->codes[8 + i][n] = nib_e2m1_twice[z1 & 15];
			out->codes[12 + i][n] = nib_e2m1_twice[z1 >> 4];
		}
		/* A NaN becomes 480 here; the epilogue's mask makes the result
		 * NaN. */
		out->scales[n] =
		    (scales[n] == 0x7f ? 480.0f : nib_e4m3_to_float(scales[n])) *
		    0x1p-8f;
	}
}

/* sums[16] of one row += one k-block. */
static void add_block(const record *a, const struct decoded *b, float *sums)
{
	int32_t dot[PANEL_COLS] = {0};

	for (int j = 0; j < NIB_NVFP4_BLOCK; j++)
		for (int n = 0; n < PANEL_COLS; n++)
			dot[n] += a->codes[j] * b->codes[j][n];
	for (int n = 0; n < PANEL_COLS; n++)
		sums[n] += (float)dot[n] * (a->scale * b->scales[n]);
}

#include "backend/cpu/scalar/units_scalar.inc.h"
