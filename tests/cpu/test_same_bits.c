/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_same_bits.c - things that must not change a bit of a result: threads,
 * instruction sets, packing, layouts, neighbours, rows, pools, modes, and timing.
 */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "common/float_mode.h"
#include "common/problem.h"
#include "common/unit.h"
#include "format/view.h"

static struct rng rng;
static const float alpha = 0.37f, alpha2 = -1.9f;

static int seed(void **state)
{
	rng = rng_new(test_seed());
	return 0;
}

static struct job_spec spec_of(enum nib_op op, int64_t m, int64_t n, int64_t k)
{
	return (struct job_spec){
	    .op = op,
	    .m = op == NIB_OP_GEMV ? 1 : m,
	    .n = n,
	    .k = k,
	    .alpha = &alpha,
	    .alpha2 = &alpha2,
	};
}

/* Enough of everything: several units of rows and of columns, odd ends. */
static struct job *sample_job(enum nib_op op, enum nib_dtype dtype)
{
	struct job_spec spec = spec_of(op, test_is_small() ? 37 : 531, 77, 16 * 21);

	spec.dtype = dtype;
	return job_of(&rng, &spec);
}

/* ---- devices ------------------------------------------------------------- */

/* Instruction sets x threads x packing, against the first of the same order of sums. */
static void devices_agree(struct job *job)
{
	static const int threads[] = {1, 2, 3, 7, 64};
	struct bits orders[2] = {{0}};
	char what[80];

	for (int i = 0; i < TEST_ISAS * 5; i++) {
		struct job_how how = {
		    .device = test_device(test_isas[i / 5], threads[i % 5])};
		struct bits *bits = &orders[test_has_own_order(test_isas[i / 5])];

		for (int packing = 0; packing < JOB_PACKINGS && how.device; packing++) {
			how.packing = (enum job_packing)packing;
			snprintf(what, sizeof(what), "%s, %d threads, packing %d",
				 test_isas[i / 5], threads[i % 5], packing);
			job_run(job, &how, what);
			if (bits->bytes)
				job_has_bits(job, bits, what);
			else
				*bits = job_bits(job);
		}
		nib_device_close(how.device);
	}
	for (int i = 0; i < 2; i++)
		if (orders[i].bytes)
			bits_free(&orders[i]);
	job_free(job);
}

static void threads_and_instruction_sets(void **state)
{
	for (int dtype = 0; dtype < 3; dtype++) {
		devices_agree(sample_job(NIB_OP_GEMM, (enum nib_dtype)dtype));
		devices_agree(sample_job(NIB_OP_GEMV, (enum nib_dtype)dtype));
		devices_agree(sample_job(NIB_OP_DUAL_GEMM, (enum nib_dtype)dtype));
	}
}

static void threads_and_instruction_sets_of_experts(void **state)
{
	static const int64_t rows[] = {1, 0, 130, 7, 2, 64};

	for (int op = NIB_OP_GEMM; op <= NIB_OP_DUAL_GEMM; op++) {
		const struct job_spec spec = spec_of((enum nib_op)op, 0, 97, 16 * 13);

		devices_agree(job_of_moe(&rng, &spec, rows, 6, 0, false));
	}
}

/* ---- one problem told in other ways -------------------------------------- */

/* Values of one stack in the memory of another of the same sizes. */
static void copy_stack(const struct nib_fp4 *to, const struct nib_fp4 *from)
{
	for (int64_t r = 0; r < to->rows; r++) {
		memcpy(nib_fp4_row(to, 0, r), nib_fp4_row(from, 0, r),
		       (size_t)to->k / 2);
		for (int64_t g = 0; g < to->k / NIB_NVFP4_BLOCK; g++)
			*nib_fp4_scale(to, 0, r, g) = *nib_fp4_scale(from, 0, r, g);
	}
}

