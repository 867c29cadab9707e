/* SPDX-License-Identifier: Apache-2.0 */
/* sm100_bed.c - see sm100_bed.h. */
#include "sm100_bed.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "format/view.h"

#define SM_BYTES (227 << 10)
#define CTAS	 132 /* that the fake driver holds at once */
/* Addresses that are the GPU's: nothing is behind them, and nobody reads them. */
#define SPACE_BEGIN ((uintptr_t)1 << 40)
#define SPACE	    ((size_t)1 << 40)

int64_t bed_round_to(int64_t a, int64_t step)
{
	return (a + step - 1) / step * step;
}

void bed_make(struct bed *bed)
{
	memset(bed, 0, sizeof(*bed));
	bed->fake = fake_open(FAKE_CUDA);
	bed->fake->capability[0] = 100;
	bed->space = bed->next = SPACE_BEGIN;
	fake_register_memory((void *)SPACE_BEGIN, SPACE, CU_MEMORYTYPE_DEVICE, 0, 0);
	if (nib_device_open("cuda", NULL, &bed->device, &bed->err))
		fail_msg("%s", bed->err.message);
}

void bed_free(struct bed *bed)
{
	nib_plan_free(bed->plan);
	nib_device_close(bed->device);
	assert_int_equal(bed->fake->allocations, 0);
	assert_int_equal(bed->fake->depth, 0);
	assert_int_equal(bed->fake->outside, 0);
}

/* Addresses for so many bytes. */
void *bed_reserve(struct bed *bed, int64_t bytes)
{
	void *at = (void *)bed->next;

	bed->next += (uintptr_t)bed_round_to(bytes + 16, 16);
	assert_true(bed->next <= bed->space + SPACE);
	return at;
}

struct nib_fp4 bed_nvfp4(struct bed *bed, int64_t rows, int64_t k, int64_t batch,
			 enum nib_scale_layout layout, int64_t more)
{
	struct nib_fp4 v = {.rows = rows,
			    .k = k,
			    .batch = batch,
			    .scale_layout = layout,
			    .row_stride_bytes = k / 2 + more};

	v.batch_stride_bytes = rows * v.row_stride_bytes + more;
	v.scale_batch_stride_bytes = (int64_t)nib_scales_bytes(layout, rows, k) + more;
	v.codes = bed_reserve(bed, batch * v.batch_stride_bytes);
	v.scales = bed_reserve(bed, batch * v.scale_batch_stride_bytes);
	return v;
}

void bed_add(struct bed *bed, const struct size *s)
{
	const int64_t b_batch = s->shares_b ? 1 : s->batch;
	struct nib_problem *p = &bed->problems[bed->count++];

	assert_true(bed->count <= BED_PROBLEMS);
	*p = (struct nib_problem){
	    .a = bed_nvfp4(bed, s->m, s->k, s->batch, s->layout, s->more),
	    .b = bed_nvfp4(bed, s->n, s->k, b_batch, s->layout, s->more),
	    .b2 = bed_nvfp4(bed, s->n, s->k, b_batch, s->layout, s->more),
	    .c = {.rows = s->m, .cols = s->n, .batch = s->batch, .dtype = s->dtype},
	};
	p->c.data = bed_reserve(bed, s->batch * s->m * s->n * 4);
}

void bed_finish_plan(struct bed *bed)
{
	struct nib_plan_info info = {.struct_bytes = sizeof(info)};

	assert_int_equal(nib_plan_get_info(bed->plan, &info, NULL), NIB_STATUS_OK);
	bed->workspace_bytes = info.workspace_bytes;
	bed->next = (uintptr_t)bed_round_to((int64_t)bed->next, 64);
	bed->workspace = (uintptr_t)bed_reserve(bed, (int64_t)info.workspace_bytes);
}

