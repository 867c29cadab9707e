/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_cuda_run.c - the checks of a run's problems on a GPU, on the fake driver: the
 * owner of each pointer's memory is queried, and a second run with the same pointers
 * queries nothing.
 */
#include <stdio.h>
#include <string.h>

#include "backend/cuda/common/arch.h"
#include "backend/cuda/common/cuda.h"
#include "common/unit.h"
#include "fake_bed.h"

#define COUNT	3
#define EXPERTS 4
#define ROWS	8
#define COLS	32
#define K	64

/* A device, and a plan on it. */
struct bed {
	struct fake_cuda *fake;
	struct nib_device *device;
	struct nib_problem problems[COUNT];
	struct nib_moe_problem moe;
	struct nib_plan *plan;
	struct nib_run_options options;
	void *blocks[64];
	int used;
};

static void *fresh(struct bed *bed, size_t bytes)
{
	void *memory;

	/* Tests also give pointers a little further on. */
	assert_ok(nib_device_alloc(bed->device, bytes + 64, &memory, NULL));
	assert_true(bed->used < 64);
	bed->blocks[bed->used++] = memory;
	return memory;
}

static struct nib_fp4 nvfp4(struct bed *bed, int64_t rows, int64_t batch,
			    enum nib_scale_layout layout)
{
	return (struct nib_fp4){
	    .codes = fresh(bed, (size_t)(batch * rows * K / 2)),
	    .scales = fresh(bed, (size_t)batch * nib_scales_bytes(layout, rows, K)),
	    .rows = rows,
	    .k = K,
	    .batch = batch,
	    .scale_layout = layout,
	};
}

static struct nib_dense dense(struct bed *bed, int64_t cols)
{
	return (struct nib_dense){.data = fresh(bed, (size_t)(ROWS * cols * 2)),
				  .dtype = NIB_DTYPE_FP16,
				  .rows = ROWS,
				  .cols = cols};
}

/* A backend that checks a run and launches nothing. */
static struct nib_backend backend;
static struct fake_cuda *checked_fake;
static void *known_workspace;

static enum nib_status check_only(struct nib_plan *plan, const struct nib_run *run,
				  struct nib_error *err)
{
	enum nib_status status = cuda_enter(cuda_device(plan->device), err);

	if (status)
		return status;
	assert_int_equal(checked_fake->depth, 1);
	status = cuda_check_run(plan, run, &known_workspace, err);
	cuda_leave(cuda_device(plan->device));
	return status;
}

/* Whatever A is that there are kernels for. */
static enum nib_status plan_anything(struct nib_plan *plan, struct nib_error *err)
{
	(void)err;
	plan->backend_name = "checks";
	return NIB_STATUS_OK;
}

/* A device, and problems whose A is NVFP4. */
static void make_inputs(struct bed *bed)
{
	memset(bed, 0, sizeof(*bed));
	bed->fake = checked_fake = fake_open(FAKE_CUDA);
	bed->fake->devices = 2;
	assert_ok(nib_device_open("cuda", NULL, &bed->device, NULL));
	backend = *bed->device->backend;
	backend.run = check_only;
	bed->device->backend = &backend;
	known_workspace = NULL;
	for (int i = 0; i < COUNT; i++)
		bed->problems[i] = (struct nib_problem){
		    .a = nvfp4(bed, ROWS, 1, NIB_SCALE_LAYOUT_TILED_128X4),
		    .b = nvfp4(bed, COLS, 1, NIB_SCALE_LAYOUT_LINEAR),
		    .b2 = nvfp4(bed, COLS, 1, NIB_SCALE_LAYOUT_LINEAR),
		    .alpha = fresh(bed, 4),
		    .alpha2 = fresh(bed, 4),
		    .c = dense(bed, COLS),
		};
	bed->moe = (struct nib_moe_problem){
	    .problem.a = nvfp4(bed, ROWS, 1, NIB_SCALE_LAYOUT_LINEAR),
	    .problem.b = nvfp4(bed, COLS, EXPERTS, NIB_SCALE_LAYOUT_LINEAR),
	    .problem.b2 = nvfp4(bed, COLS, EXPERTS, NIB_SCALE_LAYOUT_LINEAR),
	    .problem.alpha = fresh(bed, 4 * EXPERTS),
	    .problem.alpha2 = fresh(bed, 4 * EXPERTS),
	    .problem.c = dense(bed, COLS),
	    .row_offsets = fresh(bed, 4 * (EXPERTS + 1)),
	    .scale_rows = fresh(bed, 4 * EXPERTS),
	    .scale_rows_total = ROWS,
	};
	bed->options.struct_bytes = sizeof(bed->options);
}

