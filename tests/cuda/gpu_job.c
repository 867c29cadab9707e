/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_job.c - see gpu_job.h. */
#include "gpu_job.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Products that the oracle adds up for one matrix: it is slow. */
#define ORACLE_PRODUCTS 4000000

const char *gpu_kind_name(enum gpu_kind kind)
{
	static const char *const names[] = {
	    "gemm",
	    "split gemm",
	    "group",
	    "dual",
	    "dual group",
	    "moe",
	    "dual moe",
	    "gemv",
	    "few rows",
	    "quantise",
	    "quantise, amax found",
	};

	return names[kind];
}

static bool is_moe(const struct gpu_job *job)
{
	return job->kind == GPU_MOE || job->kind == GPU_DUAL_MOE;
}

static bool is_quantize(const struct gpu_job *job)
{
	return job->kind >= GPU_QUANTIZE;
}

static enum nib_op op_of(enum gpu_kind kind)
{
	return kind == GPU_DUAL || kind == GPU_DUAL_GROUP || kind == GPU_DUAL_MOE
		   ? NIB_OP_DUAL_GEMM
	       : kind == GPU_GEMV ? NIB_OP_GEMV
				  : NIB_OP_GEMM;
}

/* ---- sizes --------------------------------------------------------------- */

/* All of c is written; a NaN would hide what its row's bits are. */
static void add_item(struct gpu_job *job, int64_t m, int64_t n, int64_t k,
		     int64_t batch)
{
	struct gpu_item x = gpu_any_item(op_of(job->kind), m, n, k, batch, batch);

	x.c.gap = 0;
	x.packed = x.no_alpha = false;
	x.nan_row = x.nan_col = -1;
	/* A group whose results have one type is one launch. */
	x.c.dtype = job->count ? job->items[0].c.dtype : x.c.dtype;
	job->items[job->count++] = x;
}

static void choose_values(struct gpu_job *job, int64_t rows, int64_t k)
{
	job->x = (struct gpu_sizes){
	    rows, k, 1, 8, gpu_any_layout(), (enum nib_dtype)gpu_rnd_below(3), false};
}

static void choose_moe(struct gpu_job *job, int64_t experts, int64_t most, int64_t n,
		       int64_t k)
{
	job->moe = gpu_any_moe(op_of(job->kind), experts, most, 3, n, k);
	job->moe.packed = false;
	job->moe.has_scale_rows = job->kind == GPU_DUAL_MOE;
}

/* Work for each of 132 SMs, and edges; few columns where the GPU is slow. */
static void choose_sizes(struct gpu_job *job)
{
	const bool few = gpu_is_small();

	switch (job->kind) {
	case GPU_GEMM:
		add_item(job, 300, few ? 500 : 4000, few ? 528 : 1040, 1);
		break;
	case GPU_SPLIT_GEMM:
		add_item(job, 65, few ? 130 : 1000, 7168, 1);
		break;
	case GPU_GROUP:
	case GPU_DUAL_GROUP:
		add_item(job, 248, few ? 150 : 1500, few ? 528 : 1040, 1);
		add_item(job, 0, 300, 512, 1);
		add_item(job, 77, few ? 250 : 1000, few ? 1040 : 2064, 1);
		add_item(job, 1, 129, 272, 1);
		add_item(job, 65, few ? 100 : 1000, 528, 3);
		break;
	case GPU_DUAL:
		add_item(job, 257, few ? 300 : 3000, few ? 528 : 1040, 1);
		break;
	case GPU_MOE:
	case GPU_DUAL_MOE:
		choose_moe(job, few ? 12 : 40, few ? 100 : 150, few ? 130 : 520,
			   few ? 528 : 1040);
		break;
	case GPU_GEMV:
		add_item(job, 1, few ? 700 : 7168, 2048, 2);
		break;
	case GPU_FEW_ROWS:
		add_item(job, 3, few ? 500 : 4096, 2064, 1);
		break;
	default:
		choose_values(job, few ? 117 : 517, few ? 1024 : 4096);
	}
}

