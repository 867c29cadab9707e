/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_cuda_moe_layer.c - a layer of experts on the fake driver: the kernels of its
 * steps and their order, what is refused, and that failures free everything.
 * gpu_check_moe_layer.c checks results, also on the software GPU.
 */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "common/unit.h"
#include "emu/tests/common/alloc.h"
#include "fake_bed.h"

#define WIDTH	48
#define EXPERTS 6

/* The first of a layer's experts. */
#define OFFSET 20

struct spec {
	enum nib_activations activations;
	enum nib_moe_activation activation;
	enum nib_dtype dtype;
	int64_t tokens, top_k, k, cols;
	int ids_bytes;
	bool is_quantized, is_tiled;
	const char *launches; /* for a test that says what it expects */
};

struct bed {
	struct fake_cuda *fake;
	struct nib_device *device;
	int64_t width, experts;
	struct nib_moe_layer layer;
	struct nib_moe_layer_plan *plan;
	uintptr_t next;
	char *workspace;
	size_t workspace_bytes;
	int first; /* launch of the last run */
	struct nib_error err;
};

/* Addresses that are the GPU's: no memory backs them, and nothing reads them. */
#define SPACE_BEGIN ((uintptr_t)1 << 40)
#define SPACE	    ((size_t)1 << 32)

static int64_t slots_of(const struct spec *s)
{
	return s->tokens * s->top_k;
}

/* Addresses of the GPU for this many bytes. */
static void *reserve(struct bed *bed, int64_t bytes)
{
	void *at = (void *)bed->next;

	bed->next += (uintptr_t)(bytes + 64 + 63) / 64 * 64;
	assert_true(bed->next <= SPACE_BEGIN + SPACE);
	return at;
}

static struct nib_fp4 nvfp4(struct bed *bed, int64_t rows, int64_t k, int64_t batch,
			    bool is_tiled)
{
	return (struct nib_fp4){.codes = reserve(bed, batch * rows * k / 2),
				.scales = reserve(bed, batch * rows * k / 16),
				.rows = rows,
				.k = k,
				.batch = batch,
				.scale_layout = is_tiled ? NIB_SCALE_LAYOUT_TILED_128X4
							 : NIB_SCALE_LAYOUT_LINEAR};
}

static struct nib_dense dense(struct bed *bed, enum nib_dtype dtype, int64_t rows,
			      int64_t cols)
{
	/* Rows have a gap after them. */
	return (struct nib_dense){
	    .data = reserve(bed, rows * (cols + 8) * (int64_t)nib_dtype_bytes(dtype)),
	    .dtype = dtype,
	    .rows = rows,
	    .cols = cols,
	    .row_stride_elems = cols + 8};
}

static struct nib_moe_layer make_layer(struct bed *bed, const struct spec *s)
{
	return (struct nib_moe_layer){
	    .x = dense(bed, s->dtype, s->tokens, s->k),
	    .a = nvfp4(bed, s->tokens, s->k, 1, false),
	    .is_quantized = s->is_quantized,
	    .activations = s->activations,
	    .ids = reserve(bed, slots_of(s) * s->ids_bytes),
	    .ids_bytes = s->ids_bytes,
	    .top_k = s->top_k,
	    .expert_offset = OFFSET,
	    .weights = reserve(bed, slots_of(s) * 4),
	    .gate = nvfp4(bed, bed->width, s->k, bed->experts, s->is_tiled),
	    .up = nvfp4(bed, bed->width, s->k, bed->experts, s->is_tiled),
	    .down = nvfp4(bed, s->cols, bed->width, bed->experts, s->is_tiled),
	    .gate_alpha = reserve(bed, bed->experts * 4),
	    .up_alpha = reserve(bed, bed->experts * 4),
	    .down_alpha = reserve(bed, bed->experts * 4),
	    .x_global = reserve(bed, 4),
	    .h_global = reserve(bed, 4),
	    .activation = s->activation,
	    .limit = 7.0f,
	    .swiglu_alpha = 1.702f,
	    .up_bias = 0.25f,
	    .y = dense(bed, s->dtype, s->tokens, s->cols),
	};
}

