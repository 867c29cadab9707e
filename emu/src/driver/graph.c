/* SPDX-License-Identifier: Apache-2.0 */
/* graph.c - see graph.h: nodes, edges and copies. */
#include "driver/graph.h"

#include <stdlib.h>
#include <string.h>

/* ---- nodes --------------------------------------------------------------- */

static uint64_t new_id(void)
{
	static uint64_t ids;

	return ++ids;
}

const char *emu_node_title(int type)
{
	static const char *const titles[] = {
	    [CU_GRAPH_NODE_TYPE_KERNEL] = "kernel",
	    [CU_GRAPH_NODE_TYPE_MEMCPY] = "copy",
	    [CU_GRAPH_NODE_TYPE_MEMSET] = "fill",
	    [CU_GRAPH_NODE_TYPE_HOST] = "host",
	    [CU_GRAPH_NODE_TYPE_GRAPH] = "child graph",
	    [CU_GRAPH_NODE_TYPE_EMPTY] = "empty",
	    [CU_GRAPH_NODE_TYPE_WAIT_EVENT] = "event wait",
	    [CU_GRAPH_NODE_TYPE_EVENT_RECORD] = "event record",
	    [8] = "semaphore signal",
	    [9] = "semaphore wait",
	    [CU_GRAPH_NODE_TYPE_MEM_ALLOC] = "memory allocation",
	    [CU_GRAPH_NODE_TYPE_MEM_FREE] = "memory free",
	    [12] = "batch of memory operations",
	    [CU_GRAPH_NODE_TYPE_CONDITIONAL] = "conditional",
	};

	return type >= 0 && type < (int)(sizeof(titles) / sizeof(*titles))
		   ? titles[type]
		   : "unknown";
}

CUresult emu_node_check(const char *call, const struct CUgraphNode_st *node, int type)
{
	if (!node)
		return emu_driver_fail(CUDA_ERROR_INVALID_VALUE, "%s: the node is NULL",
				       call);
	if (node->type == type)
		return CUDA_SUCCESS;
	return emu_driver_fail(CUDA_ERROR_INVALID_VALUE,
			       "%s: the node is a %s node: a %s node is needed", call,
			       emu_node_title(node->type), emu_node_title(type));
}

CUgraphNode emu_node_add(CUgraph graph, int type, struct emu_work *work)
{
	CUgraphNode node = calloc(1, sizeof(*node));

	if (!node)
		return NULL;
	node->type = type;
	node->id = new_id();
	node->graph = graph;
	node->work = work;
	if (graph->last)
		graph->last->next = node;
	else
		graph->first = node;
	graph->last = node;
	graph->count++;
	return node;
}

void emu_node_set_work(CUgraphNode node, struct emu_work *work)
{
	emu_work_free(node->work);
	free(node->arguments);
	node->arguments = NULL;
	node->work = work;
}

static void free_node(CUgraphNode node)
{
	for (uint32_t i = 0; i < node->n_graphs; i++)
		emu_graph_free(node->graphs[i]);
	if (node->handle)
		emu_conditional_leave(node->handle);
	emu_node_set_work(node, NULL);
	free(node->graphs);
	free(node->before);
	free(node);
}

/* Forgets the edge; false if there is none. */
static bool remove_edge(CUgraphNode node, const struct CUgraphNode_st *before)
{
	size_t i = 0;

	while (i < node->n_before && node->before[i].node != before)
		i++;
	if (i == node->n_before)
		return false;
	node->n_before--;
	memmove(&node->before[i], &node->before[i + 1],
		(node->n_before - i) * sizeof(*node->before));
	return true;
}

void emu_node_remove(CUgraphNode node)
{
	CUgraph graph = node->graph;
	CUgraphNode before = NULL;

	for (CUgraphNode n = graph->first; n; n = n->next) {
		(void)remove_edge(n, node);
		if (n->next == node)
			before = n;
	}
	if (before)
		before->next = node->next;
	else
		graph->first = node->next;
	if (graph->last == node)
		graph->last = before;
	graph->count--;
	free_node(node);
}

CUresult emu_node_depend(CUgraphNode node, CUgraphNode before,
			 const CUgraphEdgeData *data)
{
	struct emu_edge *grown =
	    realloc(node->before, (node->n_before + 1) * sizeof(*grown));

	if (!grown)
		return CUDA_ERROR_OUT_OF_MEMORY;
	node->before = grown;
	grown[node->n_before++] =
	    (struct emu_edge){before, data ? *data : (CUgraphEdgeData){0}};
	return CUDA_SUCCESS;
}

/* ---- graphs ---------------------------------------------------------------- */

CUgraph emu_graph_new(void)
{
	CUgraph graph = calloc(1, sizeof(*graph));

	if (graph)
		graph->id = new_id();
	return graph;
}

