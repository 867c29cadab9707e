/* SPDX-License-Identifier: Apache-2.0 */
/* bound.c - error bounds; the names are those of docs/numerics.md. */
#include "format/bound.h"

#include <math.h>

#include "format/half.h"

/* Half a unit in the last place of 1 in fp32, and of the smallest fp32. */
#define U	      0x1p-24
#define HALF_SMALLEST 0x1p-150
/* Errors of a backend's fp32 silu, relative and absolute. */
#define SILU_RELATIVE (8 * U)
#define SILU_ABSOLUTE 0x1p-120
/* From this |x| on, intermediate results of a CPU may overflow. */
#define INT8_LARGE  0x1p100
#define DENSE_LARGE 0x1p121
/* Where silu has its minimum, and the minimum. */
#define SILU_LOW_X (-1.2784645427610738)
#define SILU_LOW   (-0.27846454276107379)

/* From this size on a value rounds to infinity. */
static double overflow_of(enum nib_dtype dtype)
{
	return dtype == NIB_DTYPE_FP16	 ? 65520.0
	       : dtype == NIB_DTYPE_BF16 ? 0x1.FFp127
					 : 0x1.FFFFFFp127;
}

/* Half the distance between neighbours at size x, of a finite result. */
static double half_ulp(enum nib_dtype dtype, double x)
{
	const struct nib_float_format f = nib_dtype_format(dtype);
	const int bias = (1 << (f.exponent_bits - 1)) - 1;
	int exponent = 1 - bias;

	if (x >= ldexp(1, bias))
		exponent = bias;
	else if (x >= ldexp(1, 1 - bias))
		exponent = ilogb(x);
	return ldexp(1, exponent - f.fraction_bits - 1);
}

/*
 * The largest error of an fp32 sum: units * U * of + fixed.  of: a sum of absolute
 * values, which bounds every intermediate sum apart from its rounding errors.
 */
struct sum_bound {
	double units, of, fixed;
};

static struct sum_bound bound_of(const struct nib_exact_sum *s, int64_t k,
				 enum nib_arithmetic arithmetic)
{
	const int64_t n_blocks = k / NIB_NVFP4_BLOCK, n_steps = (n_blocks + 3) / 4;
	const double blocks = (double)n_blocks, steps = (double)n_steps;
	const double products = ldexp((double)s->products, NIB_EXACT_UNIT);
	const double magnitude = ldexp((double)s->magnitude, NIB_EXACT_UNIT);
	const double large = ldexp((double)s->large, NIB_EXACT_UNIT);

	switch (arithmetic) {
	case NIB_ARITHMETIC_FP16_TENSOR:
		return (struct sum_bound){9.5 * blocks + 9, products, 0};
	case NIB_ARITHMETIC_FP4_TENSOR:
		return (struct sum_bound){2.002 * steps + 4, magnitude, 16 * large};
	case NIB_ARITHMETIC_BLOCKS:
		break;
	}
	return (struct sum_bound){blocks + 4, magnitude, 0};
}

/* The result that an exact sum must give.  b: its bound, before alpha. */
struct target {
	double sum;  /* rounded to double */
	double want; /* alpha * sum, rounded once to double */
	float alpha;
	bool is_nan; /* for every alpha */
	struct sum_bound b;
};

static struct nib_expected expect(const struct target *t)
{
	const double alpha = fabs(nib_fp32_to_fp64(t->alpha));
	const double total = t->b.of * alpha, fixed = t->b.fixed * alpha;
	const double slack = t->b.units * U * t->b.of + t->b.fixed;
	struct nib_expected e = {t->want, 0, 1};

	if (isnan(t->want) && !t->is_nan && isinf(t->alpha) && slack > 0) {
		e.slack = INFINITY; /* inf * a sum that cancels exactly */
	} else if (isinf(t->want)) {
		/* Infinite alpha: any sign passes that the bound allows. */
		e.slack = fabs(t->sum) > slack ? 0 : INFINITY;
	} else if (!isnan(t->want) && total + fixed > 0) {
		e.slack = t->b.units * U * total + fixed + HALF_SMALLEST;
		e.unit = total > 0 ? total : 1;
	}
	return e;
}

struct nib_expected nib_expect_gemm(const struct nib_exact_sum *s, float alpha,
				    int64_t k, enum nib_arithmetic arithmetic)
{
	const struct target t = {ldexp((double)s->sum, NIB_EXACT_UNIT),
				 nib_exact_double(s, alpha), alpha, s->is_nan,
				 bound_of(s, k, arithmetic)};

	return expect(&t);
}

/* ---- A that is not NVFP4 ------------------------------------------------ */

bool nib_has_dense_bound(struct nib_dense_rule rule)
{
	if (rule.arithmetic == NIB_ARITHMETIC_BLOCKS)
		return true;
	return rule.arithmetic == NIB_ARITHMETIC_FP16_TENSOR &&
	       rule.activations == NIB_ACTIVATIONS_DENSE &&
	       rule.dtype != NIB_DTYPE_FP32;
}

/*
 * The tensor cores' bound.  When they choose the bits to cut off, zeros and
 * subnormals count as numbers of size 2^least.  The kernels multiply by 2^-up times
 * the weights.
 */
static struct sum_bound tensor_bound(const struct nib_exact_wide *s, int64_t k,
				     enum nib_dtype dtype)
{
	const int64_t blocks = k / NIB_NVFP4_BLOCK;
	const int least = dtype == NIB_DTYPE_FP16 ? -14 : -126;
	const int up = dtype == NIB_DTYPE_FP16 ? 6 : 7;
	const double terms = (double)(k + 48);
	const double of_w = ldexp(s->largest_w, least - 25) * terms;
	const double of_x = ldexp(s->largest_x, least - 25 + up) * (terms + s->scales);

