/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_cuda_gemm.c - what plans of products ask of a GPU, on the fake driver:
 * how many launches of which size, how much workspace, what is refused, and
 * that a failed launch is reported and forgotten.
 */
#include <stdbool.h>
#include <string.h>

#include "backend/cuda/kernels/sm90/gemm_params.h"
#include "common/unit.h"
#include "emu/tests/common/alloc.h"
#include "fake_bed.h"
#include "nibblas.h"

#define M	 20
#define N	 300
#define K	 512
#define MANY	 100
#define SM_BYTES (227 << 10)
#define CTAS	 132 /* that the fake driver holds at once */
/* Converted activations: fp16, whole weight stages. */
#define ROW_BYTES (2 * K)

struct bed {
	struct fake_cuda *fake;
	struct nib_device *device;
	char *memory;
	struct nib_problem problems[MANY];
	struct nib_plan *plan;
	struct nib_error err;
};

static struct nib_fp4 nvfp4(const struct bed *bed, int64_t rows, int64_t batch)
{
	return (struct nib_fp4){.codes = bed->memory,
				.scales = bed->memory,
				.rows = rows,
				.k = K,
				.batch = batch};
}

static void make_bed(struct bed *bed)
{
	const size_t inputs = 1 << 20, c_bytes = M * N * 2;
	void *memory;

	memset(bed, 0, sizeof(*bed));
	bed->fake = fake_open(FAKE_CUDA);
	assert_ok(nib_device_open("cuda", NULL, &bed->device, NULL));
	assert_ok(
	    nib_device_alloc(bed->device, inputs + MANY * c_bytes, &memory, NULL));
	bed->memory = memory;
	memset(bed->memory, 0, inputs);
	for (int i = 0; i < MANY; i++)
		bed->problems[i] = (struct nib_problem){
		    .a = nvfp4(bed, M, 1),
		    .b = nvfp4(bed, N, 1),
		    .b2 = nvfp4(bed, N, 1),
		    .c = {.data = bed->memory + inputs + (size_t)i * c_bytes,
			  .dtype = NIB_DTYPE_FP16,
			  .rows = M,
			  .cols = N},
		};
}

static void free_bed(struct bed *bed)
{
	nib_plan_free(bed->plan);
	nib_device_free(bed->device, bed->memory);
	nib_device_close(bed->device);
	fake_check_clean(bed->fake);
}

static void plan(struct bed *bed, enum nib_op op, int64_t count)
{
	nib_plan_free(bed->plan);
	assert_ok_err(nib_plan_create(bed->device, op, bed->problems, count, NULL,
				      &bed->plan, &bed->err),
		      &bed->err);
}

static void check_explained(const struct bed *bed, const char *part)
{
	const struct nib_plan_info info = test_plan_info(bed->plan);

	assert_contains(info.explanation, part);
	/* To the end. */
	assert_contains(info.explanation, " begins meanwhile)");
}

/* Kernels that a run launches. */
static int run(struct bed *bed, int64_t count)
{
	const int before = bed->fake->launches;

	assert_ok_err(nib_run(bed->plan, bed->problems, count, NULL, &bed->err),
		      &bed->err);
	return bed->fake->launches - before;
}

/*
 * Checks the attributes of a launch: clusters of two, which may overlap the
 * kernel before, and are all resident if split-k slices wait for each other.
 */
static void check_attributes(const CUlaunchConfig *last, bool divides_k)
{
	const CUlaunchAttribute *a = last->attrs;

	assert_int_equal(last->numAttrs, divides_k ? 3 : 2);
	assert_int_equal(a[0].id, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION);
	assert_int_equal(a[0].value.clusterDim.x, NIB_GEMM_PAIR);
	assert_int_equal(a[0].value.clusterDim.y, 1);
	assert_int_equal(a[0].value.clusterDim.z, 1);
	assert_int_equal(a[1].id,
			 CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION);
	assert_int_equal(a[1].value.programmaticStreamSerializationAllowed, 1);
	if (!divides_k)
		return;
	assert_int_equal(a[2].id, CU_LAUNCH_ATTRIBUTE_COOPERATIVE);
	assert_int_equal(a[2].value.cooperative, 1);
}

