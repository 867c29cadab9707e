/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemm.h - products in tiles of Ampere and Ada, for any number of rows: problems,
 * groups, batches and experts.  The kernels are in kernels/sm80/gemm.cuh.
 */
#ifndef NIB_SM80_GEMM_H
#define NIB_SM80_GEMM_H

#include "backend/cuda/common/arch.h"
#include "backend/cuda/common/cuda.h"

/* Computes every plan that the API allows on a GPU. */
extern const struct cuda_product sm80_tiles;

/* The CTAs that can be resident at once, one for each SM, for the planner of tiles. */
enum nib_status sm80_clusters(struct cuda_device *device,
			      struct nib_tile_device *clusters, struct nib_error *err);

#endif