/* For layers of `experts` experts; width: the length of h, gate has that many rows. */
static void open_bed(struct bed *bed, int64_t width, int64_t experts)
{
	memset(bed, 0, sizeof(*bed));
	bed->fake = fake_open(FAKE_CUDA);
	bed->width = width;
	bed->experts = experts;
	bed->next = SPACE_BEGIN;
	fake_register_memory((void *)SPACE_BEGIN, SPACE, CU_MEMORYTYPE_DEVICE, 0, 0);
	assert_ok(nib_device_open("cuda", NULL, &bed->device, NULL));
}

/* Nothing of the driver's is left. */
static void close_bed(struct bed *bed)
{
	nib_moe_layer_plan_free(bed->plan);
	nib_device_close(bed->device);
	fake_check_clean(bed->fake);
}

static enum nib_status make_plan(struct bed *bed, int caller_workspace)
{
	const struct nib_plan_options options = {.struct_bytes = sizeof(options),
						 .caller_workspace = caller_workspace};

	return nib_moe_layer_plan_create(bed->device, &bed->layer, &options, &bed->plan,
					 &bed->err);
}

/* A layer, its plan, and a workspace for it. */
static void use(struct bed *bed, const struct spec *s)
{
	struct nib_moe_layer_plan_info info = {.struct_bytes = sizeof(info)};

	nib_moe_layer_plan_free(bed->plan);
	bed->next = SPACE_BEGIN;
	bed->layer = make_layer(bed, s);
	assert_ok_err(make_plan(bed, 1), &bed->err);
	assert_ok_err(nib_moe_layer_plan_get_info(bed->plan, &info, &bed->err),
		      &bed->err);
	bed->workspace_bytes = info.workspace_bytes;
	bed->workspace = reserve(bed, (int64_t)bed->workspace_bytes);
}

static enum nib_status run(struct bed *bed)
{
	const struct nib_run_options options = {
	    .struct_bytes = sizeof(options),
	    .workspace = bed->workspace,
	    .workspace_bytes = bed->workspace_bytes,
	    .stream = bed,
	};

	bed->first = bed->fake->launches;
	return nib_moe_layer_run(bed->plan, &bed->layer, &options, &bed->err);
}

/* Launch i of the last run. */
static const struct fake_launch *launch_of(const struct bed *bed, int i)
{
	return &bed->fake->history[(bed->first + i) % FAKE_HISTORY];
}

static int launches_of(const struct bed *bed)
{
	const int count = bed->fake->launches - bed->first;

	assert_true(count <= FAKE_HISTORY);
	return count;
}

/* The last field: letter_of() of the launches. */
static const struct spec specs[] = {
    {NIB_ACTIVATIONS_NVFP4, NIB_MOE_ACTIVATION_SWIGLU, NIB_DTYPE_BF16, 1, 4, 64, 40, 8,
     false, false, "bpapc"},
    {NIB_ACTIVATIONS_NVFP4, NIB_MOE_ACTIVATION_SWIGLU, NIB_DTYPE_FP32, 3, 2, 64, 41, 4,
     true, false, "bpapc"},
    {NIB_ACTIVATIONS_NVFP4, NIB_MOE_ACTIVATION_GELU, NIB_DTYPE_FP16, 128, 8, 4864, 40,
     4, false, false, "bpapc"},
    {NIB_ACTIVATIONS_NVFP4, NIB_MOE_ACTIVATION_RELU2, NIB_DTYPE_BF16, 257, 8, 64, 40, 8,
     false, false, "rgpapc"},
    {NIB_ACTIVATIONS_NVFP4, NIB_MOE_ACTIVATION_SWIGLU_CLAMPED, NIB_DTYPE_BF16, 2, 65,
     64, 40, 8, false, false, "rgpapc"},
    {NIB_ACTIVATIONS_NVFP4, NIB_MOE_ACTIVATION_SWIGLU, NIB_DTYPE_BF16, 3000, 8, 64, 40,
     8, false, false, "rgpapc"},
    {NIB_ACTIVATIONS_DENSE, NIB_MOE_ACTIVATION_SWIGLU, NIB_DTYPE_BF16, 5, 4, 64, 40, 8,
     false, false, "bpc"},
    {NIB_ACTIVATIONS_DENSE, NIB_MOE_ACTIVATION_SWIGLU, NIB_DTYPE_FP16, 4000, 8, 1600,
     42, 8, false, false, "rgpc"},
    {NIB_ACTIVATIONS_DENSE, NIB_MOE_ACTIVATION_SWIGLU_CLAMPED, NIB_DTYPE_FP16, 16, 64,
     80, 44, 4, false, false, "bpapc"},
    {NIB_ACTIVATIONS_DENSE, NIB_MOE_ACTIVATION_RELU2, NIB_DTYPE_BF16, 7, 1, 64, 40, 8,
     false, false, "bpapc"},
};
#define SPECS ((int)(sizeof(specs) / sizeof(*specs)))