/* ---- memory -------------------------------------------------------------- */

static void fill_dense(struct gpu_job *job)
{
	const float global = (float)(1 + gpu_rnd_below(1000)) * 1e-4f;

	gpu_fill_dense(&job->x, gpu_host_of(&job->x_data), false);
	gpu_upload(&job->x_data);
	memcpy(gpu_host_of(&job->global), &global, sizeof(global));
	gpu_upload(&job->global);
}

static void take_memory(struct gpu_job *job, const struct gpu_job *like)
{
	for (int i = 0; i < job->count; i++) {
		job->memory[i] = gpu_memory_new(&job->items[i]);
		job->bytes += job->memory[i].c.bytes;
	}
	if (is_moe(job)) {
		job->moe_memory = like ? gpu_moe_new_like(&job->moe, &like->moe_memory)
				       : gpu_moe_new(&job->moe);
		job->bytes = job->moe_memory.base.c.bytes;
	}
	if (is_quantize(job)) {
		gpu_operand_new(&job->x, job->q);
		job->x_data = gpu_twin_new(gpu_dense_bytes(&job->x));
		job->global = gpu_twin_new(sizeof(float));
		fill_dense(job);
		job->bytes = job->q[0].bytes + job->q[1].bytes;
	}
}

void gpu_job_problems(const struct gpu_job *job, struct nib_problem *problems)
{
	for (int i = 0; i < job->count; i++)
		problems[i] =
		    gpu_problem(&job->items[i], &job->memory[i], gpu_device_of);
}

static struct nib_moe_problem moe_of(const struct gpu_job *job)
{
	return gpu_moe_problem(&job->moe, &job->moe_memory, gpu_device_of);
}

static void make_plan(struct gpu_job *job)
{
	const struct nib_plan_options options = {.struct_bytes = sizeof(options),
						 .caller_workspace = 1};
	struct nib_problem problems[GPU_JOB_ITEMS];

	gpu_job_problems(job, problems);
	if (is_moe(job)) {
		const struct nib_moe_problem moe = moe_of(job);

		gpu_must(nib_moe_plan_create(job->gpu, op_of(job->kind), &moe, &options,
					     &job->plan, &gpu_test.err),
			 "plan");
	} else {
		gpu_must(nib_plan_create(job->gpu, op_of(job->kind), problems,
					 job->count, &options, &job->plan,
					 &gpu_test.err),
			 "plan");
	}
}

static void take_workspace(struct gpu_job *job)
{
	struct nib_plan_info info = {.struct_bytes = sizeof(info)};

	gpu_must(nib_plan_get_info(job->plan, &info, &gpu_test.err), "plan");
	job->explanation = info.explanation;
	job->k_slices = info.k_slices;
	job->workspace = gpu_twin_new(info.workspace_bytes);
}

static struct gpu_job *job_new(const struct gpu_job *like, enum gpu_kind kind)
{
	struct gpu_job *job = gpu_take(sizeof(*job));

	job->kind = kind;
	job->gpu = gpu_test.gpu;
	job->explanation = "";
	if (like) {
		memcpy(job->items, like->items, sizeof(job->items));
		job->count = like->count;
		job->moe = like->moe;
		job->x = like->x;
	} else {
		choose_sizes(job);
	}
	take_memory(job, like);
	if (is_quantize(job))
		return job;
	if (like)
		job->plan = like->plan;
	else
		make_plan(job);
	job->owns_plan = !like;
	take_workspace(job);
	return job;
}

struct gpu_job *gpu_job_new(enum gpu_kind kind)
{
	return job_new(NULL, kind);
}

struct gpu_job *gpu_job_new_like(const struct gpu_job *like)
{
	return job_new(like, like->kind);
}

