/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fake_ggml.c - the functions of fake_ggml.h.  They do as much as the plug-in's
 * comparison needs: tensors have sizes and sources, and no product is computed.
 */
#include "fake_ggml.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ggml-backend-impl.h"
#include "ggml.h"

#define EXPORT	    __attribute__((visibility("default")))
#define API_VERSION 2

static void *load(const char *path);

EXPORT struct fake_ggml fake_ggml;
EXPORT struct fake_ggml fake_ggml = {.load = load};

static bool is(enum fake_change change)
{
	return fake_ggml.change == change;
}

/* The member of a table where this ggml has it: a place later if it is changed. */
#define LATER(object, member, change)                                                  \
	(*(__typeof__(&(object)->iface.member))(void *)((char *)&(object)              \
							    ->iface.member +           \
							(is(change) ? sizeof(void *)   \
								    : 0)))

void ggml_log_internal(enum ggml_log_level level, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

EXPORT void ggml_log_internal(enum ggml_log_level level, const char *format, ...)
{
	const size_t used = strlen(fake_ggml.log);
	va_list args;

	(void)level;
	va_start(args, format);
	vsnprintf(fake_ggml.log + used, sizeof(fake_ggml.log) - used, format, args);
	va_end(args);
}

static void *load(const char *path)
{
	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL), *symbol;
	ggml_backend_init_t init;
	ggml_backend_reg_t reg;

	if (!library) {
		ggml_log_internal(GGML_LOG_LEVEL_ERROR, "%s\n", dlerror());
		return NULL;
	}
	symbol = dlsym(library, "ggml_backend_init");
	memcpy(&init, &symbol, sizeof(symbol));
	reg = init();
	if (!reg || reg->api_version != API_VERSION + is(FAKE_API_VERSION)) {
		ggml_log_internal(GGML_LOG_LEVEL_ERROR, "failed to initialize: %s\n",
				  reg ? "incompatible API version" : "NULL");
		dlclose(library);
		return NULL;
	}
	fake_ggml.name = reg->iface.get_name(reg);
	fake_ggml.devices = reg->iface.get_device_count(reg);
	return library;
}

/* ---- numbers -------------------------------------------------------------- */

EXPORT const char *ggml_version(void)
{
	return is(FAKE_VERSION) ? "0.9.6" : "0.25.3";
}

EXPORT const char *ggml_type_name(enum ggml_type type)
{
	return type == GGML_TYPE_F32	 ? "f32"
	       : type == GGML_TYPE_I32	 ? "i32"
	       : type != GGML_TYPE_NVFP4 ? "other"
	       : is(FAKE_TYPE_NAME)	 ? "nvfp5"
					 : "nvfp4";
}

EXPORT size_t ggml_type_size(enum ggml_type type)
{
	return type != GGML_TYPE_NVFP4 ? 4 : is(FAKE_TYPE_SIZE) ? 40 : 36;
}

EXPORT int64_t ggml_blck_size(enum ggml_type type)
{
	return type != GGML_TYPE_NVFP4 ? 1 : is(FAKE_BLOCK_SIZE) ? 32 : 64;
}

EXPORT const char *ggml_op_name(enum ggml_op op)
{
	switch ((int)op + (is(FAKE_OP_NAME) && op >= GGML_OP_MUL_MAT_ID)) {
	case GGML_OP_NONE:
		return "NONE";
	case GGML_OP_MUL_MAT:
		return "MUL_MAT";
	case GGML_OP_MUL_MAT_ID:
		return "MUL_MAT_ID";
	case GGML_OP_RESHAPE:
		return "RESHAPE";
	case GGML_OP_VIEW:
		return "VIEW";
	case GGML_OP_PERMUTE:
		return "PERMUTE";
	case GGML_OP_TRANSPOSE:
		return "TRANSPOSE";
	default:
		return "other";
	}
}

EXPORT const char *ggml_op_desc(const struct ggml_tensor *t)
{
	return ggml_op_name(t->op);
}

/* ---- tensors -------------------------------------------------------------- */

struct ggml_cgraph {
	struct ggml_tensor *node;
};

