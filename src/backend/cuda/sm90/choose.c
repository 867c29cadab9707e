/* SPDX-License-Identifier: Apache-2.0 */
/*
 * choose.c - the table of Hopper's products (choose.h).  Plans report the numbers
 * of their rule, which docs/performance-hopper.md explains.
 */
#include "choose.h"

#include <stdlib.h>
#include <string.h>

#include "backend/cuda/common/mma.h"
#include "backend/cuda/common/mma_warps.h"
#include "backend/cuda/common/operand.h"
#include "backend/cuda/common/pack.h"
#include "backend/cuda/common/vector.h"
#include "backend/cuda/kernels/common/mma_params.h"
#include "backend/cuda/kernels/common/mma_warps_params.h"
#include "core/environment.h"
#include "format/view.h"
#include "gemm.h"
#include "skinny.h"
#include "wide.h"

/* Weights of one matrix from which tiles are faster for 9 rows of A or more. */
#define LARGE_WEIGHTS ((int64_t)1 << 25)
/* Fewer weights of experts do not fill the GPU with tiles of the mma kernels. */
#define MANY_WEIGHTS ((int64_t)1 << 27)

/* Larger n is slower by the mma kernels and the skinny kernel from 9 rows of A on. */
#define LARGE_N (1 << 16)
/* Multiprocessors that wait for the last tiles of mma_warps.cuh, as long as a tile of
 * this k takes on average, lose more than these kernels gain. */
#define IDLE_K 4096

/* So few tiles leave multiprocessors without work, however many weights they have. */
#define FEW_TILES 396

enum weights {
	ANY_WEIGHTS,
	SMALL, /* of one matrix, below LARGE_WEIGHTS */
	SHORT, /* small, one matrix, and wide_is_short() */
	NOT_LARGE_N,
	EVEN,	   /* the tiles of mma_warps.cuh divide evenly: is_even() */
	EVEN_FULL, /* and two fifths of the multiprocessors have one or more */
	ONE_EACH,  /* so many have one, and none has two */
	MANY,	   /* of all experts that may have rows, from MANY_WEIGHTS on */
	NARROW,	   /* of these, fewer than FEW_TILES tiles of the mma kernels */
};

enum activations { ANY_A, NVFP4, DENSE };

struct rule {
	int64_t most_rows; /* of A, of all experts */
	enum weights weights;
	enum activations a;
	int experts_a_row;	 /* the least number of experts for each row of A */
	int rows_an_expert;	 /* at most so many rows for each expert; 0: any */
	int64_t least_k, most_k; /* most_k 0: any */
	bool takes_dual, only_dual;
	const struct cuda_product *product;
	const char *reason;
};

static const struct rule matrix_rules[] = {
    {.most_rows = 1,
     .a = NVFP4,
     .product = &cuda_vector,
     .reason = "H200: 1 x 7168 x 16384 23.1 us, a plain read of the weights 16.6"},
    {.most_rows = NIB_GEMV_MAX_ROWS,
     .weights = EVEN,
     .product = &cuda_mma_warps,
     .reason = "H100: 4 x 4096 x 7168 8.1 us, by the vector kernel 13.0; of fp16 8.3 "
	       "and 15.5"},
    {.most_rows = 8,
     .weights = EVEN,
     .a = NVFP4,
     .product = &cuda_mma_warps,
     .reason = "H100: 8 x 4096 x 7168 8.2 us, by the skinny kernel 13.4; 8 x 28672 x "
	       "8192 49.5 and 54.3"},
    {.most_rows = 8,
     .weights = EVEN_FULL,
     .a = DENSE,
     .product = &cuda_mma_warps,
     .reason = "H100: 8 x 8192 x 8192 of fp16 16.3 us, by the skinny kernel 18.4; 8 x "
	       "1024 x 4096 4.8 and 4.3"},
    {.most_rows = 2,
     .product = &cuda_vector,
     .reason = "H200: 1 x 7168 x 16384 23.1 us, a plain read of the weights 16.6"},
    {.most_rows = NIB_GEMV_MAX_ROWS,
     .weights = SMALL,
     .product = &cuda_vector,
     .reason = "H200: larger weights are slower here, 4 x 28672 x 8192 56.3 us, by "
	       "the skinny kernel 47.7"},
    {.most_rows = 8,
     .product = &sm90_skinny,
     .reason = "H200: 8 x 4096 x 4096 8.3 us, in tiles 12.0; 8 x 28672 x 8192 of fp16 "
	       "48.2, in tiles 69.5"},
    {.most_rows = NIB_MMA_WARPS_ROWS,
     .weights = NOT_LARGE_N,
     .a = NVFP4,
     .product = &cuda_mma_warps,
     .reason = "H100: 16 x 8192 x 8192 17.2 us, in tiles 23.2; 16 x 152064 x 3584 "
	       "126.6 and 119.9"},
    {.most_rows = NIB_MMA_WARPS_ROWS,
     .weights = ONE_EACH,
     .a = DENSE,
     .product = &cuda_mma_warps,
     .reason = "H100: 9 x 4096 x 4096 of fp16 7.5 us, by the skinny kernel 8.8; 16 "
	       "rows 9.0 and 9.4"},
    {.most_rows = NIB_SKINNY_MAX_ROWS,
     .weights = NOT_LARGE_N,
     .a = DENSE,
     .product = &sm90_skinny,
     .reason = "H100: 16 x 28672 x 8192 of fp16 55.1 us, in tiles 58.2; 16 x 152064 x "
	       "3584 129.6 and 120.0"},
    {.most_rows = NIB_SKINNY_MAX_ROWS,
     .weights = SMALL,
     .product = &sm90_skinny,
     .reason = "H200: 16 x 4096 x 4096 of bf16 10.7 us, in tiles 12.8; 16 x 28672 x "
	       "8192 67.9, in tiles 58.7"},
    {.most_rows = NIB_WIDE_MAX_ROWS,
     .weights = SHORT,
     .product = &sm90_wide,
     .reason = "H100: 32 x 4096 x 4096 11.0 us, in tiles 13.6; 64 x 8192 x 8192 34.3, "
	       "in tiles 27.5"},
    {.most_rows = INT64_MAX, .takes_dual = true, .product = &sm90_tiles},
};

