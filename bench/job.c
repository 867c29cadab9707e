/* SPDX-License-Identifier: Apache-2.0 */
/* job.c - a shape on one backend of nibblas, ready to be run again and again. */
#include "job.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "machine.h"

#define MAX_COPIES 64

/* Least length of a sample; and of one that ends with waiting for a GPU. */
#define SAMPLE_S     20e-6
#define GPU_SAMPLE_S 2e-3

/* Runs of a sample that waits for none: a GPU's queue must not fill up. */
#define QUEUED_RUNS 16

struct copy {
	struct data *data;
	struct nib_plan *plan; /* NULL when the operation has none */
};

struct job {
	enum shape_op op;
	enum job_timed timed;
	struct nib_device *device;
	struct nib_device_info info;
	struct copy *copies;
	int64_t n_copies, next;
	void *workspace; /* one for all plans: it stays as warm as in use */
	size_t workspace_bytes;
	double flop, bytes_read, bytes_written;
	char *read; /* n_copies times bytes_read of the GPU, or NULL */
	char explanation[512];
};

int64_t job_copies(double bytes, double cache_bytes)
{
	double want = 4 * cache_bytes;
	int64_t copies;

	if (bytes <= 0)
		return 1;
	if (want / bytes >= MAX_COPIES)
		return MAX_COPIES;
	copies = (int64_t)(want / bytes);
	return (double)copies * bytes < want ? copies + 1 : copies;
}

int job_runs_a_sample(double run_s)
{
	return run_s < SAMPLE_S ? (int)(SAMPLE_S / (run_s + 1e-9)) + 1 : 1;
}

bool job_is_host(const struct job *job)
{
	return strcmp(job->info.name, "cpu") == 0;
}

bool job_sample_waits(const struct job *job)
{
	return job->timed != JOB_QUEUE;
}

int job_runs(const struct job *job, double run_s)
{
	if (!job_sample_waits(job))
		return QUEUED_RUNS;
	if (job_is_host(job))
		return job_runs_a_sample(run_s);
	return run_s < GPU_SAMPLE_S ? (int)(GPU_SAMPLE_S / (run_s + 1e-7)) + 1
				    : 1;
}

void job_free(struct job *job)
{
	if (!job)
		return;
	for (int64_t i = 0; job->copies && i < job->n_copies; i++) {
		nib_plan_free(job->copies[i].plan);
		data_free(job->copies[i].data);
	}
	free(job->copies);
	nib_device_free(job->device, job->workspace);
	nib_device_free(job->device, job->read);
	nib_device_close(job->device);
	free(job);
}

static bool has_plan(const struct job *job)
{
	return job->op < OP_QUANTIZE && !job->read;
}

static enum nib_status create_plan(struct job *job, const struct data *data,
				   struct nib_plan **plan,
				   struct nib_error *err)
{
	const struct nib_plan_options options = {
	    .struct_bytes = sizeof options,
	    .caller_workspace = 1,
	};

	if (data->is_moe)
		return nib_plan_create_moe(job->device, data->op, &data->moe,
					   &options, plan, err);
	return nib_plan_create(job->device, data->op, data->problems,
			       data->count, &options, plan, err);
}

static double codes_bytes(const struct nib_nvfp4 *q)
{
	return (double)q->rows * (double)q->k / 2 *
	       (double)(q->batch ? q->batch : 1);
}

static double scales_bytes(const struct nib_nvfp4 *q)
{
	return (double)nib_scales_bytes(q->scale_layout, q->rows, q->k) *
	       (double)(q->batch ? q->batch : 1);
}

/* Operands and results of a multiplication, each once; experts in use only. */
static void count_multiply(struct job *job, const struct shape *shape,
			   const struct data *data, enum nib_dtype out)
{
	double matrices = data->op == NIB_DUAL_GEMM ? 2 : 1;
	double batch = (double)(shape->batch ? shape->batch : 1);
	double value = 0.5 + 1.0 / NIB_BLOCK;

	job->flop = shape_flop(shape);
	for (int64_t i = 0; i < shape->count; i++) {
		double m = (double)shape->sizes[i].m;
		double n = (double)shape->sizes[i].n;
		double k = (double)shape->sizes[i].k;

		if (m <= 0)
			continue;
		job->bytes_read += batch * (m + matrices * n) * k * value;
		job->bytes_written +=
		    batch * m * n * (double)nib_dtype_bytes(out);
	}
}

