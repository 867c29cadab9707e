/* SPDX-License-Identifier: Apache-2.0 */
/*
 * graph_params.c - parameters of nodes: of a graph, and of a graph that can be launched
 * (exec), in which a node is named by the one from which it was copied.
 */
#include <stdlib.h>
#include <string.h>

#include "driver/graph_memory.h"
#include "driver/graph_nodes.h"

/* ---- getting ------------------------------------------------------------------- */

/* Locks; the caller leaves.  Fails if the node is of another type. */
static CUresult begin_get(const char *call, CUgraphNode node, int type, const void *to)
{
	CUresult result = emu_driver_enter();

	if (!result)
		result = emu_node_check(call, node, type);
	if (!result && !to)
		result = emu_driver_fail(CUDA_ERROR_INVALID_VALUE,
					 "%s: the result is NULL", call);
	return result;
}

/* Pointers to the parameters in the node's work. */
static CUresult find_arguments(CUgraphNode node)
{
	const struct emu_kernel *k = node->work->grid.kernel;

	if (node->arguments)
		return CUDA_SUCCESS;
	node->arguments = calloc(k->n_parameters + 1u, sizeof(*node->arguments));
	if (!node->arguments)
		return CUDA_ERROR_OUT_OF_MEMORY;
	for (uint32_t i = 0; i < k->n_parameters; i++)
		node->arguments[i] = node->work->parameters + k->parameters[i].offset;
	return CUDA_SUCCESS;
}

/* The lock must be held. */
static CUresult get_kernel(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS *to)
{
	const struct emu_grid *g = &node->work->grid;
	const CUresult result = find_arguments(node);

	*to = (CUDA_KERNEL_NODE_PARAMS){.func = node->work->kernel,
					.gridDimX = g->grid[0],
					.gridDimY = g->grid[1],
					.gridDimZ = g->grid[2],
					.blockDimX = g->block[0],
					.blockDimY = g->block[1],
					.blockDimZ = g->block[2],
					.sharedMemBytes = g->dynamic_bytes,
					.kernelParams = node->arguments};
	return result;
}

CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS *to)
{
	CUresult result = begin_get("cuGraphKernelNodeGetParams", node,
				    CU_GRAPH_NODE_TYPE_KERNEL, to);

	if (!result)
		result = get_kernel(node, to);
	return emu_driver_leave(result);
}

/* Addresses as they were computed: from the first byte, without positions. */
CUresult cuGraphMemcpyNodeGetParams(CUgraphNode node, CUDA_MEMCPY3D *to)
{
	CUresult result = begin_get("cuGraphMemcpyNodeGetParams", node,
				    CU_GRAPH_NODE_TYPE_MEMCPY, to);
	const struct emu_work *w;

	if (result)
		return emu_driver_leave(result);
	w = node->work;
	*to = (CUDA_MEMCPY3D){
	    .srcMemoryType = CU_MEMORYTYPE_UNIFIED,
	    .srcDevice = w->from,
	    .srcPitch = w->rows.from_pitch,
	    .srcHeight =
		w->rows.from_pitch ? w->rows.from_slice / w->rows.from_pitch : 0,
	    .dstMemoryType = CU_MEMORYTYPE_UNIFIED,
	    .dstDevice = w->to,
	    .dstPitch = w->rows.to_pitch,
	    .dstHeight = w->rows.to_pitch ? w->rows.to_slice / w->rows.to_pitch : 0,
	    .WidthInBytes = w->bytes,
	    .Height = w->rows.rows,
	    .Depth = w->rows.slices,
	};
	return emu_driver_leave(CUDA_SUCCESS);
}

