/* SPDX-License-Identifier: Apache-2.0 */
/*
 * graph_exec.c - graphs that can be launched.  Such a graph is a copy whose nodes have
 * an order, in which they run one after the other.  Nodes that no edges order may run
 * at the same time on a GPU: each path of nodes is a chain, which has a number among
 * the streams (stream_order.h), so that their accesses are compared.
 */
#include <stdlib.h>
#include <string.h>

#include "driver/graph.h"
#include "driver/graph_memory.h"
#include "driver/stream.h"

static CUgraphExec execs;

/* ---- order ------------------------------------------------------------------- */

/* Numbers the nodes in `order`: first those that were added first. */
static CUresult sort(CUgraph graph, CUgraphNode *cycle)
{
	size_t count = 0;
	bool changes = true;

	free(graph->order);
	graph->order = calloc(graph->count + 1, sizeof(*graph->order));
	if (!graph->order)
		return CUDA_ERROR_OUT_OF_MEMORY;
	for (CUgraphNode n = graph->first; n; n = n->next)
		n->index = SIZE_MAX;
	while (count < graph->count && changes) {
		changes = false;
		for (CUgraphNode n = graph->first; n; n = n->next) {
			size_t i = 0;

			while (i < n->n_before && n->before[i].node->index != SIZE_MAX)
				i++;
			*cycle = n->index == SIZE_MAX ? n : *cycle;
			if (n->index != SIZE_MAX || i < n->n_before)
				continue;
			n->index = count;
			graph->order[count++] = n;
			changes = true;
		}
	}
	if (count < graph->count)
		return emu_driver_fail(CUDA_ERROR_INVALID_VALUE,
				       "cuGraphInstantiate: edges of the graph are a "
				       "cycle: a %s node would wait for itself",
				       emu_node_title(*cycle ? (*cycle)->type : -1));
	*cycle = NULL;
	return CUDA_SUCCESS;
}

CUresult emu_graph_sort(CUgraph graph, CUgraphNode *cycle)
{
	CUresult result = sort(graph, cycle);

	for (CUgraphNode n = graph->first; n; n = n->next)
		for (uint32_t i = 0; i < n->n_graphs && !result; i++)
			result = emu_graph_sort(n->graphs[i], cycle);
	return result;
}

/*
 * Gives each node a chain: that of a node before it, if no other node has continued
 * it, else a new one.  The graphs of a node begin with its chain.
 */
static bool make_chains(CUgraph graph, uint32_t first, uint32_t *count)
{
	bool *is_continued = calloc(graph->count + 1, sizeof(*is_continued));
	bool is_first = true, ok = is_continued;

	for (size_t k = 0; ok && k < graph->count; k++) {
		CUgraphNode n = graph->order[k];
		size_t i = 0;

		while (i < n->n_before && is_continued[n->before[i].node->index])
			i++;
		if (i < n->n_before) {
			n->chain = n->before[i].node->chain;
			is_continued[n->before[i].node->index] = true;
		} else if (is_first) {
			n->chain = first;
		} else {
			n->chain = (*count)++;
		}
		is_first = false;
		for (uint32_t g = 0; g < n->n_graphs && ok; g++)
			ok = make_chains(n->graphs[g], n->chain, count);
	}
	free(is_continued);
	return ok;
}

/* ---- instantiation ------------------------------------------------------------- */

static void free_exec(CUgraphExec exec)
{
	for (uint32_t i = 1; exec->streams && i < exec->n_chains; i++)
		emu_stream_order_return(&emu_driver.order, exec->streams[i - 1]);
	free(exec->streams);
	emu_graph_free(exec->graph);
	free(exec);
}

/* Takes a number for each chain but the first one. */
static CUresult take_streams(CUgraphExec exec)
{
	exec->n_chains = 1;
	if (!make_chains(exec->graph, 0, &exec->n_chains))
		return CUDA_ERROR_OUT_OF_MEMORY;
	exec->streams = calloc(exec->n_chains, sizeof(*exec->streams));
	if (!exec->streams)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (exec->n_chains > 1)
		emu_streams_compare(true);
	for (uint32_t i = 1; i < exec->n_chains; i++)
		exec->streams[i - 1] = emu_stream_order_take(&emu_driver.order);
	return CUDA_SUCCESS;
}

