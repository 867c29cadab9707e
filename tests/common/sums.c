/* SPDX-License-Identifier: Apache-2.0 */
/* sums.c - see sums.h. */
#include "common/sums.h"

#include <math.h>

#include "format/half.h"
#include "format/view.h"
#include "unit.h"

void sums_new(struct sums *s, struct rng *rng, int64_t m, int64_t n, int64_t k,
	      enum test_scales scales, enum nib_dtype dtype)
{
	s->a = test_nvfp4_new(rng, m, k, 1, NIB_SCALE_LAYOUT_LINEAR, scales, 0, 0);
	s->b = test_nvfp4_new(rng, n, k, 1, NIB_SCALE_LAYOUT_TILED_128X4, scales, 0, 0);
	s->b2 = test_nvfp4_new(rng, n, k, 1, NIB_SCALE_LAYOUT_LINEAR, scales, 0, 0);
	s->c = test_dense_new(dtype, m, n, 1, 0);
	s->alpha = (float)rng_uniform(rng) * 0x1p-20f;
	s->alpha2 = (float)rng_uniform(rng) - 0.5f;
	s->problem = (struct nib_problem){
	    .a = s->a.view,
	    .b = s->b.view,
	    .b2 = s->b2.view,
	    .c = s->c.view,
	    .alpha = &s->alpha,
	    .alpha2 = &s->alpha2,
	};
}

void sums_free(struct sums *s)
{
	test_nvfp4_free(&s->a);
	test_nvfp4_free(&s->b);
	test_nvfp4_free(&s->b2);
	test_dense_free(&s->c);
}

void sums_set(const struct nib_fp4 *v, int64_t row, int64_t i, int code)
{
	uint8_t *byte = (uint8_t *)v->codes + row * (v->k / 2) + i / 2;
	const int shift = i & 1 ? 4 : 0;

	*byte = (uint8_t)((*byte & ~(15 << shift)) | code << shift);
}

int sums_code(const struct nib_fp4 *v, int64_t row, int64_t i)
{
	return nib_fp4_row(v, 0, row)[i / 2] >> (i % 2 * 4) & 15;
}

void sums_cancel(struct sums *s)
{
	uint8_t *a = s->a.view.codes, *b = s->b.view.codes;

	for (size_t i = 0; i < s->a.codes_bytes; i++)
		if (i % 8 >= 4)
			a[i] = a[i - 4];
	for (size_t i = 0; i < s->b.codes_bytes; i++)
		if (i % 8 >= 4)
			b[i] = b[i - 4] ^ 0x88;
}

static float silu(float x)
{
	return x / (1 + expf(-x));
}

void sums_multiply(enum nib_op op, const struct nib_problem *p, sums_dot *dot,
		   const void *order)
{
	for (int64_t m = 0; m < p->a.rows; m++) {
		for (int64_t n = 0; n < p->b.rows; n++) {
			float c = dot(&p->a, m, &p->b, n, order) * *p->alpha;

			if (op == NIB_OP_DUAL_GEMM)
				c = silu(c) *
				    (dot(&p->a, m, &p->b2, n, order) * *p->alpha2);
			nib_dense_set_bits(&p->c, 0, m, n,
					   nib_fp64_to_dtype((double)c, p->c.dtype));
		}
	}
}

struct nib_check_result sums_check(enum nib_op op, const struct nib_problem *p,
				   enum nib_arithmetic arithmetic)
{
	const struct nib_check_options options = {
	    .struct_bytes = sizeof(options),
	    .arithmetic = arithmetic,
	};
	struct nib_check_result result = {.struct_bytes = sizeof(result)};
	struct nib_error err = {0};

	if (nib_check(op, p, 1, &options, &result, &err))
		fail_msg("nib_check: %s", err.message);
	return result;
}

double sums_worst(double worst, enum nib_op op, const struct nib_problem *p,
		  enum nib_arithmetic arithmetic, sums_dot *dot, const void *order)
{
	struct nib_check_result r;

	sums_multiply(op, p, dot, order);
	r = sums_check(op, p, arithmetic);
	assert_int_equal(r.checked, p->c.rows * p->c.cols);
	if (r.failed)
		fail_msg("%d of %d wrong: got %a, want %a, %g of the bound",
			 (int)r.failed, (int)r.checked, r.got, r.want,
			 r.worst_fraction);
	return fmax(worst, r.worst_fraction);
}
