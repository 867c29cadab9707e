/* SPDX-License-Identifier: Apache-2.0 */
/* sm80.c - the row of Ampere and Ada in the table of architectures (arch.h). */
#include "backend/cuda/common/costs.h"
#include "backend/cuda/kernels/sm80/probe_mma_params.h"
#include "choose.h"
#include "gemm.h"

/*
 * From an H100 with NIB_CUDA_ARCH=sm80.  `nib tune` now measures 1750, 2060, 2440 and
 * 3200 there for 32, 64, 96 and 128 rows of A, but groups are slower with these.  Tiles
 * have at most 128 rows.
 */
static const struct nib_cuda_costs costs = {
    .step = {1700, 1700, 1850, 1850, 2250, 2250, 2660, 2660, 5320, 5320, 5320, 5320},
    .tile = 5000,
    .split = 6000,
};

const struct cuda_arch cuda_sm80 = {
    .name = "cuda-sm80",
    .tag = "sm80",
    .capabilities = {80, 86, 87, 89},
    .runs_on_newer = true,
    .hardware = "8.0 or newer (A100, RTX 30, L4, RTX 40)",
    .arithmetic = NIB_ARITHMETIC_FP16_TENSOR,
    .costs = &costs,
    .takes_dense = true,
    .has_wide_tiles = true,
    .row_align = 8,
    .probe_flop = NIB_PROBE_MMA_FLOP,
    .probe_threads = NIB_PROBE_MMA_THREADS,
    .choose = sm80_choose,
    .clusters = sm80_clusters,
};
