/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layout.c - compares the host, the ggml that loads the plug-in, with the headers that
 * the plug-in was compiled with.
 *
 * ggml_backend_load() compares GGML_BACKEND_API_VERSION, but ggml 0.10 inserted
 * functions in the middle of its tables and kept the number.  So the plug-in finds out
 * what the host reads where:
 *
 *   numbers   names of types and operations by their numbers
 *   tensors   made by the host, their members read here
 *   tables    made here, all functions in them those below, which record their place
 *             in the table: the host's ggml_backend_dev_name() must call the place that
 *             the headers give to get_name
 *
 * Nothing is read or called that another layout could make invalid: tables are longer
 * than any ggml's, members after the functions are such functions too, and the memory
 * of tensors has space after the last one.  A host loads one backend at a time.
 */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "plugin.h"

/* ---- numbers -------------------------------------------------------------- */

/* Since 0.9.8 ggml has NVFP4; an older one would read after the end of its types. */
static bool has_nvfp4(const struct nib_ggml_host *host)
{
	int major = 0, minor = 0, patch = 0;

	if (sscanf(host->version(), "%d.%d.%d", &major, &minor, &patch) < 2)
		return false;
	return major > 0 || minor > 9 || (minor == 9 && patch >= 8);
}

static bool is_type(const struct nib_ggml_host *host, enum ggml_type type,
		    const char *name, int64_t values, size_t bytes)
{
	return host->blck_size(type) == values && host->type_size(type) == bytes &&
	       strcmp(host->type_name(type), name) == 0;
}

static bool are_types(const struct nib_ggml_host *host)
{
	return is_type(host, GGML_TYPE_NVFP4, "nvfp4", 64, 36) &&
	       is_type(host, GGML_TYPE_F32, "f32", 1, 4) &&
	       is_type(host, GGML_TYPE_I32, "i32", 1, 4);
}

static bool are_operations(const struct nib_ggml_host *host)
{
	static const struct {
		enum ggml_op op;
		const char *name;
	} known[] = {
	    {GGML_OP_NONE, "NONE"},
	    {GGML_OP_MUL_MAT, "MUL_MAT"},
	    {GGML_OP_MUL_MAT_ID, "MUL_MAT_ID"},
	    {GGML_OP_RESHAPE, "RESHAPE"},
	    {GGML_OP_VIEW, "VIEW"},
	    {GGML_OP_PERMUTE, "PERMUTE"},
	    {GGML_OP_TRANSPOSE, "TRANSPOSE"},
	};

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (strcmp(host->op_name(known[i].op), known[i].name) != 0)
			return false;
	return true;
}

/* ---- tensors -------------------------------------------------------------- */

/* A product, a product of experts, and a view, without memory for their values. */
struct tensors {
	struct ggml_context *context;
	struct ggml_cgraph *graph;
	struct ggml_tensor *w, *x, *y;	       /* y = x w */
	struct ggml_tensor *experts, *ids, *z; /* z = x experts[ids] */
	struct ggml_tensor *view;	       /* of x */
};

#define NODES 16

static bool make_tensors(const struct nib_ggml_host *host, struct tensors *t)
{
	/* Twice what is needed, for another ggml's shorter tensors. */
	const struct ggml_init_params params = {
	    .mem_size = 2 * NODES * host->tensor_overhead() +
			host->graph_overhead_custom(NODES, false),
	    .no_alloc = true};
	struct ggml_context *c = t->context = host->init(params);

	if (!c)
		return false;
	t->w = host->new_tensor_3d(c, GGML_TYPE_NVFP4, 128, 3, 1);
	t->x = host->new_tensor_3d(c, GGML_TYPE_F32, 128, 1, 5);
	t->y = host->mul_mat(c, t->w, t->x);
	t->experts = host->new_tensor_3d(c, GGML_TYPE_NVFP4, 128, 3, 4);
	t->ids = host->new_tensor_3d(c, GGML_TYPE_I32, 2, 5, 1);
	t->z = host->mul_mat_id(c, t->experts, t->x, t->ids);
	t->view = host->view_2d(c, t->x, 64, 5, 512, 256);
	t->graph = host->new_graph_custom(c, NODES, false);
	host->build_forward_expand(t->graph, t->y);
	host->set_name(t->y, "result");
	return true;
}

