/* SPDX-License-Identifier: Apache-2.0 */
/* sm90.c - Hopper's row of the table of architectures (arch.h). */
#include "backend/cuda/kernels/common/probe_params.h"
#include "choose.h"
#include "gemm.h"
#include "vector_layer.h"

const struct cuda_arch cuda_sm90 = {
    .name = "cuda-sm90",
    .tag = "sm90",
    .capabilities = {90},
    .hardware = "9.0 (H100, H200)",
    .arithmetic = NIB_ARITHMETIC_FP16_TENSOR,
    .costs = &nib_sm90_costs,
    .takes_dense = true,
    .row_align = 8,
    .probe_flop = NIB_PROBE_MULTIPLY_FLOP,
    .probe_threads = NIB_PROBE_MULTIPLY_THREADS,
    .choose = sm90_choose,
    .layer = sm90_vector_layer,
    .clusters = sm90_clusters,
};