static void make_plan(struct bed *bed, bool is_moe)
{
	assert_ok(is_moe ? nib_moe_plan_create(bed->device, NIB_OP_DUAL_GEMM, &bed->moe,
					       NULL, &bed->plan, NULL)
			 : nib_plan_create(bed->device, NIB_OP_DUAL_GEMM, bed->problems,
					   COUNT, NULL, &bed->plan, NULL));
	bed->fake->pointer_queries = 0;
}

static void make_bed(struct bed *bed, bool is_moe)
{
	make_inputs(bed);
	make_plan(bed, is_moe);
}

/* A of all problems is x of fp16; a is garbage. */
static void use_x(struct bed *bed)
{
	for (int i = 0; i < COUNT; i++) {
		struct nib_problem *p = &bed->problems[i];

		p->x = dense(bed, K);
		p->activations = NIB_ACTIVATIONS_DENSE;
		memset(&p->a, 0xff, sizeof(p->a));
	}
	bed->moe.problem.x = dense(bed, K);
	bed->moe.problem.activations = NIB_ACTIVATIONS_DENSE;
	bed->moe.scale_rows = NULL;
	memset(&bed->moe.problem.a, 0xff, sizeof(bed->moe.problem.a));
}

/* A plan of such problems, whatever the GPU has kernels for. */
static void make_bed_of_x(struct bed *bed, bool is_moe)
{
	make_inputs(bed);
	use_x(bed);
	backend.plan = plan_anything;
	make_plan(bed, is_moe);
}

static void free_bed(struct bed *bed)
{
	nib_plan_free(bed->plan);
	for (int i = 0; i < bed->used; i++)
		nib_device_free(bed->device, bed->blocks[i]);
	nib_device_close(bed->device);
	fake_check_clean(bed->fake);
}

static enum nib_status run(struct bed *bed, struct nib_error *err)
{
	if (bed->plan->is_moe)
		return nib_moe_run(bed->plan, &bed->moe, &bed->options, err);
	return nib_run(bed->plan, bed->problems, COUNT, &bed->options, err);
}

/* Runs, which must pass; returns how many pointers it asked about. */
static int take(struct bed *bed)
{
	const int before = bed->fake->pointer_queries;
	struct nib_error err;

	assert_ok_err(run(bed, &err), &err);
	assert_int_equal(bed->fake->depth, 0);
	return bed->fake->pointer_queries - before;
}

static void refused_as(struct bed *bed, enum nib_status want, const char *part)
{
	struct nib_error err = {.status = NIB_STATUS_OK};

	assert_refused(run(bed, &err), want, &err, part);
	assert_int_equal(bed->fake->depth, 0);
}

static void refused(struct bed *bed, const char *part)
{
	refused_as(bed, NIB_STATUS_BAD_ARGUMENT, part);
}

/* ---- the array form ------------------------------------------------------ */

static void steady_state_asks_nothing(void)
{
	struct bed bed;
	void *other;

	make_bed(&bed, false);
	/* a, b, b2: codes and scales; c; two alphas. */
	assert_int_equal(take(&bed), COUNT * 9);
	assert_int_equal(bed.plan->last.problems[1].a.row_stride_bytes, K / 2);
	assert_int_equal(bed.plan->last.problems[1].c.row_stride_elems, COLS);
	for (int i = 0; i < 3; i++)
		assert_int_equal(take(&bed), 0);
	/* After one new pointer all are asked about once more. */
	other = fresh(&bed, 4);
	bed.problems[2].alpha = other;
	assert_int_equal(take(&bed), COUNT * 9);
	assert_ptr_equal(bed.plan->last.problems[2].alpha, other);
	assert_int_equal(take(&bed), 0);
	/* A workspace of the run: asked about once. */
	bed.options.workspace_bytes = bed.plan->workspace_bytes;
	bed.options.workspace = fresh(&bed, bed.plan->workspace_bytes);
	assert_int_equal(take(&bed), 1);
	assert_int_equal(take(&bed), 0);
	free_bed(&bed);
}