/*
 * Experts: the vector kernels read an expert's weights once for each of its rows, so
 * they win where few experts have more than one.  The mma kernels win from about a row
 * of each expert on; from eight on only where k is so short that tiles are slow.
 */
static const struct rule expert_rules[] = {
    {.most_rows = 64,
     .a = NVFP4,
     .experts_a_row = 2,
     .takes_dual = true,
     .product = &cuda_vector_experts,
     .reason = "H100: 32 rows by 128 experts of 2048 x 768 14.7 us, by the mma kernel "
	       "16.6"},
    {.most_rows = 32,
     .a = DENSE,
     .experts_a_row = 2,
     .takes_dual = true,
     .product = &cuda_vector_experts,
     .reason = "H100: 8 rows of fp16 by 128 experts of 1536 x 2048 12.8 us, by the mma "
	       "kernel 15.6"},
    {.most_rows = NIB_SKINNY_ROWS,
     .a = DENSE,
     .experts_a_row = 1,
     .least_k = MMA_LONG_K + 1,
     .product = &sm90_skinny,
     .reason = "H100: 32 rows of fp16 by 32 experts of 4096 x 7168 200.0 us, by the "
	       "mma kernel 205.8"},
    {.most_rows = 8,
     .a = NVFP4,
     .experts_a_row = 1,
     .takes_dual = true,
     .only_dual = true,
     .product = &cuda_vector_experts,
     .reason = "H100: Mixtral's layer of four tokens 247 us, by the mma kernels 277"},
    {.most_rows = 128,
     .weights = NARROW,
     .a = NVFP4,
     .experts_a_row = 1,
     .takes_dual = true,
     .product = &cuda_vector_experts,
     .reason = "H100: few tiles do not fill the GPU; the last product of Mixtral's "
	       "layer of four tokens"},
    {.most_rows = INT64_MAX,
     .weights = MANY,
     .rows_an_expert = 8,
     .takes_dual = true,
     .product = &cuda_mma,
     .reason = "H100: 512 rows by 128 experts of 2048 x 768 48.0 us, in tiles 62.9; "
	       "of 1536 x 2048 87.0 and 102.1"},
    {.most_rows = INT64_MAX,
     .weights = MANY,
     .rows_an_expert = 16,
     .most_k = 2048,
     .takes_dual = true,
     .product = &cuda_mma,
     .reason = "H100: 2048 rows by 128 experts of 2048 x 768 62.7 us, in tiles 85.1; "
	       "of 1536 x 2048 109.5 and 118.2"},
    {.most_rows = 64,
     .a = DENSE,
     .experts_a_row = 2,
     .takes_dual = true,
     .product = &cuda_vector_experts,
     .reason = "H200: few weights are slow in tiles"},
    {.most_rows = 128,
     .a = NVFP4,
     .experts_a_row = 1,
     .takes_dual = true,
     .product = &cuda_vector_experts,
     .reason = "H200: DeepSeek-V3's layer of four tokens 220 us, by the other kernels "
	       "314"},
    {.most_rows = 8,
     .product = &sm90_skinny,
     .reason = "H200: 8 of 256 experts of 4096 x 7168 50.5 us, in tiles 55.5"},
    {.most_rows = NIB_SKINNY_ROWS,
     .experts_a_row = 1,
     .least_k = 2048,
     .product = &sm90_skinny,
     .reason = "H200: 128 rows of fp16 by 128 experts of 1536 x 2048 59.5 us, of which "
	       "memory and arithmetic need 31.9"},
    {.most_rows = INT64_MAX, .takes_dual = true, .product = &sm90_tiles},
};

