/* SPDX-License-Identifier: Apache-2.0 */
/* views.h - views as the kernels of quantize.cuh and moe_steps.cuh see them. */
#ifndef NIB_CUDA_VIEWS_H
#define NIB_CUDA_VIEWS_H

#include "backend/cuda/kernels/common/quantize_params.h"
#include "nibblas.h"

/* A stride of 0 means dense (format/view.h). */
struct nib_quantize_dense cuda_view_dense(const struct nib_dense *v);
struct nib_quantize_nvfp4 cuda_view_nvfp4(const struct nib_fp4 *v);

#endif
