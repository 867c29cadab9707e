/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_cuda_moe_layer.c - a layer of experts on the fake driver: which kernels
 * its steps launch and in which order, what each is handed, where the parts of
 * the workspace lie, what is refused, and that failures keep nothing.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "backend/cuda/kernels/common/moe_steps_params.h"
#include "common/alloc.h"
#include "moe_bed.h"

#define WIDTH	       48
#define EXPERTS	       6
#define MOST_IN_FLIGHT (132 * 8) /* CTAs of a step on the fake GPU */

/* Scales, and no launches that are expected. */
#define LINEAR false, NULL
static const struct spec specs[] = {
    {NIB_ACTIVATIONS_NVFP4, NIB_MOE_ACTIVATION_SWIGLU, NIB_DTYPE_BF16, 1, 4, 64, 40, 8,
     false, LINEAR},
    {NIB_ACTIVATIONS_NVFP4, NIB_MOE_ACTIVATION_SWIGLU, NIB_DTYPE_FP32, 3, 2, 64, 41, 4,
     true, LINEAR},
    {NIB_ACTIVATIONS_NVFP4, NIB_MOE_ACTIVATION_GELU, NIB_DTYPE_FP16, 128, 8, 4864, 40,
     4, false, LINEAR},
    {NIB_ACTIVATIONS_NVFP4, NIB_MOE_ACTIVATION_RELU2, NIB_DTYPE_BF16, 129, 8, 64, 40, 8,
     false, LINEAR},
    {NIB_ACTIVATIONS_NVFP4, NIB_MOE_ACTIVATION_SWIGLU_CLAMPED, NIB_DTYPE_BF16, 2, 65,
     64, 40, 8, false, LINEAR},
    {NIB_ACTIVATIONS_NVFP4, NIB_MOE_ACTIVATION_SWIGLU, NIB_DTYPE_BF16, 3000, 8, 64, 40,
     8, false, LINEAR},
    {NIB_ACTIVATIONS_DENSE, NIB_MOE_ACTIVATION_SWIGLU, NIB_DTYPE_BF16, 5, 4, 64, 40, 8,
     false, LINEAR},
    {NIB_ACTIVATIONS_DENSE, NIB_MOE_ACTIVATION_SWIGLU, NIB_DTYPE_FP16, 4000, 8, 1600,
     42, 8, false, LINEAR},
    {NIB_ACTIVATIONS_DENSE, NIB_MOE_ACTIVATION_SWIGLU_CLAMPED, NIB_DTYPE_FP16, 16, 64,
     80, 44, 4, false, LINEAR},
    {NIB_ACTIVATIONS_DENSE, NIB_MOE_ACTIVATION_RELU2, NIB_DTYPE_BF16, 7, 1, 64, 40, 8,
     false, LINEAR},
};
#define ACTIVATE(s) (is_few(s) ? "activate_few" : "activate")
#define SPECS	    ((int)(sizeof(specs) / sizeof(*specs)))

/* ---- launches ------------------------------------------------------------ */

/* The only launch of a step in the last run; NULL if there is none. */
static const struct fake_launch *find_step(const struct bed *bed, const char *step)
{
	const struct fake_launch *found = NULL;
	char kernel[64];

	snprintf(kernel, sizeof(kernel), "nib_moe_%s_sm90", step);
	for (int i = 0; i < launches_of(bed); i++) {
		const struct fake_launch *one = launch_of(bed, i);

		if (strcmp(one->kernel, kernel) != 0)
			continue;
		assert_null(found);
		found = one;
	}
	return found;
}

static const void *parameters_of(const struct bed *bed, const char *step)
{
	const struct fake_launch *launch = find_step(bed, step);

	if (!launch)
		fail_msg("no launch of %s", step);
	return launch->parameters;
}

static void check_grid(const struct bed *bed, const char *step, int64_t ctas,
		       unsigned threads)
{
	const struct fake_launch *launch = find_step(bed, step);

	assert_non_null(launch);
	assert_int_equal(launch->grid, ctas);
	assert_int_equal(launch->block, threads);
	assert_ptr_equal(launch->stream, bed);
	assert_true(launch->may_overlap);
}

/* One thread a unit, as far as all CTAs run at once. */
static void check_units(const struct bed *bed, const char *step, int64_t units)
{
	const int64_t ctas = (units + 255) / 256;

	check_grid(bed, step, ctas < MOST_IN_FLIGHT ? ctas : MOST_IN_FLIGHT, 256);
}

