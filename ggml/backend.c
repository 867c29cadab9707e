/* SPDX-License-Identifier: Apache-2.0 */
/*
 * backend.c - a ggml backend as a separate library: GGML_BACKEND_PATH names the
 * library, and programs that load their backends at run time (GGML_BACKEND_DL, as
 * llama.cpp's releases do) multiply NVFP4 weights by nibblas on the CPU.
 *
 * It is an accelerator in addition to ggml's CPU backend.  It has its own buffer type
 * for weights (weights.c), reads activations in place in host memory, and refuses
 * all operations but products by such weights.
 * The tables are those of ggml-backend-impl.h, an internal header of ggml that is not
 * installed.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plugin.h"

#define NAME "nibblas"

/* ---- a stream ------------------------------------------------------------- */

/*
 * A stream keeps devices and plans for this many numbers of threads.  llama.cpp sets
 * the number before each graph: one for prompts, another for single tokens.
 */
#define KEPT 4

struct stream {
	struct nib_ggml_products *products; /* in use: one of kept */
	struct {
		int threads;
		struct nib_ggml_products *products;
	} kept[KEPT];
	int next; /* of kept, to be replaced */
};

static const char *stream_name(ggml_backend_t backend)
{
	(void)backend;
	return NAME;
}

static void stream_free(ggml_backend_t backend)
{
	struct stream *s = backend->context;

	for (int i = 0; i < KEPT; i++)
		nib_ggml_products_free(s->kept[i].products);
	free(s);
	free(backend);
}

/* Selects the products for a number of threads, or makes them; 0: all processors. */
static enum nib_status use_threads(struct stream *s, int threads, struct nib_error *err)
{
	struct nib_ggml_products *products;
	enum nib_status status;

	for (int i = 0; i < KEPT; i++) {
		if (s->kept[i].products && s->kept[i].threads == threads) {
			s->products = s->kept[i].products;
			return NIB_STATUS_OK;
		}
	}
	status = nib_ggml_products_new(threads, &products, err);
	if (status)
		return status;
	nib_ggml_products_free(s->kept[s->next].products);
	s->kept[s->next].threads = threads;
	s->kept[s->next].products = s->products = products;
	s->next = (s->next + 1) % KEPT;
	return NIB_STATUS_OK;
}

static enum ggml_status failed(const struct ggml_tensor *op, enum nib_status status,
			       const struct nib_error *err)
{
	nib_host.log_internal(GGML_LOG_LEVEL_ERROR, "%s: %s of %s: %s\n", NAME,
			      nib_host.op_desc(op), op->name, err->message);
	return status == NIB_STATUS_OUT_OF_MEMORY ? GGML_STATUS_ALLOC_FAILED
						  : GGML_STATUS_FAILED;
}

static enum ggml_status graph_compute(ggml_backend_t backend, struct ggml_cgraph *graph)
{
	struct stream *s = backend->context;

	for (int i = 0; i < nib_host.graph_n_nodes(graph); i++) {
		const struct ggml_tensor *op = nib_host.graph_node(graph, i);
		struct nib_error err = {0};
		enum nib_status status;

		if (!(op->flags & GGML_TENSOR_FLAG_COMPUTE) || nib_host.is_empty(op) ||
		    (op->op != GGML_OP_MUL_MAT && op->op != GGML_OP_MUL_MAT_ID))
			continue;
		status = nib_ggml_multiply(s->products, op, &err);
		if (status)
			return failed(op, status, &err);
	}
	return GGML_STATUS_SUCCESS;
}

static ggml_guid_t guid(void)
{
	static ggml_guid id = {0x6e, 0x69, 0x62, 0x62, 0x6c, 0x61, 0x73, 0x2d,
			       0x67, 0x67, 0x6d, 0x6c, 0x00, 0x00, 0x00, 0x01};

	return &id;
}

static ggml_backend_t init_backend(ggml_backend_dev_t device, const char *params)
{
	struct ggml_backend *backend = calloc(1, sizeof(*backend));
	struct stream *s = calloc(1, sizeof(*s));
	struct nib_error err = {0};

	(void)params;
	if (!backend || !s || use_threads(s, 0, &err)) {
		nib_host.log_internal(GGML_LOG_LEVEL_ERROR, "%s: %s\n", NAME,
				      err.message[0] ? err.message : "no memory");
		free(backend);
		free(s);
		return NULL;
	}
	backend->guid = guid();
	backend->iface.get_name = stream_name;
	backend->iface.free = stream_free;
	backend->iface.graph_compute = graph_compute;
	backend->device = device;
	backend->context = s;
	return backend;
}

