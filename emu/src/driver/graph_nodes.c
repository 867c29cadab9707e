/* SPDX-License-Identifier: Apache-2.0 */
/*
 * graph_nodes.c - nodes that programs add to a graph by hand, and the work of nodes.
 * Work is made as if a stream of its own had captured it, so that every call checks
 * its arguments in one place.
 */
#include "driver/graph_nodes.h"

#include <stdlib.h>
#include <string.h>

#include "driver/graph_memory.h"
#include "driver/stream.h"

/* ---- work -------------------------------------------------------------------- */

/* A stream that captures into a graph, for one call. */
struct recorder {
	struct CUstream_st stream;
	struct CUgraph_st graph;
};

static void begin_recorder(struct recorder *r)
{
	memset(r, 0, sizeof(*r));
	r->stream.graph = &r->graph;
	(void)emu_driver_enter();
	r->stream.next = emu_driver.streams;
	emu_driver.streams = &r->stream;
	(void)emu_driver_leave(CUDA_SUCCESS);
}

/* Returns the work of the only node, which the recorder then no longer has. */
static CUresult end_recorder(struct recorder *r, CUresult result,
			     struct emu_work **work)
{
	struct CUstream_st **at = &emu_driver.streams;

	(void)emu_driver_enter();
	while (*at != &r->stream)
		at = &(*at)->next;
	*at = r->stream.next;
	free(r->stream.tails.nodes);
	*work = NULL;
	if (!result) {
		*work = r->graph.first->work;
		r->graph.first->work = NULL;
	}
	while (r->graph.first)
		emu_node_remove(r->graph.first);
	return emu_driver_leave(result);
}

CUresult emu_make_kernel(const CUDA_KERNEL_NODE_PARAMS *p,
			 CUlaunchAttribute *attributes, uint32_t n_attributes,
			 struct emu_work **work)
{
	const CUfunction function = p->func ? p->func : (CUfunction)(void *)p->kern;
	struct recorder r;
	CUlaunchConfig config = {
	    p->gridDimX,  p->gridDimY,	     p->gridDimZ, p->blockDimX, p->blockDimY,
	    p->blockDimZ, p->sharedMemBytes, &r.stream,	  attributes,	n_attributes};
	CUresult result;

	begin_recorder(&r);
	result = cuLaunchKernelEx(&config, function, p->kernelParams, p->extra);
	return end_recorder(&r, result, work);
}

CUresult emu_make_copy(const CUDA_MEMCPY3D *p, struct emu_work **work)
{
	struct recorder r;

	begin_recorder(&r);
	return end_recorder(&r, cuMemcpy3DAsync_v2(p, &r.stream), work);
}

CUresult emu_make_fill(const CUDA_MEMSET_NODE_PARAMS *p, struct emu_work **work)
{
	struct recorder r;
	CUresult result = CUDA_ERROR_INVALID_VALUE;

	begin_recorder(&r);
	if (p->elementSize == 1)
		result = cuMemsetD2D8Async(p->dst, p->pitch, (unsigned char)p->value,
					   p->width, p->height, &r.stream);
	else if (p->elementSize == 2)
		result = cuMemsetD2D16Async(p->dst, p->pitch, (unsigned short)p->value,
					    p->width, p->height, &r.stream);
	else if (p->elementSize == 4)
		result = cuMemsetD2D32Async(p->dst, p->pitch, p->value, p->width,
					    p->height, &r.stream);
	return end_recorder(&r, result, work);
}

CUresult emu_make_host(const CUDA_HOST_NODE_PARAMS *p, struct emu_work **work)
{
	struct recorder r;

	begin_recorder(&r);
	return end_recorder(&r, cuLaunchHostFunc(&r.stream, p->fn, p->userData), work);
}

/* Memory of a graph that is allocated (r is then a new reservation) or freed. */
static CUresult make_memory(struct emu_reservation *r, enum emu_work_kind kind,
			    struct emu_work **work)
{
	*work = calloc(1, sizeof(**work));
	if (!*work)
		return CUDA_ERROR_OUT_OF_MEMORY;
	(*work)->kind = kind;
	(*work)->reservation = r;
	r->owners++;
	return CUDA_SUCCESS;
}

/* ---- adding ------------------------------------------------------------------ */

/* The arguments of a call that adds a node. */
struct place {
	const char *call;
	CUgraphNode *node;
	CUgraph graph;
	const CUgraphNode *before;
	const CUgraphEdgeData *data;
	size_t count;
};