#define K	    256
#define FEW_WIDTH   512
#define COLS	    384
#define FEW_EXPERTS 64

/* Few slots, which need two launches or three. */
static const struct spec few_specs[] = {
    {NIB_ACTIVATIONS_NVFP4, NIB_MOE_ACTIVATION_SWIGLU, NIB_DTYPE_BF16, 1, 8, K, COLS, 8,
     false, true, "qp"},
    {NIB_ACTIVATIONS_NVFP4, NIB_MOE_ACTIVATION_GELU, NIB_DTYPE_FP16, 4, 8, K, COLS, 8,
     false, false, "qp"},
    {NIB_ACTIVATIONS_NVFP4, NIB_MOE_ACTIVATION_RELU2, NIB_DTYPE_BF16, 3, 10, K, COLS, 8,
     true, true, "p"},
    {NIB_ACTIVATIONS_NVFP4, NIB_MOE_ACTIVATION_SWIGLU_CLAMPED, NIB_DTYPE_FP32, 1, 19, K,
     COLS, 8, false, true, "qp"},
    {NIB_ACTIVATIONS_DENSE, NIB_MOE_ACTIVATION_SWIGLU, NIB_DTYPE_FP16, 1, 8, K, COLS, 8,
     false, true, "p"},
    {NIB_ACTIVATIONS_DENSE, NIB_MOE_ACTIVATION_RELU2, NIB_DTYPE_BF16, 16, 2, K, COLS, 8,
     false, true, "p"},
    /* More slots than go at once. */
    {NIB_ACTIVATIONS_NVFP4, NIB_MOE_ACTIVATION_SWIGLU, NIB_DTYPE_BF16, 33, 1, K, COLS,
     8, false, true, "bpapc"},
    {NIB_ACTIVATIONS_DENSE, NIB_MOE_ACTIVATION_SWIGLU, NIB_DTYPE_BF16, 11, 3, K, COLS,
     8, false, true, "bpc"},
};
#define FEW_SPECS ((int)(sizeof(few_specs) / sizeof(*few_specs)))

/* ---- launches ------------------------------------------------------------ */

/* 'b' begin, 'r' route, 'g' gather, 'p' products, 'a' activate, 'c' combine. */
static char letter_of(const char *kernel)
{
	static const char *const products[] = {"nib_gemm_",	   "nib_dual_",
					       "nib_skinny_",	   "nib_gemv_",
					       "nib_activations_", "nib_mma_"};

	if (strncmp(kernel, "nib_moe_", 8) == 0)
		return kernel[8];
	for (int i = 0; i < 6; i++)
		if (strncmp(kernel, products[i], strlen(products[i])) == 0)
			return 'p';
	return '?';
}

static void check_order(const struct bed *bed, const char *want)
{
	char order[FAKE_HISTORY + 1] = "";
	int length = 0;

	for (int i = 0; i < launches_of(bed); i++) {
		const char letter = letter_of(launch_of(bed, i)->kernel);

		if (letter != 'p' || !length || order[length - 1] != 'p')
			order[length++] = letter;
	}
	assert_string_equal(order, want);
}

static void check_launches(int64_t width, int64_t experts, const struct spec *s,
			   int count)
{
	struct bed bed;

	open_bed(&bed, width, experts);
	for (int i = 0; i < count; i++) {
		use(&bed, &s[i]);
		if (run(&bed))
			fail_msg("%d: %s", i, bed.err.message);
		check_order(&bed, s[i].launches);
	}
	close_bed(&bed);
}

