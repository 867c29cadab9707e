/* SPDX-License-Identifier: Apache-2.0 */
/* gemm_stage.c - the copies of the staging kernel (kernels/sm100/stage_params.h). */
#include <stdlib.h>

#include "backend/cuda/common/gemm_common.h"
#include "format/view.h"
#include "sm100.h"

#define STAGE_ALIGN 256
/* CTAs per SM: enough loads in flight to hide the latency of memory. */
#define STAGE_BLOCKS 8

bool sm100_stage_add(struct sm100_chunk *chunk, const struct sm100_source *source,
		     struct sm100_map *map, size_t *workspace_bytes)
{
	const struct nib_fp4 *v = source->view;
	const size_t bytes = sm100_copy_bytes(map);
	struct nib_stage_params *p = chunk->stage;
	struct nib_stage_copy *copy;

	if (!p)
		p = chunk->stage = calloc(1, sizeof(*p));
	if (!p)
		return false;
	copy = &p->copies[p->count];
	*copy = (struct nib_stage_copy){
	    .batch_stride_bytes = map->is_scales ? nib_fp4_scale_batch_stride_bytes(v)
						 : nib_fp4_batch_stride_bytes(v),
	    .row_stride_bytes = nib_fp4_row_stride_bytes(v),
	    .first_piece = p->pieces,
	    .matrix_pieces =
		(int64_t)(map->strides_bytes[0] * map->sizes[1]) / NIB_STAGE_PIECE,
	    .rows = (int32_t)v->rows,
	    .k = (int32_t)v->k,
	    .kind = NIB_STAGE_CODES,
	};
	if (map->is_scales && v->scale_layout == NIB_SCALE_LAYOUT_LINEAR) {
		copy->kind = NIB_STAGE_LINEAR;
		copy->row_stride_bytes = nib_fp4_scale_row_stride_bytes(v);
	} else if (map->is_scales) {
		copy->kind = NIB_STAGE_TILED;
	}
	p->pieces += (int64_t)bytes / NIB_STAGE_PIECE;
	map->copy = p->count++;
	map->at = *workspace_bytes;
	*workspace_bytes += (bytes + STAGE_ALIGN - 1) / STAGE_ALIGN * STAGE_ALIGN;
	return true;
}

/* Resident blocks only, so that those of the product can begin meanwhile. */
enum nib_status sm100_stage_launch(const struct cuda_device *device,
				   const struct sm100_chunk *chunk, CUstream stream,
				   struct nib_error *err)
{
	const int64_t blocks = divide_up(chunk->stage->pieces, NIB_STAGE_THREADS);
	const int64_t most = STAGE_BLOCKS * (int64_t)device->multiprocessors;
	void *arguments[] = {chunk->stage};
	CUlaunchAttribute attribute = {0};
	CUlaunchConfig config = {0};

	config.gridDimX = (unsigned)(blocks < most ? blocks : most);
	config.blockDimX = NIB_STAGE_THREADS;
	config.hStream = stream;
	config.attrs = &attribute;
	cuda_may_overlap(device, &config);
	return cuda_launch(device, chunk->copy, config, arguments, err);
}
