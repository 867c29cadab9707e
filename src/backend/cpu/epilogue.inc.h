/* SPDX-License-Identifier: Apache-2.0 */
/*
 * epilogue.inc.h - from fp32 sums to the output: alpha, SiLU, NaN, one
 * rounding.
 *
 * Plain C that every instruction set compiles for itself: additions,
 * multiplications, divisions and integer operations in one written order, so
 * the bits are the same everywhere.  The including file may define HAVE_F16C if
 * the set has those instructions.
 */
#include <math.h>

#include "backend/cpu/float_out.inc.h"
#include "backend/cpu/gemm_ops.h"

/*
 * Row `row` of the output, columns col .. col+cols-1 (cols <= UNIT_COLS), from
 * sums of A*B / item->sum_factor and, for the dual operation, A*B2 (else NULL).
 * nan: bit j for column col + j.
 */
static inline __attribute__((always_inline)) void
finish_row(const struct cpu_item *item, int64_t row, int64_t col, int64_t cols,
	   const float *sums, const float *sums2, uint64_t nan)
{
	const int64_t size = item->dtype == NIB_DTYPE_FP32 ? 4 : 2;
	char *c = item->c + row * item->c_row_stride_bytes + col * size;
	const float alpha = item->alpha[0], alpha2 = item->alpha[1];
	const float factor = item->sum_factor;
	float x[UNIT_COLS];

	if (sums2)
		for (int64_t j = 0; j < cols; j++)
			x[j] = silu(sums[j] * factor * alpha) *
			       (sums2[j] * factor * alpha2);
	else
		for (int64_t j = 0; j < cols; j++)
			x[j] = sums[j] * factor * alpha;
	if (item->row_flags[row] & CPU_ROW_NAN)
		nan = UINT64_MAX;
	if (nan)
		for (int64_t j = 0; j < cols; j++)
			x[j] = nan >> j & 1 ? NAN : x[j];
	store_row(x, cols, item->dtype, c);
}
