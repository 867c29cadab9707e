/* SPDX-License-Identifier: Apache-2.0 */
/* pack.h - weights packed on a GPU, and weights of a problem whether packed or not. */
#ifndef NIB_CUDA_PACK_H
#define NIB_CUDA_PACK_H

#include "backend/backend.h"
#include "cuda.h"

/* Weights on the GPU: codes dense, scales in tiles of 128 x 4. */
struct cuda_packed {
	struct nib_packed base;
	CUdeviceptr data;
	bool shares_codes; /* the caller's; data has only the scales */
	struct nib_fp4 view;
};

/* The weights of a problem, packed or not. */
static inline const struct nib_fp4 *cuda_weights(const struct nib_fp4 *view,
						 const struct nib_packed *packed)
{
	return packed ? &((const struct cuda_packed *)packed)->view : view;
}

/* The problem with packed weights replaced by a view of the packed copy. */
static inline struct nib_problem cuda_unpacked(const struct nib_problem *p)
{
	struct nib_problem view = *p;

	view.b = *cuda_weights(&p->b, p->b_packed);
	view.b2 = *cuda_weights(&p->b2, p->b2_packed);
	view.b_packed = view.b2_packed = NULL;
	return view;
}

#endif
