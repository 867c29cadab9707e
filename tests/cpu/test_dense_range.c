/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_dense_range.c - A of floats over the whole range of its type, on every
 * instruction set, within the bound of the oracle: subnormal and the largest numbers,
 * blocks with a wide range of values, infinities and NaN.
 */
#include <math.h>
#include <stdio.h>

#include "common/data.h"
#include "common/unit.h"
#include "format/half.h"
#include "format/view.h"

static struct rng rng;

/* ---- values -------------------------------------------------------------- */

enum range {
	RANGE_ANY,   /* any finite bits */
	RANGE_LEAST, /* subnormals and what is near them */
	RANGE_LARGE, /* large numbers whose sums stay finite in fp32 */
	RANGE_STEPS, /* small, over 20 exponents */
	RANGE_ENDS,  /* normal, a few infinities and NaN */
	RANGE_COUNT
};

static double draw(enum range range, enum nib_dtype dtype)
{
	const bool is_fp16 = dtype == NIB_DTYPE_FP16;
	const double normal = rng_normal(&rng);

	switch (range) {
	case RANGE_ANY:
		return (double)nib_dtype_to_fp32((uint32_t)rng_next(&rng), dtype);
	case RANGE_LEAST:
		return ldexp(normal, is_fp16 ? -20 : -127);
	case RANGE_LARGE:
		return ldexp(normal, (int)rng_below(&rng, 8) + (is_fp16 ? 6 : 110));
	default:
		return ldexp(normal, (int)rng_below(&rng, 20) - (is_fp16 ? 14 : 130));
	}
}

static uint32_t bits_of(enum range range, enum nib_dtype dtype)
{
	static const float ends[] = {INFINITY, -INFINITY, NAN};
	float x;
	uint32_t bits;

	if (range == RANGE_ENDS) {
		x = (float)rng_normal(&rng);
		if (rng_below(&rng, 300) == 0)
			x = ends[rng_below(&rng, 3)];
		return nib_fp64_to_dtype(nib_fp32_to_fp64(x), dtype);
	}
	do {
		bits = nib_fp64_to_dtype(draw(range, dtype), dtype);
		x = nib_dtype_to_fp32(bits, dtype);
	} while (!isfinite(x));
	return bits;
}

/* ---- products ------------------------------------------------------------ */

struct shape {
	int64_t m, k;
	enum nib_dtype dtype;
	enum range range;
	enum nib_activations activations;
	enum nib_op op;
};

/* The largest fraction of the bound. */
static double run(struct nib_device *device, const struct shape *s, const char *isa)
{
	struct test_dense x = test_dense_new(s->dtype, s->m, s->k, 1, 0);
	struct test_dense c = test_dense_new(NIB_DTYPE_FP32, s->m, 37, 1, 0);
	struct test_nvfp4 b =
	    test_nvfp4_new(&rng, 37, s->k, 1, NIB_SCALE_LAYOUT_TILED_128X4,
			   (enum test_scales)rng_below(&rng, 3), 0, 0);
	struct test_nvfp4 b2 = test_nvfp4_new(
	    &rng, 37, s->k, 1, NIB_SCALE_LAYOUT_LINEAR, TEST_SCALES_ANY, 0, 0);
	const float alpha[2] = {ldexpf(1.25f, (int)rng_below(&rng, 100) - 50), 0.5f};
	const struct nib_problem p = {.x = x.view,
				      .b = b.view,
				      .b2 = b2.view,
				      .c = c.view,
				      .activations = s->activations,
				      .alpha = &alpha[0],
				      .alpha2 = &alpha[1]};
	struct nib_check_result r = {.struct_bytes = sizeof(r)};
	struct nib_error err = {0};

	for (int64_t i = 0; i < s->m * s->k; i++)
		nib_dense_set_bits(&x.view, 0, i / s->k, i % s->k,
				   bits_of(s->range, s->dtype));
	if (nib_multiply(device, s->op, &p, 1, &err) ||
	    nib_check(s->op, &p, 1, NULL, &r, &err))
		fail_msg("%s: %s", isa, err.message);
	if (r.failed)
		fail_msg("%s, m %d, k %d, type %d, range %d, activations %d, "
			 "op %d: %d wrong, got %a, want %a, %g of the bound",
			 isa, (int)s->m, (int)s->k, (int)s->dtype, (int)s->range,
			 (int)s->activations, (int)s->op, (int)r.failed, r.got, r.want,
			 r.worst_fraction);
	test_dense_free(&x);
	test_dense_free(&c);
	test_nvfp4_free(&b);
	test_nvfp4_free(&b2);
	return r.worst_fraction;
}

static void every_range_is_within_the_bound(void **state)
{
	static const int64_t ms[] = {1, 3, 9, 40}, ks[] = {16, 64, 240, 1040};
	const int turns = test_is_small() ? 60 : 480;

	for (int isa = 0; isa < TEST_ISAS; isa++) {
		struct nib_device *device = test_device(test_isas[isa], 1);
		double worst[2] = {0};

		if (!device)
			continue;
		for (int i = 0; i < turns; i++) {
			const struct shape s = {
			    .m = ms[i % 4],
			    .k = ks[i / 4 % 4],
			    .dtype = (enum nib_dtype)(i % 3),
			    .range = (enum range)(i % RANGE_COUNT),
			    .activations = i / 2 % 2 ? NIB_ACTIVATIONS_INT8
						     : NIB_ACTIVATIONS_DENSE,
			    .op = i / 7 % 2 ? NIB_OP_DUAL_GEMM : NIB_OP_GEMM,
			};
			double *most = &worst[i / 2 % 2];

			*most = fmax(*most, run(device, &s, test_isas[isa]));
		}
		printf("%s: dense %.3f of the bound, int8 %.3f\n", test_isas[isa],
		       worst[0], worst[1]);
		assert_true(worst[0] > 0.01 && worst[1] > 0.01);
		nib_device_close(device);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(every_range_is_within_the_bound),
	};

	rng = rng_new(test_seed());
	return cmocka_run_group_tests(tests, NULL, NULL);
}
