/* SPDX-License-Identifier: Apache-2.0 */
/*
 * baseline_work.c - the process of a baseline: dequantises the operands of a shape,
 * hands them to the library one multiplication at a time, checks one row of the
 * results, and times calls.
 *
 * A group is its multiplications one after the other; a dual GEMM is two
 * multiplications without silu.  Weights are rotated through as many copies as
 * it takes to find them out of the caches.
 */
#include "baseline_work.h"

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "job.h"
#include "machine.h"

struct baseline_work {
	const struct baseline_engine *engine;
	const struct shape_list *list;
	struct data_options options;
	bool is_open;

	/* Of the shape that is prepared: copies * per_copy handles. */
	void **handles;
	int64_t n_handles, per_copy, next_copy;
	float *a, *b, *c; /* c: of all multiplications of one copy */
	size_t a_bytes, b_bytes, c_bytes;
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

static void release(struct baseline_work *work)
{
	for (int64_t i = 0; i < work->n_handles; i++)
		work->engine->remove(work->handles[i]);
	free(work->handles);
	work->handles = NULL;
	work->n_handles = work->per_copy = work->next_copy = 0;
	machine_free(work->a, work->a_bytes);
	machine_free(work->b, work->b_bytes);
	machine_free(work->c, work->c_bytes);
	work->a = work->b = work->c = NULL;
	nib_device_close(work->device);
	work->device = NULL;
}

/* -------------------------------------------------------------------------- */

/* One multiplication of the shape, as NVFP4 views of batch 1. */
struct part {
	struct nib_nvfp4 a, b;
};

/* Rows first .. first + rows of a view in the linear layout, or all of it. */
static struct nib_nvfp4 rows_of(const struct nib_nvfp4 *q, int64_t first,
				int64_t rows)
{
	int64_t row = q->row_stride_bytes ? q->row_stride_bytes : q->k / 2;
	int64_t scale_row = q->scale_row_stride_bytes
				? q->scale_row_stride_bytes
				: q->k / NIB_BLOCK;
	struct nib_nvfp4 part = *q;

	part.codes = (char *)q->codes + first * row;
	part.scales = (char *)q->scales + first * scale_row;
	part.rows = rows;
	part.batch = 1;
	return part;
}

static struct nib_nvfp4 batch_of(const struct nib_nvfp4 *q, int64_t i)
{
	int64_t row = q->row_stride_bytes ? q->row_stride_bytes : q->k / 2;
	int64_t codes =
	    q->batch_stride_bytes ? q->batch_stride_bytes : q->rows * row;
	int64_t scales =
	    q->scale_batch_stride_bytes
		? q->scale_batch_stride_bytes
		: (int64_t)nib_scales_bytes(q->scale_layout, q->rows, q->k);
	struct nib_nvfp4 part = *q;

