/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_cuda_params.c - every number and pointer that the host hands to the
 * kernels, on the fake driver, for problems of all sizes, layouts and strides;
 * those of few rows: test_cuda_params_few.c.
 */
#include "backend/cuda/common/tiles.h"
#include "backend/cuda/kernels/common/quantize_params.h"
#include "backend/cuda/kernels/sm90/gemm_params.h"
#include "backend/cuda/kernels/sm90/skinny_params.h"
#include "params_bed.h"

/* ---- tiled products ------------------------------------------------------ */

/* 16-bit A, whose rows the kernels read by 16 bytes. */
static struct nib_dense rnd_x(const struct bed *bed, int64_t rows, int64_t k,
			      int64_t batch)
{
	struct nib_dense x = {.data = anywhere(bed),
			      .dtype = NIB_DTYPE_BF16,
			      .rows = rows,
			      .cols = k,
			      .batch = batch};

	if (rnd(2))
		x.row_stride_elems = k + 8 * rnd(3);
	if (batch > 1 && rnd(2))
		x.batch_stride_elems = rows * dense_row(&x) + 8 * rnd(3);
	return x;
}

static void make_problems(struct bed *bed)
{
	const bool is_dense = rnd(3) == 0;
	static const int64_t ks[] = {0, 16, 256, 272, 512, 1040, 7168};
	static const int64_t ms[] = {5, 17, 20, 33, 64, 128, 129, 145, 300};
	const enum nib_dtype dtype = (enum nib_dtype)rnd(3);

	bed->op = rnd(2) ? NIB_OP_DUAL_GEMM : NIB_OP_GEMM;
	bed->count = 1 + rnd(2) * rnd(MOST);
	for (int64_t i = 0; i < bed->count; i++) {
		/* Few rows of one product go elsewhere. */
		const bool is_few = bed->op == NIB_OP_GEMM && bed->count == 1;
		const int64_t m = is_few ? ms[5 + rnd(4)] : ms[rnd(9)],
			      n = 1 + rnd(600), k = ks[rnd(7)];
		const int64_t batch = rnd(3) ? 1 : 1 + rnd(3);
		const int64_t shared = rnd(2) ? 1 : batch;
		struct nib_problem *p = &bed->problems[i];

		*p = (struct nib_problem){
		    .a = rnd_nvfp4(bed, m, k, batch),
		    .b = rnd_nvfp4(bed, n, k, shared),
		    .c = rnd_dense(bed, i, m, n, batch),
		    .alpha = rnd(2) ? (float *)(void *)bed->global : NULL,
		};
		p->c.dtype = dtype;
		if (bed->op == NIB_OP_DUAL_GEMM) {
			p->b2 = rnd_nvfp4(bed, n, k, shared);
			p->alpha2 = (float *)(void *)(bed->global + 4);
		}
		if (is_dense) {
			p->activations = NIB_ACTIVATIONS_DENSE;
			p->x = rnd_x(bed, m, k, batch);
		}
	}
}

static int32_t weight_flags(const struct nib_fp4 *b, int32_t tiled)
{
	const bool stack = b->batch > 1;
	int32_t flags = b->scale_layout == NIB_SCALE_LAYOUT_TILED_128X4 ? tiled : 0;

	if (row_bytes(b) % 16 || (stack && batch_bytes(b) % 16))
		flags |= NIB_B_CODES_BY_8;
	return flags;
}

