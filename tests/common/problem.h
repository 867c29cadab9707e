/* SPDX-License-Identifier: Apache-2.0 */
/*
 * common/problem.h - multiplications for tests: operands in guarded memory with NaN in
 * all gaps, poisoned outputs, and functions that run and check them.  A failure fails
 * the test with a message.
 */
#ifndef NIB_TESTS_COMMON_PROBLEM_H
#define NIB_TESTS_COMMON_PROBLEM_H

#include "data.h"

/* ---- operands ------------------------------------------------------------ */

enum job_values {
	JOB_ANY,       /* all 16 codes, all 127 finite scales */
	JOB_SPARSE,    /* zero rows, zero scales, zero codes among others */
	JOB_SUBNORMAL, /* scales below 2^-6, zero included */
	JOB_EXTREME,   /* the largest and the smallest side by side */
	JOB_CONTEST,   /* codes of at most 1.5, scales 1 and 2 */
	JOB_VALUES,
};

struct stack_spec {
	int64_t rows, k, batch;
	enum nib_scale_layout layout;
	enum job_values values;
	/* Odd gaps between rows and between batches, full of NaN scales. */
	bool has_gaps;
	/* Batches between rows instead of after them; not tiled scales. */
	bool is_between;
	/* The guard page is right before the first byte, not after the last. */
	bool is_front;
};

/* An NVFP4 stack in guarded memory of its own; padding of scales is NaN. */
struct stack {
	struct nib_fp4 view;
	size_t codes_bytes, scales_bytes;
};
struct stack stack_new(struct rng *rng, const struct stack_spec *spec);
void stack_free(struct stack *stack);

/* A dense stack, poisoned; with gaps also at an odd address. */
struct output {
	struct nib_dense view;
	uint8_t *memory;
	size_t bytes;
};
/* spec: rows, k as columns, batch, has_gaps, is_between, is_front. */
struct output output_new(enum nib_dtype dtype, const struct stack_spec *spec);
void output_free(struct output *output);
/*
 * The same, full of finite values: JOB_ANY of 2^-24 to 2^25 (fp16: of 2^-14 to
 * 2^15), JOB_SUBNORMAL those of its type.
 */
struct output floats_new(struct rng *rng, enum nib_dtype dtype, enum job_values values,
			 const struct stack_spec *spec);
/* What was not an element of rows first .. end-1 must still be poison. */
void output_untouched(const struct output *output, int64_t first, int64_t end,
		      const char *what);

/* ---- jobs ---------------------------------------------------------------- */

#define JOB_PROBLEMS 8
#define JOB_EXPERTS  8

struct job_spec {
	enum nib_op op;
	/* b_batch: batch, or 1.  0 is 1 for both. */
	int64_t m, n, k, batch, b_batch;
	enum nib_scale_layout a_layout, b_layout;
	enum nib_dtype dtype;
	/* A is a or, unless NVFP4, x of that type. */
	enum nib_activations activations;
	enum nib_dtype x_dtype;
	enum job_values values;
	bool has_gaps, is_between, is_front;
	const float *alpha, *alpha2; /* copied; NULL = none */
};

/*
 * Problems of one operation, or one mixture of experts, with the memory of
 * their operands.  It does not move: problems point into it.
 */
struct job {
	enum nib_op op;
	bool is_moe;
	int count; /* problems; experts */
	struct nib_problem problems[JOB_PROBLEMS];
	struct nib_moe_problem moe;
	/* The operands of each problem; a MoE has the first ones. */
	struct stack a[JOB_PROBLEMS], b[JOB_PROBLEMS], b2[JOB_PROBLEMS];
	struct output c[JOB_PROBLEMS], x[JOB_PROBLEMS];
	float alpha[JOB_PROBLEMS], alpha2[JOB_PROBLEMS];
	int32_t row_offsets[JOB_EXPERTS + 1], scale_rows[JOB_EXPERTS];
};

struct job *job_new(enum nib_op op);
/* Another problem; spec->op is not read. */
void job_add(struct job *job, struct rng *rng, const struct job_spec *spec);
/* A job of one problem. */
struct job *job_of(struct rng *rng, const struct job_spec *spec);

/*
 * A mixture of experts with rows[e] tokens each, first unused rows before them
 * and two after.  spec: m and the batches are not read.  own_scale_rows: each
 * expert's scales begin at a row of their own (128 apart when tiled).
 */
struct job *job_of_moe(struct rng *rng, const struct job_spec *spec,
		       const int64_t *rows, int experts, int64_t first,
		       bool own_scale_rows);
void job_free(struct job *job);

/* ---- running and judging ------------------------------------------------- */

enum job_packing {
	JOB_VIEWS,  /* weights as views */
	JOB_PACKED, /* packed */
	JOB_MIXED,  /* b packed, b2 a view; every other problem packed */
	JOB_PACKINGS,
};

struct job_how {
	struct nib_device *device;
	enum job_packing packing;
	/* A workspace of exactly the size asked for, up to a guard page. */
	bool brings_workspace;
	int check_data;
};

/* Poisons the outputs, packs, plans, runs and frees; the gaps stay as is. */
void job_run(struct job *job, const struct job_how *how, const char *what);
/* The same with a plan of one's own. */
void job_poison(struct job *job);
void job_pack(struct job *job, const struct job_how *how);
void job_unpack(struct job *job);
struct nib_plan *job_plan(const struct job *job, struct nib_device *device,
			  bool brings_workspace);
void job_run_plan(struct job *job, struct nib_plan *plan,
		  const struct nib_run_options *options, const char *what);
/* Gaps between elements, rows outside of the offsets. */
void job_untouched(const struct job *job, const char *what);

/* Every element against the oracle.  Weights must not be packed. */
void job_check(const struct job *job, const char *what);

/* The elements of all outputs, one after the other. */
struct bits {
	uint8_t *bytes;
	size_t n_bytes;
};
struct bits job_bits(const struct job *job);
void bits_free(struct bits *bits);
/* Fails at the first element that differs. */
void job_has_bits(const struct job *job, const struct bits *want, const char *what);

#endif