static void steps(void)
{
	check_launches(WIDTH, EXPERTS, specs, SPECS);
	check_launches(FEW_WIDTH, FEW_EXPERTS, few_specs, FEW_SPECS);
}

/* The launches of a layer whose rows of x lie so far apart. */
static void use_stride(struct bed *bed, const struct spec *s, int64_t stride)
{
	const struct nib_run_options options = {.struct_bytes = sizeof(options)};

	use(bed, s);
	nib_moe_layer_plan_free(bed->plan);
	bed->layer.x.row_stride_elems = stride;
	assert_ok(nib_moe_layer_plan_create(bed->device, &bed->layer, NULL, &bed->plan,
					    &bed->err));
	bed->first = bed->fake->launches;
	assert_ok(nib_moe_layer_run(bed->plan, &bed->layer, &options, &bed->err));
}

/* Rows of a dense x that are not in pieces of 16 bytes are gathered first. */
static void step_by_step(void)
{
	struct bed bed;

	open_bed(&bed, FEW_WIDTH, FEW_EXPERTS);
	use_stride(&bed, &few_specs[5], K + 8);
	assert_int_equal(letter_of(launch_of(&bed, 0)->kernel), 'p');
	use_stride(&bed, &few_specs[5], K + 4);
	assert_int_equal(strncmp(launch_of(&bed, 0)->kernel, "nib_moe_begin_", 14), 0);
	/* One row has no stride, and NVFP4 takes any. */
	use_stride(&bed, &few_specs[4], K + 4);
	assert_int_equal(letter_of(launch_of(&bed, 0)->kernel), 'p');
	use_stride(&bed, &few_specs[1], K + 4);
	assert_int_equal(letter_of(launch_of(&bed, 0)->kernel), 'q');
	close_bed(&bed);
}

/* ---- empty layers -------------------------------------------------------- */

static void nothing(void)
{
	struct spec no_tokens = specs[0], no_slots = specs[0];
	struct bed bed;

	no_tokens.tokens = 0;
	no_slots.tokens = 3;
	no_slots.top_k = 0;
	open_bed(&bed, WIDTH, EXPERTS);
	use(&bed, &no_tokens);
	assert_ok(run(&bed));
	check_order(&bed, "");
	/* y is zeros all the same. */
	use(&bed, &no_slots);
	assert_ok(run(&bed));
	check_order(&bed, "c");
	close_bed(&bed);
}

/* ---- refusals ------------------------------------------------------------ */

static void refuses(struct bed *bed, const char *argument, const char *rule)
{
	assert_int_equal(run(bed), NIB_STATUS_BAD_ARGUMENT);
	assert_string_equal(bed->err.argument, argument);
	assert_contains(bed->err.message, rule);
	/* Nothing was launched. */
	assert_int_equal(bed->fake->launches, bed->first);
	assert_int_equal(bed->fake->depth, 0);
}

#define REFUSES(field, argument)                                                       \
	do {                                                                           \
		const struct nib_moe_layer good = bed.layer;                           \
		bed.layer.field = (void *)host;                                        \
		refuses(&bed, argument, "is host memory");                             \
		bed.layer = good;                                                      \
	} while (0)