static void layouts_and_strides(void **state)
{
	for (int isa = 0; isa < TEST_ISAS; isa++) {
		struct job_how how = {.device = test_device(test_isas[isa], 2)};
		struct job *first;
		struct bits bits;

		if (!how.device)
			continue;
		first = sample_job(NIB_OP_DUAL_GEMM, NIB_DTYPE_FP32);
		job_run(first, &how, "linear");
		bits = job_bits(first);
		for (int i = 1; i < 16; i++) {
			struct job *job;
			struct job_spec spec = spec_of(
			    NIB_OP_DUAL_GEMM, first->c[0].view.rows, 77, 16 * 21);
			spec.a_layout = (enum nib_scale_layout)(i & 1);
			spec.b_layout = (enum nib_scale_layout)(i >> 1 & 1);
			spec.has_gaps = i >> 2 & 1;
			spec.is_front = i >> 3 & 1;
			job = job_of(&rng, &spec);
			copy_stack(&job->a[0].view, &first->a[0].view);
			copy_stack(&job->b[0].view, &first->b[0].view);
			copy_stack(&job->b2[0].view, &first->b2[0].view);
			how.packing = (enum job_packing)(i % JOB_PACKINGS);
			job_run(job, &how, "layout");
			job_has_bits(job, &bits, "layout");
			job_free(job);
		}
		bits_free(&bits);
		job_free(first);
		nib_device_close(how.device);
	}
}

/* The bits that problem i has when it runs alone. */
static struct bits bits_alone(const struct job *job, int i, const struct job_how *how)
{
	struct job one = {.op = job->op, .count = 1};

	one.problems[0] = job->problems[i];
	one.c[0] = job->c[i];
	job_run(&one, how, "alone");
	return job_bits(&one);
}

static void group_is_its_problems(struct job *job, const struct job_how *how)
{
	struct job turned = {.op = job->op, .count = job->count};
	struct bits alone[JOB_PROBLEMS], together;

	for (int i = 0; i < job->count; i++)
		alone[i] = bits_alone(job, i, how);
	job_run(job, how, "group");
	together = job_bits(job);
	for (int i = 0; i < job->count; i++) {
		struct job one = {.op = job->op, .count = 1};

		one.c[0] = job->c[i];
		job_has_bits(&one, &alone[i], "in a group");
		bits_free(&alone[i]);
		turned.problems[i] = job->problems[job->count - 1 - i];
		turned.c[i] = job->c[job->count - 1 - i];
	}
	/* The other way round. */
	job_run(&turned, how, "reversed group");
	job_has_bits(job, &together, "reversed group");
	bits_free(&together);
}

static void groups(void **state)
{
	static const int64_t ms[] = {3, 0, 140, 1, 33, 8};
	static const enum nib_op ops[] = {NIB_OP_GEMM, NIB_OP_DUAL_GEMM, NIB_OP_GEMV};

	for (int i = 0; i < TEST_ISAS * 3; i++) {
		const struct job_how how = {.device = test_device(test_isas[i / 3], 3),
					    .packing =
						(enum job_packing)(i % JOB_PACKINGS)};
		struct job *job = job_new(ops[i % 3]);

		for (int p = 0; p < 6 && how.device; p++) {
			struct job_spec spec =
			    spec_of(job->op, ms[p], 17 + 24 * p, 16 * (1 + 3 * p));

			spec.batch = p == 2 ? 2 : 1;
			job_add(job, &rng, &spec);
		}
		if (how.device)
			group_is_its_problems(job, &how);
		job_free(job);
		nib_device_close(how.device);
	}
}

/* Batch l of the stack as a problem of its own. */
static struct nib_problem batch_of(const struct nib_problem *p, int64_t l)
{
	struct nib_problem one = *p;
	const int64_t bl = p->b.batch > 1 ? l : 0;