/* 'b' begin, 'r' route, 'g' gather, 'p' products, 'a' activate, 'c' combine. */
static char letter_of(const char *kernel)
{
	static const char *const products[] = {"nib_gemm_", "nib_dual_", "nib_skinny_",
					       "nib_gemv_", "nib_activations_"};

	if (strncmp(kernel, "nib_moe_", 8) == 0)
		return kernel[8];
	for (int i = 0; i < 5; i++)
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

static bool is_at_once(const struct spec *s)
{
	return slots_of(s) <= 1024 && s->top_k <= 64;
}

static bool has_activate(const struct spec *s)
{
	return is_nvfp4(s) || s->activation != NIB_MOE_ACTIVATION_SWIGLU;
}

static struct nib_moe_route_params route_of(const struct bed *bed)
{
	/* The first of what begin is handed. */
	return *(const struct nib_moe_route_params *)parameters_of(
	    bed, is_at_once(bed->spec) ? "begin" : "route");
}

static struct nib_moe_gather_params gather_of(const struct bed *bed)
{
	const struct nib_moe_begin_params *begin;

	if (!is_at_once(bed->spec))
		return *(const struct nib_moe_gather_params *)parameters_of(bed,
									    "gather");
	begin = parameters_of(bed, "begin");
	return begin->gather;
}

/* ---- what the steps are handed ------------------------------------------- */

static void check_dense(const struct nib_quantize_dense *got,
			const struct nib_dense *want)
{
	assert_ptr_equal(got->data, want->data);
	assert_int_equal(got->rows, want->rows);
	assert_int_equal(got->cols, want->cols);
	assert_int_equal(got->row_stride, want->row_stride_elems);
	assert_int_equal(got->dtype, want->dtype);
}

static void check_begin(const struct bed *bed)
{
	const struct spec *s = bed->spec;
	const struct nib_moe_begin_params *p;
	int64_t parts;

	if (!is_at_once(s)) {
		check_grid(bed, "route", EXPERTS + 1, 1024);
		check_units(bed, "gather", s->tokens * s->k / 16);
		return;
	}
	p = parameters_of(bed, "begin");
	parts = (s->k / 16 + 255) / 256;
	assert_int_equal(p->offset_ctas, 1);
	assert_int_equal(p->token_ctas, parts);
	check_grid(bed, "begin", 1 + s->tokens * parts, 256);
}

static void check_route(const struct bed *bed)
{
	const struct nib_moe_route_params r = route_of(bed);

	assert_ptr_equal(r.ids, bed->layer.ids);
	assert_int_equal(r.ids_bytes, bed->spec->ids_bytes);
	assert_int_equal(r.experts, EXPERTS);
	assert_int_equal(r.first_expert, OFFSET);
	assert_int_equal(r.slots, slots_of(bed->spec));
}

static void check_gather(const struct bed *bed)
{
	const struct nib_moe_gather_params g = gather_of(bed);
	const struct nib_moe_layer *l = &bed->layer;
	const struct spec *s = bed->spec;

	assert_int_equal(g.tokens, s->tokens);
	assert_int_equal(g.top_k, s->top_k);
	assert_int_equal(g.groups, s->k / 16);
	assert_ptr_equal(g.slot_rows, route_of(bed).slot_rows);
	if (s->is_quantized) {
		assert_ptr_equal(g.a.codes, l->a.codes);
		assert_ptr_equal(g.a.scales, l->a.scales);
		assert_int_equal(g.a.row_stride, s->k / 2);
	} else {
		assert_null(g.a.codes);
		check_dense(&g.x, &l->x);
	}
	assert_true(!g.to.codes == !is_nvfp4(s));
	assert_true(!g.to_dense == is_nvfp4(s));
	if (!is_nvfp4(s))
		return;
	assert_ptr_equal(g.global, l->in1);
	assert_int_equal(g.to.rows, slots_of(s));
	assert_int_equal(g.to.row_stride, s->k / 2);
	assert_int_equal(g.to.scale_row_stride, s->k / 16);
}

/* Where all threads run at once, four have a block of h. */
static bool is_few(const struct spec *s)
{
	return slots_of(s) * WIDTH / 4 <= MOST_IN_FLIGHT * NIB_MOE_THREADS;
}

static void check_activate(const struct bed *bed)
{
	const struct nib_moe_layer *l = &bed->layer;
	const struct spec *s = bed->spec;
	const struct nib_moe_activate_params *p;

	if (!has_activate(s)) {
		assert_null(find_step(bed, "activate"));
		assert_null(find_step(bed, "activate_few"));
		return;
	}
	p = parameters_of(bed, ACTIVATE(s));
	check_units(bed, ACTIVATE(s), slots_of(s) * WIDTH / (is_few(s) ? 4 : 16));
	assert_ptr_equal(p->rows, route_of(bed).row_offsets + EXPERTS);
	assert_int_equal(p->most_rows, slots_of(s));
	assert_int_equal(p->groups, WIDTH / 16);
	assert_int_equal(p->activation, s->activation);
	/* SwiGLU is the product's own: its c is h. */
	assert_true((p->gate == p->dense.data) ==
		    (s->activation == NIB_MOE_ACTIVATION_SWIGLU));
	assert_true(!p->up == (s->activation == NIB_MOE_ACTIVATION_SWIGLU ||
			       s->activation == NIB_MOE_ACTIVATION_RELU2));
	assert_true(p->limit == l->limit && p->swish == l->swish &&
		    p->up_bias == l->up_bias);
	assert_int_equal(p->dense.dtype, is_nvfp4(s) ? NIB_DTYPE_FP32 : s->dtype);
	assert_true(!p->q.codes == !is_nvfp4(s));
	if (is_nvfp4(s)) {
		assert_ptr_equal(p->global, l->in2);
		assert_int_equal(p->q.row_stride, WIDTH / 2);
	}
}

static void check_combine(const struct bed *bed)
{
	const struct nib_moe_combine_params *p = parameters_of(bed, "combine");
	const struct spec *s = bed->spec;
	const bool by_4 = s->cols % 4 == 0;

	check_units(bed, "combine", s->tokens * (by_4 ? s->cols / 4 : s->cols));
	assert_int_equal(p->y.is_aligned, by_4);
	assert_ptr_equal(p->slot_rows, route_of(bed).slot_rows);
	assert_ptr_equal(p->weights, bed->layer.weights);
	assert_int_equal(p->top_k, s->top_k);
	check_dense(&p->y, &bed->layer.y);
}

static void steps(void)
{
	static const char *const orders[SPECS] = {"bpapc",  "bpapc",  "bpapc", "rgpapc",
						  "rgpapc", "rgpapc", "bpc",   "rgpc",
						  "bpapc",  "bpapc"};
	struct bed bed;

	open_bed(&bed, WIDTH, EXPERTS);
	for (int i = 0; i < SPECS; i++) {
		use(&bed, &specs[i]);
		if (run(&bed))
			fail_msg("%d: %s", i, bed.err.message);
		/* Two products, of which SwiGLU's first has no step between. */
		check_order(&bed, orders[i]);
		check_begin(&bed);
		check_route(&bed);
		check_gather(&bed);
		check_activate(&bed);
		check_combine(&bed);
	}
	close_bed(&bed);
}

/* ---- the workspace ------------------------------------------------------- */

struct part {
	const void *begin;
	int64_t bytes;
};

static int add(struct part *parts, int used, const void *begin, int64_t bytes)
{
	if (begin && bytes)
		parts[used++] = (struct part){begin, bytes};
	return used;
}

/* What the steps read and write in the workspace. */
static int parts_of(const struct bed *bed, struct part *parts)
{
	const struct nib_moe_combine_params *c = parameters_of(bed, "combine");
	const struct nib_moe_route_params r = route_of(bed);
	const struct nib_moe_gather_params g = gather_of(bed);
	const struct nib_moe_activate_params *a;
	const struct spec *s = bed->spec;
	const int64_t slots = slots_of(s), size = size_of(s->dtype);
	int used = 0;

	used = add(parts, used, r.row_offsets, 4 * (EXPERTS + 1));
	used = add(parts, used, r.slot_rows, 4 * slots);
	used = add(parts, used, g.to.codes, slots * s->k / 2);
	used = add(parts, used, g.to.scales, slots * s->k / 16);
	used = add(parts, used, g.to_dense, slots * s->k * size);
	used = add(parts, used, c->rows, slots * s->cols * size);
	if (!has_activate(s))
		return used;
	a = parameters_of(bed, ACTIVATE(s));
	used =
	    add(parts, used, a->dense.data, slots * WIDTH * (is_nvfp4(s) ? 4 : size));
	used = add(parts, used, a->q.codes, slots * WIDTH / 2);
	used = add(parts, used, a->q.scales, slots * WIDTH / 16);
	if (a->gate != a->dense.data)
		used = add(parts, used, a->gate, slots * WIDTH * 4);
	return add(parts, used, a->up, slots * WIDTH * 4);
}

static bool overlap(const struct part *x, const struct part *y)
{
	const uintptr_t a = (uintptr_t)x->begin, b = (uintptr_t)y->begin;

	return a < b + (uintptr_t)y->bytes && b < a + (uintptr_t)x->bytes;
}

static void workspace_parts(void)
{
	struct part parts[16];
	struct bed bed;

	open_bed(&bed, WIDTH, EXPERTS);
	for (int i = 0; i < SPECS; i++) {
		const struct part *p = parts;
		int used;

		use(&bed, &specs[i]);
		assert_int_equal(run(&bed), NIB_STATUS_OK);
		used = parts_of(&bed, parts);
		assert_true(used >= (has_activate(&specs[i]) ? 6 : 4));
		for (int x = 0; x < used; x++) {
			const uintptr_t at =
			    (uintptr_t)p[x].begin - (uintptr_t)bed.workspace;

			assert_int_equal(at % 64, 0);
			assert_true(at + (uintptr_t)p[x].bytes <= bed.workspace_bytes);
			for (int y = 0; y < x; y++)
				if (overlap(&p[x], &p[y]))
					fail_msg("%d: parts %d, %d", i, x, y);
		}
	}
	close_bed(&bed);
}

/* ---- empty layers -------------------------------------------------------- */

static void nothing(void)
{
	static const struct spec no_tokens = {NIB_ACTIVATIONS_NVFP4,
					      NIB_MOE_ACTIVATION_SWIGLU,
					      NIB_DTYPE_BF16,
					      0,
					      4,
					      64,
					      40,
					      8,
					      false,
					      LINEAR};
	static const struct spec no_slots = {NIB_ACTIVATIONS_NVFP4,
					     NIB_MOE_ACTIVATION_SWIGLU,
					     NIB_DTYPE_BF16,
					     3,
					     0,
					     64,
					     40,
					     8,
					     false,
					     LINEAR};
	struct bed bed;

	open_bed(&bed, WIDTH, EXPERTS);
	use(&bed, &no_tokens);
	assert_int_equal(run(&bed), NIB_STATUS_OK);
	check_order(&bed, "");
	/* y is zeros all the same. */
	use(&bed, &no_slots);
	assert_int_equal(run(&bed), NIB_STATUS_OK);
	check_order(&bed, "c");
	close_bed(&bed);
}

/* ---- refusals ------------------------------------------------------------ */

static void refuses(struct bed *bed, const char *argument, const char *rule)
{
	assert_int_equal(run(bed), NIB_STATUS_BAD_ARGUMENT);
	assert_string_equal(bed->err.argument, argument);
	if (!strstr(bed->err.message, rule))
		fail_msg("message '%s' lacks '%s'", bed->err.message, rule);
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
	REFUSES(in1, "layer.in1");
	REFUSES(in2, "layer.in2");
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
	assert_int_equal(run(&bed), NIB_STATUS_OK);
	/* A layer whose A comes quantised reads neither x nor in1. */
	use(&bed, &specs[1]);
	REFUSES(a.codes, "layer.a.codes");
	REFUSES(a.scales, "layer.a.scales");
	bed.layer.in1 = (float *)(void *)host;
	bed.layer.x.data = host;
	assert_int_equal(run(&bed), NIB_STATUS_OK);
	/* A layer without up does not read it. */
	use(&bed, &specs[3]);
	bed.layer.up.codes = bed.layer.up.scales = (uint8_t *)host;
	bed.layer.up_alpha = (float *)(void *)host;
	assert_int_equal(run(&bed), NIB_STATUS_OK);
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
	if (!strstr(bed->err.message, rule))
		fail_msg("message '%s' lacks '%s'", bed->err.message, rule);
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
static void failed_launches(void)
{
	struct bed bed;

	open_bed(&bed, WIDTH, EXPERTS);
	for (int i = 0; i < SPECS; i++) {
		int all, allocations;

		use(&bed, &specs[i]);
		assert_int_equal(run(&bed), NIB_STATUS_OK);
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
			assert_int_equal(run(&bed), NIB_STATUS_OK);
			assert_int_equal(bed.fake->launches - bed.first, all);
		}
	}
	close_bed(&bed);
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
	assert_int_equal(make_plan(&bed, 0), NIB_STATUS_OK);
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
	char *first;

	open_bed(&bed, WIDTH, EXPERTS);
	use(&bed, &specs[0]);
	nib_moe_layer_plan_free(bed.plan);
	assert_int_equal(make_plan(&bed, 0), NIB_STATUS_OK);
	assert_int_equal(bed.fake->allocations, 1);
	for (int i = 0; i < 2; i++) {
		bed.first = bed.fake->launches;
		assert_int_equal(nib_moe_layer_run(bed.plan, &bed.layer,
						   i ? &options : NULL, &bed.err),
				 NIB_STATUS_OK);
		if (i == 0)
			first = (char *)route_of(&bed).row_offsets;
	}
	assert_ptr_equal(route_of(&bed).row_offsets, first);
	assert_null(find_step(&bed, "begin")->stream);
	assert_int_equal(bed.fake->allocations, 1);
	close_bed(&bed);
}

int main(int argc, char **argv)
{
	static const struct fake_test tests[] = {
	    {"steps", steps},
	    {"workspace_parts", workspace_parts},
	    {"nothing", nothing},
	    {"host_memory_is_refused", host_memory_is_refused},
	    {"unsupported", unsupported},
	    {"failed_launches", failed_launches},
	    {"failed_allocations", failed_allocations},
	    {"own_workspace", own_workspace},
	};

	return fake_main(argc, argv, tests, sizeof(tests) / sizeof(*tests));
}