/* One run asks once about all pointers into an allocation. */
static void neighbours_are_asked_about_once(void)
{
	struct bed bed;
	_Alignas(64) static char host[64];
	char *shared;

	make_bed(&bed, false);
	shared = fresh(&bed, COUNT * 8);
	for (int i = 0; i < COUNT; i++) {
		bed.problems[i].alpha = (float *)(void *)(shared + 8 * i);
		bed.problems[i].alpha2 = bed.problems[i].alpha + 1;
	}
	assert_int_equal(take(&bed), COUNT * 7 + 1);
	/* Given back, it is no longer the device's. */
	fake_register_memory(shared, 0, 0, 0, 0);
	bed.problems[0].alpha = NULL;
	refused(&bed, "problems[0].alpha2");
	fake_register_memory(shared, COUNT * 8 + 64, CU_MEMORYTYPE_DEVICE, 0, 0);
	bed.problems[1].alpha2 = (float *)(void *)host;
	refused(&bed, "problems[1].alpha2");
	bed.problems[1].alpha2 = NULL;
	take(&bed);
	free_bed(&bed);
}

static void a_refusal_is_not_remembered(void)
{
	struct bed bed;
	_Alignas(64) static char host[4096];
	void *data;

	make_bed(&bed, false);
	take(&bed);
	data = bed.problems[1].c.data;
	bed.problems[1].c.data = host;
	refused(&bed, "problems[1].c.data = 0x");
	refused(&bed, "is host memory; must be memory of cuda:0");
	bed.problems[1].c.data = data;
	assert_int_equal(take(&bed), COUNT * 9);
	bed.options.workspace = host;
	bed.options.workspace_bytes = bed.plan->workspace_bytes;
	refused(&bed, "options.workspace = 0x");
	refused(&bed, "is host memory");
	free_bed(&bed);
}

