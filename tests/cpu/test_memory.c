/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_memory.c - the memory that a multiplication may touch: inputs are only read,
 * rows and experts without tokens are not read, outputs may be interleaved, a run
 * allocates nothing, and several runs may share a plan.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/isas.h"
#include "common/problem.h"
#include "common/unit.h"
#include "emu/tests/common/alloc.h"
#include "format/view.h"

#define PAGE 4096

static struct rng rng;

/* All pages that hold a part of the bytes. */
static void protect(void *data, size_t bytes, int protection)
{
	const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	const uintptr_t begin = (uintptr_t)data / page * page;
	const uintptr_t end = ((uintptr_t)data + bytes + page - 1) / page * page;

	if (bytes)
		assert_int_equal(mprotect((void *)begin, end - begin, protection), 0);
}

static void protect_stack(const struct stack *s, int protection)
{
	protect(s->view.codes, s->codes_bytes, protection);
	protect(s->view.scales, s->scales_bytes, protection);
}

static struct job_spec spec_of(enum nib_op op, int64_t m, int64_t n, int64_t k)
{
	return (struct job_spec){
	    .op = op, .m = op == NIB_OP_GEMV ? 1 : m, .n = n, .k = k};
}

/* ---- inputs -------------------------------------------------------------- */

static void inputs_are_only_read(void **state)
{
	static const enum nib_op ops[] = {NIB_OP_GEMM, NIB_OP_DUAL_GEMM, NIB_OP_GEMV};

	for (int i = 0; i < TEST_ISAS * 12; i++) {
		const struct job_how how = {.device = devices[i / 12],
					    .packing = i & 1 ? JOB_PACKED : JOB_VIEWS};
		struct job_spec spec = spec_of(ops[i % 3], 19, 70, 112);
		struct job *job;

		if (!how.device)
			continue;
		spec.has_gaps = i & 2;
		spec.is_front = i & 4;
		spec.a_layout = (enum nib_scale_layout)(i >> 1 & 1);
		job = job_of(&rng, &spec);
		protect_stack(&job->a[0], PROT_READ);
		protect_stack(&job->b[0], PROT_READ);
		if (job->op == NIB_OP_DUAL_GEMM)
			protect_stack(&job->b2[0], PROT_READ);
		job_run(job, &how, "read-only inputs");
		job_check(job, "read-only inputs");
		job_free(job);
	}
}

/* Packing copies: the source may go. */
static void packed_weights_are_a_copy(void **state)
{
	for (int isa = 0; isa < TEST_ISAS; isa++) {
		const struct job_how how = {.device = devices[isa],
					    .packing = JOB_PACKED};
		const struct job_spec spec = spec_of(NIB_OP_DUAL_GEMM, 21, 130, 208);
		struct job *job;
		struct bits bits;

		if (!how.device)
			continue;
		job = job_of(&rng, &spec);
		job_run(job, &how, "with the source");
		job_check(job, "with the source");
		bits = job_bits(job);
		job_pack(job, &how);
		assert_true(nib_packed_bytes(job->problems[0].b_packed) >=
			    130 * 208 * 9 / 16);
		assert_true(nib_packed_bytes(job->problems[0].b_packed) <=
			    144 * 256 * 9 / 16);
		stack_free(&job->b[0]);
		stack_free(&job->b2[0]);
		/* Ignored, whatever it says. */
		memset(&job->problems[0].b, 0x5a, sizeof(struct nib_fp4));
		memset(&job->problems[0].b2, 0xa5, sizeof(struct nib_fp4));
		job_poison(job);
		assert_ok(
		    nib_multiply(how.device, NIB_OP_DUAL_GEMM, job->problems, 1, NULL));
		job_has_bits(job, &bits, "without the source");
		bits_free(&bits);
		job_unpack(job);
		job_free(job);
	}
}

/* A plan is made from sizes: pointers may come later. */
static void plans_read_no_pointers(void **state)
{
	for (int isa = 0; isa < TEST_ISAS; isa++) {
		const struct job_spec spec = spec_of(NIB_OP_DUAL_GEMM, 9, 20, 64);
		struct nib_problem sizes;
		struct nib_plan *plan;
		struct job *job;

		if (!devices[isa])
			continue;
		job = job_of(&rng, &spec);
		sizes = job->problems[0];
		sizes.a.codes = sizes.a.scales = NULL;
		sizes.b.codes = sizes.b.scales = NULL;
		sizes.b2.codes = sizes.b2.scales = NULL;
		sizes.c.data = NULL;
		sizes.alpha = sizes.alpha2 = (const float *)(uintptr_t)16;
		assert_ok(nib_plan_create(devices[isa], NIB_OP_DUAL_GEMM, &sizes, 1,
					  NULL, &plan, NULL));
		/* problems need not outlive the call. */
		memset(&sizes, 0x5a, sizeof(sizes));
		job_run_plan(job, plan, NULL, "pointers later");
		job_check(job, "pointers later");
		nib_plan_free(plan);
		job_free(job);
	}
}