CUresult cuGraphMemsetNodeGetParams(CUgraphNode node, CUDA_MEMSET_NODE_PARAMS *to)
{
	CUresult result = begin_get("cuGraphMemsetNodeGetParams", node,
				    CU_GRAPH_NODE_TYPE_MEMSET, to);
	const struct emu_work *w;

	if (result)
		return emu_driver_leave(result);
	w = node->work;
	*to = (CUDA_MEMSET_NODE_PARAMS){.dst = w->to,
					.pitch = w->rows.to_pitch,
					.value = w->value,
					.elementSize = w->value_bytes,
					.width = w->bytes / w->value_bytes,
					.height = w->rows.rows};
	return emu_driver_leave(CUDA_SUCCESS);
}

CUresult cuGraphHostNodeGetParams(CUgraphNode node, CUDA_HOST_NODE_PARAMS *to)
{
	CUresult result =
	    begin_get("cuGraphHostNodeGetParams", node, CU_GRAPH_NODE_TYPE_HOST, to);

	if (!result)
		*to =
		    (CUDA_HOST_NODE_PARAMS){node->work->function, node->work->argument};
	return emu_driver_leave(result);
}

CUresult cuGraphEventRecordNodeGetEvent(CUgraphNode node, CUevent *event)
{
	CUresult result = begin_get("cuGraphEventRecordNodeGetEvent", node,
				    CU_GRAPH_NODE_TYPE_EVENT_RECORD, event);

	if (!result)
		*event = node->event;
	return emu_driver_leave(result);
}

CUresult cuGraphEventWaitNodeGetEvent(CUgraphNode node, CUevent *event)
{
	CUresult result = begin_get("cuGraphEventWaitNodeGetEvent", node,
				    CU_GRAPH_NODE_TYPE_WAIT_EVENT, event);

	if (!result)
		*event = node->event;
	return emu_driver_leave(result);
}

CUresult cuGraphMemAllocNodeGetParams(CUgraphNode node, CUDA_MEM_ALLOC_NODE_PARAMS *to)
{
	CUresult result = begin_get("cuGraphMemAllocNodeGetParams", node,
				    CU_GRAPH_NODE_TYPE_MEM_ALLOC, to);

	if (!result)
		*to = (CUDA_MEM_ALLOC_NODE_PARAMS){
		    .poolProps = {.allocType = 1, /* CU_MEM_ALLOCATION_TYPE_PINNED */
				  .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}},
		    .bytesize = node->work->reservation->bytes,
		    .dptr = node->work->reservation->address};
	return emu_driver_leave(result);
}

CUresult cuGraphMemFreeNodeGetParams(CUgraphNode node, CUdeviceptr *pointer)
{
	CUresult result = begin_get("cuGraphMemFreeNodeGetParams", node,
				    CU_GRAPH_NODE_TYPE_MEM_FREE, pointer);

	if (!result)
		*pointer = node->work->reservation->address;
	return emu_driver_leave(result);
}

/* ---- setting ------------------------------------------------------------------- */

/* A node whose parameters a call sets. */
struct change {
	const char *call;
	bool is_exec;	  /* a node of exec, which has fewer changes */
	CUgraphExec exec; /* NULL: the node itself */
	CUgraphNode node;
	int type;
	const void *parameters;
};

#define CHANGE(call, type)                                                             \
	{                                                                              \
#call, false, NULL, node, type, p                                      \
	}
#define EXEC_CHANGE(call, type)                                                        \
	{                                                                              \
#call, true, exec, node, type, p                                       \
	}

/* Checks the arguments and finds the node. */
static CUresult find(const struct change *c, CUgraphNode *found)
{
	CUresult result = emu_driver_enter();

	*found = c->node;
	if (!result)
		result = emu_node_check(c->call, c->node, c->type);
	if (!result && (!c->parameters || (c->is_exec && !c->exec)))
		result = emu_driver_fail(CUDA_ERROR_INVALID_VALUE,
					 "%s: an argument is NULL", c->call);
	if (!result && c->is_exec) {
		*found = emu_graph_find_copy(c->exec->graph, c->node->id);
		if (!*found)
			result =
			    emu_driver_fail(CUDA_ERROR_INVALID_VALUE,
					    "%s: the node is not of the graph from "
					    "which hGraphExec was instantiated",
					    c->call);
	}
	return emu_driver_leave(result);
}