void gpu_job_free(struct gpu_job *job)
{
	for (int i = 0; i < job->count; i++)
		gpu_memory_free(&job->memory[i]);
	if (is_moe(job))
		gpu_moe_free(&job->moe_memory);
	if (is_quantize(job)) {
		gpu_twin_free(&job->q[0]);
		gpu_twin_free(&job->q[1]);
		gpu_twin_free(&job->x_data);
		gpu_twin_free(&job->global);
	} else {
		gpu_twin_free(&job->workspace);
		nib_plan_free(job->owns_plan ? job->plan : NULL);
	}
	free(job);
}

/* ---- contents ------------------------------------------------------------ */

void gpu_job_fill(struct gpu_job *job)
{
	for (int i = 0; i < job->count; i++)
		gpu_memory_fill(&job->items[i], &job->memory[i]);
	if (is_moe(job))
		gpu_moe_fill(&job->moe, &job->moe_memory);
	if (is_quantize(job))
		fill_dense(job);
}

/* The results' twins, in order; how many. */
static int results_of(const struct gpu_job *job,
		      const struct gpu_twin *results[GPU_JOB_ITEMS])
{
	if (is_quantize(job)) {
		results[0] = &job->q[0];
		results[1] = &job->q[1];
		return 2;
	}
	if (is_moe(job)) {
		results[0] = &job->moe_memory.base.c;
		return 1;
	}
	for (int i = 0; i < job->count; i++)
		results[i] = &job->memory[i].c;
	return job->count;
}

void gpu_job_poison(const struct gpu_job *job)
{
	const struct gpu_twin *results[GPU_JOB_ITEMS];
	const int n = results_of(job, results);

	for (int i = 0; i < n; i++)
		gpu_poison(results[i], 0xFF);
	if (!is_quantize(job))
		gpu_poison(&job->workspace, 0xFF);
}

bool gpu_job_unchanged(const struct gpu_job *job)
{
	bool ok = true;

	for (int i = 0; i < job->count; i++)
		ok = ok && gpu_inputs_unchanged(&job->memory[i]);
	if (is_moe(job))
		ok = ok && gpu_moe_unchanged(&job->moe_memory);
	if (is_quantize(job))
		ok = ok && gpu_is_unchanged(&job->x_data) &&
		     gpu_is_unchanged(&job->global);
	return ok;
}

/* ---- runs ---------------------------------------------------------------- */

static enum nib_status run_quantize(const struct gpu_job *job, void *stream,
				    struct nib_error *err)
{
	const struct nib_dense x = gpu_dense(&job->x, gpu_device_of(&job->x_data));
	const struct nib_fp4 q =
	    gpu_nvfp4(&job->x, gpu_device_of(&job->q[0]), gpu_device_of(&job->q[1]));
	const struct nib_quantize_options options = {
	    .struct_bytes = sizeof(options),
	    .saturate = 1,
	    .stream = stream,
	    .global_pointer =
		job->kind == GPU_QUANTIZE ? gpu_device_of(&job->global) : NULL,
	};

	return nib_quantize(job->gpu, &x, &q, &options, NULL, err);
}

enum nib_status gpu_job_run(const struct gpu_job *job, void *stream,
			    struct nib_error *err)
{
	const struct nib_run_options options = {
	    .struct_bytes = sizeof(options),
	    .workspace = gpu_device_of(&job->workspace),
	    .workspace_bytes = job->workspace.bytes,
	    .stream = stream,
	};
	struct nib_problem problems[GPU_JOB_ITEMS];

	if (is_quantize(job))
		return run_quantize(job, stream, err);
	if (is_moe(job)) {
		const struct nib_moe_problem moe = moe_of(job);

		return nib_moe_run(job->plan, &moe, &options, err);
	}
	gpu_job_problems(job, problems);
	return nib_run(job->plan, problems, job->count, &options, err);
}

bool gpu_job_fetch(const struct gpu_job *job, uint8_t *to)
{
	const struct gpu_twin *results[GPU_JOB_ITEMS];
	const int n = results_of(job, results);
	bool ok = true;

	for (int i = 0; i < n; i++) {
		ok = gpu_download(results[i], to) && ok;
		to += results[i]->bytes;
	}
	return ok && (is_quantize(job) || gpu_guards_hold(&job->workspace));
}