/* ---- mixtures of experts ------------------------------------------------- */

/*
 * Experts without tokens and rows that no expert has, all on pages that cannot
 * be touched.  One row of codes, of scales and of c fills a page each.
 */
struct sparse_moe {
	struct nib_moe_problem moe;
	uint8_t *a_codes, *a_scales, *b_codes, *b_scales, *c;
	int32_t *offsets;
	float *alpha;
};

#define SPARSE_ROWS    12
#define SPARSE_EXPERTS 6
#define SPARSE_N       3
#define SPARSE_K       (PAGE * 2)

static uint8_t *pages(int64_t count, bool is_scales)
{
	uint8_t *memory = guard_new((size_t)(count * PAGE));

	rng_fill(&rng, memory, (size_t)(count * PAGE));
	for (int64_t i = 0; i < count * PAGE && is_scales; i++)
		memory[i] = memory[i] % 127;
	return memory;
}

static struct sparse_moe sparse_new(const int32_t *offsets)
{
	static const float alphas[] = {1, -2, 0.5f, 3, 1.5f, -1};
	struct sparse_moe s = {
	    .a_codes = pages(SPARSE_ROWS, false),
	    .a_scales = pages(SPARSE_ROWS, true),
	    .b_codes = pages(SPARSE_EXPERTS * SPARSE_N, false),
	    .b_scales = pages(SPARSE_EXPERTS * SPARSE_N, true),
	    .c = guard_new(SPARSE_ROWS * PAGE),
	    .offsets = guard_copy(offsets, (SPARSE_EXPERTS + 1) * sizeof(*offsets)),
	    .alpha = guard_copy(alphas, sizeof(alphas)),
	};

	s.moe = (struct nib_moe_problem){
	    .problem.a = {.codes = s.a_codes,
			  .scales = s.a_scales,
			  .rows = SPARSE_ROWS,
			  .k = SPARSE_K,
			  .scale_row_stride_bytes = PAGE},
	    .problem.b = {.codes = s.b_codes,
			  .scales = s.b_scales,
			  .rows = SPARSE_N,
			  .k = SPARSE_K,
			  .batch = SPARSE_EXPERTS,
			  .scale_row_stride_bytes = PAGE},
	    .problem.c = {.data = s.c,
			  .rows = SPARSE_ROWS,
			  .cols = SPARSE_N,
			  .row_stride_elems = PAGE / 4},
	    .row_offsets = s.offsets,
	    .problem.alpha = s.alpha,
	};
	return s;
}

static void sparse_protect(const struct sparse_moe *s, int protection)
{
	for (int r = 0; r < SPARSE_ROWS; r++) {
		if (r >= s->offsets[0] && r < s->offsets[SPARSE_EXPERTS])
			continue;
		protect(s->a_codes + r * PAGE, PAGE, protection);
		protect(s->a_scales + r * PAGE, PAGE, protection);
		protect(s->c + r * PAGE, PAGE, protection);
	}
	for (int e = 0; e < SPARSE_EXPERTS; e++) {
		if (s->offsets[e] != s->offsets[e + 1])
			continue;
		protect(s->b_codes + e * SPARSE_N * PAGE, SPARSE_N * PAGE, protection);
		protect(s->b_scales + e * SPARSE_N * PAGE, SPARSE_N * PAGE, protection);
	}
}

static void sparse_free(struct sparse_moe *s)
{
	guard_free(s->a_codes, SPARSE_ROWS * PAGE);
	guard_free(s->a_scales, SPARSE_ROWS * PAGE);
	guard_free(s->b_codes, SPARSE_EXPERTS * SPARSE_N * PAGE);
	guard_free(s->b_scales, SPARSE_EXPERTS * SPARSE_N * PAGE);
	guard_free(s->c, SPARSE_ROWS * PAGE);
	guard_free(s->offsets, (SPARSE_EXPERTS + 1) * sizeof(*s->offsets));
	guard_free(s->alpha, SPARSE_EXPERTS * sizeof(*s->alpha));
}