	one.a.codes = nib_fp4_row(&p->a, l, 0);
	one.a.scales = nib_fp4_scales(&p->a, l);
	one.b.codes = nib_fp4_row(&p->b, bl, 0);
	one.b.scales = nib_fp4_scales(&p->b, bl);
	if (p->b2.codes) {
		one.b2.codes = nib_fp4_row(&p->b2, bl, 0);
		one.b2.scales = nib_fp4_scales(&p->b2, bl);
	}
	one.c.data = nib_dense_at(&p->c, l, 0, 0);
	one.a.batch = one.b.batch = one.b2.batch = one.c.batch = 1;
	return one;
}

static void batches(void **state)
{
	for (int i = 0; i < TEST_ISAS * 4; i++) {
		struct nib_device *device = test_device(test_isas[i / 4], 3);
		struct job_spec spec =
		    spec_of(i & 1 ? NIB_OP_DUAL_GEMM : NIB_OP_GEMM, 19, 66, 80);
		struct job *job;
		struct bits bits;

		if (!device)
			continue;
		spec.batch = 4;
		spec.b_batch = i & 2 ? 4 : 1;
		spec.has_gaps = true;
		job = job_of(&rng, &spec);
		job_run(job, &(struct job_how){.device = device}, "batch");
		bits = job_bits(job);
		job_poison(job);
		for (int64_t l = 0; l < 4; l++) {
			const struct nib_problem one = batch_of(&job->problems[0], l);

			assert_ok(nib_multiply(device, job->op, &one, 1, NULL));
		}
		job_has_bits(job, &bits, "one of a batch");
		bits_free(&bits);
		job_free(job);
		nib_device_close(device);
	}
}

/*
 * A row's result does not depend on how many others there are.  The rows of a large m
 * are multiplied again one by one (by gemm and by gemv), and the first rows as a
 * smaller m.  An instruction set with an order of sums of its own uses it from
 * TEST_AMX_ROWS rows on.
 */
static void rows_alone(void **state)
{
	const int64_t m = test_is_small() ? 35 : 523;

	for (int i = 0; i < TEST_ISAS * 4; i++) {
		const struct job_how how = {.device = test_device(test_isas[i / 4], 2),
					    .packing = i & 1 ? JOB_PACKED : JOB_VIEWS};
		const struct job_spec spec =
		    spec_of(i & 2 ? NIB_OP_DUAL_GEMM : NIB_OP_GEMM, m, 71, 16 * 9);
		const int64_t least =
		    test_has_own_order(test_isas[i / 4]) ? TEST_AMX_ROWS : 1;
		struct job *job = job_of(&rng, &spec);
		struct bits bits;

		if (!how.device) {
			job_free(job);
			continue;
		}
		job_run(job, &how, "all rows");
		bits = job_bits(job);
		job_poison(job);
		job_pack(job, &how);
		for (int64_t r = 0; r < m && least == 1; r++) {
			struct nib_problem one = job->problems[0];
			const bool is_gemv = job->op == NIB_OP_GEMM && r % 2;

			one.a.codes = nib_fp4_row(&one.a, 0, r);
			one.a.scales = nib_fp4_scale(&one.a, 0, r, 0);
			one.c.data = nib_dense_at(&one.c, 0, r, 0);
			one.a.rows = one.c.rows = 1;
			assert_ok(nib_multiply(how.device,
					       is_gemv ? NIB_OP_GEMV : job->op, &one, 1,
					       NULL));
		}
		if (least == 1)
			job_has_bits(job, &bits, "row by row");
		for (int64_t few = least; few < 40 && few < m; few++) {
			struct nib_problem some = job->problems[0];

			some.a.rows = some.c.rows = few;
			job_poison(job);
			assert_ok(nib_multiply(how.device, job->op, &some, 1, NULL));
			assert_memory_equal(job->c[0].view.data, bits.bytes,
					    (size_t)few * 71 * 4);
			assert_int_equal(
			    *(uint8_t *)nib_dense_at(&job->c[0].view, 0, few, 0),
			    GUARD_POISON);
		}
		job_unpack(job);
		bits_free(&bits);
		job_free(job);
		nib_device_close(how.device);
	}
}

