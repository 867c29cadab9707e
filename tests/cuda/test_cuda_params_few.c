/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_cuda_params_few.c - what the host hands to the vector and skinny kernels,
 * as test_cuda_params.c looks at the others.
 */
#include "backend/cuda/kernels/sm90/skinny_params.h"
#include "params_bed.h"

/* What all addresses of codes or scales are multiples of: 16, 4 or 1. */
static int align_of(uint64_t x)
{
	return x % 16 == 0 ? 16 : x % 4 == 0 ? 4 : 1;
}

static void check_operand(const struct nib_gemv_operand *o, const struct nib_fp4 *v,
			  int64_t batches)
{
	const bool tiled = v->scale_layout == NIB_SCALE_LAYOUT_TILED_128X4;
	uint64_t codes = (uintptr_t)v->codes, scales = (uintptr_t)v->scales;

	assert_ptr_equal(o->codes, v->codes);
	assert_ptr_equal(o->scales, v->scales);
	assert_int_equal(o->row_stride, row_bytes(v));
	assert_int_equal(o->batch_stride, v->batch > 1 ? batch_bytes(v) : 0);
	check_scale_rows(v, o->scale_row_stride);
	assert_int_equal(o->scale_batch_stride,
			 v->batch > 1 ? scale_batch_bytes(v) : 0);
	assert_int_equal(o->is_tiled, tiled);
	if (v->rows > 1) {
		codes |= (uint64_t)row_bytes(v);
		scales |= tiled ? 0 : (uint64_t)scale_row_bytes(v);
	}
	if (batches > 1 && v->batch > 1) {
		codes |= (uint64_t)batch_bytes(v);
		scales |= (uint64_t)scale_batch_bytes(v);
	}
	assert_int_equal(o->codes_align, align_of(codes));
	assert_int_equal(o->scales_align, align_of(scales));
}

/* Every tile has a CTA, and every CTA a tile. */
static void check_few_grid(const struct bed *bed, int64_t m)
{
	const struct nib_skinny_params *q = (const void *)bed->fake->last_parameters;

	if (m <= NIB_GEMV_MAX_ROWS) {
		assert_int_equal(bed->fake->last.gridDimX,
				 up(q->p.tiles, q->p.tiles_per_cta) /
				     q->p.tiles_per_cta);
		assert_int_equal(bed->fake->last.blockDimX, NIB_GEMV_THREADS);
		return;
	}
	if (m > NIB_SKINNY_MAX_ROWS) {
		const int64_t units = up(q->p.tiles, 4) / 4;
		const int64_t at_once = q->tiles_at_once / 4;

		assert_int_equal(bed->fake->last.gridDimX,
				 up(units, at_once) / at_once * q->k_slices);
		assert_int_equal(bed->fake->last.blockDimX, NIB_SKINNY_THREADS);
		return;
	}
	assert_in_range(bed->fake->last.gridDimX, 1, q->p.tiles);
	assert_in_range(q->tiles_at_once * q->k_groups, 1, NIB_SKINNY_WARPS);
	assert_int_equal(bed->fake->last.blockDimX, NIB_SKINNY_THREADS);
}

static void few_rows(void)
{
	struct bed bed;

	make_bed(&bed);
	for (int i = 0; i < CASES; i++) {
		const struct nib_gemv_params *x =
		    (const void *)bed.fake->last_parameters;
		const int64_t m = 1 + rnd(rnd(4) ? 16 : 64), n = 1 + rnd(300),
			      k = 16 * rnd(40);
		/* Wide kernels take one matrix. */
		const int64_t batch = rnd(2) || m > 16 ? 1 : 1 + rnd(3);
		struct nib_problem *p = &bed.problems[0];

		bed.op = NIB_OP_GEMM;
		bed.count = 1;
		*p = (struct nib_problem){
		    .a = rnd_nvfp4(&bed, m, k, batch),
		    .x = rnd_dense(&bed, 1, m, k, batch),
		    .activations = (enum nib_activations)rnd(2),
		    .b = rnd_nvfp4(&bed, n, k, rnd(2) ? 1 : batch),
		    .c = rnd_dense(&bed, 0, m, n, batch),
		    .alpha = rnd(2) ? (float *)(void *)bed.global : NULL};
		p->x.dtype = rnd(2) ? NIB_DTYPE_FP16 : NIB_DTYPE_BF16;
		run(&bed);
		assert_non_null(
		    strstr(bed.fake->last_kernel, m <= 4 ? "_gemv_" : "_skinny_"));
		if (p->activations)
			assert_ptr_equal(x->a.codes, p->x.data);
		else
			check_operand(&x->a, &p->a, batch);
		assert_int_equal(!!strstr(bed.fake->last_kernel, "f16_"),
				 p->activations);
		check_operand(&x->b, &p->b, batch);
		assert_ptr_equal(x->alpha, p->alpha);
		assert_ptr_equal(x->c, p->c.data);
		assert_int_equal(x->c_row_stride, dense_row(&p->c));
		assert_int_equal(x->c_batch_stride, dense_batch(&p->c));
		assert_int_equal(x->n, n);
		assert_int_equal(x->m, m);
		assert_int_equal(x->k, k);
		assert_int_equal(x->c_dtype, p->c.dtype);
		assert_int_equal(bed.fake->last.gridDimY, batch);
		check_few_grid(&bed, m);
	}
	free_bed(&bed);
}

int main(int argc, char **argv)
{
	static const struct fake_test tests[] = {
	    {"few_rows", few_rows},
	};

	return fake_main(argc, argv, tests, sizeof(tests) / sizeof(*tests));
}