/* A tensor without memory, of sizes n0 to n2 and strides s0 to s3. */
static bool is_tensor(const struct ggml_tensor *t, enum ggml_type type, enum ggml_op op,
		      const int64_t ne[3], const size_t nb[4])
{
	return t->type == type && t->op == op && memcmp(t->ne, ne, 24) == 0 &&
	       t->ne[3] == 1 && memcmp(t->nb, nb, 32) == 0 && !t->buffer && !t->data &&
	       !t->extra;
}

static bool are_sources(const struct ggml_tensor *t, const struct ggml_tensor *first,
			const struct ggml_tensor *second,
			const struct ggml_tensor *third)
{
	return t->src[0] == first && t->src[1] == second && t->src[2] == third &&
	       !t->src[GGML_MAX_SRC - 1] && !t->view_src;
}

/* clang-format off */
static bool are_tensors(const struct nib_ggml_host *host, const struct tensors *t)
{
	return is_tensor(t->w, GGML_TYPE_NVFP4, GGML_OP_NONE,
			 (int64_t[]){128, 3, 1}, (size_t[]){36, 72, 216, 216}) &&
	       is_tensor(t->x, GGML_TYPE_F32, GGML_OP_NONE,
			 (int64_t[]){128, 1, 5}, (size_t[]){4, 512, 512, 2560}) &&
	       is_tensor(t->y, GGML_TYPE_F32, GGML_OP_MUL_MAT,
			 (int64_t[]){3, 1, 5}, (size_t[]){4, 12, 12, 60}) &&
	       is_tensor(t->z, GGML_TYPE_F32, GGML_OP_MUL_MAT_ID,
			 (int64_t[]){3, 2, 5}, (size_t[]){4, 12, 24, 120}) &&
	       is_tensor(t->view, GGML_TYPE_F32, GGML_OP_VIEW,
			 (int64_t[]){64, 5, 1}, (size_t[]){4, 512, 2560, 2560}) &&
	       are_sources(t->w, NULL, NULL, NULL) &&
	       are_sources(t->y, t->w, t->x, NULL) &&
	       are_sources(t->z, t->experts, t->x, t->ids) &&
	       t->view->view_src == t->x && t->view->view_offs == 256 &&
	       strcmp(t->y->name, "result") == 0 &&
	       t->y->flags == GGML_TENSOR_FLAG_COMPUTE && !t->z->flags &&
	       host->graph_n_nodes(t->graph) == 1 &&
	       host->graph_node(t->graph, 0) == t->y &&
	       host->nbytes(t->w) == 216 && !host->is_empty(t->w) &&
	       host->is_contiguous(t->w) && !host->is_contiguous(t->view);
}
/* clang-format on */

/* ---- tables --------------------------------------------------------------- */

#define PLACES 32

typedef void *place_function(void);

static int called; /* the place that the host called last */
static _Alignas(64) char memory[64];

#define PLACE(n)                                                                       \
	static void *place_##n(void)                                                   \
	{                                                                              \
		called = n;                                                            \
		return memory;                                                         \
	}
/* clang-format off */
#define ALL_PLACES(F)                                                                  \
	F(0) F(1) F(2) F(3) F(4) F(5) F(6) F(7) F(8) F(9) F(10) F(11) F(12) F(13)      \
	F(14) F(15) F(16) F(17) F(18) F(19) F(20) F(21) F(22) F(23) F(24) F(25) F(26)  \
	F(27) F(28) F(29) F(30) F(31)
/* clang-format on */

ALL_PLACES(PLACE)

/* Each as long as PLACES pointers. */
union table {
	place_function *places[PLACES];
	struct ggml_backend_reg reg;
	struct ggml_backend_device device;
	struct ggml_backend_buffer_type type;
	struct ggml_backend_buffer buffer;
	struct ggml_backend stream;
};