static void unused_experts_and_rows(void **state)
{
	static const int32_t offsets[][SPARSE_EXPERTS + 1] = {
	    {2, 2, 5, 5, 6, 6, 9},
	    {0, 0, 0, 0, 0, 0, 12},
	    {3, 4, 4, 4, 4, 4, 4},
	    {7, 7, 7, 7, 7, 7, 7},
	};

	if (sysconf(_SC_PAGESIZE) != PAGE)
		skip();
	for (int i = 0; i < TEST_ISAS * 4; i++) {
		struct sparse_moe s = sparse_new(offsets[i % 4]);
		struct nib_check_result r = {.struct_bytes = sizeof(r)};
		struct nib_plan *plan;

		if (!devices[i / 4]) {
			sparse_free(&s);
			continue;
		}
		sparse_protect(&s, PROT_NONE);
		assert_ok(nib_moe_plan_create(devices[i / 4], NIB_OP_GEMM, &s.moe, NULL,
					      &plan, NULL));
		assert_ok(nib_moe_run(plan, &s.moe, NULL, NULL));
		nib_plan_free(plan);
		sparse_protect(&s, PROT_READ | PROT_WRITE);
		assert_ok(nib_moe_check(NIB_OP_GEMM, &s.moe, NULL, &r, NULL));
		assert_int_equal(r.checked,
				 (offsets[i % 4][SPARSE_EXPERTS] - offsets[i % 4][0]) *
				     SPARSE_N);
		assert_int_equal(r.failed, 0);
		sparse_free(&s);
	}
}

/* ---- outputs ------------------------------------------------------------- */

/* Three problems write column ranges of one matrix, in any order. */
static void interleaved_columns(void **state)
{
	enum { M = 37, WIDTH = 101 };
	static const int64_t begins[] = {0, 17, 50, 101};
	static const int orders[][3] = {{0, 1, 2}, {2, 0, 1}, {1, 2, 0}};

	for (int i = 0; i < TEST_ISAS * 3 * 3; i++) {
		const enum nib_dtype dtype = (enum nib_dtype)(i / 3 % 3);
		const size_t size = nib_dtype_bytes(dtype);
		struct job *job = job_new(NIB_OP_GEMM);
		uint8_t *c = guard_new(M * WIDTH * size);

		for (int p = 0; p < 3; p++) {
			const int at = orders[i % 3][p];
			struct job_spec spec = spec_of(
			    NIB_OP_GEMM, M, begins[at + 1] - begins[at], 80 + 16 * p);

			spec.dtype = dtype;
			job_add(job, &rng, &spec);
			job->problems[p].c.data = c + (size_t)begins[at] * size;
			job->problems[p].c.row_stride_elems = WIDTH;
		}
		if (devices[i / 9]) {
			assert_ok(nib_multiply(devices[i / 9], NIB_OP_GEMM,
					       job->problems, 3, NULL));
			job_check(job, "columns");
		}
		guard_free(c, M * WIDTH * size);
		job_free(job);
	}
}

/* Two problems write heads of one tensor [tokens, heads, dim] with a tail. */
static void heads_of_one_tensor(void **state)
{
	enum { TOKENS = 37, DIM = 19, HEADS = 5, STRIDE = HEADS * DIM + 4 };
	static const int64_t first[] = {0, 2, HEADS};

	for (int i = 0; i < TEST_ISAS * 3 * 2; i++) {
		const enum nib_dtype dtype = (enum nib_dtype)(i / 2 % 3);
		const size_t size = nib_dtype_bytes(dtype);
		const size_t bytes = TOKENS * STRIDE * size;
		struct job *job = job_new(NIB_OP_GEMM);
		uint8_t *c = guard_new(bytes);

		for (int p = 0; p < 2; p++) {
			const int at = i % 2 ? 1 - p : p;
			struct job_spec spec =
			    spec_of(NIB_OP_GEMM, TOKENS, DIM, 80 + 16 * p);
			struct nib_dense *out;

			spec.dtype = dtype;
			spec.batch = first[at + 1] - first[at];
			spec.is_between = true;
			job_add(job, &rng, &spec);
			out = &job->problems[p].c;
			out->data = c + (size_t)(first[at] * DIM) * size;
			out->batch_stride_elems = DIM;
			out->row_stride_elems = STRIDE;
		}
		if (devices[i / 6]) {
			assert_ok(nib_multiply(devices[i / 6], NIB_OP_GEMM,
					       job->problems, 2, NULL));
			job_check(job, "heads");
			for (size_t at = 0; at < bytes; at++)
				if (at / size % STRIDE >= HEADS * DIM)
					assert_int_equal(c[at], GUARD_POISON);
		}
		guard_free(c, bytes);
		job_free(job);
	}
}

/* ---- allocations --------------------------------------------------------- */

static void serial(void *pool, int tasks, void (*task)(void *arg, int i), void *arg)
{
	(void)pool;
	for (int i = 0; i < tasks; i++)
		task(arg, i);
}

static void run_without_memory(struct job *job, struct nib_device *device)
{
	struct nib_plan *plan = job_plan(job, device, false);
	bool has_asked;

	/* The device's threads start in the first run. */
	job_run_plan(job, plan, NULL, "first run");
	job_poison(job);
	test_alloc_fail(1, TEST_ALLOC_FROM);
	job_run_plan(job, plan, NULL, "run without memory");
	has_asked = test_alloc_stop();
	assert_false(has_asked);
	job_check(job, "run without memory");
	nib_plan_free(plan);
}