	/* Products may be half of the least number of fp32. */
	const double of_steps =
	    dtype == NIB_DTYPE_FP16 ? 0 : ldexp((double)(blocks + 4), -149 + up);

	return (struct sum_bound){9.5 * (double)blocks + 9, s->products,
				  of_w + of_x + of_steps};
}

static struct sum_bound dense_bound_of(const struct nib_exact_wide *s, int64_t k,
				       struct nib_dense_rule rule)
{
	const int64_t blocks = k / NIB_NVFP4_BLOCK;
	const double terms = (double)k;
	struct sum_bound b;

	if (rule.activations == NIB_ACTIVATIONS_INT8)
		return (struct sum_bound){(double)blocks + 4, s->magnitude, 0};
	if (rule.arithmetic == NIB_ARITHMETIC_FP16_TENSOR)
		b = tensor_bound(s, k, rule.dtype);
	else
		/* On AMX, too: its instruction's roundings are fewer. */
		b = (struct sum_bound){terms + 8, s->products,
				       (2 * terms + s->scales) * 0x1p-126 +
					   s->subnormal};
	if (s->products == 0)
		b.fixed = 0; /* all products are 0, so the sum is exact */
	return b;
}

/* Whether an intermediate sum, or a block's before it is scaled, may overflow. */
static bool may_overflow(const struct nib_exact_wide *s, const struct sum_bound *b,
			 struct nib_dense_rule rule)
{
	if (rule.arithmetic == NIB_ARITHMETIC_BLOCKS &&
	    s->largest_x >=
		(rule.activations == NIB_ACTIVATIONS_INT8 ? INT8_LARGE : DENSE_LARGE))
		return true;
	return !(b->of * (1 + b->units * U) + b->fixed < overflow_of(NIB_DTYPE_FP32));
}

struct nib_expected nib_expect_gemm_dense(const struct nib_exact_wide *s, float alpha,
					  int64_t k, struct nib_dense_rule rule)
{
	const struct target t = {nib_exact_wide_double(s, 1),
				 nib_exact_wide_double(s, alpha), alpha, s->is_nan,
				 dense_bound_of(s, k, rule)};
	struct nib_expected e = expect(&t);

	if (!isnan(t.want) && may_overflow(s, &t.b, rule))
		e.slack = INFINITY;
	return e;
}

/* ---- silu --------------------------------------------------------------- */

/* How far silu moves when x moves by at most slack. */
static double silu_spread(double x, double slack)
{
	const double at = nib_exact_silu(x);
	const double low = x - slack, high = x + slack;
	double spread =
	    fmax(fabs(nib_exact_silu(low) - at), fabs(nib_exact_silu(high) - at));

	if (low < SILU_LOW_X && high > SILU_LOW_X)
		spread = fmax(spread, at - SILU_LOW);
	return spread;
}

/* silu(x) * y */
static struct nib_expected expect_dual(struct nib_expected x, struct nib_expected y)
{
	const double limit = overflow_of(NIB_DTYPE_FP32);
	struct nib_expected e = {NAN, 0, x.unit * y.unit};
	double silu, spread, size, slack;

	if ((isnan(x.want) && x.slack == 0) || (isnan(y.want) && y.slack == 0))
		return e;
	silu = nib_exact_silu(x.want);
	e.want = silu * y.want;
	if (!(fabs(x.want) + x.slack < limit) || !(fabs(y.want) + y.slack < limit)) {
		e.slack = INFINITY;
		return e;
	}
	spread = silu_spread(x.want, x.slack);
	spread += SILU_RELATIVE * (fabs(silu) + spread) + SILU_ABSOLUTE;
	slack = spread * (fabs(y.want) + y.slack) + fabs(silu) * y.slack;
	size = fabs(e.want) + slack;
	e.slack = (slack + U * size) * (1 + 0x1p-20) + HALF_SMALLEST;
	return e;
}

struct nib_expected nib_expect_dual(const struct nib_exact_sum *s, float alpha,
				    const struct nib_exact_sum *s2, float alpha2,
				    int64_t k, enum nib_arithmetic arithmetic)
{
	return expect_dual(nib_expect_gemm(s, alpha, k, arithmetic),
			   nib_expect_gemm(s2, alpha2, k, arithmetic));
}

struct nib_expected nib_expect_dual_dense(const struct nib_exact_wide *s, float alpha,
					  const struct nib_exact_wide *s2, float alpha2,
					  int64_t k, struct nib_dense_rule rule)
{
	return expect_dual(nib_expect_gemm_dense(s, alpha, k, rule),
			   nib_expect_gemm_dense(s2, alpha2, k, rule));
}

struct nib_verdict nib_judge(const struct nib_expected *e, enum nib_dtype dtype,
			     float got)
{
	struct nib_verdict v = {INFINITY, 0, INFINITY};
	const double value = nib_fp32_to_fp64(got);
	bool is_right;

	v.bound = e->slack;
	if (dtype != NIB_DTYPE_FP32)
		v.bound += half_ulp(dtype, fabs(e->want) + e->slack);
	if (isinf(e->slack))
		is_right = true;
	else if (isnan(e->want))
		is_right = isnan(value);
	else if (isinf(e->want) || isinf(value))
		is_right =
		    copysign(1, value) * e->want + e->slack >= overflow_of(dtype) &&
		    isinf(value);
	else if (isnan(value))
		is_right = false;
	else {
		v.error = fabs(value - e->want);
		v.fraction = v.error == 0 ? 0 : v.error / v.bound;
		return v;
	}
	if (is_right)
		v.error = v.fraction = 0;
	return v;
}