static void host_memory_is_refused(void)
{
	static _Alignas(64) char host[1 << 16];
	struct bed bed;
	char *workspace;

	open_bed(&bed, WIDTH, EXPERTS);
	use(&bed, &specs[0]);
	REFUSES(x.data, "layer.x.data");
	REFUSES(ids, "layer.ids");
	REFUSES(weights, "layer.weights");
	REFUSES(x_global, "layer.x_global");
	REFUSES(h_global, "layer.h_global");
	REFUSES(gate.codes, "layer.gate.codes");
	REFUSES(gate.scales, "layer.gate.scales");
	REFUSES(up.codes, "layer.up.codes");
	REFUSES(up.scales, "layer.up.scales");
	REFUSES(down.codes, "layer.down.codes");
	REFUSES(down.scales, "layer.down.scales");
	REFUSES(gate_alpha, "layer.gate_alpha");
	REFUSES(up_alpha, "layer.up_alpha");
	REFUSES(down_alpha, "layer.down_alpha");
	REFUSES(y.data, "layer.y.data");
	bed.layer.weights = (float *)((char *)bed.layer.weights + 2);
	refuses(&bed, "layer.weights", "must be a multiple of 4 bytes");
	bed.layer.weights = (float *)((char *)bed.layer.weights - 2);
	workspace = bed.workspace;
	bed.workspace = host;
	refuses(&bed, "options.workspace", "is host memory");
	bed.workspace = workspace;
	bed.layer.gate_alpha = NULL; /* 1 */
	assert_ok(run(&bed));
	/* A layer whose A comes quantised reads neither x nor x_global. */
	use(&bed, &specs[1]);
	REFUSES(a.codes, "layer.a.codes");
	REFUSES(a.scales, "layer.a.scales");
	bed.layer.x_global = (float *)(void *)host;
	bed.layer.x.data = host;
	assert_ok(run(&bed));
	/* A layer without up does not read it. */
	use(&bed, &specs[3]);
	bed.layer.up.codes = bed.layer.up.scales = (uint8_t *)host;
	bed.layer.up_alpha = (float *)(void *)host;
	assert_ok(run(&bed));
	close_bed(&bed);
}

static void few_refusals(void)
{
	static _Alignas(64) char host[1 << 16];
	struct bed bed;

	open_bed(&bed, FEW_WIDTH, FEW_EXPERTS);
	for (int i = 0; i < 2; i++) {
		use(&bed, &few_specs[i * 4]);
		bed.layer.weights = (float *)(void *)host;
		assert_int_equal(run(&bed), NIB_STATUS_BAD_ARGUMENT);
		assert_string_equal(bed.err.argument, "layer.weights");
		assert_int_equal(bed.fake->launches, bed.first);
		use(&bed, &few_specs[i * 4]);
		bed.workspace = host;
		assert_int_equal(run(&bed), NIB_STATUS_BAD_ARGUMENT);
		assert_string_equal(bed.err.argument, "options.workspace");
		assert_int_equal(bed.fake->launches, bed.first);
	}
	close_bed(&bed);
}

static void no_plan(struct bed *bed, enum nib_status status, const char *argument,
		    const char *rule)
{
	nib_moe_layer_plan_free(bed->plan);
	bed->plan = (void *)bed;
	assert_int_equal(make_plan(bed, 0), status);
	assert_null(bed->plan);
	assert_string_equal(bed->err.argument, argument);
	assert_int_equal(strncmp(bed->err.message, argument, strlen(argument)), 0);
	assert_contains(bed->err.message, rule);
	assert_int_equal(bed->fake->allocations, 0);
}

/* What the products refuse is said of the layer's fields. */
static void unsupported(void)
{
	struct bed bed;

	open_bed(&bed, WIDTH, EXPERTS);
	use(&bed, &specs[5]);
	bed.layer.activations = NIB_ACTIVATIONS_INT8;
	no_plan(&bed, NIB_STATUS_UNSUPPORTED, "layer.activations", "= 2 (int8");
	use(&bed, &specs[2]);
	bed.layer.gate.batch = bed.layer.up.batch = bed.layer.down.batch = 1025;
	no_plan(&bed, NIB_STATUS_UNSUPPORTED, "layer", ": 1025 experts");
	use(&bed, &specs[0]);
	bed.layer.gate.row_stride_bytes = 36;
	no_plan(&bed, NIB_STATUS_UNSUPPORTED, "layer.gate", "multiples of 8");
	use(&bed, &specs[0]);
	bed.layer.up.row_stride_bytes = 36;
	no_plan(&bed, NIB_STATUS_UNSUPPORTED, "layer.up", "multiples of 8");
	use(&bed, &specs[2]); /* a product of its own */
	bed.layer.up.row_stride_bytes = 2436;
	no_plan(&bed, NIB_STATUS_UNSUPPORTED, "layer.up", "multiples of 8");
	use(&bed, &specs[0]);
	bed.layer.down.row_stride_bytes = 36;
	no_plan(&bed, NIB_STATUS_UNSUPPORTED, "layer.down", "multiples of 8");
	close_bed(&bed);
}