_Static_assert(sizeof(union table) == PLACES * sizeof(void *), "a table is too long");

static const union table all_places = {.places = {
#define PLACE_ENTRY(n) place_##n,
					   ALL_PLACES(PLACE_ENTRY)
#undef PLACE_ENTRY
				       }};

/* Whether the call of a host's function calls the member of a table. */
#define CALLS(table, member, call)                                                     \
	(called = -1, (void)(call),                                                    \
	 called == (int)(offsetof(struct table, iface.member) / sizeof(void *)))

static bool is_registry(const struct nib_ggml_host *host, ggml_backend_reg_t reg)
{
	return CALLS(ggml_backend_reg, get_name, host->backend_reg_name(reg)) &&
	       CALLS(ggml_backend_reg, get_device_count,
		     host->backend_reg_dev_count(reg)) &&
	       CALLS(ggml_backend_reg, get_device, host->backend_reg_dev_get(reg, 0)) &&
	       CALLS(ggml_backend_reg, get_proc_address,
		     host->backend_reg_get_proc_address(reg, ""));
}

#define DEVICE_CALLS(member, call) CALLS(ggml_backend_device, member, call)

static bool is_device(const struct nib_ggml_host *host, ggml_backend_dev_t dev,
		      ggml_backend_buffer_type_t type, const struct ggml_tensor *op)
{
	size_t bytes[2];

	return DEVICE_CALLS(get_name, host->backend_dev_name(dev)) &&
	       DEVICE_CALLS(get_description, host->backend_dev_description(dev)) &&
	       DEVICE_CALLS(get_memory,
			    host->backend_dev_memory(dev, &bytes[0], &bytes[1])) &&
	       DEVICE_CALLS(get_type, host->backend_dev_type(dev)) &&
	       DEVICE_CALLS(init_backend, host->backend_dev_init(dev, NULL)) &&
	       DEVICE_CALLS(get_buffer_type, host->backend_dev_buffer_type(dev)) &&
	       DEVICE_CALLS(get_host_buffer_type,
			    host->backend_dev_host_buffer_type(dev)) &&
	       DEVICE_CALLS(
		   buffer_from_host_ptr,
		   host->backend_dev_buffer_from_host_ptr(dev, memory, 64, 64)) &&
	       DEVICE_CALLS(supports_op, host->backend_dev_supports_op(dev, op)) &&
	       DEVICE_CALLS(supports_buft,
			    host->backend_dev_supports_buft(dev, type)) &&
	       DEVICE_CALLS(offload_op, host->backend_dev_offload_op(dev, op)) &&
	       host->backend_dev_backend_reg(dev) == dev->reg;
}

/* The host clears the properties before it calls get_props: as many bytes as it
 * has. */
static bool are_properties(const struct nib_ggml_host *host, ggml_backend_dev_t device)
{
	union {
		struct ggml_backend_dev_props props;
		unsigned char bytes[512];
	} u;
	size_t cleared = 0;

	memset(&u, 0xFF, sizeof(u));
	if (!DEVICE_CALLS(get_props, host->backend_dev_get_props(device, &u.props)))
		return false;
	while (cleared < sizeof(u) && u.bytes[cleared] == 0)
		cleared++;
	return cleared == sizeof(u.props);
}

#define TYPE_CALLS(member, call) CALLS(ggml_backend_buffer_type, member, call)

static bool is_buffer_type(const struct nib_ggml_host *host,
			   ggml_backend_buffer_type_t type)
{
	return TYPE_CALLS(get_name, host->backend_buft_name(type)) &&
	       TYPE_CALLS(alloc_buffer, host->backend_buft_alloc_buffer(type, 64)) &&
	       TYPE_CALLS(get_alignment, host->backend_buft_get_alignment(type)) &&
	       TYPE_CALLS(get_max_size, host->backend_buft_get_max_size(type)) &&
	       TYPE_CALLS(is_host, host->backend_buft_is_host(type)) &&
	       host->backend_buft_get_device(type) == type->device;
}