static void a_run_allocates_nothing(void **state)
{
	static const int64_t rows[] = {1, 0, 130};

	if (!test_alloc_works())
		skip();
	for (int i = 0; i < TEST_ISAS * 4; i++) {
		const struct nib_device_options options = {
		    .struct_bytes = sizeof(options),
		    .threads = 3,
		    .isa = test_isas[i / 4],
		    .parallel_for = i & 1 ? serial : NULL,
		};
		struct job_spec spec = spec_of(NIB_OP_DUAL_GEMM, 130, 200, 240);
		struct nib_device *device;
		struct job *job;

		if (!devices[i / 4])
			continue;
		assert_ok(nib_device_open("cpu", &options, &device, NULL));
		job = i & 2 ? job_of_moe(&rng, &spec, rows, 3, 1, true)
			    : job_of(&rng, &spec);
		run_without_memory(job, device);
		job_free(job);
		nib_device_close(device);
	}
}

/* ---- several runs of one plan -------------------------------------------- */

struct runner {
	struct nib_plan *plan;
	struct nib_problem problem;
	size_t workspace_bytes; /* 0: the plan's own */
	const struct bits *want;
	int runs, wrong;
};

static void *run_often(void *arg)
{
	struct runner *r = arg;
	struct nib_run_options options = {.struct_bytes = sizeof(options)};
	const struct stack_spec spec = {
	    .rows = r->problem.c.rows, .k = r->problem.c.cols, .batch = 1};
	struct output c = output_new(NIB_DTYPE_FP32, &spec);

	if (r->workspace_bytes) {
		options.workspace = guard_new(r->workspace_bytes);
		options.workspace_bytes = r->workspace_bytes;
	}
	r->problem.c.data = c.view.data;
	for (int i = 0; i < r->runs; i++) {
		memset(c.view.data, GUARD_POISON, c.bytes);
		if (nib_run(r->plan, &r->problem, 1, &options, NULL))
			r->wrong++;
		r->wrong += memcmp(c.view.data, r->want->bytes, r->want->n_bytes) != 0;
	}
	guard_free(options.workspace, r->workspace_bytes);
	output_free(&c);
	return NULL;
}

static void share_plan(struct nib_device *device, bool brings_workspace)
{
	enum { RUNNERS = 4 };
	const struct job_spec spec = spec_of(NIB_OP_DUAL_GEMM, 40, 130, 208);
	struct job *jobs[RUNNERS];
	struct bits want[RUNNERS];
	struct runner runners[RUNNERS];
	pthread_t threads[RUNNERS];
	struct nib_plan_info info = {.struct_bytes = sizeof(info)};
	struct nib_plan *plan;

	for (int i = 0; i < RUNNERS; i++) {
		jobs[i] = job_of(&rng, &spec);
		job_run(jobs[i], &(struct job_how){.device = device}, "alone");
		want[i] = job_bits(jobs[i]);
	}
	plan = job_plan(jobs[0], device, brings_workspace);
	assert_ok(nib_plan_get_info(plan, &info, NULL));
	for (int i = 0; i < RUNNERS; i++)
		runners[i] = (struct runner){
		    .plan = plan,
		    .problem = jobs[i]->problems[0],
		    .workspace_bytes = brings_workspace ? info.workspace_bytes : 0,
		    .want = &want[i],
		    .runs = test_is_small() ? 5 : 25,
		};
	for (int i = 0; i < RUNNERS; i++)
		assert_int_equal(
		    pthread_create(&threads[i], NULL, run_often, &runners[i]), 0);
	for (int i = 0; i < RUNNERS; i++)
		assert_int_equal(pthread_join(threads[i], NULL), 0);
	for (int i = 0; i < RUNNERS; i++) {
		assert_int_equal(runners[i].wrong, 0);
		bits_free(&want[i]);
		job_free(jobs[i]);
	}
	nib_plan_free(plan);
}

static void threads_share_a_plan(void **state)
{
	for (int isa = 0; isa < TEST_ISAS; isa++) {
		if (!devices[isa])
			continue;
		share_plan(devices[isa], false);
		share_plan(devices[isa], true);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(inputs_are_only_read),
	    cmocka_unit_test(packed_weights_are_a_copy),
	    cmocka_unit_test(plans_read_no_pointers),
	    cmocka_unit_test(unused_experts_and_rows),
	    cmocka_unit_test(interleaved_columns),
	    cmocka_unit_test(heads_of_one_tensor),
	    cmocka_unit_test(a_run_allocates_nothing),
	    cmocka_unit_test(threads_share_a_plan),
	};

	rng = rng_new(test_seed());
	return cmocka_run_group_tests(tests, open_devices, close_devices);
}
