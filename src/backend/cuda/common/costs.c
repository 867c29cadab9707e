/* SPDX-License-Identifier: Apache-2.0 */
/* costs.c - the built-in costs. */
#include "costs.h"

/*
 * The larger of two times at m rows of A: 4.1 m + 20 of the tensor cores for
 * both warpgroups, and 2.2 m + 330 of one warpgroup, which dequantises and
 * issues. Launches whose tiles have at most NIB_MEDIUM_M_MAX rows take 4 to 7 %
 * less (two steps at once); a size has one entry, since beside larger tiles it
 * costs this.
 */
const struct nib_cuda_costs nib_sm90_costs = {
    .step = {365, 400, 436, 471, 506, 541, 576, 612, 682, 807, 938, 1070},
    .tile = 1500,
    .split = 6000,
};

/*
 * Not measured: sm100_step_cycles() (sm100_cut.c), which has the constants and
 * their sources.  A tile: a commit and its wait, 200 cycles, the first
 * accumulators that the next tile waits for, and its first stage (derived).
 * split: 32 KB a CTA to its neighbour at the 32 bytes a cycle of copies out of
 * shared memory, and two barriers of a cluster of 400 cycles (derived).
 */
const struct nib_cuda_costs nib_sm100_costs = {
    .step = {124, 127, 130, 133, 137, 140, 143, 146, 158, 164, 170, 176},
    .tile = 1000,
    .split = 2000,
};
