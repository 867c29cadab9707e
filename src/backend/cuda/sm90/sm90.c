/* SPDX-License-Identifier: Apache-2.0 */
/* sm90.c - Hopper's row of the table of architectures (arch.h). */
#include "backend/cuda/common/costs.h"
#include "backend/cuda/kernels/common/probe_params.h"
#include "choose.h"
#include "gemm.h"
#include "vector_layer.h"

/*
 * Measured on an H200 (docs/notes/0030-hopper-gemm.md).  At m rows of A a step takes
 * the larger of two times: 4.1 m + 20 of the tensor cores for both warpgroups, and 2.2
 * m + 330 of one warpgroup, which dequantises and issues.  Launches whose tiles all
 * have at most NIB_MEDIUM_M_MAX rows take 4 to 7 % less (two steps at once).  The table
 * has the costs of small tiles in launches that also have larger ones.
 */
static const struct nib_cuda_costs costs = {
    .step = {365, 400, 436, 471, 506, 541, 576, 612, 682, 807, 938, 1070},
    .tile = 1500,
    .split = 6000,
};

const struct cuda_arch cuda_sm90 = {
    .name = "cuda-sm90",
    .tag = "sm90",
    .capabilities = {90},
    .hardware = "9.0 (H100, H200)",
    .arithmetic = NIB_ARITHMETIC_FP16_TENSOR,
    .costs = &costs,
    .takes_dense = true,
    .row_align = 8,
    .probe_flop = NIB_PROBE_MULTIPLY_FLOP,
    .probe_threads = NIB_PROBE_MULTIPLY_THREADS,
    .choose = sm90_choose,
    .layer = sm90_vector_layer,
    .clusters = sm90_clusters,
};