struct ggml_context {
	struct ggml_tensor tensors[16];
	struct ggml_cgraph graph;
	int count;
};

EXPORT size_t ggml_tensor_overhead(void)
{
	return sizeof(struct ggml_tensor);
}

EXPORT size_t ggml_graph_overhead_custom(size_t size, bool grads)
{
	(void)grads;
	return size * sizeof(void *);
}

EXPORT struct ggml_context *ggml_init(struct ggml_init_params params)
{
	if (!params.no_alloc || params.mem_size < 7 * sizeof(struct ggml_tensor))
		return NULL;
	fake_ggml.made++;
	return calloc(1, sizeof(struct ggml_context));
}

EXPORT void ggml_free(struct ggml_context *c)
{
	fake_ggml.made--;
	free(c);
}

EXPORT struct ggml_tensor *ggml_new_tensor_3d(struct ggml_context *c,
					      enum ggml_type type, int64_t n0,
					      int64_t n1, int64_t n2)
{
	struct ggml_tensor *t = &c->tensors[c->count++];
	const int64_t ne[] = {n0, n1, n2, 1};

	t->type = type;
	memcpy(t->ne, ne, sizeof(ne));
	t->nb[0] = ggml_type_size(type);
	t->nb[1] = t->nb[0] * (size_t)(n0 / ggml_blck_size(type));
	t->nb[2] = t->nb[1] * (size_t)n1;
	t->nb[3] = t->nb[2] * (size_t)n2;
	return t;
}

EXPORT struct ggml_tensor *ggml_view_2d(struct ggml_context *c, struct ggml_tensor *of,
					int64_t n0, int64_t n1, size_t nb1,
					size_t offset)
{
	struct ggml_tensor *t = ggml_new_tensor_3d(c, of->type, n0, n1, 1);

	t->nb[1] = nb1;
	t->nb[2] = t->nb[3] = nb1 * (size_t)n1;
	t->op = GGML_OP_VIEW;
	t->view_src = t->src[0] = of;
	t->view_offs = offset;
	return t;
}

static struct ggml_tensor *with_sources(struct ggml_tensor *t, enum ggml_op op,
					struct ggml_tensor *a, struct ggml_tensor *b,
					struct ggml_tensor *c)
{
	struct ggml_tensor **src = t->src + is(FAKE_SOURCES);

	t->op = op;
	src[0] = a;
	src[1] = b;
	src[2] = c;
	return t;
}

EXPORT struct ggml_tensor *ggml_mul_mat(struct ggml_context *c, struct ggml_tensor *a,
					struct ggml_tensor *b)
{
	return with_sources(
	    ggml_new_tensor_3d(c, GGML_TYPE_F32, a->ne[1], b->ne[1], b->ne[2]),
	    GGML_OP_MUL_MAT, a, b, NULL);
}

EXPORT struct ggml_tensor *ggml_mul_mat_id(struct ggml_context *c,
					   struct ggml_tensor *a, struct ggml_tensor *b,
					   struct ggml_tensor *ids)
{
	return with_sources(
	    ggml_new_tensor_3d(c, GGML_TYPE_F32, a->ne[1], ids->ne[0], b->ne[2]),
	    GGML_OP_MUL_MAT_ID, a, b, ids);
}

EXPORT struct ggml_tensor *ggml_set_name(struct ggml_tensor *t, const char *name)
{
	snprintf(t->name, sizeof(t->name), "%s", name);
	return t;
}

EXPORT void *ggml_get_data(const struct ggml_tensor *t)
{
	return t->data;
}

EXPORT size_t ggml_nbytes(const struct ggml_tensor *t)
{
	return t->nb[3];
}

EXPORT bool ggml_is_empty(const struct ggml_tensor *t)
{
	return t->ne[0] == 0;
}

EXPORT bool ggml_is_contiguous(const struct ggml_tensor *t)
{
	return t->nb[1] == t->nb[0] * (size_t)(t->ne[0] / ggml_blck_size(t->type));
}

EXPORT struct ggml_cgraph *ggml_new_graph_custom(struct ggml_context *c, size_t size,
						 bool grads)
{
	(void)size;
	(void)grads;
	return &c->graph;
}

