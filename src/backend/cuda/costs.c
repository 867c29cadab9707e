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
const struct nib_cuda_costs nib_cuda_costs = {
    .step = {365, 400, 436, 471, 506, 541, 576, 612, 682, 807, 938, 1070},
    .tile = 1500,
    .split = 6000,
};