const char *gpu_job_result(const struct gpu_job *job, void *stream, uint8_t *to,
			   struct nib_error *err)
{
	gpu_job_poison(job);
	if (gpu_job_run(job, stream, err) || nib_device_wait(job->gpu, stream, err))
		return err->message;
	return gpu_job_fetch(job, to) ? NULL : "a guard band has changed";
}

/* ---- right results ------------------------------------------------------- */

/* Poison is a NaN that no sum gives. */
static bool is_written(const struct gpu_twin *c, enum nib_dtype dtype)
{
	const size_t size = nib_dtype_bytes(dtype);
	const uint8_t *data = gpu_host_of(c);

	for (size_t i = 0; i < c->bytes; i += size) {
		size_t b = 0;

		while (b < size && data[i + b] == 0xFF)
			b++;
		if (b == size)
			return false;
	}
	return true;
}

static const char *check_items(struct gpu_job *job)
{
	struct nib_check_result r = {.struct_bytes = sizeof(r)};

	for (int i = 0; i < job->count; i++) {
		const struct gpu_item *x = &job->items[i];
		const struct nib_check_options o =
		    gpu_check_options(x->b.rows, x->b.k, x->b.batch, ORACLE_PRODUCTS);
		const struct nib_problem p =
		    gpu_problem(x, &job->memory[i], gpu_host_of);

		if (!is_written(&job->memory[i].c, x->c.dtype))
			return "not all written";
		gpu_must(nib_check(x->op, &p, 1, &o, &r, &gpu_test.err), "check");
		if (r.failed)
			return "outside the bound";
	}
	return NULL;
}

static const char *check_moe(struct gpu_job *job)
{
	const struct nib_moe_problem p =
	    gpu_moe_problem(&job->moe, &job->moe_memory, gpu_host_of);
	const struct nib_check_options o = gpu_check_options(
	    job->moe.b.rows, job->moe.b.k, job->moe.experts, ORACLE_PRODUCTS);
	struct nib_check_result r = {.struct_bytes = sizeof(r)};
	const char *why = gpu_moe_places(&job->moe, &job->moe_memory);

	if (why)
		return why;
	gpu_must(nib_moe_check(job->moe.op, &p, &o, &r, &gpu_test.err), "check");
	return r.failed ? "outside the bound" : NULL;
}

/* The host's side of q becomes the CPU's. */
static const char *check_quantize(struct gpu_job *job, const uint8_t *results)
{
	const struct nib_dense x = gpu_dense(&job->x, gpu_host_of(&job->x_data));
	const struct nib_fp4 q =
	    gpu_nvfp4(&job->x, gpu_host_of(&job->q[0]), gpu_host_of(&job->q[1]));
	struct nib_quantize_options options = {
	    .struct_bytes = sizeof(options),
	    .saturate = 1,
	};

	if (job->kind == GPU_QUANTIZE)
		memcpy(&options.global, gpu_host_of(&job->global), sizeof(float));
	gpu_must(nib_quantize(gpu_test.cpu, &x, &q, &options, NULL, &gpu_test.err),
		 "quantise");
	if (memcmp(results, gpu_host_of(&job->q[0]), job->q[0].bytes) != 0)
		return "other codes than the CPU's";
	return memcmp(results + job->q[0].bytes, gpu_host_of(&job->q[1]),
		      job->q[1].bytes) != 0
		   ? "other scales than the CPU's"
		   : NULL;
}

const char *gpu_job_check(struct gpu_job *job, const uint8_t *results)
{
	const struct gpu_twin *twins[GPU_JOB_ITEMS];
	const int n = results_of(job, twins);

	if (is_quantize(job))
		return check_quantize(job, results);
	for (int i = 0; i < n; i++) {
		memcpy(gpu_host_of(twins[i]), results, twins[i]->bytes);
		results += twins[i]->bytes;
	}
	return is_moe(job) ? check_moe(job) : check_items(job);
}
