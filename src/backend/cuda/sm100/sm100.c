/* SPDX-License-Identifier: Apache-2.0 */
/* sm100.c - Blackwell's row of the table of architectures (arch.h). */
#include "sm100.h"
#include "backend/cuda/common/pack.h"
#include "backend/cuda/kernels/common/probe_params.h"
#include "format/view.h"
#include "gemv.h"

/*
 * Not measured.  The steps are from sm100_step_cycles() (gemm_cut.c), which has the
 * constants and their sources.  tile (derived): a commit and its wait of 200 cycles,
 * the first accumulators that the next tile waits for, and its first stage.  split
 * (derived): each CTA copies 32 KB to its neighbour at 32 bytes per cycle, and two
 * cluster barriers take 400 cycles each.
 */
static const struct nib_cuda_costs costs = {
    .step = {124, 127, 130, 133, 137, 140, 143, 146, 158, 164, 170, 176},
    .tile = 1000,
    .split = 2000,
};

/* Weights from which on tiles are faster for two rows, and for three and four rows of
 * one matrix; predicted. */
#define TWO_ROWS_WEIGHTS  (INT64_C(1) << 25)
#define FOUR_ROWS_WEIGHTS (INT64_C(1) << 23)

/*
 * Whether tiles are faster than the vector kernel, predicted: from five rows on (8 x
 * 4096 x 7168 6.0 us, by the vector kernel 13.3), and with fewer if the weights are
 * many (2 x 7168 x 16384 12.7 and 14.3, but 2 x 4096 x 7168 6.0 and 5.7; 4 x 2048 x
 * 4096 4.4 and 4.9, but 4 x 2048 x 2048 3.9 and 3.7), unless weights would be copied
 * first.
 */
static bool fits_tiles(const struct nib_plan *plan)
{
	const struct nib_problem *p =
	    plan->is_moe ? &plan->moe.problem : plan->problems;
	const struct nib_fp4 *b = cuda_weights(&p->b, p->b_packed);
	const struct sm100_source weights = {b, nib_fp4_batches(b),
					     p->b_packed != NULL};
	const int64_t count = weights.matrices * b->rows * b->k;
	const int64_t rows = p->a.rows;
	const bool is_small =
	    rows <= 2 ? count < TWO_ROWS_WEIGHTS
		      : rows <= 4 && weights.matrices == 1 && count < FOUR_ROWS_WEIGHTS;

	return rows > 1 && !is_small && !sm100_is_copied(&weights);
}

static struct cuda_choice choose(const struct nib_plan *plan)
{
	const bool is_vector = gemv100_takes_plan(plan) && !fits_tiles(plan);

	return (struct cuda_choice){.product =
					is_vector ? &sm100_vector : &sm100_tiles};
}

const struct cuda_arch cuda_sm100 = {
    .name = "cuda-sm100",
    .tag = "sm100",
    .capabilities = {100, 103},
    .hardware = "10.0, 10.3 (B200, B300)",
    .arithmetic = NIB_ARITHMETIC_FP4_TENSOR,
    .costs = &costs,
    .probe_flop = NIB_PROBE_FP4_FLOP,
    .probe_threads = NIB_PROBE_FP4_THREADS,
    .row_align = 16,
    .choose = choose,
    .clusters = sm100_clusters,
};