void emu_graph_free(CUgraph graph)
{
	CUgraphNode next;

	if (!graph)
		return;
	for (CUgraphNode n = graph->first; n; n = next) {
		next = n->next;
		free_node(n);
	}
	for (size_t i = 0; i < graph->n_handles; i++)
		emu_conditional_leave(graph->handles[i]);
	free(graph->handles);
	free(graph->order);
	free(graph);
}

bool emu_graph_has(const struct CUgraph_st *graph, const struct CUgraphNode_st *node)
{
	const struct CUgraphNode_st *n = graph->first;

	while (n && n != node)
		n = n->next;
	return n;
}

bool emu_graph_has_memory(const struct CUgraph_st *graph)
{
	for (const struct CUgraphNode_st *n = graph->first; n; n = n->next) {
		if (n->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC ||
		    n->type == CU_GRAPH_NODE_TYPE_MEM_FREE)
			return true;
		for (uint32_t i = 0; i < n->n_graphs; i++)
			if (emu_graph_has_memory(n->graphs[i]))
				return true;
	}
	return false;
}

CUgraphNode emu_graph_find_copy(const struct CUgraph_st *copy, uint64_t origin)
{
	for (CUgraphNode n = copy->first; n; n = n->next) {
		if (n->origin == origin)
			return n;
		for (uint32_t i = 0; i < n->n_graphs; i++) {
			CUgraphNode found = emu_graph_find_copy(n->graphs[i], origin);

			if (found)
				return found;
		}
	}
	return NULL;
}

/* ---- copies ---------------------------------------------------------------- */

/* Copies what a node has, without its edges; false without memory. */
static bool copy_node(CUgraphNode to, const struct CUgraphNode_st *from)
{
	to->origin = from->id;
	to->event = from->event;
	to->condition = from->condition;
	to->is_disabled = from->is_disabled;
	to->work = from->work ? emu_work_copy(from->work) : NULL;
	if (from->handle && emu_conditional_hold(from->handle))
		to->handle = from->handle;
	if (from->n_graphs)
		to->graphs = calloc(from->n_graphs, sizeof(*to->graphs));
	if ((from->work && !to->work) || (from->n_graphs && !to->graphs))
		return false;
	for (; to->n_graphs < from->n_graphs; to->n_graphs++) {
		CUgraph graph = emu_graph_copy(from->graphs[to->n_graphs]);

		if (!graph)
			return false;
		graph->owner = to;
		to->graphs[to->n_graphs] = graph;
	}
	return true;
}

void emu_graph_number(CUgraph graph)
{
	size_t i = 0;

	for (CUgraphNode n = graph->first; n; n = n->next)
		n->place = i++;
}

/* Copies the edges, which may lead to nodes that were added later. */
static bool copy_edges(CUgraph to, CUgraph from)
{
	CUgraphNode *copies = calloc(to->count + 1, sizeof(*copies));
	bool ok = copies;
	size_t i = 0;

	emu_graph_number(from);
	for (CUgraphNode n = to->first; ok && n; n = n->next)
		copies[i++] = n;
	for (const struct CUgraphNode_st *n = from->first; ok && n; n = n->next)
		for (size_t k = 0; ok && k < n->n_before; k++) {
			CUgraphNode copy = copies[n->place];

			ok = copy &&
			     !emu_node_depend(copy, copies[n->before[k].node->place],
					      &n->before[k].data);
		}
	free(copies);
	return ok;
}

CUgraph emu_graph_copy(CUgraph from)
{
	CUgraph to = emu_graph_new();
	bool ok = to;

	if (ok)
		to->origin = from->id;
	for (const struct CUgraphNode_st *n = from->first; ok && n; n = n->next) {
		CUgraphNode copy = emu_node_add(to, n->type, NULL);

		ok = copy && copy_node(copy, n);
	}
	if (ok && copy_edges(to, from))
		return to;
	emu_graph_free(to);
	return NULL;
}

CUresult emu_graph_replace(CUgraphNode node, CUgraph by)
{
	CUgraph copy = emu_graph_copy(by);

	if (!copy)
		return CUDA_ERROR_OUT_OF_MEMORY;
	copy->owner = node;
	emu_graph_free(node->graphs[0]);
	node->graphs[0] = copy;
	return CUDA_SUCCESS;
}

/* ---- calls: graphs ----------------------------------------------------------- */

CUresult cuGraphCreate(CUgraph *graph, unsigned flags)
{
	CUresult result = emu_driver_enter();

	if (!result && (!graph || flags))
		result = emu_driver_fail(CUDA_ERROR_INVALID_VALUE,
					 "cuGraphCreate: phGraph is NULL, or flags "
					 "%#x are not 0",
					 flags);
	if (!result) {
		*graph = emu_graph_new();
		result = *graph ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
	}
	return emu_driver_leave(result);
}