/* The experts that may have rows. */
static int64_t used_experts(const struct sm90_size *s)
{
	return s->rows < s->experts ? s->rows : s->experts;
}

static bool has_few_tiles(const struct sm90_size *s)
{
	const int64_t used = used_experts(s);

	return nib_mma_tiles(s->n, s->is_dual ? 2 : 1) <= (FEW_TILES - 1) / used;
}

/* All weights that may be read, if each row has an expert of its own. */
static bool has_many_weights(const struct sm90_size *s)
{
	const int64_t used = used_experts(s);

	return s->k > 0 && used > 0 &&
	       s->n >= divide_up(divide_up(MANY_WEIGHTS, s->k), used);
}

/* Whether few multiprocessors wait for the last tiles of mma_warps.cuh, or not for
 * long: not so if some have two tiles of 64 rows, many have one, and k is long. */
static bool is_even(const struct sm90_size *s)
{
	const int64_t sms = s->multiprocessors;
	const int b_rows = mma_warps_b_rows((int)sms, s->is_dense, s->rows, s->n);
	const int64_t tiles = nib_mma_warps_tiles(s->n, b_rows);

	return nib_mma_warps_tiles(s->n, 64) <= sms ||
	       round_up(tiles, sms) - tiles <= IDLE_K * sms / s->k;
}

/* Whether the other kernels are faster for a batch.  On an H100, four matrices of 7168
 * x 2048 times one row of fp16 take 14.9 us by the vector kernel (mma_warps.cuh 21.6),
 * four rows 18.3 (23.0); times eight rows of NVFP4 23.1 by the skinny kernel (19.9). */
static bool is_other_batch(const struct sm90_size *s)
{
	return s->batch > 1 && (s->is_dense || s->rows <= NIB_GEMV_MAX_ROWS);
}

/* How the tiles of mma_warps.cuh fill the GPU. */
static bool fit_tiles(enum weights weights, const struct sm90_size *s)
{
	const int64_t sms = s->multiprocessors;
	const bool is_full = nib_mma_warps_tiles(s->n, 32) >= divide_up(2 * sms, 5);

	if (is_other_batch(s) || s->n > INT32_MAX / 4 || s->k < 1 || sms < 1)
		return false;
	if (weights == ONE_EACH)
		return is_full && nib_mma_warps_tiles(s->n, 32) <= sms;
	return is_even(s) && (weights == EVEN || is_full);
}

static bool fit_weights(enum weights weights, const struct sm90_size *s)
{
	if (weights == ANY_WEIGHTS)
		return true;
	if (weights == MANY)
		return has_many_weights(s);
	if (weights == NARROW)
		return has_few_tiles(s);
	if (weights == NOT_LARGE_N)
		return s->n <= LARGE_N;
	if (weights == EVEN || weights == EVEN_FULL || weights == ONE_EACH)
		return fit_tiles(weights, s);
	if (s->k > 0 && s->n >= LARGE_WEIGHTS / s->k)
		return false;
	return weights == SMALL ||
	       (s->batch == 1 && wide_is_short(s->rows, s->n, s->k));
}

static bool fits(const struct rule *rule, const struct sm90_size *s)
{
	return s->rows <= rule->most_rows && (rule->takes_dual || !s->is_dual) &&
	       (!rule->only_dual || s->is_dual) &&
	       (rule->a == ANY_A || (rule->a == DENSE) == s->is_dense) &&
	       s->experts >= rule->experts_a_row * s->rows &&
	       (!rule->rows_an_expert ||
		s->rows <= rule->rows_an_expert * s->experts) &&
	       s->k >= rule->least_k && (!rule->most_k || s->k <= rule->most_k) &&
	       fit_weights(rule->weights, s);
}

/* Whether the sizes fit the counters of the kernels for few rows. */
static bool can_count(const struct sm90_size *s)
{
	const int64_t tiles = nib_gemv_tiles(s->n, true);

	if (s->rows < 1 || s->n < 1)
		return false;
	if (!s->experts)
		return tiles <= INT32_MAX && s->batch <= INT32_MAX;
	return s->k >= 1 && tiles <= INT32_MAX / NIB_SKINNY_UNITS;
}