/* In a graph that can be launched, copies and fills have one row, before and after. */
static CUresult check_rows(const struct change *c, const struct emu_work *old,
			   const struct emu_work *work)
{
	if (!c->is_exec || (work->kind != EMU_WORK_COPY && work->kind != EMU_WORK_SET))
		return CUDA_SUCCESS;
	if (old->rows.rows * old->rows.slices == 1 &&
	    work->rows.rows * work->rows.slices == 1)
		return CUDA_SUCCESS;
	return emu_driver_fail(CUDA_ERROR_INVALID_VALUE,
			       "%s: %zu rows, now %zu: only copies and fills of one "
			       "row can be changed",
			       c->call, old->rows.rows * old->rows.slices,
			       work->rows.rows * work->rows.slices);
}

/* Gives the node the work, if that could be made. */
static CUresult replace(const struct change *c, CUresult result, CUgraphNode node,
			struct emu_work *work)
{
	if (result)
		return result;
	result = emu_driver_enter();
	if (!result)
		result = check_rows(c, node->work, work);
	if (result)
		emu_work_free(work);
	else
		emu_node_set_work(node, work);
	return emu_driver_leave(result);
}

static CUresult set_kernel(const struct change *c)
{
	struct emu_work *work = NULL;
	CUgraphNode node;
	CUresult result = find(c, &node);

	if (!result)
		result = emu_make_kernel(c->parameters, node->work->attributes,
					 node->work->n_attributes, &work);
	return replace(c, result, node, work);
}

static CUresult set_copy(const struct change *c)
{
	struct emu_work *work = NULL;
	CUgraphNode node;
	CUresult result = find(c, &node);

	if (!result)
		result = emu_make_copy(c->parameters, &work);
	return replace(c, result, node, work);
}

static CUresult set_fill(const struct change *c)
{
	struct emu_work *work = NULL;
	CUgraphNode node;
	CUresult result = find(c, &node);

	if (!result)
		result = emu_make_fill(c->parameters, &work);
	return replace(c, result, node, work);
}

static CUresult set_host(const struct change *c)
{
	struct emu_work *work = NULL;
	CUgraphNode node;
	CUresult result = find(c, &node);

	if (!result)
		result = emu_make_host(c->parameters, &work);
	return replace(c, result, node, work);
}

static CUresult set_event(const struct change *c, CUevent event)
{
	CUgraphNode node;
	CUresult result = find(c, &node);

	if (result)
		return result;
	result = emu_driver_enter();
	if (!result)
		node->event = event;
	return emu_driver_leave(result);
}

CUresult cuGraphKernelNodeSetParams_v2(CUgraphNode node,
				       const CUDA_KERNEL_NODE_PARAMS *p)
{
	const struct change c =
	    CHANGE(cuGraphKernelNodeSetParams, CU_GRAPH_NODE_TYPE_KERNEL);

	return set_kernel(&c);
}

CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec exec, CUgraphNode node,
					   const CUDA_KERNEL_NODE_PARAMS *p)
{
	const struct change c =
	    EXEC_CHANGE(cuGraphExecKernelNodeSetParams, CU_GRAPH_NODE_TYPE_KERNEL);

	return set_kernel(&c);
}

CUresult cuGraphMemcpyNodeSetParams(CUgraphNode node, const CUDA_MEMCPY3D *p)
{
	const struct change c =
	    CHANGE(cuGraphMemcpyNodeSetParams, CU_GRAPH_NODE_TYPE_MEMCPY);

	return set_copy(&c);
}

CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec exec, CUgraphNode node,
					const CUDA_MEMCPY3D *p, CUcontext context)
{
	const struct change c =
	    EXEC_CHANGE(cuGraphExecMemcpyNodeSetParams, CU_GRAPH_NODE_TYPE_MEMCPY);

	(void)context;
	return set_copy(&c);
}

