/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wgmma.h - the arithmetic and the layouts of Hopper's warpgroup matrix
 * multiplication.  A warp computes 16 rows, d[16][n] (+)= a[16][k] * b[k][n], and
 * shares only b with the other three warps.
 */
#ifndef EMU_WGMMA_H
#define EMU_WGMMA_H

#include "hardware/tensor_core.h"

#define EMU_WGMMA_MAX_N EMU_MMA_MAX_ROWS

/* k: 32 bytes of the type.  Elements are bits, unpacked to one in each word. */
struct emu_wgmma_shape {
	int n; /* 8 .. 256 by 8 */
	int k; /* 8, 16 or 32 */
	enum emu_mma_type a_type, b_type;
	bool d_is_f16;			 /* else fp32 (s32 for integers) */
	bool saturates;			 /* integers: else modulo 2^32 */
	bool a_transposed, b_transposed; /* in shared memory; 16-bit types */
	bool a_negated, b_negated;
};

/* The places of 16-byte rows of elements in the CTA's shared memory. */
#define EMU_WGMMA_ROW_BYTES 16

/*
 * A shared memory descriptor: start, leading and stride offsets in 16 bytes
 * ([13:0], [29:16], [45:32]), base offset [51:49], swizzle [63:62] (0 none, 1
 * 128, 2 64, 3 32 bytes).
 *
 * The offset, in the CTA's window, of 16 bytes of an operand; base offset and
 * swizzle are applied.  K-major (not transposed): the 16-byte piece `piece` (0 or 1)
 * of the 32 bytes of k of row `row` (of m or n).  Transposed: `row` counts k, and
 * `piece` counts eight m or n.  False with err if the descriptor breaks a rule
 * (alignment, base offset, stride).
 */
bool emu_wgmma_offset(uint64_t descriptor, const struct emu_wgmma_shape *shape,
		      bool is_transposed, int row, int piece, uint32_t *offset,
		      struct emu_error *err);

/*
 * d[r][i] = c[r][i] + sum over k, by tensor_core.h's rules (integers:
 * exact, then wrapped or saturated).  c NULL: zeros.  d and c may be the same.
 * a: [16][k], b: [n][k], c and d: [16][n] bits of the result type.  mma.sync
 * m16n8 of 32 bytes of k is the same with n = 8.
 */
void emu_wgmma_rows(const struct emu_wgmma_shape *shape, const uint32_t *a,
		    const uint32_t *b, const uint32_t *c, uint32_t *d);

/* The element in register i of a lane: of d (row 0..15, column 0..n-1), and of a the
 * first of the elements that share register i. */
void emu_wgmma_d_place(int lane, int i, int *row, int *column);
void emu_wgmma_a_place(const struct emu_wgmma_shape *shape, int lane, int i, int *row,
		       int *k);
/* The same for b of mma.sync (n = 8). */
void emu_mma_b_place(const struct emu_wgmma_shape *shape, int lane, int i, int *column,
		     int *k);

#endif
