/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plugin.h - the functions that the parts of the ggml plug-in share:
 *
 *   host.c      finds the ggml that loads the plug-in, and its functions
 *   layout.c    compares that ggml with the headers of this build
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

/* ---- host.c --------------------------------------------------------------- */

/* A declaration of ggml-impl.h, which declares much else. */
void ggml_log_internal(enum ggml_log_level level, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* F(name) for each function ggml_NAME() of the host: those that the plug-in calls, then
 * those that layout.c needs in addition. */
#define NIB_GGML_FUNCTIONS(F)                                                          \
	F(log_internal)                                                                \
	F(nbytes)                                                                      \
	F(is_contiguous)                                                               \
	F(is_empty)                                                                    \
	F(op_desc)                                                                     \
	F(graph_n_nodes)                                                               \
	F(graph_node)                                                                  \
	F(backend_buffer_init)                                                         \
	F(backend_buffer_get_type)                                                     \
	F(backend_buft_is_host)                                                        \
                                                                                       \
	F(version)                                                                     \
	F(type_name)                                                                   \
	F(type_size)                                                                   \
	F(blck_size)                                                                   \
	F(op_name)                                                                     \
	F(init)                                                                        \
	F(free)                                                                        \
	F(tensor_overhead)                                                             \
	F(graph_overhead_custom)                                                       \
	F(new_tensor_3d)                                                               \
	F(view_2d)                                                                     \
	F(mul_mat)                                                                     \
	F(mul_mat_id)                                                                  \
	F(set_name)                                                                    \
	F(get_data)                                                                    \
	F(new_graph_custom)                                                            \
	F(build_forward_expand)                                                        \
	F(backend_reg_name)                                                            \
	F(backend_reg_dev_count)                                                       \
	F(backend_reg_dev_get)                                                         \
	F(backend_reg_get_proc_address)                                                \
	F(backend_dev_name)                                                            \
	F(backend_dev_description)                                                     \
	F(backend_dev_memory)                                                          \
	F(backend_dev_type)                                                            \
	F(backend_dev_get_props)                                                       \
	F(backend_dev_backend_reg)                                                     \
	F(backend_dev_init)                                                            \
	F(backend_dev_buffer_type)                                                     \
	F(backend_dev_host_buffer_type)                                                \
	F(backend_dev_buffer_from_host_ptr)                                            \
	F(backend_dev_supports_op)                                                     \
	F(backend_dev_supports_buft)                                                   \
	F(backend_dev_offload_op)                                                      \
	F(backend_buft_name)                                                           \
	F(backend_buft_alloc_buffer)                                                   \
	F(backend_buft_get_alignment)                                                  \
	F(backend_buft_get_max_size)                                                   \
	F(backend_buft_get_device)                                                     \
	F(backend_buffer_get_size)                                                     \
	F(backend_buffer_get_base)                                                     \
	F(backend_buffer_clear)                                                        \
	F(backend_buffer_reset)                                                        \
	F(backend_buffer_free)                                                         \
	F(backend_tensor_set)                                                          \
	F(backend_tensor_get)                                                          \
	F(backend_tensor_memset)                                                       \
	F(backend_name)                                                                \
	F(backend_get_device)                                                          \
	F(backend_synchronize)                                                         \
	F(backend_graph_compute_async)                                                 \
	F(backend_free)

struct nib_ggml_host {
#define NIB_GGML_MEMBER(name) __typeof__(ggml_##name) *name;
	NIB_GGML_FUNCTIONS(NIB_GGML_MEMBER)
#undef NIB_GGML_MEMBER
};

/* The ggml of the program.  Empty until nib_ggml_find_host(). */
extern struct nib_ggml_host nib_host;

/*
 * Fills nib_host with the functions of the ggml whose code is at `caller`.  False if
 * that ggml cannot use this plug-in; then its log says why.
 */
bool nib_ggml_find_host(const void *caller);

/* ---- layout.c ------------------------------------------------------------- */

/* What in the host differs from the headers of this build; NULL if nothing does. */
const char *nib_ggml_difference(const struct nib_ggml_host *host);

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