static void check_last(const struct bed *bed, const char *kernel)
{
	const CUlaunchConfig *last = &bed->fake->last;

	assert_string_equal(bed->fake->last_kernel, kernel);
	assert_int_equal(last->blockDimX, strstr(kernel, "_small_m_")
					      ? NIB_SMALL_M_THREADS
					      : NIB_GEMM_THREADS);
	/* Whole clusters, no more than the GPU holds. */
	assert_in_range(last->gridDimX, NIB_GEMM_PAIR, CTAS);
	assert_int_equal(last->gridDimX % NIB_GEMM_PAIR, 0);
	assert_int_equal(last->gridDimY, 1);
	/* The rings fill what an SM has. */
	assert_in_range(last->sharedMemBytes,
			NIB_GEMM_TAIL_BYTES + 3 * NIB_WEIGHT_STAGE_BYTES, SM_BYTES);
}

static void launches_of_groups(void)
{
	static const struct {
		int64_t count;
		int kernels;
		const char *launches;
	} cases[] = {
	    {2, 2, ", 1 launch of two kernels"},
	    {48, 2, ", 1 launch of two kernels"},
	    {49, 4, ", 2 launches, of 48 matrices and one type at most, of"},
	    {96, 4, ", 2 launches, of 48 matrices"},
	    {100, 6, ", 3 launches, of 48 matrices"},
	};
	struct bed bed;

	make_bed(&bed);
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		const int64_t count = cases[i].count;
		const int64_t at_once =
		    count < NIB_GEMM_PROBLEMS ? count : NIB_GEMM_PROBLEMS;

		plan(&bed, NIB_OP_GEMM, count);
		assert_int_equal(run(&bed, count), cases[i].kernels);
		check_last(&bed, "nib_gemm_medium_m_sm90");
		check_attributes(&bed.fake->last, false);
		check_explained(&bed, cases[i].launches);
		/* 20 rows are 32 prepared ones. */
		assert_int_equal(test_plan_info(bed.plan).workspace_bytes,
				 at_once * 32 * ROW_BYTES);
		plan(&bed, NIB_OP_DUAL_GEMM, count);
		assert_int_equal(run(&bed, count), cases[i].kernels);
		check_last(&bed, "nib_dual_medium_m_sm90");
	}
	/* Each type of c needs a launch of its own. */
	bed.problems[1].c.dtype = NIB_DTYPE_BF16;
	plan(&bed, NIB_OP_GEMM, 3);
	assert_int_equal(run(&bed, 3), 6);
	free_bed(&bed);
}

/* The workspace holds what tiles of over 128 rows read: whole steps of 32. */
static void space_for_whole_tiles(void)
{
	static const int rows[][2] = {{17, 32},	  {32, 32},   {33, 48},	  {128, 128},
				      {129, 160}, {145, 160}, {161, 192}, {257, 288}};
	struct bed bed;

	make_bed(&bed);
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		bed.problems[0].a.rows = bed.problems[0].c.rows = rows[i][0];
		/* Single products of so few rows need no workspace. */
		plan(&bed, rows[i][0] <= 64 ? NIB_OP_DUAL_GEMM : NIB_OP_GEMM, 1);
		assert_int_equal(test_plan_info(bed.plan).workspace_bytes,
				 rows[i][1] * ROW_BYTES);
	}
	free_bed(&bed);
}