static void check_shape(const struct bed *bed, const struct nib_problem *p,
			const struct nib_gemm_shape *s, int64_t first_row)
{
	const int64_t size = size_of(p->c.dtype);
	int32_t flags = weight_flags(&p->b, NIB_B_TILED);

	assert_int_equal(s->m, p->a.rows);
	assert_int_equal(s->n, p->b.rows);
	assert_int_equal(s->k, p->a.k);
	assert_int_equal(s->first_row, first_row);
	assert_int_equal(s->a_stride_bytes,
			 p->activations ? 2 * dense_row(&p->x) : row_bytes(&p->a));
	if (!p->activations)
		check_scale_rows(&p->a, s->a_scale_stride_bytes);
	assert_int_equal(s->b_stride_bytes, row_bytes(&p->b));
	check_scale_rows(&p->b, s->b_scale_stride_bytes);
	assert_int_equal(s->c_stride_elems, dense_row(&p->c));
	if (!p->activations && p->a.scale_layout == NIB_SCALE_LAYOUT_TILED_128X4)
		flags |= NIB_A_TILED;
	if (dense_row(&p->c) * size % 16 == 0 &&
	    (p->c.batch <= 1 || dense_batch(&p->c) * size % 16 == 0))
		flags |= NIB_C_BY_16;
	if (bed->op == NIB_OP_DUAL_GEMM) {
		flags |= weight_flags(&p->b2, NIB_B2_TILED);
		assert_int_equal(s->b2_stride_bytes, row_bytes(&p->b2));
		check_scale_rows(&p->b2, s->b2_scale_stride_bytes);
	}
	assert_int_equal(s->flags, flags);
}

/* By how many bytes linear scales may be loaded: all addresses are multiples. */
static int64_t scale_flags(const struct nib_fp4 *b)
{
	uint64_t x = (uintptr_t)b->scales | (uint64_t)scale_row_bytes(b);

	if (b->scale_layout == NIB_SCALE_LAYOUT_TILED_128X4)
		return 0;
	if (b->batch > 1)
		x |= (uint64_t)scale_batch_bytes(b);
	return x % 16 == 0 ? 0 : x % 4 == 0 ? NIB_B_SCALES_BY_4 : NIB_B_SCALES_BY_1;
}

static void check_weights(const struct nib_fp4 *b, int64_t l, const uint8_t *codes,
			  const uint8_t *scales)
{
	const int64_t at = b->batch > 1 ? l : 0;

	assert_ptr_equal(codes, (const uint8_t *)b->codes + at * batch_bytes(b));
	assert_ptr_equal(scales,
			 (const uint8_t *)b->scales + at * scale_batch_bytes(b));
}

static void check_pointers(const struct bed *bed, const struct nib_problem *p,
			   int64_t l, const struct nib_gemm_pointers *x)
{
	int64_t flags = scale_flags(&p->b);

	assert_ptr_equal(x->a,
			 p->activations
			     ? (const uint8_t *)p->x.data + l * dense_batch(&p->x) * 2
			     : (const uint8_t *)p->a.codes + l * batch_bytes(&p->a));
	if (!p->activations)
		assert_ptr_equal(x->a_scales, (const uint8_t *)p->a.scales +
						  l * scale_batch_bytes(&p->a));
	assert_ptr_equal(x->c, (uint8_t *)p->c.data +
				   l * dense_batch(&p->c) * size_of(p->c.dtype));
	assert_ptr_equal(x->alpha, p->alpha);
	check_weights(&p->b, l, x->b, x->b_scales);
	if (bed->op == NIB_OP_DUAL_GEMM) {
		check_weights(&p->b2, l, x->b2, x->b2_scales);
		assert_ptr_equal(x->alpha2, p->alpha2);
		flags |= scale_flags(&p->b2);
	}
	assert_int_equal(x->flags, flags);
}

/* The rings fill the shared memory, or are as long as they may be. */
static void check_rings(const struct bed *bed, const struct nib_gemm_args *a)
{
	const char *kernel = bed->fake->last_kernel;
	const bool small = strstr(kernel, "_small_m_") != NULL;
	const int32_t steps = small ? 4 : strstr(kernel, "_medium_") ? 2 : 1;
	const int32_t stage = a->tile_m * 64 * 2 * steps;
	const int32_t used =
	    a->a_stages * stage + a->weight_stages * NIB_WEIGHT_STAGE_BYTES +
	    NIB_GEMM_TAIL_BYTES + (small ? NIB_SMALL_M_EXCHANGE_BYTES(a->tile_m) : 0);
	const int32_t left = SM_BYTES - used;

	assert_int_equal(a->a_stage_bytes, stage);
	assert_int_equal(bed->fake->last.sharedMemBytes, used);
	assert_true(left >= 0);
	assert_true(steps == 1 ? a->tile_m > 64 : a->tile_m <= 64);
	if (small) {
		assert_int_equal(a->weight_stages, a->experts ? 5 : 4);
		assert_in_range(a->a_stages, a->weight_stages, 8);
		assert_true(a->a_stages == 8 || left < stage);
		return;
	}
	assert_in_range(a->weight_stages, 3, 16);
	assert_true(a->weight_stages == 16 || left < NIB_WEIGHT_STAGE_BYTES);
	assert_int_equal(a->a_stages % (4 / steps), 0);
	assert_in_range(a->a_stages, 4 / steps, 16 / steps);
	/* One weight stage more of activations would leave two of weights. */
	assert_true(a->a_stages == 16 / steps ||
		    used - a->weight_stages * NIB_WEIGHT_STAGE_BYTES +
			    4 / steps * stage + 3 * NIB_WEIGHT_STAGE_BYTES >
			SM_BYTES);
}