EXPORT void ggml_build_forward_expand(struct ggml_cgraph *graph, struct ggml_tensor *t)
{
	graph->node = t;
	t->flags = is(FAKE_FLAGS) ? 32 : GGML_TENSOR_FLAG_COMPUTE;
}

EXPORT int ggml_graph_n_nodes(struct ggml_cgraph *graph)
{
	return graph->node != NULL;
}

EXPORT struct ggml_tensor *ggml_graph_node(struct ggml_cgraph *graph, int i)
{
	return i == 0 ? graph->node : NULL;
}

/* ---- tables --------------------------------------------------------------- */

EXPORT const char *ggml_backend_reg_name(ggml_backend_reg_t reg)
{
	return reg->iface.get_name(reg);
}

EXPORT size_t ggml_backend_reg_dev_count(ggml_backend_reg_t reg)
{
	return reg->iface.get_device_count(reg);
}

EXPORT ggml_backend_dev_t ggml_backend_reg_dev_get(ggml_backend_reg_t reg, size_t i)
{
	return LATER(reg, get_device, FAKE_REGISTRY)(reg, i);
}

EXPORT void *ggml_backend_reg_get_proc_address(ggml_backend_reg_t reg, const char *name)
{
	return reg->iface.get_proc_address(reg, name);
}

EXPORT const char *ggml_backend_dev_name(ggml_backend_dev_t d)
{
	return d->iface.get_name(d);
}

EXPORT const char *ggml_backend_dev_description(ggml_backend_dev_t d)
{
	return d->iface.get_description(d);
}

EXPORT void ggml_backend_dev_memory(ggml_backend_dev_t d, size_t *left, size_t *total)
{
	d->iface.get_memory(d, left, total);
}

EXPORT enum ggml_backend_dev_type ggml_backend_dev_type(ggml_backend_dev_t d)
{
	return d->iface.get_type(d);
}

EXPORT void ggml_backend_dev_get_props(ggml_backend_dev_t d,
				       struct ggml_backend_dev_props *props)
{
	memset(props, 0, sizeof(*props) - (is(FAKE_PROPERTIES) ? 8 : 0));
	d->iface.get_props(d, props);
}

EXPORT ggml_backend_reg_t ggml_backend_dev_backend_reg(ggml_backend_dev_t d)
{
	return d->reg;
}

EXPORT ggml_backend_t ggml_backend_dev_init(ggml_backend_dev_t d, const char *params)
{
	return d->iface.init_backend(d, params);
}

EXPORT ggml_backend_buffer_type_t ggml_backend_dev_buffer_type(ggml_backend_dev_t d)
{
	return d->iface.get_buffer_type(d);
}

EXPORT ggml_backend_buffer_type_t
ggml_backend_dev_host_buffer_type(ggml_backend_dev_t d)
{
	return d->iface.get_host_buffer_type(d);
}

EXPORT ggml_backend_buffer_t ggml_backend_dev_buffer_from_host_ptr(ggml_backend_dev_t d,
								   void *data,
								   size_t size,
								   size_t largest)
{
	return d->iface.buffer_from_host_ptr(d, data, size, largest);
}

EXPORT bool ggml_backend_dev_supports_op(ggml_backend_dev_t d,
					 const struct ggml_tensor *op)
{
	return LATER(d, supports_op, FAKE_DEVICE)(d, op);
}

EXPORT bool ggml_backend_dev_supports_buft(ggml_backend_dev_t d,
					   ggml_backend_buffer_type_t type)
{
	return LATER(d, supports_buft, FAKE_DEVICE)(d, type);
}

#ifndef FAKE_WITHOUT_OFFLOAD
EXPORT bool ggml_backend_dev_offload_op(ggml_backend_dev_t d,
					const struct ggml_tensor *op)
{
	return LATER(d, offload_op, FAKE_DEVICE)(d, op);
}
#endif

EXPORT const char *ggml_backend_buft_name(ggml_backend_buffer_type_t type)
{
	return type->iface.get_name(type);
}

EXPORT ggml_backend_buffer_t
ggml_backend_buft_alloc_buffer(ggml_backend_buffer_type_t type, size_t size)
{
	return type->iface.alloc_buffer(type, size);
}