static CUresult check_place(const struct place *p)
{
	if (!p->node || !p->graph || (p->count && !p->before))
		return emu_driver_fail(CUDA_ERROR_INVALID_VALUE, "%s: %s is NULL",
				       p->call,
				       !p->node	   ? "phGraphNode"
				       : !p->graph ? "hGraph"
						   : "dependencies");
	for (size_t i = 0; i < p->count; i++) {
		if (!emu_graph_has(p->graph, p->before[i]))
			return emu_driver_fail(
			    CUDA_ERROR_INVALID_VALUE,
			    "%s: dependency %zu is not a node of the graph", p->call,
			    i);
		if (p->data && p->data[i].type > CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC)
			return emu_driver_fail(
			    CUDA_ERROR_INVALID_VALUE,
			    "%s: the edge of dependency %zu has type %d: 0 and 1 are "
			    "known",
			    p->call, i, p->data[i].type);
	}
	return CUDA_SUCCESS;
}

/* Adds a node, which then owns the work, also after an error. */
static CUresult add(const struct place *p, int type, struct emu_work *work)
{
	CUgraphNode node = emu_node_add(p->graph, type, work);
	CUresult result = node ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;

	if (!node)
		emu_work_free(work);
	for (size_t i = 0; i < p->count && !result; i++)
		result =
		    emu_node_depend(node, p->before[i], p->data ? &p->data[i] : NULL);
	if (result && node)
		emu_node_remove(node);
	if (!result)
		*p->node = node;
	return result;
}

/* Checks the place before work is made without the lock. */
static CUresult begin(const struct place *p, const void *parameters)
{
	CUresult result = emu_driver_enter();

	if (!result && !parameters)
		result = emu_driver_fail(CUDA_ERROR_INVALID_VALUE,
					 "%s: the parameters are NULL", p->call);
	if (!result)
		result = check_place(p);
	return emu_driver_leave(result);
}

static CUresult end(const struct place *p, CUresult result, int type,
		    struct emu_work *work)
{
	if (result)
		return result;
	result = emu_driver_enter();
	if (result)
		emu_work_free(work);
	else
		result = add(p, type, work);
	return emu_driver_leave(result);
}

static CUresult add_kernel(const struct place *p, const CUDA_KERNEL_NODE_PARAMS *kernel)
{
	CUresult result = begin(p, kernel);
	struct emu_work *work = NULL;

	if (!result)
		result = emu_make_kernel(kernel, NULL, 0, &work);
	return end(p, result, CU_GRAPH_NODE_TYPE_KERNEL, work);
}

static CUresult add_copy(const struct place *p, const CUDA_MEMCPY3D *copy)
{
	CUresult result = begin(p, copy);
	struct emu_work *work = NULL;

	if (!result)
		result = emu_make_copy(copy, &work);
	return end(p, result, CU_GRAPH_NODE_TYPE_MEMCPY, work);
}

static CUresult add_fill(const struct place *p, const CUDA_MEMSET_NODE_PARAMS *fill)
{
	CUresult result = begin(p, fill);
	struct emu_work *work = NULL;

	if (!result)
		result = emu_make_fill(fill, &work);
	return end(p, result, CU_GRAPH_NODE_TYPE_MEMSET, work);
}

static CUresult add_host(const struct place *p, const CUDA_HOST_NODE_PARAMS *host)
{
	CUresult result = begin(p, host);
	struct emu_work *work = NULL;

	if (!result)
		result = emu_make_host(host, &work);
	return end(p, result, CU_GRAPH_NODE_TYPE_HOST, work);
}

static CUresult add_event(const struct place *p, int type, CUevent event)
{
	CUresult result = begin(p, event);

	if (!result)
		result = end(p, result, type, NULL);
	if (!result)
		(*p->node)->event = event;
	return result;
}

