/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_job.h - one run of each kind of the library, with its operands and its plan, so
 * that a test of runs is written once for all kinds.
 */
#ifndef NIB_TESTS_GPU_JOB_H
#define NIB_TESTS_GPU_JOB_H

#include "gpu_moe.h"

enum gpu_kind {
	GPU_GEMM,
	GPU_SPLIT_GEMM, /* with split-k */
	GPU_GROUP,
	GPU_DUAL,
	GPU_DUAL_GROUP,
	GPU_MOE,
	GPU_DUAL_MOE,
	GPU_GEMV,
	GPU_FEW_ROWS,
	GPU_QUANTIZE,	   /* with a global scale in the device's memory */
	GPU_QUANTIZE_AMAX, /* which finds it there */
	GPU_KINDS
};

#define GPU_JOB_ITEMS 6

struct gpu_job {
	enum gpu_kind kind;
	struct nib_device *gpu;
	/* Products: count of them.  MoE, or x -> q, else. */
	struct gpu_item items[GPU_JOB_ITEMS];
	struct gpu_memory memory[GPU_JOB_ITEMS];
	int count;
	struct gpu_moe moe;
	struct gpu_moe_memory moe_memory;
	struct gpu_sizes x;
	struct gpu_twin q[2], x_data, global;
	/* Products and MoE have a plan, with the caller's workspace. */
	struct nib_plan *plan;
	bool owns_plan;
	struct gpu_twin workspace;
	const char *explanation; /* the plan's, or "" */
	int k_slices;
	size_t bytes; /* of all results */
};

const char *gpu_kind_name(enum gpu_kind kind);
/* On the GPU that gpu_test.gpu is. */
struct gpu_job *gpu_job_new(enum gpu_kind kind);
/* A job of the same sizes and plan with memory of its own; free it before like.
 */
struct gpu_job *gpu_job_new_like(const struct gpu_job *like);
void gpu_job_free(struct gpu_job *job);

/* Gives every input other contents; waits. */
void gpu_job_fill(struct gpu_job *job);
/* Fills results and workspace with NaN; waits. */
void gpu_job_poison(const struct gpu_job *job);
/* Enqueues the run. */
enum nib_status gpu_job_run(const struct gpu_job *job, void *stream,
			    struct nib_error *err);
/* Copies the results into to; false if a guard band has changed. */
bool gpu_job_fetch(const struct gpu_job *job, uint8_t *to);
/* Poisons, runs, waits and fetches; returns NULL, or what went wrong. */
const char *gpu_job_result(const struct gpu_job *job, void *stream, uint8_t *to,
			   struct nib_error *err);
/*
 * Compares the results, all of which must be written, with the oracle's, or if
 * quantised the CPU's.  Returns NULL, or what is wrong.
 */
const char *gpu_job_check(struct gpu_job *job, const uint8_t *results);
/* True if the inputs have not changed. */
bool gpu_job_unchanged(const struct gpu_job *job);

/* The problems of products and MoE, of the sizes the plan was made for. */
void gpu_job_problems(const struct gpu_job *job, struct nib_problem *problems);

#endif