/* ---- failures ------------------------------------------------------------ */

/* Each launch in turn is the one that the driver refuses. */
static void fail_launches(int64_t width, int64_t experts, const struct spec *s,
			  int count)
{
	struct bed bed;

	open_bed(&bed, width, experts);
	for (int i = 0; i < count; i++) {
		int all, allocations;

		use(&bed, &s[i]);
		assert_ok(run(&bed));
		all = bed.fake->launches - bed.first;
		allocations = bed.fake->allocations;
		for (int n = 0; n < all; n++) {
			bed.fake->launch_result = CUDA_ERROR_LAUNCH_FAILED;
			bed.fake->launches_left = n;
			assert_int_equal(run(&bed), NIB_STATUS_DEVICE_FAILED);
			/* None after the one that failed. */
			assert_int_equal(bed.fake->launches - bed.first, n);
			assert_int_equal(bed.fake->allocations, allocations);
			assert_int_equal(bed.fake->depth, 0);
			bed.fake->launch_result = CUDA_SUCCESS;
			assert_ok(run(&bed));
			assert_int_equal(bed.fake->launches - bed.first, all);
		}
	}
	close_bed(&bed);
}

static void failed_launches(void)
{
	fail_launches(WIDTH, EXPERTS, specs, SPECS);
	fail_launches(FEW_WIDTH, FEW_EXPERTS, few_specs, FEW_SPECS);
}

static void failed_allocations(void)
{
	struct bed bed;
	size_t bytes;
	long live, failed = 0;

	open_bed(&bed, WIDTH, EXPERTS);
	use(&bed, &specs[2]);
	bytes = bed.workspace_bytes;
	bed.fake->memory_bytes = bytes - 1;
	no_plan(&bed, NIB_STATUS_OUT_OF_MEMORY, "", "no memory for");
	bed.fake->memory_bytes = bytes;
	assert_ok(make_plan(&bed, 0));
	assert_int_equal(bed.fake->allocations, 1);
	nib_moe_layer_plan_free(bed.plan);
	bed.plan = NULL;
	assert_int_equal(bed.fake->allocations, 0);
	if (!test_alloc_works()) {
		close_bed(&bed);
		return;
	}
	live = test_alloc_live();
	for (long n = 1;; n++) {
		enum nib_status status;

		test_alloc_fail(n, TEST_ALLOC_ONE);
		status = make_plan(&bed, 1);
		if (!test_alloc_stop())
			break;
		failed++;
		assert_int_equal(status, NIB_STATUS_OUT_OF_MEMORY);
		assert_null(bed.plan);
		assert_int_equal(test_alloc_live(), live);
	}
	assert_true(failed >= 4); /* the layer's plan and those of products */
	close_bed(&bed);
}

/* A plan's own workspace is taken by runs that bring none. */
static void own_workspace(void)
{
	const struct nib_run_options options = {.struct_bytes = sizeof(options)};
	struct bed bed;

	open_bed(&bed, WIDTH, EXPERTS);
	use(&bed, &specs[0]);
	nib_moe_layer_plan_free(bed.plan);
	assert_ok(make_plan(&bed, 0));
	assert_int_equal(bed.fake->allocations, 1);
	for (int i = 0; i < 2; i++) {
		bed.first = bed.fake->launches;
		assert_ok(nib_moe_layer_run(bed.plan, &bed.layer, i ? &options : NULL,
					    &bed.err));
	}
	assert_null(launch_of(&bed, 0)->stream);
	assert_int_equal(bed.fake->allocations, 1);
	close_bed(&bed);
}

int main(int argc, char **argv)
{
	static const struct fake_test tests[] = {
	    {"steps", steps},
	    {"step_by_step", step_by_step},
	    {"nothing", nothing},
	    {"host_memory_is_refused", host_memory_is_refused},
	    {"few_refusals", few_refusals},
	    {"unsupported", unsupported},
	    {"failed_launches", failed_launches},
	    {"failed_allocations", failed_allocations},
	    {"own_workspace", own_workspace},
	};

	return fake_main(argc, argv, tests, sizeof(tests) / sizeof(*tests));
}