static void every_pointer_is_checked(void)
{
	_Alignas(64) static char host[4096];
	static const struct {
		const char *name;
		size_t at;
	} pointers[] = {
#define POINTER(field)                                                                 \
	{"problems[1]." #field " = 0x", offsetof(struct nib_problem, field)}
	    POINTER(a.codes),  POINTER(a.scales), POINTER(b.codes),
	    POINTER(b.scales), POINTER(b2.codes), POINTER(b2.scales),
	    POINTER(alpha),    POINTER(alpha2),	  POINTER(c.data),
#undef POINTER
	};
	void *const pointer = host;
	struct nib_problem *p, kept;
	struct bed bed;

	make_bed(&bed, false);
	p = &bed.problems[1];
	kept = *p;
	for (size_t i = 0; i < sizeof(pointers) / sizeof(*pointers); i++) {
		memcpy((char *)p + pointers[i].at, &pointer, sizeof(pointer));
		refused(&bed, pointers[i].name);
		*p = kept;
	}
	take(&bed);
	free_bed(&bed);
}

/* Older drivers refuse to speak of memory that they have never seen. */
static void unknown_memory_is_the_hosts(void)
{
	_Alignas(64) static char host[4096];
	struct bed bed;
	void *data;

	make_bed(&bed, false);
	bed.fake->unknown_pointer_result = CUDA_ERROR_INVALID_VALUE;
	data = bed.problems[1].c.data;
	bed.problems[1].c.data = host;
	refused(&bed, "is host memory; must be memory of ");
	bed.fake->unknown_pointer_result = CUDA_ERROR_ILLEGAL_ADDRESS;
	refused_as(&bed, NIB_STATUS_DEVICE_FAILED, "ILLEGAL_ADDRESS");
	bed.problems[1].c.data = data;
	take(&bed);
	free_bed(&bed);
}

/* The first byte of an operand is the GPU's, the last is not. */
static void every_byte_is_checked(void)
{
	_Alignas(64) static char memory[4096];
	const int bytes = COLS * K / 2; /* of b's codes */
	struct bed bed;

	make_bed(&bed, false);
	bed.problems[1].b.codes = memory;
	fake_register_memory(memory, (size_t)bytes - 1, CU_MEMORYTYPE_DEVICE, 0, 0);
	refused(&bed, "problems[1].b.codes = 0x");
	refused(&bed, ": 1024 bytes, but only the first 1023 are memory of cuda:0");
	/* The same of page-locked memory. */
	fake_register_memory(memory, (size_t)bytes - 1, CU_MEMORYTYPE_HOST, 0, 0);
	refused(&bed, "but only the first 1023 are memory");
	fake_register_memory(memory, (size_t)bytes, CU_MEMORYTYPE_DEVICE, 0, 0);
	assert_int_equal(take(&bed), COUNT * 9);
	/* The memory is mapped piece by piece; the last is another GPU's. */
	fake_register_memory(memory, 512, CU_MEMORYTYPE_DEVICE, 0, 0);
	fake_register_memory(memory + 512, 256, CU_MEMORYTYPE_DEVICE, 0, 0);
	fake_register_memory(memory + 768, 256, CU_MEMORYTYPE_DEVICE, 1, 0);
	bed.plan->last.is_valid = false;
	refused(&bed, "but only the first 768 are memory");
	fake_register_memory(memory + 768, 256, CU_MEMORYTYPE_DEVICE, 0, 0);
	assert_int_equal(take(&bed), COUNT * 9 + 2);
	free_bed(&bed);
}

static void kinds_of_memory(void)
{
	_Alignas(64) static char memory[4096];
	struct bed bed;

	make_bed(&bed, false);
	bed.problems[0].c.data = memory;
	/* Memory of the other GPU. */
	fake_register_memory(memory, sizeof(memory), CU_MEMORYTYPE_DEVICE, 1, 0);
	refused(&bed, "is memory of cuda:1; must be of cuda:0");
	/* Managed memory of any GPU passes, and page-locked memory that has
	 * the same address on both sides. */
	fake_register_memory(memory, sizeof(memory), CU_MEMORYTYPE_DEVICE, 1, 1);
	take(&bed);
	fake_register_memory(memory, sizeof(memory), CU_MEMORYTYPE_HOST, 1, 0);
	bed.problems[0].c.data = memory + 64;
	take(&bed);
	free_bed(&bed);
}

static void alignment(void)
{
	struct bed bed;
	char *codes, *scales;

	make_bed(&bed, false);
	codes = bed.problems[0].b.codes;
	bed.problems[0].b.codes = codes + 8;
	refused(&bed, "problems[0].b.codes = 0x");
	refused(&bed, "must be a multiple of 16 bytes on cuda:0");
	bed.problems[0].b.codes = codes;
	/* Linear scales may begin anywhere, tiled ones may not. */
	scales = bed.problems[0].b.scales;
	bed.problems[0].b.scales = scales + 1;
	take(&bed);
	scales = bed.problems[0].a.scales;
	bed.problems[0].a.scales = scales + 1;
	refused(&bed, "problems[0].a.scales = 0x");
	free_bed(&bed);
}

/* Refusals that the API layer makes for every backend. */
static void other_refusals(void)
{
	struct nib_problem kept;
	struct bed bed;

	make_bed(&bed, false);
	kept = bed.problems[2];
	bed.problems[2].c.data = bed.problems[0].c.data;
	refused(&bed, "outputs must not overlap");
	bed.problems[2] = kept;
	bed.problems[2].b.rows++;
	refused(&bed, "problems[2].b.rows");
	bed.problems[2] = kept;
	bed.problems[2].c.row_stride_elems = COLS + 8;
	refused(&bed, "those that the plan was made for");
	bed.problems[2] = kept;
	bed.options.check_data = 1;
	refused_as(&bed, NIB_STATUS_UNSUPPORTED, "options.check_data = 1");
	bed.options.check_data = 0;
	bed.fake->context_result = CUDA_ERROR_ILLEGAL_ADDRESS;
	refused_as(&bed, NIB_STATUS_DEVICE_FAILED, "CUDA_ERROR_ILLEGAL_ADDRESS");
	bed.fake->context_result = CUDA_SUCCESS;
	take(&bed);
	free_bed(&bed);
}

/* ---- MoE ----------------------------------------------------------------- */

static void experts(void)
{
	_Alignas(64) static char host[4096];
	static const struct {
		const char *name;
		size_t at;
	} pointers[] = {
#define POINTER(field) {"moe." #field " = 0x", offsetof(struct nib_moe_problem, field)}
	    POINTER(row_offsets),      POINTER(scale_rows),
	    POINTER(problem.alpha2),   POINTER(problem.a.scales),
	    POINTER(problem.b2.codes), POINTER(problem.c.data),
#undef POINTER
	};
	void *const pointer = host;
	struct nib_moe_problem kept;
	struct bed bed;

	make_bed(&bed, true);
	/* a, b, b2; c; row_offsets, scale_rows; two alphas. */
	assert_int_equal(take(&bed), 11);
	assert_int_equal(take(&bed), 0);
	kept = bed.moe;
	for (size_t i = 0; i < sizeof(pointers) / sizeof(*pointers); i++) {
		memcpy((char *)&bed.moe + pointers[i].at, &pointer, sizeof(pointer));
		refused(&bed, pointers[i].name);
		bed.moe = kept;
	}
	bed.moe.row_offsets = NULL;
	refused(&bed, "moe.row_offsets = NULL");
	bed.moe = kept;
	bed.moe.row_offsets = (const int32_t *)((const char *)kept.row_offsets + 2);
	refused(&bed, "must be a multiple of 4 bytes");
	bed.moe = kept;
	bed.moe.problem.alpha = bed.moe.problem.alpha2 = NULL;
	assert_int_equal(take(&bed), 9);
	free_bed(&bed);
}

/* ---- dense A ------------------------------------------------------------- */

static void x_is_asked_about(void)
{
	struct bed bed;
	void *other;

	make_bed_of_x(&bed, false);
	/* x; b, b2: codes and scales; c; two alphas.  a is none of them. */
	assert_int_equal(take(&bed), COUNT * 8);
	assert_int_equal(take(&bed), 0);
	other = fresh(&bed, ROWS * K * 2);
	bed.problems[1].x.data = other;
	assert_int_equal(take(&bed), COUNT * 8);
	assert_ptr_equal(bed.plan->last.problems[1].x.data, other);
	assert_int_equal(bed.plan->last.problems[1].x.row_stride_elems, K);
	assert_int_equal(take(&bed), 0);
	free_bed(&bed);
	make_bed_of_x(&bed, true);
	/* x, b, b2, c, row_offsets, two alphas. */
	assert_int_equal(take(&bed), 9);
	assert_int_equal(take(&bed), 0);
	bed.moe.problem.x.data = fresh(&bed, ROWS * K * 2);
	assert_int_equal(take(&bed), 9);
	assert_int_equal(take(&bed), 0);
	free_bed(&bed);
}

static void x_of_the_wrong_memory(void)
{
	_Alignas(64) static char host[4096];
	struct bed bed;
	void *data, *freed;

	make_bed_of_x(&bed, false);
	data = bed.problems[1].x.data;
	bed.problems[1].x.data = host;
	refused(&bed, "problems[1].x.data = 0x");
	refused(&bed, "is host memory; must be memory of ");
	bed.problems[1].x.data = (char *)data + 8;
	refused(&bed, "problems[1].x.data = 0x");
	refused(&bed, ": must be a multiple of 16 bytes on cuda:0");
	assert_ok(nib_device_alloc(bed.device, ROWS * K * 2, &freed, NULL));
	bed.problems[1].x.data = freed;
	take(&bed);
	bed.problems[1].x.data = data;
	take(&bed);
	nib_device_free(bed.device, freed);
	bed.problems[1].x.data = freed;
	refused(&bed, "problems[1].x.data = 0x");
	refused(&bed, "is host memory; must be memory of ");
	fake_register_memory(host, ROWS * K * 2 - 1, CU_MEMORYTYPE_DEVICE, 0, 0);
	bed.problems[1].x.data = host;
	refused(&bed, ": 1024 bytes, but only the first 1023 are memory of cuda:0");
	fake_register_memory(host, ROWS * K * 2, CU_MEMORYTYPE_DEVICE, 1, 0);
	refused(&bed, "is memory of cuda:1; must be of cuda:0");
	fake_register_memory(host, 0, 0, 0, 0);
	bed.problems[1].x.data = data;
	take(&bed);
	free_bed(&bed);
}

static void x_of_experts(void)
{
	_Alignas(64) static char host[4096];
	struct bed bed;
	char *data;

	make_bed_of_x(&bed, true);
	data = bed.moe.problem.x.data;
	bed.moe.problem.x.data = host;
	refused(&bed, "moe.problem.x.data = 0x");
	refused(&bed, "is host memory; must be memory of ");
	bed.moe.problem.x.data = data + 2;
	refused(&bed, "moe.problem.x.data = 0x");
	refused(&bed, "must be a multiple of 16 bytes");
	bed.moe.problem.x.data = data;
	take(&bed);
	free_bed(&bed);
}

/* Plans of what a GPU has no kernels for, by the backend's own check. */
static void refused_plan(struct bed *bed, const char *rule)
{
	struct nib_error err;
	char want[160];

	assert_int_equal(nib_plan_create(bed->device, NIB_OP_GEMM, bed->problems, COUNT,
					 NULL, &bed->plan, &err),
			 NIB_STATUS_UNSUPPORTED);
	assert_null(bed->plan);
	snprintf(want, sizeof(want), "problems[0].activations = %s", rule);
	assert_string_equal(err.message, want);
	assert_int_equal(nib_moe_plan_create(bed->device, NIB_OP_GEMM, &bed->moe, NULL,
					     &bed->plan, &err),
			 NIB_STATUS_UNSUPPORTED);
	assert_null(bed->plan);
	snprintf(want, sizeof(want), "moe.problem.activations = %s", rule);
	assert_string_equal(err.message, want);
}

static void kinds_without_kernels(void)
{
	static const char types[] = ": must be NVFP4, or dense with x of fp16 "
				    "or bf16, on a GPU";
	struct cuda_arch arch;
	struct bed bed;
	char rule[128];

	make_inputs(&bed);
	use_x(&bed);
	arch = *cuda_device(bed.device)->arch;
	cuda_device(bed.device)->arch = &arch;
	arch.takes_dense = false;
	refused_plan(&bed, "1 (dense, x is fp16): must be NVFP4 on this GPU");
	arch.takes_dense = true;
	bed.moe.problem.activations = NIB_ACTIVATIONS_INT8;
	bed.moe.problem.x.dtype = NIB_DTYPE_BF16;
	for (int i = 0; i < COUNT; i++) {
		bed.problems[i].activations = NIB_ACTIVATIONS_INT8;
		bed.problems[i].x.dtype = NIB_DTYPE_BF16;
	}
	snprintf(rule, sizeof(rule), "2 (int8, x is bf16)%s", types);
	refused_plan(&bed, rule);
	bed.moe.problem.activations = NIB_ACTIVATIONS_DENSE;
	bed.moe.problem.x.dtype = NIB_DTYPE_FP32;
	for (int i = 0; i < COUNT; i++) {
		bed.problems[i].activations = NIB_ACTIVATIONS_DENSE;
		bed.problems[i].x.dtype = NIB_DTYPE_FP32;
	}
	snprintf(rule, sizeof(rule), "1 (dense, x is fp32)%s", types);
	refused_plan(&bed, rule);
	free_bed(&bed);
}

/* The kernels read x by 16 bytes, which its strides are multiples of. */
static void strides_of_x(void)
{
	static const char rule[] =
	    ": row_stride_elems = 68, batch_stride_elems = 544: must be "
	    "multiples of 8 on a GPU";
	struct nib_error err;
	struct bed bed;
	char want[160];

	make_inputs(&bed);
	use_x(&bed);
	bed.problems[1].x.row_stride_elems = bed.moe.problem.x.row_stride_elems = K + 4;
	assert_int_equal(nib_plan_create(bed.device, NIB_OP_DUAL_GEMM, bed.problems,
					 COUNT, NULL, &bed.plan, &err),
			 NIB_STATUS_UNSUPPORTED);
	assert_null(bed.plan);
	snprintf(want, sizeof(want), "problems[1].x%s", rule);
	assert_string_equal(err.message, want);
	assert_int_equal(nib_moe_plan_create(bed.device, NIB_OP_DUAL_GEMM, &bed.moe,
					     NULL, &bed.plan, &err),
			 NIB_STATUS_UNSUPPORTED);
	assert_null(bed.plan);
	snprintf(want, sizeof(want), "moe.problem.x%s", rule);
	assert_string_equal(err.message, want);
	bed.problems[1].x.row_stride_elems = K + 8;
	bed.problems[1].x.data = fresh(&bed, ROWS * (K + 8) * 2);
	make_plan(&bed, false);
	assert_int_equal(take(&bed), COUNT * 8);
	free_bed(&bed);
}

/* ---- packed weights ------------------------------------------------------ */

/* Weights packed where others were freed: never only by their address. */
static void packed_at_an_old_address(struct bed *bed, struct nib_packed *p,
				     const char *part)
{
	const struct nib_packed kept = *p;
	struct nib_device other = *bed->device;

	take(bed);
	assert_int_equal(take(bed), 0);
	p->rows--;
	refused(bed, part);
	*p = kept;
	take(bed);
	p->k += 16;
	p->batch_stride_bytes += p->rows * 8;
	refused(bed, part);
	*p = kept;
	take(bed);
	p->batch_stride_bytes += 128;
	refused(bed, part);
	*p = kept;
	take(bed);
	p->batch++;
	refused(bed, part);
	*p = kept;
	take(bed);
	p->device = &other;
	refused(bed, part);
	*p = kept;
	take(bed);
	assert_int_equal(take(bed), 0);
}

static void packed_weights_are_looked_at(void)
{
	struct nib_packed packed = {
	    .rows = COLS, .k = K, .batch = 1, .batch_stride_bytes = COLS * K / 2};
	struct bed bed;

	make_bed(&bed, false);
	packed.device = bed.device;
	bed.problems[1].b_packed = bed.plan->problems[1].b_packed = &packed;
	packed_at_an_old_address(&bed, &packed, "problems[1].b");
	bed.problems[1].b_packed = bed.plan->problems[1].b_packed = NULL;
	bed.problems[2].b2_packed = bed.plan->problems[2].b2_packed = &packed;
	packed_at_an_old_address(&bed, &packed, "problems[2].b2");
	free_bed(&bed);
	make_bed(&bed, true);
	packed.device = bed.device;
	packed.batch = EXPERTS;
	bed.moe.problem.b_packed = bed.plan->moe.problem.b_packed = &packed;
	packed_at_an_old_address(&bed, &packed, "moe.problem.b");
	bed.moe.problem.b_packed = bed.plan->moe.problem.b_packed = NULL;
	bed.moe.problem.b2_packed = bed.plan->moe.problem.b2_packed = &packed;
	packed_at_an_old_address(&bed, &packed, "moe.problem.b2");
	free_bed(&bed);
}

int main(int argc, char **argv)
{
	static const struct fake_test tests[] = {
	    {"steady_state_asks_nothing", steady_state_asks_nothing},
	    {"neighbours_are_asked_about_once", neighbours_are_asked_about_once},
	    {"a_refusal_is_not_remembered", a_refusal_is_not_remembered},
	    {"every_pointer_is_checked", every_pointer_is_checked},
	    {"unknown_memory_is_the_hosts", unknown_memory_is_the_hosts},
	    {"every_byte_is_checked", every_byte_is_checked},
	    {"kinds_of_memory", kinds_of_memory},
	    {"alignment", alignment},
	    {"other_refusals", other_refusals},
	    {"experts", experts},
	    {"x_is_asked_about", x_is_asked_about},
	    {"x_of_the_wrong_memory", x_of_the_wrong_memory},
	    {"x_of_experts", x_of_experts},
	    {"kinds_without_kernels", kinds_without_kernels},
	    {"strides_of_x", strides_of_x},
	    {"packed_weights_are_looked_at", packed_weights_are_looked_at},
	};

	return fake_main(argc, argv, tests, sizeof(tests) / sizeof(*tests));
}