static void check_tiles(const struct bed *bed, const struct nib_gemm_args *a,
			size_t *partials)
{
	static const struct nib_tile_device device = {.clusters = 66};
	struct nib_tile_shape shapes[NIB_GEMM_PROBLEMS];
	struct nib_gemm_tile *tiles;
	struct nib_tile_plan p;
	int32_t most = 16;

	for (int32_t i = 0; i < a->count; i++)
		shapes[i] = (struct nib_tile_shape){a->shapes[i].m, a->shapes[i].n,
						    a->shapes[i].k, 0};
	assert_true(nib_tiles_plan(&device, shapes, a->count,
				   bed->op == NIB_OP_DUAL_GEMM, a->count == 1, &p,
				   &tiles));
	assert_int_equal(a->tile_rounds, p.rounds);
	assert_int_equal(a->k_slices, p.k_slices);
	assert_int_equal(bed->fake->last.gridDimX, 2 * p.clusters);
	for (int64_t i = 0; i < (int64_t)p.rounds * p.clusters; i++) {
		assert_memory_equal(&a->tiles[i], &tiles[i], sizeof(*tiles));
		if (i < p.clusters)
			assert_memory_equal(&a->first[i], &tiles[i], sizeof(*tiles));
		if (tiles[i].rows > most)
			most = tiles[i].rows;
	}
	assert_int_equal(a->tile_m, most);
	*partials = p.k_slices > 1
			? (size_t)p.tiles * 2 * NIB_GEMM_PARTIALS((size_t)most) * 4
			: 0;
	assert_int_equal(a->n_arrivals, p.k_slices > 1 ? 2 * p.tiles / p.k_slices : 0);
	free(tiles);
}

static size_t workspace_bytes(const struct bed *bed)
{
	struct nib_plan_info info = {.struct_bytes = sizeof(info)};

	assert_int_equal(nib_plan_get_info(bed->plan, &info, NULL), NIB_STATUS_OK);
	return info.workspace_bytes;
}

static void check_workspace(const struct bed *bed, const struct nib_gemm_args *a,
			    int64_t padded, int64_t k, size_t partials)
{
	const int64_t activations = padded * 2 * up(k ? k : 1, 256);
	const uint8_t *at = bed->workspace;

	assert_int_equal(a->a_atoms, padded / 8);
	assert_ptr_equal(a->activations, at);
	at += activations;
	assert_ptr_equal(a->partials, at);
	at += partials;
	assert_ptr_equal(a->arrivals, at);
	assert_int_equal(workspace_bytes(bed),
			 activations + (int64_t)partials + 4 * a->n_arrivals);
}

