/* SPDX-License-Identifier: Apache-2.0 */
/*
 * baseline_work.c - what the process of a baseline does: dequantises the
 * operands of a shape, hands them to the library one multiplication at a time,
 * checks one row of the results, and times calls.
 *
 * A group is its multiplications one after the other; a dual GEMM is two
 * multiplications without silu.  Weights are rotated through as many copies as
 * it takes to find them out of the caches.
 */
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "baseline.h"
#include "cli.h"
#include "job.h"
#include "machine.h"

struct baseline_work {
	const struct baseline_engine *engine;
	const struct shape_list *list;
	struct data_options options;
	bool is_open;

	/* The shape that is prepared: as many copies of per_copy. */
	struct baseline_matmul *matmuls;
	int64_t n_matmuls, per_copy, next;
	float *c; /* of all multiplications of one copy */
	size_t c_bytes;
	struct nib_device *device;
};

void *baseline_dlopen(const char *const *names, char reason[BASELINE_REASON])
{
	for (int i = 0; names[i]; i++) {
		void *library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);

		if (library)
			return library;
	}
	snprintf(reason, BASELINE_REASON, "not installed: %s not found",
		 names[0]);
	return NULL;
}

struct baseline_work *baseline_work_new(const struct baseline_engine *engine,
					const struct shape_list *list,
					const struct data_options *options)
{
	struct baseline_work *work = calloc(1, sizeof *work);

	if (work) {
		work->engine = engine;
		work->list = list;
		work->options = *options;
		work->options.packed = 0;
		work->options.layout = NIB_LINEAR;
		work->options.out = NIB_FP32;
	}
	return work;
}

static size_t a_bytes(const struct baseline_matmul *mm)
{
	return (size_t)(mm->m * mm->k) * sizeof(float);
}

static size_t b_bytes(const struct baseline_matmul *mm)
{
	return (size_t)(mm->n * mm->k) * sizeof(float);
}

static void free_plain(struct baseline_matmul *mm)
{
	machine_free(mm->a, a_bytes(mm));
	machine_free(mm->b, b_bytes(mm));
	mm->a = mm->b = NULL;
}

void baseline_work_release(struct baseline_work *work)
{
	for (int64_t i = 0; i < work->n_matmuls; i++) {
		free_plain(&work->matmuls[i]);
		if (work->matmuls[i].packed)
			work->engine->unpack(work->matmuls[i].packed);
	}
	free(work->matmuls);
	machine_free(work->c, work->c_bytes);
	nib_device_close(work->device);
	work->matmuls = NULL;
	work->n_matmuls = work->per_copy = work->next = 0;
	work->c = NULL;
	work->device = NULL;
}

/* ---- the multiplications of a shape -------------------------------------- */

/* One multiplication of the shape, as NVFP4 views of batch 1. */
struct part {
	struct nib_nvfp4 a, b;
};

/* Rows of operands as data.c lays them out: linear, and without gaps. */
static struct nib_nvfp4 rows_of(const struct nib_nvfp4 *q, int64_t first,
				int64_t rows)
{
	struct nib_nvfp4 part = *q;

	part.codes = (char *)q->codes + first * (q->k / 2);
	part.scales = (char *)q->scales + first * (q->k / NIB_BLOCK);
	part.rows = rows;
	part.batch = 1;
	return part;
}

static struct nib_nvfp4 batch_of(const struct nib_nvfp4 *q, int64_t i)
{
	return rows_of(q, i * q->rows, q->rows);
}

/* The i-th part of a call, dual ones counted twice; false past the end. */
static bool get_part(const struct data *data, int64_t i, struct part *part)
{
	const struct nib_moe_problem *moe = &data->moe_views;
	const int dual = data->op == NIB_DUAL_GEMM ? 2 : 1;
	const bool second = i % dual;

	i /= dual;
	if (data->is_moe && i < moe->b.batch) {
		int64_t first = moe->row_offsets[i];

		part->a =
		    rows_of(&moe->a, first, moe->row_offsets[i + 1] - first);
		part->b = batch_of(second ? &moe->b2 : &moe->b, i);
		return true;
	}
	for (int64_t p = 0; p < data->count && !data->is_moe; p++) {
		const struct nib_problem *v = &data->views[p];

		if (i < v->a.batch) {
			part->a = batch_of(&v->a, i);
			part->b = batch_of(second ? &v->b2 : &v->b, i);
			return true;
		}
		i -= v->a.batch;
	}
	return false;
}

/* ---- preparing ----------------------------------------------------------- */

/* Row 0 of the result against sums in double: layout or type mistakes. */
static bool check(const struct baseline_matmul *mm,
		  char reason[BASELINE_REASON])
{
	for (int64_t n = 0; n < mm->n; n += mm->n / 8 + 1) {
		double sum = 0, magnitude = 0;

		for (int64_t k = 0; k < mm->k; k++) {
			double x =
			    (double)mm->a[k] * (double)mm->b[n * mm->k + k];

			sum += x;
			magnitude += fabs(x);
		}
		if (!(fabs((double)mm->c[n] - sum) <= 1e-4 * magnitude)) {
			snprintf(reason, BASELINE_REASON,
				 "wrong result: c[0, %lld] = %g, want %g",
				 (long long)n, (double)mm->c[n], sum);
			return false;
		}
	}
	return true;
}

