/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plugin.h - the functions that the parts of the ggml plug-in share:
 *
 *   backend.c   the entry point, the device, the stream: ggml's tables
 *   weights.c   the buffer type, which stores NVFP4 tensors as nibblas reads them
 *   products.c  MUL_MAT and MUL_MAT_ID by plans of nibblas
 *
 * backend.c finds the products in a ggml_cgraph and calls products.c, which gets the
 * weights from weights.c.
 */
#ifndef NIB_GGML_PLUGIN_H
#define NIB_GGML_PLUGIN_H

#include <stdbool.h>

#include "ggml-backend-impl.h"
#include "ggml.h"
#include "nibblas.h"

/* ---- weights.c ------------------------------------------------------------ */

/* Lives as long as the process. */
ggml_backend_buffer_type_t nib_ggml_buffer_type(ggml_backend_dev_t device);

bool nib_ggml_is_ours(ggml_backend_buffer_type_t type);

/*
 * All matrices of a contiguous NVFP4 tensor of this buffer type, ne[2] * ne[3] of
 * them, as a stack of [ne[1], ne[0]]; it points into the tensor's buffer.
 */
struct nib_fp4 nib_ggml_weights(const struct ggml_tensor *tensor);

/*
 * The same stack, packed by the first call; NULL if there is no memory for that:
 * then use nib_ggml_weights().  It lives until the tensor is written or its buffer
 * freed.
 */
const struct nib_packed *nib_ggml_packed(const struct ggml_tensor *tensor);

/* ---- products.c ----------------------------------------------------------- */

/* The CPU, plans and scratch memory of a stream; one thread at a time uses it. */
struct nib_ggml_products;

/* threads: 0 = the default of nib_device_open(). */
enum nib_status nib_ggml_products_new(int threads, struct nib_ggml_products **products,
				      struct nib_error *err);
void nib_ggml_products_free(struct nib_ggml_products *products);

/* Whether op is a product that nib_ggml_multiply() computes.  Its tensors need not
 * be allocated yet. */
bool nib_ggml_takes(const struct ggml_tensor *op);

/* Computes an op that nib_ggml_takes().  After an error its result is undefined. */
enum nib_status nib_ggml_multiply(struct nib_ggml_products *products,
				  const struct ggml_tensor *op, struct nib_error *err);

#endif