static void check_products(const struct bed *bed)
{
	const struct nib_gemm_launch *launch = (const void *)bed->fake->last_parameters;
	const struct nib_gemm_args *a = &launch->args;
	int64_t padded = 0, rows = 0, k = 0;
	size_t partials;
	int32_t used = 0;

	for (int64_t i = 0; i < bed->count; i++) {
		const struct nib_problem *p = &bed->problems[i];

		for (int64_t l = 0; l < p->a.batch; l++) {
			check_shape(bed, p, &a->shapes[used], padded);
			check_pointers(bed, p, l, &launch->problems[used++]);
			padded += up(p->a.rows, p->a.rows > 128 ? 32 : 16);
			rows += p->a.rows;
			k = p->a.k > k ? p->a.k : k;
		}
	}
	assert_int_equal(a->count, used);
	assert_int_equal(a->rows, rows);
	assert_int_equal(a->dtype, bed->problems[0].c.dtype);
	assert_int_equal(a->experts, 0);
	check_tiles(bed, a, &partials);
	check_rings(bed, a);
	check_workspace(bed, a, padded, k, partials);
	assert_int_equal(!!strstr(bed->fake->last_kernel, "_bf16"),
			 bed->problems[0].activations);
	/* The conversion: a block an atom, and 16 steps of 64. */
	assert_int_equal(bed->fake->before.gridDimX, padded / 8);
	assert_int_equal(bed->fake->before.gridDimY,
			 up(up(k ? k : 1, 256), 1024) / 1024);
	assert_int_equal(bed->fake->before.blockDimX, 256);
}

static void products(void)
{
	int split = 0, small = 0;
	struct bed bed;

	make_bed(&bed);
	for (int i = 0; i < CASES; i++) {
		const struct nib_gemm_launch *launch =
		    (const void *)bed.fake->last_parameters;

		make_problems(&bed);
		run(&bed);
		check_products(&bed);
		split += launch->args.k_slices > 1;
		small += strstr(bed.fake->last_kernel, "_small_m_") != NULL;
	}
	assert_true(split > CASES / 20 && small > CASES / 20);
	free_bed(&bed);
}

/* What the kernels in tiles are given of experts. */
static void check_moe_launch(const struct bed *bed, const struct nib_moe_problem *moe)
{
	const struct nib_gemm_launch *launch = (const void *)bed->fake->last_parameters;
	const struct nib_gemm_args *a = &launch->args;
	const struct nib_problem *p = &bed->problems[0];
	const int64_t m = p->a.rows, experts = p->b.batch;
	const int64_t padded = up(m, 16) + 16 * (experts < m ? experts : m);
	const int64_t k = p->a.k;

	check_shape(bed, p, &a->shapes[0], 0);
	check_pointers(bed, p, 0, &launch->problems[0]);
	assert_int_equal(a->count, 1);
	assert_int_equal(a->rows, m);
	assert_int_equal(a->dtype, p->c.dtype);
	assert_int_equal(a->experts, experts);
	assert_int_equal(a->k_slices, 1);
	assert_int_equal(a->n_arrivals, 0);
	assert_ptr_equal(a->row_offsets, moe->row_offsets);
	assert_ptr_equal(a->scale_rows, moe->scale_rows);
	assert_int_equal(a->scale_rows_total, moe->scale_rows_total);
	assert_int_equal(a->b_batch_bytes, batch_bytes(&p->b));
	assert_int_equal(a->b_scale_batch_bytes, scale_batch_bytes(&p->b));
	if (bed->op == NIB_OP_DUAL_GEMM) {
		assert_int_equal(a->b2_batch_bytes, batch_bytes(&p->b2));
		assert_int_equal(a->b2_scale_batch_bytes, scale_batch_bytes(&p->b2));
	}
	assert_int_equal(bed->fake->last.gridDimX, 132);
	check_rings(bed, a);
	check_workspace(bed, a, padded, k, 0);
}