/* A problem's bits do not depend on its neighbours, nor on there being any. */
static void no_group_divides_k(void)
{
	struct nib_problem *p;
	struct bed bed;

	make_bed(&bed);
	p = &bed.problems[0];
	p->b.rows = p->c.cols = 64;
	p->a.k = p->b.k = 8192;
	plan(&bed, NIB_OP_GEMM, 1);
	check_explained(&bed, " slices, 1 launch");
	assert_in_range(test_plan_info(bed.plan).k_slices, 2, 16);
	assert_int_equal(run(&bed, 1), 2);
	check_last(&bed, "nib_gemm_small_m_sm90");
	check_attributes(&bed.fake->last, true);
	plan(&bed, NIB_OP_GEMM, 2);
	check_explained(&bed, ", k in 1 slice, ");
	assert_int_equal(test_plan_info(bed.plan).k_slices, 1);
	bed.problems[1].a.rows = bed.problems[1].c.rows = 0;
	plan(&bed, NIB_OP_GEMM, 2);
	check_explained(&bed, ", k in 1 slice, ");
	free_bed(&bed);
}

static void nothing_to_do(void)
{
	struct bed bed;

	make_bed(&bed);
	for (int i = 0; i < 2; i++) {
		bed.problems[i].a.rows = bed.problems[i].c.rows = 0;
		bed.problems[2 + i].b.rows = bed.problems[2 + i].c.cols = 0;
	}
	plan(&bed, NIB_OP_GEMM, 4);
	assert_int_equal(test_plan_info(bed.plan).k_slices, 1);
	assert_int_equal(run(&bed, 4), 0);
	assert_int_equal(test_plan_info(bed.plan).workspace_bytes, 0);
	/* Empty problems among others cost nothing. */
	plan(&bed, NIB_OP_GEMM, 4 + 48);
	assert_int_equal(run(&bed, 4 + 48), 2);
	free_bed(&bed);
}

static void few_rows_and_batches(void)
{
	struct bed bed;
	struct nib_problem *p;

	make_bed(&bed);
	p = &bed.problems[0];
	p->a.batch = p->c.batch = 50;
	plan(&bed, NIB_OP_GEMM, 1);
	assert_int_equal(run(&bed, 1), 2);
	check_explained(&bed, ", 1 launch of two kernels");
	p->a.batch = p->c.batch = 1;
	/* Few rows take the vector kernels, which need no workspace. */
	p->a.rows = p->c.rows = 1;
	plan(&bed, NIB_OP_GEMM, 1);
	assert_int_equal(run(&bed, 1), 1);
	assert_int_equal(test_plan_info(bed.plan).workspace_bytes, 0);
	/* But not two products. */
	plan(&bed, NIB_OP_DUAL_GEMM, 1);
	assert_int_equal(run(&bed, 1), 2);
	check_last(&bed, "nib_dual_small_m_sm90");
	free_bed(&bed);
}

/*
 * Small matrices at constant strides go in few launches, whose converted rows
 * stay in the L2.
 */
static void large_batches(void)
{
	const int64_t batch = 200000, rows = 17, cols = 8, k = 16;
	const int64_t bytes = batch * rows * (k / 2 + k / 16 + cols * 2);
	struct nib_device_info device;
	struct nib_problem *p;
	struct bed bed;
	void *memory;
	int64_t most, launches;

	make_bed(&bed);
	p = &bed.problems[0];
	device = test_device_info(bed.device);
	assert_ok(nib_device_alloc(bed.device, (size_t)bytes, &memory, NULL));
	p->a.codes = p->a.scales = memory;
	p->c.data = (char *)memory + batch * rows * (k / 2 + k / 16);
	p->a.rows = p->c.rows = rows;
	p->b.rows = p->b2.rows = p->c.cols = cols;
	p->a.k = p->b.k = p->b2.k = k;
	p->a.batch = p->c.batch = batch;
	/* 32 rows of one weight stage. */
	most = device.l2_bytes / 2 / (32 * 512);
	launches = (batch + most - 1) / most;
	assert_in_range(launches, 2, 200);
	for (int i = 0; i < 2; i++) {
		plan(&bed, i ? NIB_OP_DUAL_GEMM : NIB_OP_GEMM, 1);
		assert_int_equal(run(&bed, 1), 2 * launches);
		check_last(&bed,
			   i ? "nib_dual_medium_m_sm90" : "nib_gemm_medium_m_sm90");
		assert_in_range(test_plan_info(bed.plan).workspace_bytes, 1,
				device.l2_bytes / 2);
		check_explained(&bed, " matrices and one type at most, of");
		assert_int_equal(test_plan_info(bed.plan).tasks, batch);
	}
	/* A problem that is no batch has a launch of its own. */
	p->a.batch = p->c.batch = 49;
	plan(&bed, NIB_OP_GEMM, 3);
	assert_int_equal(run(&bed, 3), 4);
	/* One row: as many as a grid has in y. */
	p->a.rows = p->c.rows = 1;
	p->a.batch = p->c.batch = batch;
	plan(&bed, NIB_OP_GEMM, 1);
	assert_int_equal(run(&bed, 1), 4);
	assert_int_equal(bed.fake->before.gridDimY, 65535);
	assert_int_equal(bed.fake->last.gridDimY, batch - 3 * 65535);
	nib_device_free(bed.device, memory);
	free_bed(&bed);
}