	if (q->batch <= 1)
		i = 0;
	part.codes = (char *)q->codes + i * codes;
	part.scales = (char *)q->scales + i * scales;
	part.batch = 1;
	return part;
}

/* The i-th part of a call, dual ones counted twice; false past the end. */
static bool get_part(const struct data *data, int64_t i, struct part *part)
{
	int dual = data->op == NIB_DUAL_GEMM ? 2 : 1;
	int64_t second = i % dual;
	int64_t batch;

	i /= dual;
	if (data->is_moe) {
		const struct nib_moe_problem *moe = &data->moe_views;
		const int32_t *offsets = moe->row_offsets;

		if (i >= moe->b.batch)
			return false;
		part->a =
		    rows_of(&moe->a, offsets[i], offsets[i + 1] - offsets[i]);
		part->b = batch_of(second ? &moe->b2 : &moe->b, i);
		return true;
	}
	for (int64_t p = 0; p < data->count; p++) {
		const struct nib_problem *v = &data->views[p];

		batch = v->a.batch ? v->a.batch : 1;
		if (i < batch) {
			part->a = batch_of(&v->a, i);
			part->b = batch_of(second ? &v->b2 : &v->b, i);
			return true;
		}
		i -= batch;
	}
	return false;
}

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

static bool dequantize(struct baseline_work *work, const struct nib_nvfp4 *q,
		       float *to)
{
	const struct nib_dense dense = {
	    .data = to, .dtype = NIB_FP32, .rows = q->rows, .cols = q->k};

	return nib_dequantize(work->device, q, 1.0f, &dense, NULL, NULL) ==
	       NIB_OK;
}

/* Largest operands of the parts, and bytes of weights of them all. */
static double measure_parts(struct baseline_work *work, const struct data *data)
{
	struct part part;
	double weights = 0;

	work->a_bytes = work->b_bytes = work->c_bytes = 0;
	for (int64_t i = 0; get_part(data, i, &part); i++) {
		size_t a = (size_t)(part.a.rows * part.a.k) * sizeof(float);
		size_t b = (size_t)(part.b.rows * part.b.k) * sizeof(float);

		work->a_bytes = a > work->a_bytes ? a : work->a_bytes;
		work->b_bytes = b > work->b_bytes ? b : work->b_bytes;
		work->c_bytes +=
		    (size_t)(part.a.rows * part.b.rows) * sizeof(float);
		if (part.a.rows)
			weights += (double)(part.b.rows * part.b.k) *
				   work->engine->operand_bytes;
		work->n_handles += part.a.rows > 0;
	}
	return weights;
}

/* Adds all parts of data once more; checks the first result. */
static bool add_copy(struct baseline_work *work, const struct data *data,
		     char reason[BASELINE_REASON])
{
	struct baseline_matmul mm = {.a = work->a, .b = work->b, .c = work->c};
	struct part part;

	for (int64_t i = 0; get_part(data, i, &part); i++) {
		void *handle;

		if (part.a.rows == 0)
			continue;
		mm.m = part.a.rows;
		mm.n = part.b.rows;
		mm.k = part.a.k;
		if (!dequantize(work, &part.a, work->a) ||
		    !dequantize(work, &part.b, work->b)) {
			snprintf(reason, BASELINE_REASON, "cannot dequantise");
			return false;
		}
		handle = work->engine->add(&mm, reason);
		if (!handle)
			return false;
		work->handles[work->n_handles++] = handle;
		if (work->n_handles == 1) {
			work->engine->run(handle);
			if (!check(&mm, reason))
				return false;
		}
		mm.c += mm.m * mm.n;
	}
	return true;
}

static bool make_operands(struct baseline_work *work, const struct data *data,
			  char reason[BASELINE_REASON])
{
	double weights = measure_parts(work, data);
	int64_t copies = job_copies(weights, (double)machine_cache_bytes());
	double need = (double)copies * weights + (double)work->a_bytes +
		      (double)work->b_bytes + (double)work->c_bytes;

	work->per_copy = work->n_handles;
	work->n_handles = 0;
	if (need > 0.8 * (double)machine_free_bytes()) {
		snprintf(reason, BASELINE_REASON, "needs %.1f GiB of memory",
			 need / (1 << 30));
		return false;
	}
	work->handles =
	    calloc((size_t)(copies * work->per_copy) + 1, sizeof(void *));
	work->a = machine_alloc(work->a_bytes);
	work->b = machine_alloc(work->b_bytes);
	work->c = machine_alloc(work->c_bytes);
	if (!work->handles || !work->a || !work->b || !work->c) {
		snprintf(reason, BASELINE_REASON, "out of memory");
		return false;
	}
	for (int64_t i = 0; i < copies; i++) {
		if (!add_copy(work, data, reason))
			return false;
	}
	machine_free(work->b, work->b_bytes);
	work->b = NULL;
	return true;
}

static bool prepare(struct baseline_work *work,
		    const struct baseline_request *request,
		    char reason[BASELINE_REASON])
{
	const struct nib_device_options device = {.struct_bytes = sizeof device,
						  .threads = request->threads};
	struct nib_error err = {0};
	struct data *data = NULL;
	bool done = false;

	if (!work->is_open && !work->engine->open(reason))
		return false;
	work->is_open = true;
	work->engine->set_threads(request->threads);
	if (nib_device_open("cpu", &device, &work->device, &err) != NIB_OK ||
	    data_new(&work->list->shapes[request->shape], &work->options, NULL,
		     &data, &err) != NIB_OK)
		snprintf(reason, BASELINE_REASON, "%.150s", err.message);
	else
		done = make_operands(work, data, reason);
	data_free(data);
	if (!done)
		release(work);
	return done;
}

/* -------------------------------------------------------------------------- */

static void run_copy(struct baseline_work *work)
{
	int64_t first = work->next_copy * work->per_copy;

	for (int64_t i = 0; i < work->per_copy; i++)
		work->engine->run(work->handles[first + i]);
	if (++work->next_copy * work->per_copy >= work->n_handles)
		work->next_copy = 0;
}

static void turn(struct baseline_work *work,
		 const struct baseline_request *request,
		 struct baseline_reply *reply)
{
	double begin, s;
	int runs;

	run_copy(work);
	begin = bench_now_s();
	run_copy(work);
	runs = job_runs_a_sample(bench_now_s() - begin);
	do {
		begin = bench_now_s();
		for (int i = 0; i < runs; i++)
			run_copy(work);
		s = bench_now_s() - begin;
		reply->spent_s += s;
		reply->samples_s[reply->count++] = s / runs;
	} while (reply->spent_s < request->budget_s &&
		 reply->count < request->max_samples &&
		 reply->count < BASELINE_MAX_SAMPLES);
}

void baseline_work_answer(struct baseline_work *work,
			  const struct baseline_request *request,
			  struct baseline_reply *reply)
{
	switch (request->verb) {
	case BASELINE_PREPARE:
		release(work);
		reply->ok = prepare(work, request, reply->reason);
		break;
	case BASELINE_TURN:
		reply->ok = work->n_handles > 0;
		if (reply->ok)
			turn(work, request, reply);
		break;
	case BASELINE_RELEASE:
		release(work);
		reply->ok = true;
		break;
	}
}
