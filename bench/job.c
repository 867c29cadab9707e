/* SPDX-License-Identifier: Apache-2.0 */
/* job.c - a shape on one backend of nibblas, ready to be run again and again. */
#include "job.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device.h"
#include "machine.h"
#include "text.h"
#include "tuning.h"

/* Enough for products of 5 MB where the caches hold 300 MB. */
#define MAX_COPIES     256
#define MAX_GPU_COPIES 64

/* Least length of a sample; and of one that ends with waiting for a GPU. */
#define SAMPLE_S     20e-6
#define GPU_SAMPLE_S 2e-3

/* Runs of a sample without waiting: a GPU's queue must not fill up. */
#define QUEUED_RUNS 16

struct copy {
	struct data *data;
	struct nib_plan *plan; /* NULL when the operation has none */
};

struct job {
	enum shape_op op;
	enum job_timed timed;
	struct nib_device *device;
	bool is_host;
	struct job_info info;
	struct copy *copies;
	int64_t next;
	void *workspace; /* one for all plans: it stays as warm as in use */
	size_t workspace_bytes;
	char *read; /* info.copies times info.bytes_read of a GPU, or NULL */
	char explanation[512];
};

const struct job_info *job_info(const struct job *job)
{
	return &job->info;
}

static int64_t copies_of(double bytes, double cache_bytes, int most)
{
	double copies = bytes > 0 ? ceil(4 * cache_bytes / bytes) : 1;

	return (int64_t)fmin(fmax(copies, 1), most);
}

int64_t job_copies(double bytes, double cache_bytes)
{
	return copies_of(bytes, cache_bytes, MAX_COPIES);
}

int job_runs_a_sample(double run_s)
{
	return run_s < SAMPLE_S ? (int)(SAMPLE_S / (run_s + 1e-9)) + 1 : 1;
}

/* A GPU's samples also hide what waiting costs. */
static int runs_a_sample(const struct job *job, double run_s)
{
	if (job->timed == JOB_QUEUE)
		return QUEUED_RUNS;
	if (job->is_host)
		return job_runs_a_sample(run_s);
	return run_s < GPU_SAMPLE_S ? (int)(GPU_SAMPLE_S / (run_s + 1e-7)) + 1 : 1;
}

void job_free(struct job *job)
{
	if (!job)
		return;
	for (int64_t i = 0; job->copies && i < job->info.copies; i++) {
		nib_plan_free(job->copies[i].plan);
		data_free(job->copies[i].data);
	}
	free(job->copies);
	nib_device_free(job->device, job->workspace);
	nib_device_free(job->device, job->read);
	nib_device_close(job->device);
	free(job);
}

/* ---- making -------------------------------------------------------------- */

static bool has_plan(const struct job *job)
{
	return job->op < OP_QUANTIZE && !job->read;
}

static enum nib_status create_plan(struct job *job, const struct data *data,
				   struct nib_plan **plan, struct nib_error *err)
{
	const struct nib_plan_options options = {
	    .struct_bytes = sizeof options,
	    .caller_workspace = 1,
	};

	return data_plan(job->device, data, &options, plan, err);
}

static double scales_bytes(const struct nib_fp4 *q)
{
	return (double)nib_scales_bytes(q->scale_layout, q->rows, q->k) *
	       (double)(q->batch ? q->batch : 1);
}

/* FLOP and bytes of one run. */
static void count_work(struct job *job, const struct shape *shape,
		       const struct job_options *options, const struct data *data)
{
	double values = (double)shape->sizes[0].m * (double)shape->sizes[0].k *
			(double)shape->batch;
	double dense = values * (double)nib_dtype_bytes(options->data.dtype);
	double q = values / 2 + scales_bytes(&data->q);
	const struct shape_widths widths = {
	    .a = cli_activations_bytes(options->data.activations),
	    .b = cli_activations_bytes(ACT_NVFP4),
	    .c = (double)nib_dtype_bytes(options->data.out),
	};
	double *read = &job->info.bytes_read;
	double *written = &job->info.bytes_written;

	job->info.flop = shape_flop(shape);
	switch (job->op) {
	case OP_QUANTIZE:
		*read = dense;
		*written = q;
		break;
	case OP_DEQUANTIZE:
		*read = q;
		*written = dense;
		break;
	case OP_CONVERT:
		*read = scales_bytes(&data->q);
		*written = scales_bytes(&data->to);
		break;
	default:
		shape_bytes(shape, widths, read, written);
	}
}