/* The small-m kernel takes one matrix, with at least two weight stages in each
 * split-k slice. */
static void kernel_for_small_m(void)
{
	static const struct {
		int64_t m, k;
		const char *kernel;
	} cases[] = {
	    {17, 272, "nib_dual_small_m_sm90"},	 {32, 272, "nib_dual_small_m_sm90"},
	    {32, 256, "nib_dual_medium_m_sm90"}, {32, 0, "nib_dual_medium_m_sm90"},
	    {20, 512, "nib_dual_small_m_sm90"},	 {20, 7168, "nib_gemm_small_m_sm90"},
	    {64, 16, "nib_dual_medium_m_sm90"},
	};
	struct bed bed;

	make_bed(&bed);
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct nib_problem *p = &bed.problems[0];

		p->a.rows = p->c.rows = cases[i].m;
		p->b.rows = p->b2.rows = p->c.cols = 64;
		p->a.k = p->b.k = p->b2.k = cases[i].k;
		/* Single products of less work have kernels of their own. */
		plan(&bed, p->a.k > 4096 ? NIB_OP_GEMM : NIB_OP_DUAL_GEMM, 1);
		assert_int_equal(run(&bed, 1), 2);
		check_last(&bed, cases[i].kernel);
		/* A problem in a group has the same bits with any other. */
		plan(&bed, NIB_OP_DUAL_GEMM, 2);
		assert_int_equal(run(&bed, 2), 2);
		check_last(&bed, "nib_dual_medium_m_sm90");
	}
	free_bed(&bed);
}

static void refused(struct bed *bed, const char *part)
{
	struct nib_plan *none = NULL;

	assert_int_equal(nib_plan_create(bed->device, NIB_OP_DUAL_GEMM, bed->problems,
					 2, NULL, &none, &bed->err),
			 NIB_STATUS_UNSUPPORTED);
	assert_null(none);
	assert_contains(bed->err.message, part);
}

/* The activation conversion may begin early if all its blocks are resident, two
 * on an SM. */
static void activations_come_early(void)
{
	struct bed bed;

	make_bed(&bed);
	bed.problems[0].b.rows = bed.problems[0].c.cols = 64;
	bed.problems[0].a.k = bed.problems[0].b.k = 8192;
	for (int64_t count = 1; count <= 48; count += 47) {
		const bool is_early = count == 1;

		plan(&bed, NIB_OP_GEMM, count);
		assert_int_equal(run(&bed, count), 2);
		assert_int_equal(bed.fake->before.numAttrs, is_early);
		assert_int_equal(bed.fake->before.sharedMemBytes,
				 is_early ? SM_BYTES / 3 : 0);
	}
	free_bed(&bed);
}