static bool has_tables(const struct rule *rule, const struct sm90_size *s)
{
	if (rule->product == &cuda_mma)
		return !s->no_mma && s->experts <= NIB_MMA_EXPERTS &&
		       s->k % NIB_MMA_K_ALIGN == 0;
	if (rule->product == &cuda_mma_warps)
		return !s->no_mma && s->k >= 1 && s->k % NIB_MMA_WARPS_K_ALIGN == 0;
	return rule->product != &sm90_skinny || s->experts <= NIB_SKINNY_EXPERTS;
}

struct cuda_choice sm90_choose_size(const struct sm90_size *size)
{
	const struct rule *rule = size->experts ? expert_rules : matrix_rules;

	if (!can_count(size))
		return (struct cuda_choice){.product = &sm90_tiles};
	while (!fits(rule, size) || !has_tables(rule, size))
		rule++;
	return (struct cuda_choice){rule->product, rule->reason};
}

/* ---- plans --------------------------------------------------------------- */

/* Whether weights can be loaded in pieces of 16 bytes. */
static bool in_pieces(const struct nib_gemv_operand *b)
{
	return b->codes_align == 16 && b->scales_align == 16;
}

/* The vector kernels load both matrices with the strides of the first. */
static bool have_same_strides(const struct nib_gemv_operand *b,
			      const struct nib_gemv_operand *b2)
{
	return b->row_stride == b2->row_stride &&
	       b->scale_row_stride == b2->scale_row_stride &&
	       b->is_tiled == b2->is_tiled;
}

/* Whether the product can load these experts. */
static bool can_load(const struct cuda_product *product, enum nib_op op,
		     const struct nib_moe_problem *moe)
{
	struct nib_problem p = few_rows_problem(NULL, moe);
	struct nib_gemv_params params = {0};
	struct nib_gemv_operand b2;

	if (product == &cuda_mma)
		return cuda_mma_can_load(op, moe);
	few_rows_set_sizes(&params, &p, true);
	if (!in_pieces(&params.b) || params.a.codes_align != 16 || params.k % 32 != 0)
		return false;
	if (product == &sm90_skinny)
		return params.b.is_tiled;
	if (op != NIB_OP_DUAL_GEMM)
		return true;
	/* Like the sizes, without pointers. */
	p.b2.codes = p.b2.scales = NULL;
	b2 = cuda_operand(&p.b2, nib_fp4_batches(&p.b2));
	return in_pieces(&b2) && have_same_strides(&params.b, &b2);
}

/* NIB_CUDA_MMA=always: experts whatever their size, for tests; never: no mma kernel. */
static bool mma_is(const char *when)
{
	const char *text = nib_secure_getenv("NIB_CUDA_MMA");

	return text && strcmp(text, when) == 0;
}

static struct cuda_choice choose_experts(enum nib_op op,
					 const struct nib_moe_problem *moe, bool no_mma)
{
	const struct nib_fp4 *b = cuda_weights(&moe->problem.b, moe->problem.b_packed);
	struct sm90_size size = {
	    .is_dual = op == NIB_OP_DUAL_GEMM,
	    .is_dense = moe->problem.activations == NIB_ACTIVATIONS_DENSE,
	    .rows = moe->problem.a.rows,
	    .n = b->rows,
	    .k = b->k,
	    .batch = 1,
	    .experts = nib_fp4_batches(b),
	    .no_mma = no_mma || mma_is("never") || !cuda_mma_can_load(op, moe),
	};
	struct cuda_choice choice;

	if (mma_is("always") && cuda_mma_can_load(op, moe))
		return (struct cuda_choice){.product = &cuda_mma};
	choice = sm90_choose_size(&size);
	if (choice.product == &sm90_tiles || can_load(choice.product, op, moe))
		return choice;
	return (struct cuda_choice){.product = &sm90_tiles};
}

bool sm90_chooses_vector(enum nib_op op, const struct nib_moe_problem *moe)
{
	return choose_experts(op, moe, true).product == &cuda_vector_experts;
}

struct cuda_choice sm90_choose(const struct nib_plan *plan)
{
	struct nib_problem p;
	struct sm90_size size;

	if (plan->is_moe)
		return choose_experts(plan->op, &plan->moe, false);
	if (plan->count != 1)
		return (struct cuda_choice){.product = &sm90_tiles};
	p = cuda_unpacked(plan->problems);
	size = (struct sm90_size){
	    .is_dual = plan->op == NIB_OP_DUAL_GEMM,
	    .is_dense = p.activations == NIB_ACTIVATIONS_DENSE,
	    .rows = p.a.rows,
	    .n = p.b.rows,
	    .k = p.b.k,
	    .batch = nib_fp4_batches(&p.a),
	    .no_mma = !cuda_mma_warps_fits(plan->problems),
	    .multiprocessors = cuda_device(plan->device)->multiprocessors,
	};
	return sm90_choose_size(&size);
}
