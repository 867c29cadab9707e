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
/* Where silu has its minimum, and the minimum. */
#define SILU_LOW_X (-1.2784645427610738)
#define SILU_LOW   (-0.27846454276107379)

/* From this size on a value rounds to infinity. */
static double overflow_of(enum nib_dtype dtype)
{
	return dtype == NIB_FP16   ? 65520.0
	       : dtype == NIB_BF16 ? 0x1.FFp127
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
 * The largest error of an fp32 sum times alpha: units * U * of + fixed.  of and
 * fixed count in units of 2^NIB_EXACT_UNIT.
 */
struct sum_bound {
	double units, of, fixed;
};

static struct sum_bound bound_of(const struct nib_exact_sum *s, int64_t k,
				 enum nib_arithmetic arithmetic)
{
	const int64_t n_blocks = k / NIB_BLOCK, n_steps = (n_blocks + 3) / 4;
	const double blocks = (double)n_blocks, steps = (double)n_steps;

	switch (arithmetic) {
	case NIB_ARITHMETIC_FP16_TENSOR:
		return (struct sum_bound){9.5 * blocks + 9, (double)s->products,
					  0};
	case NIB_ARITHMETIC_FP4_TENSOR:
		return (struct sum_bound){2.002 * steps + 4,
					  (double)s->magnitude,
					  16 * (double)s->large};
	case NIB_ARITHMETIC_BLOCKS:
		break;
	}
	return (struct sum_bound){blocks + 4, (double)s->magnitude, 0};
}

/* Infinite alpha times a sum whose sign fp32 may get wrong. */
static struct nib_expected expect_infinite(const struct nib_exact_sum *s,
					   double want, struct sum_bound b)
{
	const bool is_sure =
	    fabs((double)s->sum) > b.units * U * b.of + b.fixed;

	return (struct nib_expected){want, is_sure ? 0 : INFINITY, 1};
}

struct nib_expected nib_expect_gemm(const struct nib_exact_sum *s, float alpha,
				    int64_t k, enum nib_arithmetic arithmetic)
{
	const struct sum_bound b = bound_of(s, k, arithmetic);
	const double want = nib_exact_double(s, alpha);
	const double scale =
	    ldexp(fabs(nib_fp32_to_fp64(alpha)), NIB_EXACT_UNIT);
	const double total = b.of * scale, fixed = b.fixed * scale;
	struct nib_expected e = {want, 0, 1};

	if (isnan(want) && !s->is_nan && isinf(alpha) && b.of + b.fixed > 0) {
		e.slack = INFINITY; /* inf * a sum that cancels exactly */
	} else if (isinf(want)) {
		return expect_infinite(s, want, b);
	} else if (!isnan(want) && total + fixed > 0) {
		e.slack = b.units * U * total + fixed + HALF_SMALLEST;
		e.unit = total > 0 ? total : 1;
	}
	return e;
}

/* How far silu moves when x moves by at most slack. */
static double silu_spread(double x, double slack)
{
	const double at = nib_exact_silu(x);
	const double low = x - slack, high = x + slack;
	double spread = fmax(fabs(nib_exact_silu(low) - at),
			     fabs(nib_exact_silu(high) - at));

	if (low < SILU_LOW_X && high > SILU_LOW_X)
		spread = fmax(spread, at - SILU_LOW);
	return spread;
}

struct nib_expected nib_expect_dual(const struct nib_exact_sum *s, float alpha,
				    const struct nib_exact_sum *s2,
				    float alpha2, int64_t k,
				    enum nib_arithmetic arithmetic)
{
	const struct nib_expected x = nib_expect_gemm(s, alpha, k, arithmetic);
	const struct nib_expected y =
	    nib_expect_gemm(s2, alpha2, k, arithmetic);
	const double limit = overflow_of(NIB_FP32);
	struct nib_expected e = {NAN, 0, x.unit * y.unit};
	double silu, spread, size, slack;

	if ((isnan(x.want) && x.slack == 0) || (isnan(y.want) && y.slack == 0))
		return e;
	silu = nib_exact_silu(x.want);
	e.want = silu * y.want;
	if (!(fabs(x.want) + x.slack < limit) ||
	    !(fabs(y.want) + y.slack < limit)) {
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

struct nib_verdict nib_judge(const struct nib_expected *e, enum nib_dtype dtype,
			     float got)
{
	struct nib_verdict v = {INFINITY, 0, INFINITY};
	const double value = nib_fp32_to_fp64(got);
	bool is_right;

	v.bound = e->slack;
	if (dtype != NIB_FP32)
		v.bound += half_ulp(dtype, fabs(e->want) + e->slack);
	if (isinf(e->slack))
		is_right = true;
	else if (isnan(e->want))
		is_right = isnan(value);
	else if (isinf(e->want) || isinf(value))
		is_right = copysign(1, value) * e->want + e->slack >=
			       overflow_of(dtype) &&
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