static void strides(void)
{
	struct bed bed;
	struct nib_problem *p, kept;

	make_bed(&bed);
	p = &bed.problems[1];
	kept = *p;
	p->a.row_stride_bytes = K / 2 + 4;
	refused(&bed, "a: row_stride_bytes = 260");
	refused(&bed, "multiples of 8");
	*p = kept;
	p->b.row_stride_bytes = K / 2 + 1;
	refused(&bed, "b: row_stride_bytes = 257");
	*p = kept;
	p->b2.row_stride_bytes = K / 2 + 2;
	refused(&bed, "b2: row_stride_bytes = 258");
	*p = kept;
	p->a.batch = p->c.batch = 2;
	p->a.batch_stride_bytes = M * K / 2 + 4;
	refused(&bed, "batch_stride_bytes = 5124");
	*p = kept;
	p->b.row_stride_bytes = K / 2 + 8;
	plan(&bed, NIB_OP_DUAL_GEMM, 2);
	assert_int_equal(run(&bed, 2), 2);
	free_bed(&bed);
}

/* Numbers of tiles, and rows up to the end of a tile, are int32_t. */
static void sizes_beyond_int32(void)
{
	struct bed bed;
	struct nib_problem *p;

	make_bed(&bed);
	p = &bed.problems[1];
	p->a.rows = p->c.rows = 1 << 24;
	p->b.rows = p->b2.rows = p->c.cols = 1 << 24;
	p->a.k = p->b.k = p->b2.k = 16;
	refused(&bed, "problems: 8589934595 tiles");
	p->a.rows = p->c.rows = 1;
	p->b.rows = p->b2.rows = p->c.cols = INT32_MAX - 510;
	refused(&bed, "b: rows = 2147483137: at most 2^31 - 512 on a GPU");
	free_bed(&bed);
}

/* Tiled scales of weights are copied by 8 bytes; all others by single ones
 * where they must. */
static void strides_of_scales(void)
{
	const int64_t tiled =
	    (int64_t)nib_scales_bytes(NIB_SCALE_LAYOUT_TILED_128X4, N, K);
	struct bed bed;
	struct nib_problem *p, kept;

	make_bed(&bed);
	p = &bed.problems[1];
	p->a.batch = p->b.batch = p->b2.batch = p->c.batch = 2;
	kept = *p;
	p->b.scale_layout = NIB_SCALE_LAYOUT_TILED_128X4;
	p->b.scale_batch_stride_bytes = tiled + 4;
	refused(&bed, "b: scale_batch_stride_bytes = 12292: must be a multiple "
		      "of 8");
	*p = kept;
	p->b2.scale_layout = NIB_SCALE_LAYOUT_TILED_128X4;
	p->b2.scale_batch_stride_bytes = tiled + 1;
	refused(&bed, "b2: scale_batch_stride_bytes = 12289");
	p->b2.scale_batch_stride_bytes = tiled + 8;
	plan(&bed, NIB_OP_DUAL_GEMM, 2);
	/* One matrix has no stride. */
	p->b2.batch = 1;
	p->b2.scale_batch_stride_bytes = tiled + 1;
	plan(&bed, NIB_OP_DUAL_GEMM, 2);
	*p = kept;
	p->a.scale_layout = NIB_SCALE_LAYOUT_TILED_128X4;
	p->a.scale_batch_stride_bytes = tiled + 1;
	p->b.scale_batch_stride_bytes = N * K / 16 + 1;
	plan(&bed, NIB_OP_DUAL_GEMM, 2);
	free_bed(&bed);
}

/* Packed weights are a copy: the view may be gone. */
static void packed_weights(void)
{
	struct bed bed;
	struct nib_packed *packed;

	make_bed(&bed);
	assert_ok(nib_pack(bed.device, &bed.problems[0].b, NULL, &packed, &bed.err));
	memset(&bed.problems[0].b, 0, sizeof(bed.problems[0].b));
	bed.problems[0].b_packed = packed;
	bed.problems[0].a.rows = bed.problems[0].c.rows = 65;
	plan(&bed, NIB_OP_GEMM, 1);
	assert_int_equal(run(&bed, 1), 2);
	check_last(&bed, "nib_gemm_small_m_sm90");
	nib_packed_free(packed);
	free_bed(&bed);
}