/* In a graph of a conditional node. */
static CUresult check_body(const struct CUgraph_st *graph)
{
	CUresult result = CUDA_SUCCESS;

	for (const struct CUgraphNode_st *n = graph->first; n && !result; n = n->next) {
		if (n->type != CU_GRAPH_NODE_TYPE_KERNEL &&
		    n->type != CU_GRAPH_NODE_TYPE_MEMCPY &&
		    n->type != CU_GRAPH_NODE_TYPE_MEMSET &&
		    n->type != CU_GRAPH_NODE_TYPE_GRAPH &&
		    n->type != CU_GRAPH_NODE_TYPE_EMPTY &&
		    n->type != CU_GRAPH_NODE_TYPE_CONDITIONAL)
			return emu_driver_fail(
			    CUDA_ERROR_NOT_SUPPORTED,
			    "cuGraphInstantiate: a %s node in the graph of a "
			    "conditional node: kernels, copies, fills, child graphs, "
			    "empty and conditional nodes are allowed",
			    emu_node_title(n->type));
		for (uint32_t i = 0; i < n->n_graphs && !result; i++)
			result = check_body(n->graphs[i]);
	}
	return result;
}

static CUresult check_bodies(const struct CUgraph_st *graph)
{
	CUresult result = CUDA_SUCCESS;

	for (const struct CUgraphNode_st *n = graph->first; n && !result; n = n->next)
		for (uint32_t i = 0; i < n->n_graphs && !result; i++)
			result = n->type == CU_GRAPH_NODE_TYPE_CONDITIONAL
				     ? check_body(n->graphs[i])
				     : check_bodies(n->graphs[i]);
	return result;
}

static CUresult check_graph(const struct CUgraph_st *graph, uint64_t flags)
{
	const struct CUgraphExec_st *e = execs;

	if (!graph)
		return emu_driver_fail(CUDA_ERROR_INVALID_VALUE,
				       "cuGraphInstantiate: the graph is NULL");
	if (flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH)
		return emu_driver_fail(CUDA_ERROR_NOT_SUPPORTED,
				       "cuGraphInstantiate: DEVICE_LAUNCH: launches of "
				       "graphs by kernels are not supported");
	if (flags & ~UINT64_C(15))
		return emu_driver_fail(CUDA_ERROR_INVALID_VALUE,
				       "cuGraphInstantiate: flags %#llx are not known",
				       (unsigned long long)flags);
	while (e && e->source != graph)
		e = e->next;
	if (e && emu_graph_has_memory(graph))
		return emu_driver_fail(
		    CUDA_ERROR_NOT_SUPPORTED,
		    "cuGraphInstantiate: a graph with nodes that "
		    "allocate or free memory, and another copy of it "
		    "exists");
	return check_bodies(graph);
}

/* The node of the graph from which a node of a cycle was copied. */
static CUgraphNode original_of(const struct CUgraph_st *graph, uint64_t id)
{
	for (CUgraphNode n = graph->first; n; n = n->next) {
		if (n->id == id)
			return n;
		for (uint32_t i = 0; i < n->n_graphs; i++)
			if (original_of(n->graphs[i], id))
				return original_of(n->graphs[i], id);
	}
	return NULL;
}

static CUresult instantiate(CUgraphExec *exec, CUgraph graph, uint64_t flags,
			    CUgraphNode *error)
{
	CUresult result = check_graph(graph, flags);
	CUgraphNode cycle = NULL;
	CUgraphExec e;

	*error = NULL;
	if (result)
		return result;
	e = calloc(1, sizeof(*e));
	if (!e)
		return CUDA_ERROR_OUT_OF_MEMORY;
	e->source = graph;
	e->flags = flags;
	e->graph = emu_graph_copy(graph);
	result = e->graph ? emu_graph_sort(e->graph, &cycle) : CUDA_ERROR_OUT_OF_MEMORY;
	if (!result)
		result = take_streams(e);
	if (result) {
		*error = cycle ? original_of(graph, cycle->origin) : NULL;
		free_exec(e);
		return result;
	}
	e->next = execs;
	execs = *exec = e;
	return CUDA_SUCCESS;
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph,
				     unsigned long long flags)
{
	CUresult result = emu_driver_enter();
	CUgraphNode error;

	if (!result && !exec)
		result = CUDA_ERROR_INVALID_VALUE;
	if (!result)
		result = instantiate(exec, graph, flags, &error);
	return emu_driver_leave(result);
}