/* Gives a new node graphs, all of them empty.  The lock must be held. */
static CUresult give_graphs(CUgraphNode node, uint32_t count)
{
	node->graphs = calloc(count, sizeof(*node->graphs));
	for (; node->graphs && node->n_graphs < count; node->n_graphs++) {
		CUgraph graph = emu_graph_new();

		if (!graph)
			break;
		graph->owner = node;
		node->graphs[node->n_graphs] = graph;
	}
	return node->n_graphs == count ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult add_child(const struct place *p, CUgraph graph)
{
	CUresult result = begin(p, graph);

	if (!result)
		result = emu_driver_enter();
	else
		return result;
	if (!result && emu_graph_has_memory(graph))
		result = emu_driver_fail(CUDA_ERROR_NOT_SUPPORTED,
					 "%s: a graph with nodes that allocate or free "
					 "memory is not a child",
					 p->call);
	if (!result)
		result = add(p, CU_GRAPH_NODE_TYPE_GRAPH, NULL);
	if (!result) {
		result = give_graphs(*p->node, 1);
		if (!result)
			result = emu_graph_replace(*p->node, graph);
		if (result)
			emu_node_remove(*p->node);
	}
	return emu_driver_leave(result);
}

static CUresult add_allocation(const struct place *p, CUDA_MEM_ALLOC_NODE_PARAMS *a)
{
	CUresult result = begin(p, a);
	struct emu_reservation *r = NULL;
	struct emu_work *work = NULL;

	if (result)
		return result;
	result = emu_driver_enter();
	if (!result && (!a->bytesize ||
			a->poolProps.location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
			a->poolProps.location.id != 0))
		result = emu_driver_fail(
		    CUDA_ERROR_INVALID_VALUE,
		    "%s: %zu bytes at location %d, %d: memory of graphs has at least "
		    "one byte, and is of device 0",
		    p->call, a->bytesize, a->poolProps.location.type,
		    a->poolProps.location.id);
	if (!result) {
		r = emu_reservation_make(a->bytesize);
		result = r ? make_memory(r, EMU_WORK_ALLOC, &work)
			   : CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (!result)
		result = add(p, CU_GRAPH_NODE_TYPE_MEM_ALLOC, work);
	if (!result)
		a->dptr = r->address;
	emu_reservation_leave(r);
	return emu_driver_leave(result);
}

static CUresult add_free(const struct place *p, CUdeviceptr pointer)
{
	CUresult result = begin(p, p);
	struct emu_reservation *r;
	struct emu_work *work = NULL;

	if (result)
		return result;
	result = emu_driver_enter();
	r = emu_reservation_find(pointer);
	if (!result && !r)
		result = emu_driver_fail(CUDA_ERROR_INVALID_VALUE,
					 "%s: 0x%llx is not memory of a graph", p->call,
					 pointer);
	if (!result)
		result = make_memory(r, EMU_WORK_FREE, &work);
	if (!result)
		result = add(p, CU_GRAPH_NODE_TYPE_MEM_FREE, work);
	return emu_driver_leave(result);
}

static CUresult check_conditional(const struct place *p,
				  const CUDA_CONDITIONAL_NODE_PARAMS *c)
{
	const unsigned most[] = {[CU_GRAPH_COND_TYPE_IF] = 2,
				 [CU_GRAPH_COND_TYPE_WHILE] = 1,
				 [CU_GRAPH_COND_TYPE_SWITCH] = UINT32_MAX / 64};

	if (c->type < CU_GRAPH_COND_TYPE_IF || c->type > CU_GRAPH_COND_TYPE_SWITCH)
		return emu_driver_fail(CUDA_ERROR_INVALID_VALUE,
				       "%s: conditional type %d: IF, WHILE and SWITCH "
				       "are 0 to 2",
				       p->call, c->type);
	if (c->size < 1 || c->size > most[c->type])
		return emu_driver_fail(CUDA_ERROR_INVALID_VALUE,
				       "%s: a conditional node of %u graphs: IF has 1 "
				       "or 2, WHILE 1, SWITCH 1 or more",
				       p->call, c->size);
	return CUDA_SUCCESS;
}

static CUresult add_conditional(const struct place *p, CUDA_CONDITIONAL_NODE_PARAMS *c)
{
	CUresult result = begin(p, c);

	if (result)
		return result;
	result = emu_driver_enter();
	if (!result)
		result = check_conditional(p, c);
	if (!result && !emu_conditional_hold(c->handle))
		result = emu_driver_fail(CUDA_ERROR_INVALID_VALUE,
					 "%s: %llu is not the handle of a condition",
					 p->call, c->handle);
	if (result)
		return emu_driver_leave(result);
	result = add(p, CU_GRAPH_NODE_TYPE_CONDITIONAL, NULL);
	if (result) {
		emu_conditional_leave(c->handle);
		return emu_driver_leave(result);
	}
	(*p->node)->handle = c->handle;
	(*p->node)->condition = c->type;
	result = give_graphs(*p->node, c->size);
	if (result)
		emu_node_remove(*p->node);
	else
		c->phGraph_out = (*p->node)->graphs;
	return emu_driver_leave(result);
}

/* ---- calls ------------------------------------------------------------------- */

#define PLACE(call)                                                                    \
	{                                                                              \
#call, node, graph, before, NULL, count                                \
	}

CUresult cuGraphAddKernelNode_v2(CUgraphNode *node, CUgraph graph,
				 const CUgraphNode *before, size_t count,
				 const CUDA_KERNEL_NODE_PARAMS *p)
{
	const struct place place = PLACE(cuGraphAddKernelNode);

	return add_kernel(&place, p);
}

CUresult cuGraphAddMemcpyNode(CUgraphNode *node, CUgraph graph,
			      const CUgraphNode *before, size_t count,
			      const CUDA_MEMCPY3D *p, CUcontext context)
{
	const struct place place = PLACE(cuGraphAddMemcpyNode);

	(void)context;
	return add_copy(&place, p);
}

CUresult cuGraphAddMemsetNode(CUgraphNode *node, CUgraph graph,
			      const CUgraphNode *before, size_t count,
			      const CUDA_MEMSET_NODE_PARAMS *p, CUcontext context)
{
	const struct place place = PLACE(cuGraphAddMemsetNode);

	(void)context;
	return add_fill(&place, p);
}

CUresult cuGraphAddHostNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *before,
			    size_t count, const CUDA_HOST_NODE_PARAMS *p)
{
	const struct place place = PLACE(cuGraphAddHostNode);

	return add_host(&place, p);
}

CUresult cuGraphAddChildGraphNode(CUgraphNode *node, CUgraph graph,
				  const CUgraphNode *before, size_t count,
				  CUgraph child)
{
	const struct place place = PLACE(cuGraphAddChildGraphNode);

	return add_child(&place, child);
}

CUresult cuGraphAddEmptyNode(CUgraphNode *node, CUgraph graph,
			     const CUgraphNode *before, size_t count)
{
	const struct place place = PLACE(cuGraphAddEmptyNode);

	return end(&place, begin(&place, &place), CU_GRAPH_NODE_TYPE_EMPTY, NULL);
}

CUresult cuGraphAddEventRecordNode(CUgraphNode *node, CUgraph graph,
				   const CUgraphNode *before, size_t count,
				   CUevent event)
{
	const struct place place = PLACE(cuGraphAddEventRecordNode);

	return add_event(&place, CU_GRAPH_NODE_TYPE_EVENT_RECORD, event);
}

CUresult cuGraphAddEventWaitNode(CUgraphNode *node, CUgraph graph,
				 const CUgraphNode *before, size_t count, CUevent event)
{
	const struct place place = PLACE(cuGraphAddEventWaitNode);

	return add_event(&place, CU_GRAPH_NODE_TYPE_WAIT_EVENT, event);
}

CUresult cuGraphAddMemAllocNode(CUgraphNode *node, CUgraph graph,
				const CUgraphNode *before, size_t count,
				CUDA_MEM_ALLOC_NODE_PARAMS *p)
{
	const struct place place = PLACE(cuGraphAddMemAllocNode);

	return add_allocation(&place, p);
}

CUresult cuGraphAddMemFreeNode(CUgraphNode *node, CUgraph graph,
			       const CUgraphNode *before, size_t count,
			       CUdeviceptr pointer)
{
	const struct place place = PLACE(cuGraphAddMemFreeNode);

	return add_free(&place, pointer);
}

static CUresult refuse_type(const char *call, int type)
{
	(void)emu_driver_enter();
	return emu_driver_leave(emu_driver_fail(CUDA_ERROR_NOT_SUPPORTED,
						"%s: %s nodes (type %d) are not "
						"supported",
						call, emu_node_title(type), type));
}

CUresult cuGraphAddNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *before,
			   const CUgraphEdgeData *data, size_t count,
			   CUgraphNodeParams *p)
{
	const struct place place = {"cuGraphAddNode", node, graph, before, data, count};
	const CUresult result = begin(&place, p);

	if (result)
		return result;
	switch (p->type) {
	case CU_GRAPH_NODE_TYPE_KERNEL:
		return add_kernel(&place, &p->kernel);
	case CU_GRAPH_NODE_TYPE_MEMCPY:
		return add_copy(&place, &p->memcpy.copyParams);
	case CU_GRAPH_NODE_TYPE_MEMSET:
		return add_fill(&place, &p->memset);
	case CU_GRAPH_NODE_TYPE_HOST:
		return add_host(&place, &p->host);
	case CU_GRAPH_NODE_TYPE_GRAPH:
		return add_child(&place, p->graph.graph);
	case CU_GRAPH_NODE_TYPE_EMPTY:
		return end(&place, CUDA_SUCCESS, p->type, NULL);
	case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
	case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
		return add_event(&place, p->type, p->event);
	case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
		return add_allocation(&place, &p->alloc);
	case CU_GRAPH_NODE_TYPE_MEM_FREE:
		return add_free(&place, p->free);
	case CU_GRAPH_NODE_TYPE_CONDITIONAL:
		return add_conditional(&place, &p->conditional);
	default:
		return refuse_type("cuGraphAddNode", p->type);
	}
}

CUresult cuGraphAddNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *before,
			size_t count, CUgraphNodeParams *p)
{
	return cuGraphAddNode_v2(node, graph, before, NULL, count, p);
}

/* ---- graphs of nodes ------------------------------------------------------------ */

CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode node, CUgraph *graph)
{
	CUresult result = emu_driver_enter();

	if (!result)
		result = emu_node_check("cuGraphChildGraphNodeGetGraph", node,
					CU_GRAPH_NODE_TYPE_GRAPH);
	if (!result && !graph)
		result = CUDA_ERROR_INVALID_VALUE;
	if (!result)
		*graph = node->graphs[0];
	return emu_driver_leave(result);
}