/* Writes the outputs, so that no timed run meets a page for the first time. */
static enum nib_status touch_outputs(const struct job *job, struct data *data,
				     struct nib_error *err)
{
	if (data->to.scales && job->is_host)
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
	struct copy *copy = &job->copies[job->info.copies];
	enum nib_status status;

	data_options.seed += (uint64_t)i;
	status = data_new(shape, &data_options, job->device, &copy->data, err);
	if (status)
		return status;
	job->info.copies++;
	status = touch_outputs(job, copy->data, err);
	if (!status && has_plan(job))
		status = create_plan(job, copy->data, &copy->plan, err);
	if (!status && copy->plan)
		status = nib_plan_get_info(copy->plan, &info, err);
	if (status || i > 0)
		return status;
	count_work(job, shape, options, copy->data);
	job->workspace_bytes = info.workspace_bytes;
	job->info.k_slices = info.k_slices;
	snprintf(job->explanation, sizeof job->explanation, "%s",
		 info.explanation ? info.explanation : "");
	return NIB_STATUS_OK;
}

/* A job without operands; on failure the caller frees it. */
static enum nib_status open_job(const struct job_options *options, struct job **out,
				struct nib_error *err)
{
	const struct nib_device_options device = {
	    .struct_bytes = sizeof device,
	    .threads = options->threads,
	    .isa = options->isa,
	};
	const char *name = options->device ? options->device : "cpu";
	struct job *job = *out = calloc(1, sizeof *job);
	enum nib_status status;

	if (!job) {
		(void)machine_no_memory("a job", err);
		return NIB_STATUS_OUT_OF_MEMORY;
	}
	job->timed = options->timed;
	status = nib_device_open(name, &device, &job->device, err);
	if (status)
		return status;
	job->is_host = cli_is_host(job->device);
	job->info.backend = cli_backend(job->device);
	job->info.explanation = job->explanation;
	tuning_load(job->device, NULL);
	return options->costs ? nib_device_set_costs(job->device, options->costs, err)
			      : NIB_STATUS_OK;
}

static enum nib_status finish(enum nib_status status, struct job **job)
{
	if (status) {
		job_free(*job);
		*job = NULL;
	}
	return status;
}

static double cache_bytes(const struct job *job)
{
	struct nib_device_info info = {.struct_bytes = sizeof info};

	if (job->is_host || nib_device_get_info(job->device, &info, NULL))
		return (double)machine_cache_bytes();
	return (double)info.l2_bytes;
}

static enum nib_status make_copies(struct job *job, const struct shape *shape,
				   const struct job_options *options,
				   struct nib_error *err)
{
	enum nib_status status = NIB_STATUS_OK;
	int64_t copies = options->copies > 1 ? options->copies : 1;

	job->op = shape->op;
	job->copies = calloc(MAX_COPIES, sizeof *job->copies);
	if (!job->copies)
		return machine_no_memory("the list of copies", err);
	for (int64_t i = 0; i < copies && !status; i++) {
		status = add_copy(job, shape, options, i, err);
		if (i == 0 && job->timed == JOB_RUN && !options->copies)
			copies =
			    copies_of(job->info.bytes_read + job->info.bytes_written,
				      cache_bytes(job),
				      job->is_host ? MAX_COPIES : MAX_GPU_COPIES);
	}
	if (status)
		return status;
	return nib_device_alloc(job->device, job->workspace_bytes, &job->workspace,
				err);
}

enum nib_status job_new(const struct shape *shape, const struct job_options *options,
			struct job **job, struct nib_error *err)
{
	enum nib_status status = open_job(options, job, err);

	if (!status)
		status = make_copies(*job, shape, options, err);
	return finish(status, job);
}