/* Bytes and FLOP of one run, from its first copy. */
static void count_work(struct job *job, const struct shape *shape,
		       const struct data *data, enum nib_dtype out)
{
	double dense = (double)data->x.rows * (double)data->x.cols *
		       (double)(data->x.batch ? data->x.batch : 1) *
		       (double)nib_dtype_bytes(data->x.dtype);
	double q = codes_bytes(&data->q) + scales_bytes(&data->q);

	switch (job->op) {
	case OP_QUANTIZE:
		job->bytes_read = dense;
		job->bytes_written = q;
		break;
	case OP_DEQUANTIZE:
		job->bytes_read = q;
		job->bytes_written = dense;
		break;
	case OP_CONVERT:
		job->bytes_read = scales_bytes(&data->q);
		job->bytes_written = scales_bytes(&data->to);
		break;
	default:
		count_multiply(job, shape, data, out);
	}
}

static enum nib_status no_memory(const char *what, struct nib_error *err)
{
	err->status = NIB_OUT_OF_MEMORY;
	snprintf(err->message, sizeof(err->message), "no memory for %s", what);
	return NIB_OUT_OF_MEMORY;
}

/* So that no timed run meets a page for the first time. */
static enum nib_status touch_outputs(const struct job *job, struct data *data,
				     struct nib_error *err)
{
	if (data->to.scales && job_is_host(job))
		memset(data->to.scales, 0, (size_t)scales_bytes(&data->to));
	return data_poison(data, err);
}

/* Operands and plan number i; the first one says how many there will be. */
static enum nib_status add_copy(struct job *job, const struct shape *shape,
				const struct job_options *options, int64_t i,
				struct nib_error *err)
{
	struct nib_plan_info info = {.struct_bytes = sizeof info};
	struct data_options data_options = options->data;
	struct copy *copy = &job->copies[job->n_copies];
	enum nib_status status;

	data_options.seed += (uint64_t)i;
	status = data_new(shape, &data_options, job->device, &copy->data, err);
	if (status)
		return status;
	job->n_copies++;
	status = touch_outputs(job, copy->data, err);
	if (status)
		return status;
	if (has_plan(job)) {
		status = create_plan(job, copy->data, &copy->plan, err);
		if (!status)
			status = nib_plan_get_info(copy->plan, &info, err);
		if (status)
			return status;
	}
	if (i > 0)
		return NIB_OK;
	count_work(job, shape, copy->data, data_options.out);
	job->workspace_bytes = info.workspace_bytes;
	snprintf(job->explanation, sizeof job->explanation, "%s",
		 info.explanation ? info.explanation : "");
	return NIB_OK;
}

static enum nib_status open_device(struct job *job, const char *name,
				   int threads, const char *isa,
				   struct nib_error *err)
{
	const struct nib_device_options device = {
	    .struct_bytes = sizeof device,
	    .threads = threads,
	    .isa = isa,
	};
	enum nib_status status;

	status =
	    nib_device_open(name ? name : "cpu", &device, &job->device, err);
	if (status)
		return status;
	job->info.struct_bytes = sizeof job->info;
	return nib_device_get_info(job->device, &job->info, err);
}

static double cache_bytes(const struct job *job)
{
	return (double)(job_is_host(job) ? machine_cache_bytes()
					 : job->info.l2_bytes);
}

static enum nib_status make(struct job *job, const struct shape *shape,
			    const struct job_options *options,
			    struct nib_error *err)
{
	enum nib_status status = open_device(
	    job, options->device, options->threads, options->isa, err);
	int64_t copies = 1;

	if (status)
		return status;
	if (options->costs)
		status = nib_device_set_costs(job->device, options->costs, err);
	if (status)
		return status;
	job->copies = calloc(MAX_COPIES, sizeof *job->copies);
	if (!job->copies)
		return no_memory("the list of copies", err);
	for (int64_t i = 0; i < copies; i++) {
		status = add_copy(job, shape, options, i, err);
		if (status)
			return status;
		if (i == 0 && job->timed == JOB_RUN && !options->warm)
			copies =
			    job_copies(job->bytes_read + job->bytes_written,
				       cache_bytes(job));
	}
	return nib_device_alloc(job->device, job->workspace_bytes,
				&job->workspace, err);
}

enum nib_status job_new(const struct shape *shape,
			const struct job_options *options, struct job **out,
			struct nib_error *err)
{
	struct job *job = calloc(1, sizeof *job);
	enum nib_status status;

	*out = NULL;
	if (!job)
		return no_memory("a job", err);
	job->op = shape->op;
	job->timed = options->timed;
	status = make(job, shape, options, err);
	if (status)
		job_free(job);
	else
		*out = job;
	return status;
}

enum nib_status job_new_read(const char *device, double bytes, struct job **out,
			     struct nib_error *err)
{
	struct job *job = calloc(1, sizeof *job);
	enum nib_status status;
	void *memory = NULL;