void bed_plan(struct bed *bed, enum nib_op op)
{
	static const struct nib_plan_options options = {.struct_bytes = sizeof(options),
							.caller_workspace = 1};

	nib_plan_free(bed->plan);
	bed->op = op;
	if (nib_plan_create(bed->device, op, bed->problems, bed->count, &options,
			    &bed->plan, &bed->err))
		fail_msg("%s", bed->err.message);
	bed_finish_plan(bed);
}

struct nib_run_options bed_run_options(const struct bed *bed)
{
	return (struct nib_run_options){.struct_bytes = sizeof(struct nib_run_options),
					.workspace = (void *)bed->workspace,
					.workspace_bytes = bed->workspace_bytes};
}

/* Kernels that a run launches. */
int bed_run(struct bed *bed)
{
	const struct nib_run_options options = bed_run_options(bed);
	const int before = bed->fake->launches;

	if (nib_run(bed->plan, bed->problems, bed->count, &options, &bed->err))
		fail_msg("%s", bed->err.message);
	return bed->fake->launches - before;
}

/* ---- what a launch must be ----------------------------------------------- */

int bed_ctas_of(const struct bed *bed)
{
	return strstr(bed->fake->last_kernel, "_pair_") ? 2 : 1;
}

void bed_check_launch(const struct bed *bed, const struct nib_sm100_args *args)
{
	const bool dual = bed->op == NIB_OP_DUAL_GEMM;
	const CUlaunchConfig *last = &bed->fake->last;
	const int32_t ctas = bed_ctas_of(bed), cluster = ctas * args->k_slices;
	const int32_t set = args->tile_m * (dual ? 2 : 1);
	const int32_t slot = NIB_SM100_SLOT_COLUMNS(dual);

	assert_non_null(
	    strstr(bed->fake->last_kernel, dual ? "nib_dual_" : "nib_gemm_"));
	assert_int_equal(last->blockDimX, NIB_SM100_THREADS);
	assert_int_equal(last->gridDimX % (unsigned)cluster, 0);
	assert_in_range(last->gridDimX, cluster, CTAS);
	assert_int_equal(last->numAttrs, 2);
	assert_int_equal(last->attrs[0].id, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION);
	assert_int_equal(last->attrs[0].value.clusterDim.x, cluster);
	assert_int_equal(last->attrs[1].id,
			 CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION);
	/* Shared memory. */
	assert_int_equal(
	    args->stage_bytes,
	    nib_sm100_stage_bytes(args->tile_m, ctas, args->a_scale_blocks, dual));
	assert_int_equal(args->stage_bytes % 1024, 0);
	assert_in_range(args->stages, 3, NIB_SM100_STAGES_MAX);
	assert_int_equal(
	    last->sharedMemBytes,
	    nib_sm100_shared_bytes(args->stages, args->stage_bytes, args->experts));
	assert_in_range(last->sharedMemBytes, 1, SM_BYTES);
	if (args->stages < NIB_SM100_STAGES_MAX)
		assert_true((int32_t)last->sharedMemBytes + args->stage_bytes >
			    SM_BYTES);
	/* Tensor memory: accumulators, then slots of scales to the end. */
	assert_in_range(args->scale_slots, 2, NIB_SM100_STAGES_MAX);
	assert_int_equal(args->scale_column + args->scale_slots * slot,
			 NIB_SM100_COLUMNS);
	assert_in_range(args->odd_column, 0, NIB_SM100_COLUMNS);
	assert_true(args->odd_column + set <= args->scale_column);
	assert_true(set <= args->scale_column);
	assert_int_equal(args->scale_column % 4, 0);
}

/* Tile i of cluster c, and that both lists agree. */
static struct nib_gemm_tile tile_of(const struct nib_sm100_args *args, int32_t clusters,
				    int32_t i, int32_t c)
{
	const struct nib_gemm_tile *listed = &args->tiles[i * clusters + c];

	if (i == 0)
		assert_memory_equal(listed, &args->first[c], sizeof(*listed));
	return *listed;
}

