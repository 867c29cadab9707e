/* SPDX-License-Identifier: Apache-2.0 */
/* sm100.c - Blackwell's row of the table of architectures (arch.h). */
#include "sm100.h"
#include "backend/cuda/kernels/common/probe_params.h"
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

static struct cuda_choice choose(const struct nib_plan *plan)
{
	return (struct cuda_choice){.product = gemv100_takes_plan(plan) ? &sm100_vector
									: &sm100_tiles};
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
