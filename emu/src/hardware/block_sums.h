/* SPDX-License-Identifier: Apache-2.0 */
/*
 * block_sums.h - the arithmetic of a Blackwell tensor core for operands with block
 * scales.  Memory and layouts are not known here.
 *
 * kind::mxf4nvf4 (64 elements of k):
 *
 *	a term is the exact sum of 16 products of E2M1, times the significands of
 *	  their two scales; its exponent is the sum of the scales' exponents
 *	  (-6 for a subnormal scale, -126 for a zero);
 *	e = the largest exponent of c and of those terms that have a product
 *	  that is not zero;
 *	c and the four terms are each truncated to a multiple of 2^(e - 35);
 *	their exact sum is truncated to fp32.
 *
 * kind::mxf8f6f4 (32 elements): each product is a term.  Its exponent is the sum of
 * the factors' and the scales' exponents; zeros have none.  Each term is truncated
 * to a multiple of 2^(e - 25), and the exact sum with c is truncated to fp32.
 *
 * The sign of a UE4M3 is ignored.  A scale or c that is NaN gives EMU_NAN_F32, as
 * does a NaN in the products.  An infinite c of kind::mxf4nvf4 stays, as does a c to
 * which nothing is added.  Source: Xie et al., MMA-Sim, arXiv 2511.10909, and its
 * code (nv_fused_dot_add_with_block_scale), with one exception: that code counts the
 * exponents of terms without a product.  docs/numerics.md, section 5, does not
 * count them, as in sf-tensor/tcgen05, whose rule was compared with a B200.
 */
#ifndef EMU_BLOCK_SUMS_H
#define EMU_BLOCK_SUMS_H

#include "hardware/tensor_core.h"
#include "hardware/umma.h"

/* One operand: rows of A or columns of B. */
struct emu_block_operand {
	int rows;
	enum emu_umma_type type;
	bool scale_is_ue8m0;
	int scales; /* of a row: 1, 2, 4 */
	uint8_t scale[EMU_UMMA_MAX_ROWS][EMU_UMMA_MAX_SCALES];
	/* kind::mxf4nvf4: elements times 2.  kind::mxf8f6f4: codes. */
	int16_t value[EMU_UMMA_MAX_ROWS][EMU_UMMA_MAX_K];
	/* kind::mxf4nvf4: one bit for each element that is not zero. */
	uint16_t used[EMU_UMMA_MAX_ROWS][EMU_UMMA_MAX_K / 16];
};

/* One row of element codes; its scales. */
void emu_block_operand_set(struct emu_block_operand *operand, int row,
			   enum emu_umma_kind kind, const uint8_t *codes, bool negate);
void emu_block_operand_scale(struct emu_block_operand *operand, int row,
			     const uint8_t *scales);

/*
 * d[m][n] = row m of a times row n of b + c[m][n]: bits of fp32.  c NULL:
 * zeros; c and d may be the same.
 */
void emu_fp4_sums(const struct emu_block_operand *a, const struct emu_block_operand *b,
		  const uint32_t *c, uint32_t *d);
/*
 * Kinds mxf8f6f4 and, with one scale of 1 for each row, f8f6f4.  d_is_f16: c and d
 * are bits of fp16, and the sum is rounded to nearest even.
 */
void emu_mx_sums(const struct emu_block_operand *a, const struct emu_block_operand *b,
		 bool d_is_f16, const uint32_t *c, uint32_t *d);

#endif