EXPORT size_t ggml_backend_buft_get_alignment(ggml_backend_buffer_type_t type)
{
	return type->iface.get_alignment(type);
}

EXPORT size_t ggml_backend_buft_get_max_size(ggml_backend_buffer_type_t type)
{
	return type->iface.get_max_size(type);
}

EXPORT bool ggml_backend_buft_is_host(ggml_backend_buffer_type_t type)
{
	return LATER(type, is_host, FAKE_BUFFER_TYPE)(type);
}

EXPORT ggml_backend_dev_t ggml_backend_buft_get_device(ggml_backend_buffer_type_t type)
{
	return type->device;
}

/* ---- buffers and streams -------------------------------------------------- */

/* What follows set_tensor_2d and get_tensor_2d in a buffer. */
#define BEFORE(buffer, member)                                                         \
	(*(__typeof__(&(buffer)->member))(void *)((char *)&(buffer)->member -          \
						  (is(FAKE_BUFFER)                     \
						       ? 2 * sizeof(void *)            \
						       : 0)))

EXPORT ggml_backend_buffer_t
ggml_backend_buffer_init(ggml_backend_buffer_type_t type,
			 struct ggml_backend_buffer_i table, void *context, size_t size)
{
	ggml_backend_buffer_t buffer = calloc(1, sizeof(*buffer));

	fake_ggml.made++;
	fake_ggml.buffer = buffer;
	buffer->iface = table;
	if (is(FAKE_MADE_BUFFER)) {
		buffer->iface.set_tensor_2d = NULL;
		buffer->iface.get_base = NULL;
	}
	buffer->buft = type;
	buffer->context = context;
	buffer->size = size;
	return buffer;
}

EXPORT void ggml_backend_buffer_free(ggml_backend_buffer_t buffer)
{
	fake_ggml.made--;
	buffer->iface.free_buffer(buffer);
	free(buffer);
}

EXPORT ggml_backend_buffer_type_t
ggml_backend_buffer_get_type(ggml_backend_buffer_t buffer)
{
	return BEFORE(buffer, buft);
}

EXPORT size_t ggml_backend_buffer_get_size(ggml_backend_buffer_t buffer)
{
	return BEFORE(buffer, size);
}

EXPORT void *ggml_backend_buffer_get_base(ggml_backend_buffer_t buffer)
{
	return buffer->iface.get_base(buffer);
}

EXPORT void ggml_backend_buffer_clear(ggml_backend_buffer_t buffer, uint8_t value)
{
	BEFORE(buffer, iface.clear)(buffer, value);
}

EXPORT void ggml_backend_buffer_reset(ggml_backend_buffer_t buffer)
{
	BEFORE(buffer, iface.reset)(buffer);
}

EXPORT void ggml_backend_tensor_set(struct ggml_tensor *t, const void *data,
				    size_t offset, size_t size)
{
	t->buffer->iface.set_tensor(t->buffer, t, data, offset, size);
}

EXPORT void ggml_backend_tensor_get(const struct ggml_tensor *t, void *data,
				    size_t offset, size_t size)
{
	t->buffer->iface.get_tensor(t->buffer, t, data, offset, size);
}

EXPORT void ggml_backend_tensor_memset(struct ggml_tensor *t, uint8_t value,
				       size_t offset, size_t size)
{
	t->buffer->iface.memset_tensor(t->buffer, t, value, offset, size);
}

EXPORT const char *ggml_backend_name(ggml_backend_t stream)
{
	return stream->iface.get_name(stream);
}

EXPORT ggml_backend_dev_t ggml_backend_get_device(ggml_backend_t stream)
{
	return stream->device;
}

EXPORT void ggml_backend_synchronize(ggml_backend_t stream)
{
	stream->iface.synchronize(stream);
}

EXPORT enum ggml_status ggml_backend_graph_compute_async(ggml_backend_t stream,
							 struct ggml_cgraph *graph)
{
	return LATER(stream, graph_compute, FAKE_STREAM)(stream, graph);
}

EXPORT void ggml_backend_free(ggml_backend_t stream)
{
	stream->iface.free(stream);
}