/* q in floats, in memory of its own. */
static float *dequantize(struct baseline_work *work, const struct nib_nvfp4 *q)
{
	struct nib_dense dense = {
	    .dtype = NIB_FP32, .rows = q->rows, .cols = q->k};
	size_t bytes = (size_t)(q->rows * q->k) * sizeof(float);

	dense.data = machine_alloc(bytes);
	if (dense.data &&
	    nib_dequantize(work->device, q, 1.0f, &dense, NULL, NULL)) {
		machine_free(dense.data, bytes);
		return NULL;
	}
	return dense.data;
}

/* Adds a multiplication; the first one's result is checked. */
static bool add_matmul(struct baseline_work *work, const struct part *part,
		       float *c, char reason[BASELINE_REASON])
{
	struct baseline_matmul *mm = &work->matmuls[work->n_matmuls++];
	bool done;

	*mm = (struct baseline_matmul){.m = part->a.rows,
				       .n = part->b.rows,
				       .k = part->a.k,
				       .a = dequantize(work, &part->a),
				       .b = dequantize(work, &part->b),
				       .c = c};
	if (!mm->a || !mm->b) {
		snprintf(reason, BASELINE_REASON, "out of memory");
		return false;
	}
	done = !work->engine->pack || work->engine->pack(mm, reason);
	if (done && work->n_matmuls == 1) {
		work->engine->run(mm);
		done = check(mm, reason);
	}
	if (mm->packed)
		free_plain(mm);
	return done;
}

/* Adds all parts of data once more. */
static bool add_copy(struct baseline_work *work, const struct data *data,
		     char reason[BASELINE_REASON])
{
	float *c = work->c;
	struct part part;

	for (int64_t i = 0; get_part(data, i, &part); i++) {
		if (part.a.rows == 0)
			continue;
		if (!add_matmul(work, &part, c, reason))
			return false;
		c += part.a.rows * part.b.rows;
	}
	return true;
}

static bool make_operands(struct baseline_work *work, const struct data *data,
			  char reason[BASELINE_REASON])
{
	double weights = 0, plain = 0, need;
	struct part part;
	int64_t copies;

	work->c_bytes = 0;
	for (int64_t i = 0; get_part(data, i, &part); i++) {
		double b = (double)(part.b.rows * part.b.k);

		if (part.a.rows == 0)
			continue;
		weights += b * work->engine->operand_bytes;
		plain = fmax(plain, b * sizeof(float));
		work->c_bytes +=
		    (size_t)(part.a.rows * part.b.rows) * sizeof(float);
		work->per_copy++;
	}
	copies = job_copies(weights, (double)machine_cache_bytes());
	need = (double)copies * weights + plain + (double)work->c_bytes;
	if (need > 0.8 * (double)machine_free_bytes()) {
		snprintf(reason, BASELINE_REASON, "needs %.1f GiB of memory",
			 need / (1 << 30));
		return false;
	}
	work->matmuls = calloc((size_t)(copies * work->per_copy) + 1,
			       sizeof *work->matmuls);
	work->c = machine_alloc(work->c_bytes);
	if (!work->matmuls || !work->c) {
		snprintf(reason, BASELINE_REASON, "out of memory");
		return false;
	}
	for (int64_t i = 0; i < copies; i++) {
		if (!add_copy(work, data, reason))
			return false;
	}
	return true;
}

bool baseline_work_prepare(struct baseline_work *work, int64_t shape,
			   int threads, char reason[BASELINE_REASON])
{
	const struct nib_device_options device = {.struct_bytes = sizeof device,
						  .threads = threads};
	struct nib_error err = {0};
	struct data *data = NULL;
	bool done = false;

	baseline_work_release(work);
	if (!work->is_open && !work->engine->open(reason))
		return false;
	work->is_open = true;
	work->engine->set_threads(threads);
	if (nib_device_open("cpu", &device, &work->device, &err) != NIB_OK ||
	    data_new(&work->list->shapes[shape], &work->options, NULL, &data,
		     &err) != NIB_OK)
		snprintf(reason, BASELINE_REASON, "%.150s", err.message);
	else
		done = make_operands(work, data, reason);
	data_free(data);
	if (!done)
		baseline_work_release(work);
	return done;
}

/* ---- running ------------------------------------------------------------- */

/* Seconds of runs copies, one after the other. */
static double run_copies(struct baseline_work *work, int runs)
{
	double begin = cli_now_s();

	for (int64_t i = 0; i < runs * work->per_copy; i++) {
		work->engine->run(&work->matmuls[work->next]);
		work->next = (work->next + 1) % work->n_matmuls;
	}
	return cli_now_s() - begin;
}

int baseline_work_run(struct baseline_work *work, double budget_s,
		      double samples_s[BASELINE_MAX_SAMPLES], double *spent_s)
{
	int runs, count = 0;

	if (!work->n_matmuls)
		return 0;
	run_copies(work, 1);
	runs = job_runs_a_sample(run_copies(work, 1));
	do {
		double s = run_copies(work, runs);

		*spent_s += s;
		samples_s[count++] = s / runs;
	} while (*spent_s < budget_s && count < BASELINE_MAX_SAMPLES);
	return count;
}