/* A mixture of experts is its experts' problems. */
static void experts_alone(void **state)
{
	static const int64_t rows[] = {5, 0, 129, 1, 40};

	for (int i = 0; i < TEST_ISAS * 4; i++) {
		const struct job_how how = {.device = test_device(test_isas[i / 4], 3)};
		struct job_spec spec =
		    spec_of(i & 1 ? NIB_OP_DUAL_GEMM : NIB_OP_GEMM, 0, 65, 112);
		struct nib_problem p = {.alpha = NULL};
		struct bits bits;
		struct job *job;

		if (!how.device)
			continue;
		spec.has_gaps = i & 2;
		job = job_of_moe(&rng, &spec, rows, 5, 3, false);
		job_run(job, &how, "experts");
		bits = job_bits(job);
		job_poison(job);
		for (int e = 0; e < 5; e++) {
			const int64_t row = job->row_offsets[e];

			p.a = job->moe.problem.a;
			p.b = job->moe.problem.b;
			p.b2 = job->moe.problem.b2;
			p.c = job->moe.problem.c;
			p.a.codes = nib_fp4_row(&p.a, 0, row);
			p.a.scales = nib_fp4_scale(&p.a, 0, row, 0);
			p.b.codes = nib_fp4_row(&p.b, e, 0);
			p.b.scales = nib_fp4_scales(&p.b, e);
			p.b2.codes = nib_fp4_row(&p.b2, e, 0);
			p.b2.scales = nib_fp4_scales(&p.b2, e);
			p.c.data = nib_dense_at(&p.c, 0, row, 0);
			p.a.rows = p.c.rows = rows[e];
			p.b.batch = p.b2.batch = 1;
			p.alpha = &job->alpha[e];
			p.alpha2 = &job->alpha2[e];
			assert_ok(nib_multiply(how.device, job->op, &p, 1, NULL));
		}
		job_has_bits(job, &bits, "expert alone");
		bits_free(&bits);
		job_free(job);
		nib_device_close(how.device);
	}
}

/* ---- the caller's pool --------------------------------------------------- */

struct pool {
	int calls, tasks; /* and then of the call in progress: */
	void (*task)(void *arg, int i);
	void *arg;
	int next;
	pthread_mutex_t lock;
};

static void backwards(void *arg, int tasks, void (*task)(void *arg, int i),
		      void *task_arg)
{
	struct pool *pool = arg;

	pool->calls++;
	pool->tasks += tasks;
	for (int i = tasks - 1; i >= 0; i--)
		task(task_arg, i);
}

static void *worker(void *arg)
{
	struct pool *pool = arg;
	int i;

	for (;;) {
		pthread_mutex_lock(&pool->lock);
		i = --pool->next;
		pthread_mutex_unlock(&pool->lock);
		if (i < 0)
			return NULL;
		pool->task(pool->arg, i);
	}
}

static void on_threads(void *arg, int tasks, void (*task)(void *arg, int i),
		       void *task_arg)
{
	struct pool *pool = arg;
	pthread_t threads[3];

	pool->calls++;
	pool->tasks += tasks;
	pool->task = task;
	pool->arg = task_arg;
	pool->next = tasks;
	for (int i = 0; i < 3; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, worker, pool), 0);
	for (int i = 0; i < 3; i++)
		assert_int_equal(pthread_join(threads[i], NULL), 0);
}