#define BUFFER_CALLS(member, call) CALLS(ggml_backend_buffer, member, call)

/*
 * t: a tensor in the buffer.  A call may read the buffer's type and size, so these are
 * no places, and their own places are compared first.
 */
static bool is_buffer(const struct nib_ggml_host *host, ggml_backend_buffer_t buffer,
		      struct ggml_tensor *t)
{
	return host->backend_buffer_get_size(buffer) == buffer->size &&
	       host->backend_buffer_get_type(buffer) == buffer->buft &&
	       BUFFER_CALLS(get_base, host->backend_buffer_get_base(buffer)) &&
	       BUFFER_CALLS(clear, host->backend_buffer_clear(buffer, 0)) &&
	       BUFFER_CALLS(reset, host->backend_buffer_reset(buffer)) &&
	       host->get_data(t) == memory &&
	       BUFFER_CALLS(set_tensor, host->backend_tensor_set(t, memory, 0, 4)) &&
	       BUFFER_CALLS(get_tensor, host->backend_tensor_get(t, memory, 0, 4)) &&
	       BUFFER_CALLS(memset_tensor, host->backend_tensor_memset(t, 0, 0, 4));
}

/* What ggml_backend_buffer_init() makes of its arguments. */
static bool is_made_buffer(const struct nib_ggml_host *host, const union table *wanted)
{
	const struct ggml_backend_buffer *b = &wanted->buffer;
	ggml_backend_buffer_t made =
	    host->backend_buffer_init(b->buft, b->iface, b->context, b->size);

	return made && memcmp(&made->iface, &b->iface, sizeof(b->iface)) == 0 &&
	       made->buft == b->buft && made->context == b->context &&
	       made->size == b->size &&
	       BUFFER_CALLS(free_buffer, host->backend_buffer_free(made));
}

#define STREAM_CALLS(member, call) CALLS(ggml_backend, member, call)

static bool is_stream(const struct nib_ggml_host *host, ggml_backend_t stream,
		      struct ggml_cgraph *graph)
{
	return STREAM_CALLS(get_name, host->backend_name(stream)) &&
	       host->backend_get_device(stream) == stream->device &&
	       STREAM_CALLS(synchronize, host->backend_synchronize(stream)) &&
	       STREAM_CALLS(graph_compute,
			    host->backend_graph_compute_async(stream, graph)) &&
	       STREAM_CALLS(free, host->backend_free(stream));
}

/* The first table that differs. */
static const char *different_table(const struct nib_ggml_host *host,
				   const struct tensors *t)
{
	union table reg = all_places, device = all_places, type = all_places;
	union table buffer = all_places, stream = all_places;

	buffer.buffer.buft = &type.type;
	buffer.buffer.context = memory;
	buffer.buffer.size = sizeof(memory);
	t->y->buffer = &buffer.buffer;
	t->y->data = memory;
	if (!is_registry(host, &reg.reg))
		return "struct ggml_backend_reg";
	if (!is_device(host, &device.device, &type.type, t->y))
		return "struct ggml_backend_device";
	if (!are_properties(host, &device.device))
		return "struct ggml_backend_dev_props";
	if (!is_buffer_type(host, &type.type))
		return "struct ggml_backend_buffer_type";
	if (!is_buffer(host, &buffer.buffer, t->y) || !is_made_buffer(host, &buffer))
		return "struct ggml_backend_buffer";
	if (!is_stream(host, &stream.stream, t->graph))
		return "struct ggml_backend";
	return NULL;
}

const char *nib_ggml_difference(const struct nib_ggml_host *host)
{
	struct tensors t;
	const char *difference;

	if (!has_nvfp4(host))
		return "no NVFP4, which is in 0.9.8 and later";
	if (!are_types(host))
		return "enum ggml_type";
	if (!are_operations(host))
		return "enum ggml_op";
	if (!make_tensors(host, &t))
		return "no memory for a few tensors";
	difference =
	    are_tensors(host, &t) ? different_table(host, &t) : "struct ggml_tensor";
	host->free(t.context);
	return difference;
}