static void moe_of(struct bed *bed, int64_t experts, int64_t rows,
		   struct nib_moe_problem *moe)
{
	*moe = (struct nib_moe_problem){
	    .problem.a = nvfp4(bed, rows, 1),
	    .problem.b = nvfp4(bed, 2, experts),
	    .problem.b2 = nvfp4(bed, 2, experts),
	    .problem.c = bed->problems[0].c,
	    .row_offsets = (int32_t *)(void *)bed->memory,
	};
	moe->problem.c.rows = rows;
	moe->problem.c.cols = 2;
}

static void plan_moe(struct bed *bed, enum nib_op op, const struct nib_moe_problem *moe)
{
	nib_plan_free(bed->plan);
	assert_int_equal(
	    nib_moe_plan_create(bed->device, op, moe, NULL, &bed->plan, &bed->err),
	    NIB_STATUS_OK);
}

/* The launches of a run. */
static int run_moe(struct bed *bed, const struct nib_moe_problem *moe)
{
	const int before = bed->fake->launches;

	if (nib_moe_run(bed->plan, moe, NULL, &bed->err))
		fail_msg("%s", bed->err.message);
	return bed->fake->launches - before;
}

static void moe_plans(void)
{
	struct nib_moe_problem moe;
	struct bed bed;

	make_bed(&bed);
	moe_of(&bed, 1024, 200, &moe);
	for (int op = NIB_OP_GEMM; op <= NIB_OP_DUAL_GEMM; op++) {
		plan_moe(&bed, (enum nib_op)op, &moe);
		assert_int_equal(run_moe(&bed, &moe), 2);
		check_last(&bed, op == NIB_OP_GEMM ? "nib_gemm_small_m_sm90"
						   : "nib_dual_small_m_sm90");
		check_attributes(&bed.fake->last, false);
		assert_int_equal(bed.fake->last.gridDimX, CTAS);
		/* Each of 200 experts may have a token, in its own 16 rows. */
		assert_true(test_plan_info(bed.plan).workspace_bytes >=
			    200 * 16 * ROW_BYTES);
	}
	moe.problem.b.rows = moe.problem.b2.rows = moe.problem.c.cols = 0;
	plan_moe(&bed, NIB_OP_DUAL_GEMM, &moe);
	assert_int_equal(run_moe(&bed, &moe), 0);
	moe_of(&bed, 3, 0, &moe);
	plan_moe(&bed, NIB_OP_DUAL_GEMM, &moe);
	assert_int_equal(run_moe(&bed, &moe), 0);
	free_bed(&bed);
}

static void refused_moe(struct bed *bed, const struct nib_moe_problem *moe,
			const char *part)
{
	struct nib_plan *none;

	assert_refused(
	    nib_moe_plan_create(bed->device, NIB_OP_GEMM, moe, NULL, &none, &bed->err),
	    NIB_STATUS_UNSUPPORTED, &bed->err, part);
	assert_null(none);
}

/* What the kernels of an MoE take. */
static void moe_limits(void)
{
	static const struct nib_plan_options mine = {.struct_bytes = sizeof(mine),
						     .caller_workspace = 1};
	struct nib_moe_problem moe;
	struct bed bed;

	make_bed(&bed);
	moe_of(&bed, 1025, 200, &moe);
	refused_moe(&bed, &moe,
		    "moe: 1025 experts, 200 rows, which are 3408 when each "
		    "expert's are padded: must be at most 1024 experts and ");
	moe_of(&bed, 32, 1, &moe);
	moe.problem.a.k = moe.problem.b.k = 0;
	moe.problem.a.rows = moe.problem.c.rows = INT32_MAX - 511;
	refused_moe(&bed, &moe, "2147483136 rows, which are 2147483648 when");
	moe.problem.b.batch = 31;
	nib_plan_free(bed.plan);
	assert_ok(nib_moe_plan_create(bed.device, NIB_OP_GEMM, &moe, &mine, &bed.plan,
				      &bed.err));
	moe.problem.a.rows = moe.problem.c.rows = 1;
	moe.problem.b.rows = moe.problem.c.cols = INT32_MAX - 510;
	refused_moe(&bed, &moe, "2^31 - 512");
	moe.problem.b.rows = moe.problem.c.cols = INT32_MAX - 511;
	plan_moe(&bed, NIB_OP_GEMM, &moe);
	free_bed(&bed);
}