CUresult cuGraphMemsetNodeSetParams(CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS *p)
{
	const struct change c =
	    CHANGE(cuGraphMemsetNodeSetParams, CU_GRAPH_NODE_TYPE_MEMSET);

	return set_fill(&c);
}

CUresult cuGraphExecMemsetNodeSetParams(CUgraphExec exec, CUgraphNode node,
					const CUDA_MEMSET_NODE_PARAMS *p,
					CUcontext context)
{
	const struct change c =
	    EXEC_CHANGE(cuGraphExecMemsetNodeSetParams, CU_GRAPH_NODE_TYPE_MEMSET);

	(void)context;
	return set_fill(&c);
}

CUresult cuGraphHostNodeSetParams(CUgraphNode node, const CUDA_HOST_NODE_PARAMS *p)
{
	const struct change c =
	    CHANGE(cuGraphHostNodeSetParams, CU_GRAPH_NODE_TYPE_HOST);

	return set_host(&c);
}

CUresult cuGraphExecHostNodeSetParams(CUgraphExec exec, CUgraphNode node,
				      const CUDA_HOST_NODE_PARAMS *p)
{
	const struct change c =
	    EXEC_CHANGE(cuGraphExecHostNodeSetParams, CU_GRAPH_NODE_TYPE_HOST);

	return set_host(&c);
}

CUresult cuGraphEventRecordNodeSetEvent(CUgraphNode node, CUevent p)
{
	const struct change c =
	    CHANGE(cuGraphEventRecordNodeSetEvent, CU_GRAPH_NODE_TYPE_EVENT_RECORD);

	return set_event(&c, p);
}

CUresult cuGraphExecEventRecordNodeSetEvent(CUgraphExec exec, CUgraphNode node,
					    CUevent p)
{
	const struct change c = EXEC_CHANGE(cuGraphExecEventRecordNodeSetEvent,
					    CU_GRAPH_NODE_TYPE_EVENT_RECORD);

	return set_event(&c, p);
}

CUresult cuGraphEventWaitNodeSetEvent(CUgraphNode node, CUevent p)
{
	const struct change c =
	    CHANGE(cuGraphEventWaitNodeSetEvent, CU_GRAPH_NODE_TYPE_WAIT_EVENT);

	return set_event(&c, p);
}

CUresult cuGraphExecEventWaitNodeSetEvent(CUgraphExec exec, CUgraphNode node, CUevent p)
{
	const struct change c = EXEC_CHANGE(cuGraphExecEventWaitNodeSetEvent,
					    CU_GRAPH_NODE_TYPE_WAIT_EVENT);

	return set_event(&c, p);
}

/* ---- any node ------------------------------------------------------------------ */

static CUresult set_any(struct change c, const CUgraphNodeParams *p)
{
	if (!p)
		return CUDA_ERROR_INVALID_VALUE;
	c.type = p->type;
	switch (p->type) {
	case CU_GRAPH_NODE_TYPE_KERNEL:
		c.parameters = &p->kernel;
		return set_kernel(&c);
	case CU_GRAPH_NODE_TYPE_MEMCPY:
		c.parameters = &p->memcpy.copyParams;
		return set_copy(&c);
	case CU_GRAPH_NODE_TYPE_MEMSET:
		c.parameters = &p->memset;
		return set_fill(&c);
	case CU_GRAPH_NODE_TYPE_HOST:
		c.parameters = &p->host;
		return set_host(&c);
	case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
	case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
		c.parameters = p->event;
		return set_event(&c, p->event);
	case CU_GRAPH_NODE_TYPE_GRAPH:
		if (c.exec)
			return cuGraphExecChildGraphNodeSetParams(c.exec, c.node,
								  p->graph.graph);
		break;
	default:
		break;
	}
	(void)emu_driver_enter();
	return emu_driver_leave(emu_driver_fail(
	    CUDA_ERROR_NOT_SUPPORTED, "%s: parameters of a %s node cannot be set",
	    c.call, emu_node_title(p->type)));
}