/* The kernel's rules of a tile, and where the problem ends. */
static void check_tile(const struct bed *bed, const struct nib_sm100_args *args,
		       const struct nib_sm100_problem *x, const struct nib_gemm_tile *t)
{
	const int32_t rows = t->rows;

	assert_in_range(rows, 16, bed->op == NIB_OP_DUAL_GEMM ? 192 : 256);
	assert_int_equal(rows % 16, 0);
	assert_true(rows <= args->tile_m);
	assert_in_range(x->a_box_rows, rows / bed_ctas_of(bed),
			args->tile_m / bed_ctas_of(bed));
	assert_int_equal(t->row % 64, 0);
	assert_in_range(t->row, 0, x->m - 1);
	assert_true(t->row % 128 + rows <= 128 * args->a_scale_blocks);
	assert_true(t->row + rows >= x->m || rows % 64 == 0);
}

/* Every unit and row of A once; entry i of the launch is problem at[i]. */
static void check_cover(const struct bed *bed, const struct nib_sm100_args *args,
			const struct nib_sm100_problem *problems,
			const int64_t *batches, int entries)
{
	const int32_t clusters =
	    (int32_t)bed->fake->last.gridDimX / bed_ctas_of(bed) / args->k_slices;
	uint8_t *seen[BED_PROBLEMS] = {NULL};
	int64_t steps[BED_PROBLEMS] = {0}, all[BED_PROBLEMS] = {0};

	assert_in_range(clusters, 1, NIB_SM100_CLUSTERS);
	if (args->k_slices > 1)
		assert_int_equal(args->tile_rounds, 1);
	for (int i = 0; i < entries; i++) {
		steps[i] = bed_round_to(problems[i].m, 32) / 16 + 16;
		all[i] = batches[i] * problems[i].units;
		assert_int_equal(problems[i].units,
				 bed_round_to(problems[i].n, 128 * bed_ctas_of(bed)) /
				     (128 * bed_ctas_of(bed)));
		seen[i] = calloc((size_t)(all[i] * steps[i]), 1);
	}
	for (int32_t c = 0; c < clusters; c++)
		for (int32_t i = 0; i < args->tile_rounds; i++) {
			const struct nib_gemm_tile t = tile_of(args, clusters, i, c);

			assert_true(i > 0 || t.rows > 0);
			if (!t.rows)
				break;
			assert_in_range(t.problem, 0, entries - 1);
			assert_in_range(t.unit, 0, all[t.problem] - 1);
			check_tile(bed, args, &problems[t.problem], &t);
			for (int32_t j = 0; j < t.rows / 16; j++)
				seen[t.problem]
				    [t.unit * steps[t.problem] + t.row / 16 + j]++;
		}
	for (int i = 0; i < entries; i++) {
		for (int64_t u = 0; u < all[i]; u++)
			for (int64_t j = 0; j < steps[i]; j++) {
				const int times = seen[i][u * steps[i] + j];

				if (j * 16 < problems[i].m)
					assert_int_equal(times, 1);
				else
					assert_in_range(times, 0, 1);
			}
		free(seen[i]);
	}
}

struct fake_map bed_map_of(const struct nib_tensor_map *map)
{
	struct fake_map fake;

	memcpy(&fake, map, sizeof(fake));
	return fake;
}

/* The copy that was made there, within the workspace; NULL: none. */
const struct nib_stage_copy *bed_copy_at(const struct bed *bed, uintptr_t address)
{
	const struct nib_stage_params *p = bed->fake->params_before;

	if (address < bed->workspace ||
	    address >= bed->workspace + bed->workspace_bytes)
		return NULL;
	assert_string_equal(bed->fake->kernel_before, "nib_stage_sm100");
	for (int32_t i = 0; i < p->count; i++)
		if ((uintptr_t)p->copies[i].to == address)
			return &p->copies[i];
	fail_msg("a map points into the workspace, where nothing is copied");
	return NULL;
}

