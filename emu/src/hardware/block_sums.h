/* SPDX-License-Identifier: Apache-2.0 */
/*
 * block_sums.h - the numbers that a Blackwell tensor core makes of operands
 * with block scales.  Knows no memory and no layouts.
 *
 * kind::mxf4nvf4 (64 elements of k):
 *
 *	each 16 products of E2M1 summed exactly, times the significands of their
 *	  two scales: a term, whose exponent is the sum of the scales' exponents
 *	  (of a subnormal scale -6, of a zero -126);
 *	e = the largest exponent of c and of those terms that have a product
 *	  that is not zero;
 *	each of the five cut toward zero to a multiple of 2^(e - 35);
 *	their exact sum, cut toward zero to fp32.
 *
 * kind::mxf8f6f4 (32 elements): each product by itself, its exponent the sum of
 * the factors' and the scales' exponents, cut to 2^(e - 25); zeros have no
 * exponent; their exact sum with c, cut toward zero to fp32.
 *
 * The sign of a UE4M3 is ignored; a scale or c that is NaN gives EMU_NAN_F32,
 * and so does what is NaN in the products.  Source: Xie et al., MMA-Sim, arXiv
 * 2511.10909, and its code (nv_fused_dot_add_with_block_scale); but that counts
 * the exponents of terms without a product, which docs/numerics.md, section 5,
 * does not, from sf-tensor/tcgen05, whose rule was compared with a B200.  An
 * infinite c of kind::mxf4nvf4 stays, and so does a c to which nothing is added.
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
	/* kind::mxf4nvf4: elements that are not zero, a bit each. */
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
 * kinds mxf8f6f4 and, with one scale of 1 a row, f8f6f4.  d_is_f16: c and d are
 * bits of fp16, and the sum is rounded to nearest even instead.
 */
void emu_mx_sums(const struct emu_block_operand *a, const struct emu_block_operand *b,
		 bool d_is_f16, const uint32_t *c, uint32_t *d);

#endif