enum nib_status job_new_read(const char *device, double bytes, struct job **job,
			     struct nib_error *err)
{
	const struct job_options options = {.device = device, .threads = 1};
	enum nib_status status = open_job(&options, job, err);
	struct job_info *info;
	void *memory = NULL;

	if (status)
		return finish(status, job);
	info = &(*job)->info;
	/* Whole lines of memory. */
	info->bytes_read = ceil(bytes / 256) * 256;
	info->copies = copies_of(info->bytes_read, cache_bytes(*job), MAX_GPU_COPIES);
	status = nib_device_alloc((*job)->device,
				  (size_t)info->bytes_read * (size_t)info->copies,
				  &memory, err);
	(*job)->read = memory;
	return finish(status, job);
}

/* ---- running ------------------------------------------------------------- */

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

static enum nib_status run_copy(struct job *job, const struct copy *copy,
				struct nib_error *err)
{
	struct data *data = copy->data;
	struct nib_plan *plan = NULL;
	enum nib_status status;
	/* A global scale that is given: one pass over x, no search for amax. */
	const struct nib_quantize_options quantize = {
	    .struct_bytes = sizeof quantize,
	    .global = data->global,
	    /* On a GPU the call then waits for nothing. */
	    .saturate = !job->is_host,
	};

	if (job->timed == JOB_PLAN) {
		status = create_plan(job, data, &plan, err);
		nib_plan_free(plan);
		return status;
	}
	switch (job->op) {
	case OP_QUANTIZE:
		return nib_quantize(job->device, &data->x, &data->q, &quantize, NULL,
				    err);
	case OP_DEQUANTIZE:
		return nib_dequantize(job->device, &data->q, data->global, &data->x,
				      NULL, err);
	case OP_CONVERT:
		return nib_convert_scales(job->device, &data->q, &data->to, NULL, err);
	default:
		return run_plan(job, copy, err);
	}
}

/* One run, on the next copy; on a GPU it is only enqueued. */
static enum nib_status run(struct job *job, struct nib_error *err)
{
	const int64_t bytes = (int64_t)job->info.bytes_read, i = job->next;

	job->next = (i + 1) % job->info.copies;
	if (job->read)
		return nib_device_probe(job->device, NIB_PROBE_READ,
					job->read + i * bytes, bytes, NULL, NULL, err);
	return run_copy(job, &job->copies[i], err);
}

enum nib_status job_sample(struct job *job, int runs, double *seconds,
			   struct nib_error *err)
{
	const bool waits = job->timed != JOB_QUEUE;
	enum nib_status status = NIB_STATUS_OK;
	double begin = cli_now_s();

	for (int i = 0; i < runs && !status; i++)
		status = run(job, err);
	if (!status && waits)
		status = nib_device_wait(job->device, NULL, err);
	*seconds = cli_now_s() - begin;
	if (!status && !waits)
		status = nib_device_wait(job->device, NULL, err);
	return status;
}

enum nib_status job_warm_up(struct job *job, int *runs, struct nib_error *err)
{
	enum nib_status status = NIB_STATUS_OK;
	double begin = 0;

	/* The first run of a round is slow; the second says how long one is. */
	for (int i = 0; i < 2 && !status; i++) {
		begin = cli_now_s();
		status = run(job, err);
		if (!status)
			status = nib_device_wait(job->device, NULL, err);
	}
	*runs = runs_a_sample(job, cli_now_s() - begin);
	return status;
}

enum nib_status job_check(struct job *job, int64_t sample_rows, uint64_t seed,
			  struct nib_check_result *result, struct nib_error *err)
{
	const struct nib_check_options options = {
	    .struct_bytes = sizeof options,
	    .sample_rows = sample_rows,
	    .seed = seed,
	    .arithmetic = cli_arithmetic(job->device),
	};
	const struct copy *copy = &job->copies[0];
	enum nib_status status;

	*result = (struct nib_check_result){.struct_bytes = sizeof *result};
	if (!has_plan(job) || job->timed != JOB_RUN)
		return NIB_STATUS_OK;
	status = data_poison(copy->data, err);
	if (!status)
		status = run_plan(job, copy, err);
	if (!status)
		status = data_fetch(copy->data, err);
	return status ? status : data_check(copy->data, &options, result, err);
}
