/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemm_common.h - what the tile products of all architectures share: checks of
 * operands, lists of tiles, the number of resident clusters, and launch attributes.
 */
#ifndef NIB_CUDA_GEMM_COMMON_H
#define NIB_CUDA_GEMM_COMMON_H

#include "backend/cuda/kernels/common/gemm_tile.h"
#include "core/error.h"
#include "cuda.h"

/* The error if a plan cannot allocate host memory. */
enum nib_status cuda_no_memory(size_t bytes, struct nib_error *err);

/*
 * Checks the strides.  Tiled scales of weights are loaded 8 bytes at a time, so every
 * matrix of a stack must be aligned to that.  x: A if it is dense, else NULL; b2: NULL
 * if the product is not dual.
 */
enum nib_status cuda_check_operands(const char *array, int64_t index,
				    const struct nib_fp4 *a, const struct nib_dense *x,
				    const struct nib_fp4 *b, const struct nib_fp4 *b2,
				    struct nib_error *err);

/* Collects the tiles of all launches while a plan is made.  On the GPU they are one
 * allocation. */
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
 * Checks the sizes of an MoE problem.  padded: the most rows of the workspace, since
 * only the device knows where experts begin.
 */
enum nib_status cuda_check_experts(int64_t experts, int64_t rows, int64_t padded,
				   struct nib_error *err);

/*
 * Rows of A of an MoE tile: 1.5 times those of an average expert, since only the device
 * knows how many each expert has, rounded up to `least` times a power of two.
 */
int32_t cuda_moe_tile_m(int64_t rows, int64_t experts, int32_t least);

/* These set launch attributes; config->attrs must have space for them. */
void cuda_set_cluster(CUlaunchConfig *config, int32_t ctas);
/*
 * Lets the kernel begin before the previous kernel has ended (programmatic dependent
 * launch); the kernel waits for it where it must (griddepcontrol_wait()).  Does nothing
 * for kernels of GPUs before 9.0, which have no dependent launch.
 */
void cuda_may_overlap(const struct cuda_device *device, CUlaunchConfig *config);

/* CTAs that are resident on an SM: as many as shared memory and registers (most) allow,
 * at least one. */
int cuda_resident_ctas(const struct cuda_device *device, int32_t shared_bytes,
		       int most);

/*
 * The number of clusters of this size that can be resident at once, at most `most`.
 * With the context entered.
 */
enum nib_status cuda_count_clusters(const struct cuda_device *device,
				    CUfunction function, int32_t ctas, int32_t threads,
				    int32_t shared_bytes, int32_t most,
				    int32_t *clusters, struct nib_error *err);

#endif