/* What the kernel for experts of few rows is given. */
static void check_moe_few(const struct bed *bed, const struct nib_moe_problem *moe)
{
	const struct nib_skinny_params *q = (const void *)bed->fake->last_parameters;
	const bool is_vector = strstr(bed->fake->last_kernel, "_gemv_experts_") != NULL;
	const bool is_dual = bed->op == NIB_OP_DUAL_GEMM;

	assert_true(is_vector || !is_dual);
	assert_true(is_vector ||
		    moe->problem.b.scale_layout == NIB_SCALE_LAYOUT_TILED_128X4);
	assert_int_equal(strstr(bed->fake->last_kernel, "_dual_") != NULL, is_dual);
	assert_ptr_equal(q->p.a.codes, moe->problem.a.codes);
	assert_ptr_equal(q->p.b.scales, moe->problem.b.scales);
	assert_int_equal(q->p.b.batch_stride,
			 moe->problem.b.batch > 1 ? batch_bytes(&moe->problem.b) : 0);
	/* There is no kernel for other experts of few rows. */
	assert_int_equal(q->p.b.codes_align, 16);
	assert_int_equal(q->p.b.scales_align, 16);
	assert_int_equal(q->p.a.codes_align, 16);
	assert_ptr_equal(q->p.c, moe->problem.c.data);
	assert_ptr_equal(q->p.alpha, moe->problem.alpha);
	assert_int_equal(q->rows, moe->problem.a.rows);
	assert_int_equal(q->experts, moe->problem.b.batch);
	assert_int_equal(q->p.k, moe->problem.a.k);
	assert_int_equal(q->p.n, moe->problem.b.rows);
	assert_ptr_equal(q->row_offsets, moe->row_offsets);
	assert_ptr_equal(q->scale_rows, moe->scale_rows);
	assert_int_equal(q->scale_rows_total, moe->scale_rows_total);
	assert_in_range(bed->fake->last.gridDimX, 1, 132);
	assert_int_equal(bed->fake->last.gridDimY, is_vector ? moe->problem.a.rows : 1);
	if (!is_vector)
		return;
	assert_int_equal(q->p.m, 1);
	assert_int_equal(q->p.tiles,
			 nib_gemv_tiles(moe->problem.b.rows, q->p.b.is_tiled));
	assert_in_range((int32_t)bed->fake->last.gridDimX * q->p.tiles_per_cta,
			q->p.tiles, q->p.tiles + q->p.tiles_per_cta - 1);
	if (!is_dual)
		return;
	assert_ptr_equal(q->b2.codes, moe->problem.b2.codes);
	assert_ptr_equal(q->b2.scales, moe->problem.b2.scales);
	assert_ptr_equal(q->alpha2, moe->problem.alpha2);
	/* It is loaded with the strides of b. */
	assert_int_equal(q->b2.row_stride, q->p.b.row_stride);
	assert_int_equal(q->b2.scale_row_stride, q->p.b.scale_row_stride);
	assert_int_equal(q->b2.is_tiled, q->p.b.is_tiled);
	assert_int_equal(q->b2.codes_align, 16);
	assert_int_equal(q->b2.scales_align, 16);
	assert_int_equal(q->b2.batch_stride,
			 moe->problem.b2.batch > 1 ? batch_bytes(&moe->problem.b2) : 0);
}

static void moe_products(void)
{
	static const int64_t rows[] = {1, 16, 100, 700};
	struct bed bed;
	int few = 0, dual = 0;

	make_bed(&bed);
	for (int i = 0; i < CASES; i++) {
		const int64_t m = rows[rnd(4)], experts = 1 + rnd(60);
		const int64_t n = 1 + rnd(100), k = 16 * rnd(20);
		const struct nib_run_options options = {.struct_bytes = sizeof(options),
							.workspace = bed.workspace,
							.workspace_bytes = WORKSPACE};
		struct nib_problem *p = &bed.problems[0];
		struct nib_moe_problem moe;

		bed.op = rnd(2) ? NIB_OP_DUAL_GEMM : NIB_OP_GEMM;
		bed.count = 1;
		*p = (struct nib_problem){.a = rnd_nvfp4(&bed, m, k, 1),
					  .b = rnd_nvfp4(&bed, n, k, experts),
					  .c = rnd_dense(&bed, 0, m, n, 1),
					  .alpha = (float *)(void *)bed.global};
		if (bed.op == NIB_OP_DUAL_GEMM) {
			p->b2 = rnd_nvfp4(&bed, n, k, experts);
			p->alpha2 = (float *)(void *)(bed.global + 256);
		}
		moe = (struct nib_moe_problem){
		    .problem.a = p->a,
		    .problem.b = p->b,
		    .problem.b2 = p->b2,
		    .problem.c = p->c,
		    .problem.alpha = p->alpha,
		    .problem.alpha2 = p->alpha2,
		    .row_offsets = (int32_t *)(void *)(bed.global + 512),
		};
		if (rnd(2)) {
			moe.scale_rows = (int32_t *)(void *)(bed.global + 1024);
			moe.scale_rows_total = up(m, 128) + 128 * experts;
		}
		nib_plan_free(bed.plan);
		bed.plan = NULL;
		if (nib_moe_plan_create(bed.device, bed.op, &moe, NULL, &bed.plan,
					&bed.err) ||
		    nib_moe_run(bed.plan, &moe, &options, &bed.err))
			fail_msg("%s", bed.err.message);
		if (strstr(bed.fake->last_kernel, "_experts_")) {
			few++;
			dual += bed.op == NIB_OP_DUAL_GEMM;
			check_moe_few(&bed, &moe);
		} else {
			check_moe_launch(&bed, &moe);
		}
	}
	assert_in_range(few, CASES / 100, CASES / 2);
	assert_in_range(dual, 1, few);
	free_bed(&bed);
}