/* Codes: direct if TMA can, else a copy of that operand with padded rows. */
void bed_check_codes(const struct bed *bed, const struct nib_fp4 *v, int64_t matrices,
		     int32_t box, const struct nib_tensor_map *encoded)
{
	const struct fake_map map = bed_map_of(encoded);
	const struct nib_stage_copy *copy = bed_copy_at(bed, map.address);
	const bool direct = (v->rows == 1 || v->row_stride_bytes % 16 == 0) &&
			    (matrices == 1 || v->batch_stride_bytes % 16 == 0);
	const int64_t row = direct ? v->row_stride_bytes : bed_round_to(v->k / 2, 16);
	const int64_t batch = direct ? v->batch_stride_bytes : row * v->rows;

	assert_int_equal(map.type, CU_TENSOR_MAP_DATA_TYPE_UINT8);
	assert_int_equal(map.swizzle, CU_TENSOR_MAP_SWIZZLE_128B);
	assert_int_equal(map.box[0], 128);
	assert_int_equal(map.box[1], box);
	assert_int_equal(map.box[2], 1);
	assert_int_equal(map.sizes[1], v->rows);
	assert_int_equal(map.sizes[2], matrices);
	if (v->k == 0)
		return;
	assert_int_equal(map.sizes[0], v->k / 2);
	assert_true(v->rows == 1 || map.strides_bytes[0] == (uint64_t)row);
	assert_true(matrices == 1 || map.strides_bytes[1] == (uint64_t)batch);
	assert_int_equal(copy == NULL, direct);
	if (direct) {
		assert_int_equal(map.address, (uintptr_t)v->codes);
		return;
	}
	assert_ptr_equal(copy->from, v->codes);
	assert_int_equal(copy->kind, NIB_STAGE_CODES);
	assert_int_equal(copy->row_stride_bytes, v->row_stride_bytes);
	assert_int_equal(copy->batch_stride_bytes, v->batch_stride_bytes);
	assert_int_equal(copy->rows, v->rows);
	assert_int_equal(copy->k, v->k);
	assert_int_equal(copy->matrix_pieces * 16, row * v->rows);
	assert_true(map.address + (uint64_t)(matrices * batch) <=
		    bed->workspace + bed->workspace_bytes);
}

void bed_check_scales(const struct bed *bed, const struct nib_fp4 *v, int64_t matrices,
		      int32_t blocks, const struct nib_tensor_map *encoded)
{
	const struct fake_map map = bed_map_of(encoded);
	const struct nib_stage_copy *copy = bed_copy_at(bed, map.address);
	const bool tiled = v->scale_layout == NIB_SCALE_LAYOUT_TILED_128X4;
	const bool direct = tiled && v->k % 64 == 0 &&
			    (matrices == 1 || v->scale_batch_stride_bytes % 16 == 0);
	const int64_t across = bed_round_to(v->k, 64) / 64;
	const int64_t down = bed_round_to(v->rows, 128) / 128;
	const int64_t batch =
	    direct ? v->scale_batch_stride_bytes : across * down * 512;

	assert_int_equal(map.type, CU_TENSOR_MAP_DATA_TYPE_INT64);
	assert_int_equal(map.swizzle, CU_TENSOR_MAP_SWIZZLE_NONE);
	assert_int_equal(map.box[0], 256);
	assert_int_equal(map.box[1], blocks);
	assert_int_equal(map.box[2], 1);
	assert_int_equal(map.sizes[1], down);
	assert_int_equal(map.sizes[2], matrices);
	if (v->k == 0)
		return;
	assert_int_equal(map.sizes[0], across * 64);
	assert_int_equal(map.strides_bytes[0], across * 512);
	assert_true(matrices == 1 || map.strides_bytes[1] == (uint64_t)batch);
	assert_int_equal(copy == NULL, direct);
	if (direct) {
		assert_int_equal(map.address, (uintptr_t)v->scales);
		return;
	}
	assert_ptr_equal(copy->from, v->scales);
	assert_int_equal(copy->kind, tiled ? NIB_STAGE_TILED : NIB_STAGE_LINEAR);
	assert_int_equal(copy->batch_stride_bytes, v->scale_batch_stride_bytes);
	assert_int_equal(copy->rows, v->rows);
	assert_int_equal(copy->k, v->k);
	assert_int_equal(copy->matrix_pieces * 16, across * down * 512);
	assert_true(map.address + (uint64_t)(matrices * batch) <=
		    bed->workspace + bed->workspace_bytes);
}