CUresult cuGraphClone(CUgraph *clone, CUgraph graph)
{
	CUresult result = emu_driver_enter();

	if (!result && (!clone || !graph))
		result = emu_driver_fail(CUDA_ERROR_INVALID_VALUE,
					 "cuGraphClone: a graph is NULL");
	if (!result && emu_graph_has_memory(graph))
		result = emu_driver_fail(CUDA_ERROR_NOT_SUPPORTED,
					 "cuGraphClone: a graph with nodes that "
					 "allocate or free memory has no copies");
	if (!result) {
		*clone = emu_graph_copy(graph);
		result = *clone ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
	}
	return emu_driver_leave(result);
}

CUresult cuGraphNodeFindInClone(CUgraphNode *node, CUgraphNode original, CUgraph clone)
{
	CUresult result = emu_driver_enter();
	CUgraphNode found = NULL;

	if (!result && (!node || !original || !clone))
		result = CUDA_ERROR_INVALID_VALUE;
	if (!result)
		found = emu_graph_find_copy(clone, original->id);
	if (!result && !found)
		result = emu_driver_fail(CUDA_ERROR_INVALID_VALUE,
					 "cuGraphNodeFindInClone: the graph has no "
					 "copy of this %s node",
					 emu_node_title(original->type));
	if (!result)
		*node = found;
	return emu_driver_leave(result);
}

/* ---- calls: nodes and edges -------------------------------------------------- */

CUresult cuGraphNodeGetType(CUgraphNode node, int *type)
{
	if (!node || !type)
		return CUDA_ERROR_INVALID_VALUE;
	*type = node->type;
	return CUDA_SUCCESS;
}

CUresult cuGraphDestroyNode(CUgraphNode node)
{
	CUresult result = emu_driver_enter();

	if (!result && !node)
		result = CUDA_ERROR_INVALID_VALUE;
	if (!result && emu_graph_has_memory(node->graph))
		result = emu_driver_fail(CUDA_ERROR_NOT_SUPPORTED,
					 "cuGraphDestroyNode: a graph with nodes that "
					 "allocate or free memory keeps its nodes");
	if (!result)
		emu_node_remove(node);
	return emu_driver_leave(result);
}

/* What a call returns in an array of the caller: its size, or the first of them. */
struct list {
	CUgraphNode *nodes, *others;
	CUgraphEdgeData *data;
	size_t size, count;
};

static void put(struct list *l, CUgraphNode node, CUgraphNode other,
		const CUgraphEdgeData *data)
{
	if (l->count < l->size) {
		if (l->nodes)
			l->nodes[l->count] = node;
		if (l->others)
			l->others[l->count] = other;
		if (l->data)
			l->data[l->count] = data ? *data : (CUgraphEdgeData){0};
	}
	l->count++;
}

/* As CUDA: without an array the number of all; the rest of a larger array is NULL. */
static CUresult end_list(const struct list *l, size_t *count)
{
	if (!l->nodes) {
		*count = l->count;
		return emu_driver_leave(CUDA_SUCCESS);
	}
	for (size_t i = l->count; i < l->size; i++)
		l->nodes[i] = NULL;
	for (size_t i = l->count; l->others && i < l->size; i++)
		l->others[i] = NULL;
	if (*count > l->count)
		*count = l->count;
	return emu_driver_leave(CUDA_SUCCESS);
}

static CUresult begin_list(struct list *l, const void *of, CUgraphNode *nodes,
			   const size_t *count)
{
	CUresult result = emu_driver_enter();

	*l = (struct list){.nodes = nodes};
	if (!result && (!of || !count))
		result = CUDA_ERROR_INVALID_VALUE;
	if (result)
		(void)emu_driver_leave(result);
	else
		l->size = nodes ? *count : 0;
	return result;
}

CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *count)
{
	struct list l;
	const CUresult result = begin_list(&l, graph, nodes, count);

	if (result)
		return result;
	for (CUgraphNode n = graph->first; n; n = n->next)
		put(&l, n, NULL, NULL);
	return end_list(&l, count);
}

CUresult cuGraphGetRootNodes(CUgraph graph, CUgraphNode *nodes, size_t *count)
{
	struct list l;
	const CUresult result = begin_list(&l, graph, nodes, count);

	if (result)
		return result;
	for (CUgraphNode n = graph->first; n; n = n->next)
		if (!n->n_before)
			put(&l, n, NULL, NULL);
	return end_list(&l, count);
}

CUresult cuGraphGetEdges_v2(CUgraph graph, CUgraphNode *from, CUgraphNode *to,
			    CUgraphEdgeData *data, size_t *count)
{
	struct list l;
	const CUresult result = begin_list(&l, graph, from, count);

	if (result)
		return result;
	l.others = to;
	l.data = data;
	for (CUgraphNode n = graph->first; n; n = n->next)
		for (size_t i = 0; i < n->n_before; i++)
			put(&l, n->before[i].node, n, &n->before[i].data);
	return end_list(&l, count);
}