/* ---- packed weights ------------------------------------------------------ */

/* Codes are copied row by row, or at once where they have no gaps. */
static void packed_codes(void)
{
	struct bed bed;

	make_bed(&bed);
	for (size_t i = 0; i < INPUTS; i++)
		bed.memory[i] = (uint8_t)(rnd(256) & 0x7F);
	for (int i = 0; i < CASES; i++) {
		const int64_t m = 72, n = rnd(4) ? 1 + rnd(40) : 1;
		const int64_t k = 16 * (1 + rnd(20)), batch = 1 + rnd(3);
		const struct nib_gemm_launch *launch =
		    (const void *)bed.fake->last_parameters;
		struct nib_problem *p = &bed.problems[0];
		struct nib_packed *packed;

		bed.op = NIB_OP_GEMM;
		bed.count = 1;
		*p = (struct nib_problem){.a = rnd_nvfp4(&bed, m, k, batch),
					  .b = rnd_nvfp4(&bed, n, k, batch),
					  .c = rnd_dense(&bed, 0, m, n, batch)};
		/* Single rows, with a gap behind each. */
		if (n == 1)
			p->b.batch_stride_bytes = row_bytes(&p->b) + rnd(3);
		assert_int_equal(nib_pack(bed.device, &p->b, &packed, &bed.err),
				 NIB_STATUS_OK);
		p->b_packed = packed;
		run(&bed);
		for (int64_t l = 0; l < batch; l++)
			for (int64_t r = 0; r < n; r++)
				assert_memory_equal(launch->problems[l].b + r * (k / 2),
						    (uint8_t *)p->b.codes +
							l * batch_bytes(&p->b) +
							r * row_bytes(&p->b),
						    (size_t)k / 2);
		nib_packed_free(packed);
	}
	free_bed(&bed);
}

/* ---- conversions --------------------------------------------------------- */

static void check_dense(const struct nib_quantize_dense *d, const struct nib_dense *v)
{
	const int64_t size = size_of(v->dtype);

	assert_ptr_equal(d->data, v->data);
	assert_int_equal(d->rows, v->rows);
	assert_int_equal(d->cols, v->cols);
	assert_int_equal(d->batch, v->batch);
	assert_int_equal(d->row_stride, dense_row(v));
	assert_int_equal(d->batch_stride, dense_batch(v));
	assert_int_equal(d->dtype, v->dtype);
	assert_int_equal(d->is_aligned,
			 (v->rows == 1 || dense_row(v) * size % 16 == 0) &&
			     (v->batch == 1 || dense_batch(v) * size % 16 == 0));
}