static void check_problem(const struct bed *bed, const struct nib_sm100_args *args,
			  const struct nib_problem *p,
			  const struct nib_sm100_problem *x)
{
	const int64_t a = p->a.batch, b = p->b.batch;

	assert_int_equal(x->m, p->a.rows);
	assert_int_equal(x->n, p->c.cols);
	assert_int_equal(x->k, p->a.k);
	assert_int_equal(x->b_matrices, b);
	assert_ptr_equal(x->c, p->c.data);
	assert_int_equal(x->c_stride_elems, p->c.cols);
	assert_int_equal(x->c_batch_stride_elems, p->c.rows * p->c.cols);
	bed_check_codes(bed, &p->a, a, x->a_box_rows, &x->maps.a);
	bed_check_scales(bed, &p->a, a, args->a_scale_blocks, &x->maps.a_scales);
	bed_check_codes(bed, &p->b, b, NIB_TILE_N, &x->maps.b);
	bed_check_scales(bed, &p->b, b, 1, &x->maps.b_scales);
	if (bed->op != NIB_OP_DUAL_GEMM)
		return;
	bed_check_codes(bed, &p->b2, b, NIB_TILE_N, &x->maps.b2);
	bed_check_scales(bed, &p->b2, b, 1, &x->maps.b2_scales);
}

/* Copies lie apart, one behind the other. */
void bed_check_copies(const struct bed *bed)
{
	const struct nib_stage_params *p = bed->fake->params_before;
	int64_t pieces = 0;
	uintptr_t end = bed->workspace;

	if (strcmp(bed->fake->kernel_before, "nib_stage_sm100") != 0)
		return;
	for (int32_t i = 0; i < p->count; i++) {
		const struct nib_stage_copy *c = &p->copies[i];
		const int64_t next = i + 1 < p->count ? c[1].first_piece : p->pieces;

		assert_int_equal(c->first_piece, pieces);
		assert_int_equal((next - pieces) % c->matrix_pieces, 0);
		assert_true((uintptr_t)c->to >= end);
		end = (uintptr_t)c->to + (uintptr_t)(next - pieces) * 16;
		pieces = next;
	}
	assert_true(end <= bed->workspace + bed->workspace_bytes);
}

/* The last launch, of all problems that have elements. */
void bed_check_last(const struct bed *bed)
{
	const struct nib_sm100_many *params = bed->fake->last_params;
	const struct nib_sm100_args *args = &params->args;
	int64_t batches[BED_PROBLEMS];
	int entries = 0;
	bool once = true;

	bed_check_launch(bed, args);
	for (int i = 0; i < bed->count; i++) {
		const struct nib_problem *p = &bed->problems[i];

		if (!p->a.rows || !p->c.cols)
			continue;
		check_problem(bed, args, p, &params->problems[entries]);
		batches[entries++] = p->a.batch;
		once = once && p->b.batch == p->a.batch;
	}
	assert_int_equal(strstr(bed->fake->last_kernel, "_few_") != NULL,
			 entries <= NIB_SM100_FEW_PROBLEMS);
	check_cover(bed, args, params->problems, batches, entries);
	bed_check_copies(bed);
	assert_true(args->a_policy == UINT64_C(0x14F0000000000000));
	if (!once)
		assert_true(args->b_policy == UINT64_C(0x1000000000000000));
	else
		assert_true(args->b_policy == UINT64_C(0x12F0000000000000) ||
			    args->b_policy == UINT64_C(0x1000000000000000));
}