	*out = NULL;
	if (!job)
		return no_memory("a job", err);
	status = open_device(job, device, 1, NULL, err);
	if (!status) {
		/* Whole lines of memory. */
		job->bytes_read = ceil(bytes / 256) * 256;
		job->n_copies = job_copies(job->bytes_read, cache_bytes(job));
		status = nib_device_alloc(job->device,
					  (size_t)job->bytes_read *
					      (size_t)job->n_copies,
					  &memory, err);
		job->read = memory;
	}
	if (status)
		job_free(job);
	else
		*out = job;
	return status;
}

static enum nib_status run_plan(struct job *job, const struct copy *copy,
				struct nib_error *err)
{
	const struct nib_run_options options = {
	    .struct_bytes = sizeof options,
	    .workspace = job->workspace,
	    .workspace_bytes = job->workspace_bytes,
	};

	return data_run(copy->plan, copy->data, &options, err);
}

static enum nib_status make_plan(struct job *job, const struct copy *copy,
				 struct nib_error *err)
{
	struct nib_plan *plan = NULL;
	enum nib_status status = create_plan(job, copy->data, &plan, err);

	nib_plan_free(plan);
	return status;
}

/* The next part of the memory. */
static enum nib_status run_read(struct job *job, struct nib_error *err)
{
	const int64_t bytes = (int64_t)job->bytes_read;
	const char *part = job->read + job->next * bytes;

	job->next = (job->next + 1) % job->n_copies;
	return nib_device_probe(job->device, NIB_PROBE_READ, part, bytes, NULL,
				NULL, err);
}

static enum nib_status run_copy(struct job *job, struct nib_error *err)
{
	const struct copy *copy = &job->copies[job->next];
	struct data *data = copy->data;
	/* A global scale that is given: one pass over x, no search for amax. */
	const struct nib_quantize_options quantize = {
	    .struct_bytes = sizeof quantize,
	    .global = data->global,
	    /* On a GPU the call then waits for nothing. */
	    .saturate = !job_is_host(job),
	};

	job->next = (job->next + 1) % job->n_copies;
	if (job->timed == JOB_PLAN)
		return make_plan(job, copy, err);
	switch (job->op) {
	case OP_QUANTIZE:
		return nib_quantize(job->device, &data->x, &data->q, &quantize,
				    NULL, err);
	case OP_DEQUANTIZE:
		return nib_dequantize(job->device, &data->q, data->global,
				      &data->x, NULL, err);
	case OP_CONVERT:
		return nib_convert_scales(job->device, &data->q, &data->to,
					  NULL, err);
	default:
		return run_plan(job, copy, err);
	}
}

enum nib_status job_run(struct job *job, struct nib_error *err)
{
	return job->read ? run_read(job, err) : run_copy(job, err);
}

enum nib_status job_wait(struct job *job, struct nib_error *err)
{
	return nib_device_wait(job->device, NULL, err);
}

enum nib_status job_check(struct job *job, int64_t sample_rows, uint64_t seed,
			  struct nib_check_result *result,
			  struct nib_error *err)
{
	const struct nib_check_options options = {
	    .struct_bytes = sizeof options,
	    .sample_rows = sample_rows,
	    .seed = seed,
	    .arithmetic = job->info.arithmetic,
	};
	const struct copy *copy = &job->copies[0];
	struct data *data = copy->data;
	enum nib_status status;

	*result = (struct nib_check_result){.struct_bytes = sizeof *result};
	if (!has_plan(job) || job->timed != JOB_RUN)
		return NIB_OK;
	status = data_poison(data, err);
	if (!status)
		status = run_plan(job, copy, err);
	if (!status)
		status = data_fetch(data, err);
	if (status)
		return status;
	if (data->is_moe)
		return nib_check_moe(data->op, &data->moe_views, &options,
				     result, err);
	return nib_check(data->op, data->views, data->count, &options, result,
			 err);
}

const char *job_backend(const struct job *job)
{
	return job->info.backend;
}

double job_flop(const struct job *job)
{
	return job->flop;
}

double job_bytes_read(const struct job *job)
{
	return job->bytes_read;
}

double job_bytes_written(const struct job *job)
{
	return job->bytes_written;
}

int64_t job_copies_held(const struct job *job)
{
	return job->n_copies;
}

enum peak_kind job_peak(const struct job *job)
{
	if (!job_is_host(job))
		return PEAK_GPU_MULTIPLY;
	if (!strcmp(job->info.backend, "cpu-avx512"))
		return PEAK_DOT8_AVX512;
	if (!strcmp(job->info.backend, "cpu-avx512bw"))
		return PEAK_MADD8_AVX512;
	if (!strcmp(job->info.backend, "cpu-avx2"))
		return PEAK_MADD8_AVX2;
	return PEAK_PMADDWD;
}

enum peak_kind job_read_peak(const struct job *job)
{
	return job_is_host(job) ? PEAK_READ : PEAK_GPU_READ;
}

const char *job_explanation(const struct job *job)
{
	return job->explanation;
}