enum { INSTANTIATE_ERROR = 1, INSTANTIATE_STRUCTURE = 2, INSTANTIATE_OPERATION = 3 };

CUresult cuGraphInstantiateWithParams(CUgraphExec *exec, CUgraph graph,
				      CUDA_GRAPH_INSTANTIATE_PARAMS *p)
{
	CUresult result = emu_driver_enter();

	if (!result && (!exec || !p))
		result = CUDA_ERROR_INVALID_VALUE;
	if (result)
		return emu_driver_leave(result);
	result = instantiate(exec, graph, p->flags, &p->hErrNode_out);
	p->result_out = !result				     ? 0
			: p->hErrNode_out		     ? INSTANTIATE_STRUCTURE
			: result == CUDA_ERROR_NOT_SUPPORTED ? INSTANTIATE_OPERATION
							     : INSTANTIATE_ERROR;
	return emu_driver_leave(result);
}

static void forget(const struct CUgraph_st *graph)
{
	for (CUgraphExec e = execs; e; e = e->next)
		if (e->source == graph)
			e->source = NULL;
}

CUresult cuGraphDestroy(CUgraph graph)
{
	CUresult result = CUDA_SUCCESS;

	(void)emu_driver_enter();
	if (!graph || graph->owner)
		result = emu_driver_fail(CUDA_ERROR_INVALID_VALUE,
					 "cuGraphDestroy: the graph is %s",
					 graph ? "a part of a node" : "NULL");
	if (!result) {
		forget(graph);
		emu_graph_free(graph);
	}
	return emu_driver_leave(result);
}

CUresult cuGraphExecGetFlags(CUgraphExec exec, uint64_t *flags)
{
	if (!exec || !flags)
		return CUDA_ERROR_INVALID_VALUE;
	*flags = exec->flags;
	return CUDA_SUCCESS;
}

CUresult cuGraphExecDestroy(CUgraphExec exec)
{
	CUgraphExec *at = &execs;

	(void)emu_driver_enter();
	while (*at && *at != exec)
		at = &(*at)->next;
	if (!*at)
		return emu_driver_leave(emu_driver_fail(
		    CUDA_ERROR_INVALID_VALUE, "cuGraphExecDestroy: not a graph that "
					      "cuGraphInstantiate made"));
	(void)emu_driver_flush();
	*at = exec->next;
	free_exec(exec);
	return emu_driver_leave(CUDA_SUCCESS);
}

/* ---- nodes that are switched off ------------------------------------------------- */

/* The node of exec that is a copy of a node of its graph, if that may be disabled. */
static CUresult find_switch(CUgraphExec exec, CUgraphNode node, CUgraphNode *found)
{
	if (!exec || !node)
		return CUDA_ERROR_INVALID_VALUE;
	*found = emu_graph_find_copy(exec->graph, node->id);
	if (*found && (node->type == CU_GRAPH_NODE_TYPE_KERNEL ||
		       node->type == CU_GRAPH_NODE_TYPE_MEMCPY ||
		       node->type == CU_GRAPH_NODE_TYPE_MEMSET))
		return CUDA_SUCCESS;
	return emu_driver_fail(CUDA_ERROR_INVALID_VALUE, "cuGraphNodeSetEnabled: %s",
			       *found ? "only kernel, copy and fill nodes can be "
					"disabled"
				      : "the node is not of this graph");
}

CUresult cuGraphNodeSetEnabled(CUgraphExec exec, CUgraphNode node, unsigned is_enabled)
{
	CUresult result = emu_driver_enter();
	CUgraphNode found = NULL;

	if (!result)
		result = find_switch(exec, node, &found);
	if (!result)
		found->is_disabled = !is_enabled;
	return emu_driver_leave(result);
}

CUresult cuGraphNodeGetEnabled(CUgraphExec exec, CUgraphNode node, unsigned *is_enabled)
{
	CUresult result = emu_driver_enter();
	CUgraphNode found = NULL;

	if (!result && !is_enabled)
		result = CUDA_ERROR_INVALID_VALUE;
	if (!result)
		result = find_switch(exec, node, &found);
	if (!result)
		*is_enabled = !found->is_disabled;
	return emu_driver_leave(result);
}