static void callers_pools(void **state)
{
	static const nib_parallel_for pools[] = {backwards, on_threads};

	for (int i = 0; i < TEST_ISAS * 2; i++) {
		struct pool pool = {.lock = PTHREAD_MUTEX_INITIALIZER};
		const struct nib_device_options options = {
		    .struct_bytes = sizeof(options),
		    .threads = 5,
		    .isa = test_isas[i / 2],
		    .parallel_for = pools[i % 2],
		    .pool = &pool,
		};
		struct job_how how = {.device = test_device(test_isas[i / 2], 1)};
		struct job *job = sample_job(NIB_OP_DUAL_GEMM, NIB_DTYPE_BF16);
		struct bits bits;

		if (!how.device) {
			job_free(job);
			continue;
		}
		job_run(job, &how, "one thread");
		bits = job_bits(job);
		nib_device_close(how.device);
		assert_ok(nib_device_open("cpu", &options, &how.device, NULL));
		for (int packing = 0; packing < JOB_PACKINGS; packing++) {
			how.packing = (enum job_packing)packing;
			pool.calls = pool.tasks = 0;
			job_run(job, &how, "caller's pool");
			job_has_bits(job, &bits, "caller's pool");
			assert_true(pool.calls > 0);
			assert_true(pool.tasks > pool.calls);
			assert_true(pool.tasks <= 5 * pool.calls);
		}
		nib_device_close(how.device);
		bits_free(&bits);
		job_free(job);
	}
}

/* ---- the caller's floating-point mode ------------------------------------ */

static void callers_modes(void **state)
{
	static const int modes[] = {MODE_DOWN,
				    MODE_UP,
				    MODE_ZERO,
				    MODE_FLUSH,
				    MODE_UP | MODE_FLUSH,
				    MODE_TRAPS | MODE_DOWN};
	/* Outputs around the smallest fp32 and beyond the largest. */
	static const float small = 0x1p-142f, large = 1e36f;

	for (int i = 0; i < TEST_ISAS * 4; i++) {
		struct job_how how = {.device =
					  test_device(test_isas[i / 4], 1 + i % 2),
				      .packing = JOB_PACKED};
		struct job_spec spec =
		    spec_of(i & 1 ? NIB_OP_DUAL_GEMM : NIB_OP_GEMM, 13, 140, 64);
		struct job *job;
		struct bits bits;

		if (!how.device)
			continue;
		spec.alpha = spec.alpha2 = i & 2 ? &small : &large;
		job = job_of(&rng, &spec);
		job_run(job, &how, "default mode");
		bits = job_bits(job);
		for (size_t j = 0; j < sizeof(modes) / sizeof(*modes); j++) {
			int set, left;

			job_poison(job);
			test_mode_set(modes[j]);
			set = test_mode_get();
			job_run(job, &how, "odd mode");
			left = test_mode_get();
			test_mode_set(0);
			assert_int_equal(left, set);
			job_has_bits(job, &bits, "odd mode");
		}
		bits_free(&bits);
		job_free(job);
		nib_device_close(how.device);
	}
}

/* ---- chance -------------------------------------------------------------- */

static void repeated_runs(void **state)
{
	const int runs = test_is_small() ? 20 : 200;

	for (int isa = 0; isa < TEST_ISAS; isa++) {
		struct nib_device *device = test_device(test_isas[isa], 7);
		const struct job_spec spec = spec_of(NIB_OP_DUAL_GEMM, 150, 130, 96);
		struct job *job;
		struct nib_plan *plan;
		struct bits bits;

		if (!device)
			continue;
		job = job_of(&rng, &spec);
		plan = job_plan(job, device, false);
		job_run_plan(job, plan, NULL, "first run");
		bits = job_bits(job);
		for (int i = 1; i < runs; i++) {
			job_poison(job);
			job_run_plan(job, plan, NULL, "again");
			job_has_bits(job, &bits, "again");
		}
		nib_plan_free(plan);
		bits_free(&bits);
		job_free(job);
		nib_device_close(device);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(threads_and_instruction_sets),
	    cmocka_unit_test(threads_and_instruction_sets_of_experts),
	    cmocka_unit_test(layouts_and_strides),
	    cmocka_unit_test(groups),
	    cmocka_unit_test(batches),
	    cmocka_unit_test(rows_alone),
	    cmocka_unit_test(experts_alone),
	    cmocka_unit_test(callers_pools),
	    cmocka_unit_test(callers_modes),
	    cmocka_unit_test(repeated_runs),
	};

	return cmocka_run_group_tests(tests, seed, NULL);
}
