/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bound.h - how far a backend's result may be from the exact one.  Every line
 * is derived in docs/numerics.md.
 */
#ifndef NIB_BOUND_H
#define NIB_BOUND_H

#include <stdbool.h>
#include <stdint.h>

#include "format/exact.h"
#include "format/exact_dense.h"
#include "nibblas.h"

/* What one element of c must be. */
struct nib_expected {
	double want;  /* the exact value; NaN: the result must be NaN */
	double slack; /* error of the fp32 value before its last rounding;
		       * infinite: fp32 may overflow, any result passes */
	double unit;  /* errors are reported divided by this; > 0 */
};

/* NIB_OP_GEMM, NIB_OP_GEMV.  s->products is read only for FP16_TENSOR,
 * s->large only for FP4_TENSOR. */
struct nib_expected nib_expect_gemm(const struct nib_exact_sum *s, float alpha,
				    int64_t k, enum nib_arithmetic arithmetic);
/* NIB_OP_DUAL_GEMM: silu(alpha * s) * (alpha2 * s2). */
struct nib_expected nib_expect_dual(const struct nib_exact_sum *s, float alpha,
				    const struct nib_exact_sum *s2, float alpha2,
				    int64_t k, enum nib_arithmetic arithmetic);

/* The type of an A that is not NVFP4, and the arithmetic that multiplies it. */
struct nib_dense_rule {
	enum nib_activations activations;
	enum nib_dtype dtype; /* of x */
	enum nib_arithmetic arithmetic;
};

/*
 * Whether a bound is known: for NIB_ARITHMETIC_BLOCKS, and for DENSE fp16 and bf16
 * with NIB_ARITHMETIC_FP16_TENSOR.
 */
bool nib_has_dense_bound(struct nib_dense_rule rule);

/* As nib_expect_gemm() and nib_expect_dual(), for an A that is not NVFP4. */
struct nib_expected nib_expect_gemm_dense(const struct nib_exact_wide *s, float alpha,
					  int64_t k, struct nib_dense_rule rule);
struct nib_expected nib_expect_dual_dense(const struct nib_exact_wide *s, float alpha,
					  const struct nib_exact_wide *s2, float alpha2,
					  int64_t k, struct nib_dense_rule rule);

struct nib_verdict {
	double error;	 /* |got - want|; infinite for a wrong NaN or infinity */
	double bound;	 /* of the error */
	double fraction; /* error / bound, 0 if error is 0 */
};

/* The result passes if fraction <= 1. */
struct nib_verdict nib_judge(const struct nib_expected *e, enum nib_dtype dtype,
			     float got);

#endif