CUresult cuGraphNodeSetParams(CUgraphNode node, CUgraphNodeParams *p)
{
	return set_any((struct change)CHANGE(cuGraphNodeSetParams, 0), p);
}

CUresult cuGraphExecNodeSetParams(CUgraphExec exec, CUgraphNode node,
				  CUgraphNodeParams *p)
{
	return set_any((struct change)EXEC_CHANGE(cuGraphExecNodeSetParams, 0), p);
}

/* ---- attributes of kernels ---------------------------------------------------- */

static CUlaunchAttribute *find_attribute(const struct emu_work *w, int id)
{
	for (uint32_t i = 0; i < w->n_attributes; i++)
		if (w->attributes[i].id == id)
			return &w->attributes[i];
	return NULL;
}

/* Attributes that were not set are 0, as the cluster's size then is. */
CUresult cuGraphKernelNodeGetAttribute(CUgraphNode node, int id,
				       CUlaunchAttributeValue *value)
{
	CUresult result = begin_get("cuGraphKernelNodeGetAttribute", node,
				    CU_GRAPH_NODE_TYPE_KERNEL, value);
	const CUlaunchAttribute *found;

	if (result)
		return emu_driver_leave(result);
	found = find_attribute(node->work, id);
	memset(value, 0, sizeof(*value));
	if (found)
		*value = found->value;
	return emu_driver_leave(CUDA_SUCCESS);
}

/* Makes the node's work again with other attributes. */
static CUresult remake(CUgraphNode node, CUlaunchAttribute *attributes, uint32_t count)
{
	const struct change c = {"cuGraphKernelNodeSetAttribute", false,     NULL, node,
				 CU_GRAPH_NODE_TYPE_KERNEL,	  attributes};
	CUDA_KERNEL_NODE_PARAMS p;
	struct emu_work *work = NULL;
	CUresult result = emu_driver_enter();

	if (!result)
		result = get_kernel(node, &p);
	(void)emu_driver_leave(result);
	if (!result)
		result = emu_make_kernel(&p, attributes, count, &work);
	return replace(&c, result, node, work);
}

CUresult cuGraphKernelNodeSetAttribute(CUgraphNode node, int id,
				       const CUlaunchAttributeValue *value)
{
	CUresult result = begin_get("cuGraphKernelNodeSetAttribute", node,
				    CU_GRAPH_NODE_TYPE_KERNEL, value);
	CUlaunchAttribute *list = NULL;
	uint32_t count = 0;

	if (!result) {
		count = node->work->n_attributes;
		list = calloc(count + 1u, sizeof(*list));
		result = list ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (!result) {
		const CUlaunchAttribute *old = find_attribute(node->work, id);
		const uint32_t at =
		    old ? (uint32_t)(old - node->work->attributes) : count;

		if (count)
			memcpy(list, node->work->attributes, count * sizeof(*list));
		count += !old;
		list[at].id = id;
		list[at].value = *value;
	}
	(void)emu_driver_leave(result);
	if (!result)
		result = remake(node, list, count);
	free(list);
	return result;
}

CUresult cuGraphKernelNodeCopyAttributes(CUgraphNode to, CUgraphNode from)
{
	CUresult result = begin_get("cuGraphKernelNodeCopyAttributes", from,
				    CU_GRAPH_NODE_TYPE_KERNEL, to);

	if (!result)
		result = emu_node_check("cuGraphKernelNodeCopyAttributes", to,
					CU_GRAPH_NODE_TYPE_KERNEL);
	(void)emu_driver_leave(result);
	return result ? result
		      : remake(to, from->work->attributes, from->work->n_attributes);
}