static void check_nvfp4(const struct nib_quantize_nvfp4 *q, const struct nib_fp4 *v)
{
	const bool tiled = v->scale_layout == NIB_SCALE_LAYOUT_TILED_128X4;

	assert_ptr_equal(q->codes, v->codes);
	assert_ptr_equal(q->scales, v->scales);
	assert_int_equal(q->rows, v->rows);
	assert_int_equal(q->groups, v->k / 16);
	assert_int_equal(q->batch, v->batch);
	assert_int_equal(q->row_stride, row_bytes(v));
	assert_int_equal(q->batch_stride, batch_bytes(v));
	check_scale_rows(v, q->scale_row_stride);
	assert_int_equal(q->scale_batch_stride, scale_batch_bytes(v));
	assert_int_equal(q->scale_bytes, tiled ? up(v->rows, 128) * up(v->k / 16, 4)
					       : v->rows * (v->k / 16));
	assert_int_equal(q->tile_columns, up(v->k / 16, 4) / 4);
	assert_int_equal(q->is_tiled, tiled);
	assert_int_equal(q->is_aligned, (v->rows == 1 || row_bytes(v) % 8 == 0) &&
					    (v->batch == 1 || batch_bytes(v) % 8 == 0));
}

/* A thread for each of the units, 8 blocks of 256 an SM at most. */
static void check_grid(const struct bed *bed, int64_t units)
{
	const int64_t blocks = up(units, 256) / 256;

	assert_int_equal(bed->fake->last.gridDimX, blocks < 8 * 132 ? blocks : 8 * 132);
	assert_int_equal(bed->fake->last.blockDimX, 256);
}

static void check_conversions(struct bed *bed, const struct nib_dense *x,
			      struct nib_fp4 *q)
{
	const void *at = bed->fake->last_parameters;
	const struct nib_quantize_params *to = at;
	const struct nib_dequantize_params *from = at;
	const struct nib_amax_params *amax = at;
	const struct nib_quantize_options options = {
	    .struct_bytes = sizeof(options), .global = 0.5f, .saturate = 1};
	const int64_t scales =
	    scale_batch_bytes(q) && q->rows && q->k
		? (int64_t)nib_scales_bytes(q->scale_layout, q->rows, q->k)
		: 0;
	const bool dense = dense_row(x) == x->cols;
	float found;

	assert_int_equal(nib_quantize(bed->device, x, q, &options, NULL, &bed->err),
			 NIB_STATUS_OK);
	check_dense(&to->x, x);
	check_nvfp4(&to->q, q);
	assert_null(to->global_pointer);
	assert_true(to->global == 0.5f);
	assert_int_equal(to->global_of_amax, 0);
	assert_int_equal(to->saturate, 1);
	assert_null(to->found);
	check_grid(bed, scales * q->batch);
	assert_int_equal(nib_dequantize(bed->device, q, 0.25f, x, NULL, &bed->err),
			 NIB_STATUS_OK);
	check_nvfp4(&from->q, q);
	check_dense(&from->y, x);
	assert_true(from->global == 0.25f);
	check_grid(bed, scales * q->batch);
	assert_int_equal(nib_amax(bed->device, x, 1, &found, &bed->err), NIB_STATUS_OK);
	assert_ptr_equal(amax->x.data, x->data);
	assert_int_equal(amax->x.rows, dense ? 1 : x->rows);
	assert_int_equal(amax->x.cols, dense ? x->cols * x->rows : x->cols);
	assert_int_equal(amax->saturate, 1);
	check_grid(bed, up(amax->x.cols, 16) / 16 * amax->x.rows * x->batch);
}

static void conversions(void)
{
	struct bed bed;

	make_bed(&bed);
	for (int i = 0; i < CASES; i++) {
		const int64_t rows = 1 + rnd(4) * rnd(100);
		const int64_t k = 16 * (1 + rnd(60)), batch = 1 + rnd(3);
		const struct nib_dense x = rnd_dense(&bed, 0, rows, k, batch);
		struct nib_fp4 q = rnd_nvfp4(&bed, rows, k, batch);

		q.scales = (uint8_t *)q.scales + INPUTS / 2;
		check_conversions(&bed, &x, &q);
	}
	free_bed(&bed);
}

int main(int argc, char **argv)
{
	static const struct fake_test tests[] = {
	    {"products", products},
	    {"moe_products", moe_products},
	    {"packed_codes", packed_codes},
	    {"conversions", conversions},
	};

	return fake_main(argc, argv, tests, sizeof(tests) / sizeof(*tests));
}