/* Half as many rows again as an average expert has: 32, 64, 128 or 256. */
static void moe_tiles(void)
{
	static const struct {
		int64_t rows;
		const char *tiles;
	} cases[] = {
	    {65, "up to 32 rows of A"},	  {66, "up to 64 rows of A"},
	    {129, "up to 64 rows of A"},  {130, "up to 128 rows of A"},
	    {257, "up to 128 rows of A"}, {258, "up to 256 rows of A"},
	};
	struct nib_moe_problem moe;
	struct bed bed;

	make_bed(&bed);
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		moe_of(&bed, 3, cases[i].rows, &moe);
		plan_moe(&bed, NIB_OP_GEMM, &moe);
		check_explained(&bed, cases[i].tiles);
	}
	free_bed(&bed);
}

static void check_gemv(struct bed *bed, const struct nib_problem *p, const char *kernel)
{
	bed->problems[0] = *p;
	plan(bed, NIB_OP_GEMM, 1);
	assert_int_equal(run(bed, 1), 1);
	assert_string_equal(bed->fake->last_kernel, kernel);
}

/*
 * Rows of 16-byte pieces go to the fast vector kernel, all others to the one for
 * any alignment.  A stride counts only where there is a second row or matrix.
 */
static void gemv_alignment(void)
{
	static const struct {
		const char *what;
		size_t at;     /* of an int64_t or a pointer in the problem */
		int64_t more;  /* is added to it */
		bool one, two; /* m = 1 and m = 2: is the fast one taken? */
	} cases[] = {
#define CASE(field, more, one, two)                                                    \
	{#field, offsetof(struct nib_problem, field), more, one, two}
	    CASE(a.row_stride_bytes, 16, true, true),
	    CASE(a.row_stride_bytes, 8, true, false),
	    CASE(a.batch_stride_bytes, 8, true, true),
	    CASE(a.scales, 16, true, true),
	    CASE(a.scales, 4, true, true),
	    CASE(a.scales, 2, false, false),
	    CASE(a.scale_row_stride_bytes, 4, true, true),
	    CASE(a.scale_row_stride_bytes, 2, true, false),
	    CASE(b.row_stride_bytes, 16, true, true),
	    CASE(b.row_stride_bytes, 8, false, false),
	    CASE(b.row_stride_bytes, 4, false, false),
	    CASE(b.scales, 16, true, true),
	    CASE(b.scales, 8, false, false),
	    CASE(b.scale_row_stride_bytes, 16, true, true),
	    CASE(b.scale_row_stride_bytes, 4, false, false),
#undef CASE
	};
	struct bed bed;

	make_bed(&bed);
	for (size_t i = 0; i < 2 * sizeof(cases) / sizeof(*cases); i++) {
		const int64_t m = 1 + (int64_t)i % 2;
		struct nib_problem p = bed.problems[1];
		int64_t *field = (int64_t *)(void *)((char *)&p + cases[i / 2].at);
		bool fast = m == 1 ? cases[i / 2].one : cases[i / 2].two;

		p.a.rows = p.c.rows = m;
		p.b.rows = p.c.cols = 32;
		p.a.k = p.b.k = 224; /* no multiple of 64 */
		p.a.row_stride_bytes = p.b.row_stride_bytes = 128;
		p.a.batch_stride_bytes = 256;
		p.a.scale_row_stride_bytes = p.b.scale_row_stride_bytes = 16;
		*field += cases[i / 2].more;
		check_gemv(&bed, &p,
			   fast	    ? m == 1 ? "nib_gemv_1_sm90" : "nib_gemv_2_sm90"
			   : m == 1 ? "nib_gemv_1_any_sm90"
				    : "nib_gemv_4_any_sm90");
		bed.problems[0] = bed.problems[1];
	}
	free_bed(&bed);
}

/* After a failed launch, any of the four, no other follows, and the plan can run
 * again. */
static void failed_launch(void)
{
	struct bed bed;

	make_bed(&bed);
	plan(&bed, NIB_OP_GEMM, 49);
	for (int i = 0; i < 4; i++) {
		bed.fake->launches = 0;
		bed.fake->launches_left = i;
		bed.fake->launch_result = CUDA_ERROR_LAUNCH_FAILED;
		assert_int_equal(nib_run(bed.plan, bed.problems, 49, NULL, &bed.err),
				 NIB_STATUS_DEVICE_FAILED);
		assert_int_equal(bed.fake->launches, i);
		bed.fake->launch_result = CUDA_SUCCESS;
		assert_int_equal(run(&bed, 49), 4);
	}
	free_bed(&bed);
}

/* The GPU's memory is lost with its context, the host's is not. */
static void lost_context(void)
{
	struct bed bed;
	long live;
	int lost;

	make_bed(&bed);
	/* Kernels that were looked up are the device's. */
	plan(&bed, NIB_OP_GEMM, 49);
	nib_plan_free(bed.plan);
	bed.plan = NULL;
	live = test_alloc_live();
	plan(&bed, NIB_OP_GEMM, 49);
	bed.fake->enter_result = CUDA_ERROR_ILLEGAL_ADDRESS;
	assert_int_equal(nib_run(bed.plan, bed.problems, 49, NULL, &bed.err),
			 NIB_STATUS_DEVICE_FAILED);
	nib_plan_free(bed.plan);
	bed.plan = NULL;
	/* The fake's tiles and workspace stay allocated. */
	lost = bed.fake->allocations - 1;
	assert_int_equal(lost, 2);
	if (test_alloc_works())
		assert_int_equal(test_alloc_live() - live, lost);
	bed.fake->enter_result = CUDA_SUCCESS;
	bed.fake->allocations -= lost;
	free_bed(&bed);
}

/* The answer of drivers that notice a destroyed stream; CUDA does not promise
 * that they do. */
static void destroyed_stream(void)
{
	struct nib_run_options options = {.struct_bytes = sizeof(options)};
	struct bed bed;

	make_bed(&bed);
	plan(&bed, NIB_OP_GEMM, 49);
	options.stream = &bed;
	bed.fake->dead_stream = options.stream;
	assert_refused(nib_run(bed.plan, bed.problems, 49, &options, &bed.err),
		       NIB_STATUS_BAD_ARGUMENT, &bed.err, "is the stream destroyed");
	assert_int_equal(bed.fake->launches, 0);
	assert_refused(nib_device_wait(bed.device, &bed, &bed.err),
		       NIB_STATUS_BAD_ARGUMENT, &bed.err, "is the stream destroyed");
	assert_int_equal(run(&bed, 49), 4);
	free_bed(&bed);
}

int main(int argc, char **argv)
{
	static const struct fake_test tests[] = {
	    {"launches_of_groups", launches_of_groups},
	    {"space_for_whole_tiles", space_for_whole_tiles},
	    {"no_group_divides_k", no_group_divides_k},
	    {"nothing_to_do", nothing_to_do},
	    {"few_rows_and_batches", few_rows_and_batches},
	    {"large_batches", large_batches},
	    {"kernel_for_small_m", kernel_for_small_m},
	    {"activations_come_early", activations_come_early},
	    {"strides", strides},
	    {"sizes_beyond_int32", sizes_beyond_int32},
	    {"strides_of_scales", strides_of_scales},
	    {"packed_weights", packed_weights},
	    {"moe_plans", moe_plans},
	    {"moe_limits", moe_limits},
	    {"moe_tiles", moe_tiles},
	    {"gemv_alignment", gemv_alignment},
	    {"failed_launch", failed_launch},
	    {"lost_context", lost_context},
	    {"destroyed_stream", destroyed_stream},
	};

	return fake_main(argc, argv, tests, sizeof(tests) / sizeof(*tests));
}