/* ggml_backend_set_n_threads_t.  Keeps the old threads if new ones cannot start. */
static void set_n_threads(ggml_backend_t backend, int threads)
{
	struct nib_error err = {0};

	if (use_threads(backend->context, threads, &err))
		nib_host.log_internal(GGML_LOG_LEVEL_ERROR, "%s: %d threads: %s\n",
				      NAME, threads, err.message);
}

/* ---- the device ----------------------------------------------------------- */

static const char *device_name(ggml_backend_dev_t device)
{
	(void)device;
	return NAME;
}

static const char *device_description(ggml_backend_dev_t device)
{
	(void)device;
	return "NVFP4 weights on the CPU, by nibblas";
}

/* Reports none: ggml's CPU backend reports the host's memory. */
static void device_memory(ggml_backend_dev_t device, size_t *free_bytes,
			  size_t *total_bytes)
{
	(void)device;
	*free_bytes = *total_bytes = 0;
}

static enum ggml_backend_dev_type device_type(ggml_backend_dev_t device)
{
	(void)device;
	return GGML_BACKEND_DEVICE_TYPE_ACCEL;
}

static void device_props(ggml_backend_dev_t device,
			 struct ggml_backend_dev_props *props)
{
	memset(props, 0, sizeof(*props));
	props->name = device_name(device);
	props->description = device_description(device);
	props->type = GGML_BACKEND_DEVICE_TYPE_ACCEL;
}

static bool supports_op(ggml_backend_dev_t device, const struct ggml_tensor *op)
{
	(void)device;
	switch (op->op) {
	case GGML_OP_NONE:
	case GGML_OP_RESHAPE:
	case GGML_OP_VIEW:
	case GGML_OP_PERMUTE:
	case GGML_OP_TRANSPOSE:
		return true;
	default:
		return nib_ggml_takes(op);
	}
}

static bool supports_buffer_type(ggml_backend_dev_t device,
				 ggml_backend_buffer_type_t type)
{
	(void)device;
	return nib_ggml_is_ours(type) || nib_host.backend_buft_is_host(type);
}

/* ---- the entry point ------------------------------------------------------ */

static const char *reg_name(ggml_backend_reg_t reg)
{
	(void)reg;
	return NAME;
}

static size_t device_count(ggml_backend_reg_t reg)
{
	(void)reg;
	return 1;
}

static ggml_backend_dev_t get_device(ggml_backend_reg_t reg, size_t index)
{
	static struct ggml_backend_device device = {
	    .iface = {
		.get_name = device_name,
		.get_description = device_description,
		.get_memory = device_memory,
		.get_type = device_type,
		.get_props = device_props,
		.init_backend = init_backend,
		.get_buffer_type = nib_ggml_buffer_type,
		.supports_op = supports_op,
		.supports_buft = supports_buffer_type,
	    }};

	device.reg = reg;
	return index == 0 ? &device : NULL;
}

static void *get_proc_address(ggml_backend_reg_t reg, const char *name)
{
	union {
		ggml_backend_set_n_threads_t function;
		void *address;
	} set = {.function = set_n_threads};

	(void)reg;
	return strcmp(name, "ggml_backend_set_n_threads") == 0 ? set.address : NULL;
}

static ggml_backend_reg_t nib_ggml_reg(void)
{
	static struct ggml_backend_reg reg = {.api_version = GGML_BACKEND_API_VERSION,
					      .iface = {
						  .get_name = reg_name,
						  .get_device_count = device_count,
						  .get_device = get_device,
						  .get_proc_address = get_proc_address,
					      }};

	return &reg;
}

GGML_BACKEND_API ggml_backend_reg_t ggml_backend_init(void);

/* What ggml_backend_load() calls.  ggml then refuses a reg->api_version that is not
 * its own, and NULL. */
ggml_backend_reg_t ggml_backend_init(void)
{
	if (!nib_ggml_find_host(__builtin_return_address(0)))
		return NULL;
	return nib_ggml_reg();
}
