/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tensor_core.h - the arithmetic of a Hopper tensor core, which wgmma and mma.sync
 * have in common.  Registers, shared memory and layouts are not known here.
 *
 * One sum of an instruction (the products of 32 bytes of k, and c) is computed in
 * one step:
 *
 *	every product exactly, its exponent the sum of its factors' exponents
 *	  (a subnormal has the exponent of the smallest normal number);
 *	e = the largest exponent of all terms, c among them, and of
 *	  EMU_ZERO_EXPONENT;
 *	each term truncated to a multiple of 2^(e - fraction bits);
 *	their exact sum, rounded once to the result.
 *
 * Fraction bits: 25 for operands of 16 and 32 bits, 13 for those of 8 bits.  An
 * fp32 result is truncated, for 8-bit operands to 13 bits after the point.  An
 * fp16 result is rounded to nearest even.  Overflow gives infinity, NaN is always
 * EMU_NAN_F32, and a sum of zero is +0.  Source: Xie et al., MMA-Sim, arXiv
 * 2511.10909.
 */
#ifndef EMU_TENSOR_CORE_H
#define EMU_TENSOR_CORE_H

#include "hardware/emu.h"
#include "hardware/floats.h"

enum emu_mma_type {
	EMU_F16,
	EMU_BF16,
	EMU_TF32,
	EMU_E4M3,
	EMU_E5M2,
	EMU_S8,
	EMU_MMA_U8,
};

#define EMU_ZERO_EXPONENT (-133)
#define EMU_MMA_MAX_K	  32
#define EMU_MMA_MAX_ROWS  256

/*
 * One operand of one instruction, decoded.  Element (row, i) is at
 * [i * rows + row].  Rows are those of A or the columns of B.
 */
struct emu_mma_operand {
	int rows, k;
	enum emu_mma_type type;
	/* Nonzero: the row has an infinity or a NaN. */
	uint8_t is_special[EMU_MMA_MAX_ROWS];
	/* Zero for an infinity or a NaN. */
	double value[EMU_MMA_MAX_ROWS * EMU_MMA_MAX_K];
	int16_t exponent[EMU_MMA_MAX_ROWS * EMU_MMA_MAX_K];
	uint8_t kind[EMU_MMA_MAX_ROWS * EMU_MMA_MAX_K];
};

/* Bytes of one element. */
int emu_mma_type_bytes(enum emu_mma_type type);

/*
 * Decodes rows (at most EMU_MMA_MAX_ROWS) of k elements, which are 32 bytes.
 * codes: [rows][k], one in each word.  negate: multiplies each element by -1.  Not
 * for integers.
 */
void emu_mma_operand_fill(struct emu_mma_operand *operand, enum emu_mma_type type,
			  int rows, const uint32_t *codes, bool negate);

/*
 * d[m][n] = row m of a times column n of b + c[m][n], m < a->rows, n < b->rows,
 * bits of fp32 or (d_is_f16) of fp16.  Both operands have elements of one size.
 * c NULL: zeros.  c and d may be the same.
 */
void emu_fused_sums(const struct emu_mma_operand *a, const struct emu_mma_operand *b,
		    bool d_is_f16, const uint32_t *c, uint32_t *d);

/* Truncates the exact x to fp32 with this many bits after the point. */
uint32_t emu_cut_to_f32(double x, int result_bits);
/* Rounds the exact x to nearest even; a zero is +0. */
uint32_t emu_round_to_f16(double x);

#endif
