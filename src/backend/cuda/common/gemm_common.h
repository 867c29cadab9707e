/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemm_common.h - what the products in tiles of all architectures share: rules of
 * operands, lists of tiles, how many clusters a GPU holds, attributes of
 * launches.
 */
#ifndef NIB_CUDA_GEMM_COMMON_H
#define NIB_CUDA_GEMM_COMMON_H

#include "backend/cuda/kernels/common/gemm_tile.h"
#include "core/error.h"
#include "cuda.h"

/* Host memory of a plan. */
enum nib_status cuda_no_memory(size_t bytes, struct nib_error *err);

/*
 * The strides that the kernels take.  Weights: their tiled scales come by 8
 * bytes, in every matrix of a stack.
 */
enum nib_status cuda_check_strides(const struct nib_fp4 *v, struct nib_label label,
				   struct nib_error *err);
enum nib_status cuda_check_weights(const struct nib_fp4 *b, struct nib_label label,
				   struct nib_error *err);

/* The tiles of all launches while a plan is made; one allocation of the GPU. */
struct cuda_tile_list {
	struct nib_gemm_tile *tiles;
	size_t count, capacity;
};

bool cuda_tiles_append(struct cuda_tile_list *list, const struct nib_gemm_tile *tiles,
		       size_t count);
/* *data: 0 if there are none.  With the context entered. */
enum nib_status cuda_tiles_upload(const struct cuda_device *device,
				  const struct cuda_tile_list *list, CUdeviceptr *data,
				  struct nib_error *err);
/* Most rows of A of a tile. */
int32_t cuda_tiles_most_m(const struct nib_gemm_tile *tiles, int64_t count);

/*
 * What the kernels of an MoE take.  padded: the rows that the workspace has at
 * most, since only the device knows where experts begin.
 */
enum nib_status cuda_check_experts(int64_t experts, int64_t rows, int64_t padded,
				   struct nib_error *err);

/*
 * Rows of A of an MoE tile: half as many again as an average expert has, since
 * only the device knows the experts' shares; least times a power of two.
 */
int32_t cuda_moe_tile_m(int64_t rows, int64_t experts, int32_t least);

/* Attributes of launches; the config has space for them. */
void cuda_set_cluster(CUlaunchConfig *config, int32_t ctas);
/* It may begin before the kernel before it has ended, and waits itself. */
void cuda_may_overlap(CUlaunchConfig *config);

/*
 * Clusters of so many CTAs that run at once, at most `most`.  With the context
 * entered.
 */
enum nib_status cuda_count_clusters(const struct cuda_device *device,
				    CUfunction function, int32_t ctas, int32_t threads,
				    int32_t shared_bytes, int32_t most,
				    int32_t *clusters, struct nib_error *err);

#endif