CUresult cuGraphNodeGetDependencies_v2(CUgraphNode node, CUgraphNode *before,
				       CUgraphEdgeData *data, size_t *count)
{
	struct list l;
	const CUresult result = begin_list(&l, node, before, count);

	if (result)
		return result;
	l.data = data;
	for (size_t i = 0; i < node->n_before; i++)
		put(&l, node->before[i].node, NULL, &node->before[i].data);
	return end_list(&l, count);
}

CUresult cuGraphNodeGetDependentNodes_v2(CUgraphNode node, CUgraphNode *after,
					 CUgraphEdgeData *data, size_t *count)
{
	struct list l;
	const CUresult result = begin_list(&l, node, after, count);

	if (result)
		return result;
	l.data = data;
	for (CUgraphNode n = node->graph->first; n; n = n->next)
		for (size_t i = 0; i < n->n_before; i++)
			if (n->before[i].node == node)
				put(&l, n, NULL, &n->before[i].data);
	return end_list(&l, count);
}

static bool has_edge(const struct CUgraphNode_st *node,
		     const struct CUgraphNode_st *before)
{
	size_t i = 0;

	while (i < node->n_before && node->before[i].node != before)
		i++;
	return i < node->n_before;
}

/* Checks that each pair is of the graph, and has an edge or has none. */
static CUresult check_edges(const char *call, CUgraph graph, const CUgraphNode *from,
			    const CUgraphNode *to, size_t count, bool has)
{
	CUresult result = emu_driver_enter();

	if (!result && (!graph || (count && (!from || !to))))
		result = CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; !result && i < count; i++)
		if (!emu_graph_has(graph, from[i]) || !emu_graph_has(graph, to[i]) ||
		    from[i] == to[i])
			result = emu_driver_fail(
			    CUDA_ERROR_INVALID_VALUE,
			    "%s: pair %zu is not of two nodes of the graph", call, i);
		else if (has_edge(to[i], from[i]) != has)
			result = emu_driver_fail(CUDA_ERROR_INVALID_VALUE,
						 "%s: pair %zu %s an edge", call, i,
						 has ? "has not" : "has");
	return result;
}

CUresult cuGraphAddDependencies_v2(CUgraph graph, const CUgraphNode *from,
				   const CUgraphNode *to, const CUgraphEdgeData *data,
				   size_t count)
{
	CUresult result =
	    check_edges("cuGraphAddDependencies", graph, from, to, count, false);

	for (size_t i = 0; !result && i < count; i++)
		result = emu_node_depend(to[i], from[i], data ? &data[i] : NULL);
	return emu_driver_leave(result);
}

CUresult cuGraphRemoveDependencies_v2(CUgraph graph, const CUgraphNode *from,
				      const CUgraphNode *to,
				      const CUgraphEdgeData *data, size_t count)
{
	CUresult result =
	    check_edges("cuGraphRemoveDependencies", graph, from, to, count, true);

	(void)data;
	if (!result && emu_graph_has_memory(graph))
		result =
		    emu_driver_fail(CUDA_ERROR_NOT_SUPPORTED,
				    "cuGraphRemoveDependencies: a graph with nodes "
				    "that allocate or free memory keeps its edges");
	for (size_t i = 0; !result && i < count; i++)
		(void)remove_edge(to[i], from[i]);
	return emu_driver_leave(result);
}

/* ---- the forms of CUDA 12, whose edges have no data ------------------------- */

CUresult cuGraphGetEdges(CUgraph graph, CUgraphNode *from, CUgraphNode *to,
			 size_t *count)
{
	return cuGraphGetEdges_v2(graph, from, to, NULL, count);
}

CUresult cuGraphNodeGetDependencies(CUgraphNode node, CUgraphNode *before,
				    size_t *count)
{
	return cuGraphNodeGetDependencies_v2(node, before, NULL, count);
}

CUresult cuGraphNodeGetDependentNodes(CUgraphNode node, CUgraphNode *after,
				      size_t *count)
{
	return cuGraphNodeGetDependentNodes_v2(node, after, NULL, count);
}

CUresult cuGraphAddDependencies(CUgraph graph, const CUgraphNode *from,
				const CUgraphNode *to, size_t count)
{
	return cuGraphAddDependencies_v2(graph, from, to, NULL, count);
}

CUresult cuGraphRemoveDependencies(CUgraph graph, const CUgraphNode *from,
				   const CUgraphNode *to, size_t count)
{
	return cuGraphRemoveDependencies_v2(graph, from, to, NULL, count);
}
