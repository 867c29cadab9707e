/* SPDX-License-Identifier: Apache-2.0 */
/*
 * graph_update.c - gives a graph that can be launched the parameters of another graph
 * of the same form.  Nodes are paired in the order in which they were added.
 */
#include <stdlib.h>
#include <string.h>

#include "driver/graph.h"

/* ---- comparing ----------------------------------------------------------------- */

/* The first difference. */
struct difference {
	int result;	  /* CU_GRAPH_EXEC_UPDATE_... */
	CUgraphNode node; /* of the new graph; NULL: none */
	const char *what;
};

static bool differ(struct difference *d, int result, CUgraphNode node, const char *what)
{
	*d = (struct difference){result, node, what};
	return false;
}

/* True if both nodes come after the same nodes, in any order; places are numbered. */
static bool has_same_edges(const struct CUgraphNode_st *a,
			   const struct CUgraphNode_st *b)
{
	if (a->n_before != b->n_before)
		return false;
	for (size_t i = 0; i < a->n_before; i++) {
		size_t k = 0;

		while (k < b->n_before &&
		       a->before[i].node->place != b->before[k].node->place)
			k++;
		if (k == b->n_before)
			return false;
	}
	return true;
}

/* One row may move; several rows must be equal. */
static bool can_move(const struct emu_work *a, const struct emu_work *b)
{
	const size_t before = a->rows.rows * a->rows.slices;
	const size_t now = b->rows.rows * b->rows.slices;

	if (before == 1 && now == 1)
		return a->kind == EMU_WORK_COPY || a->value_bytes == b->value_bytes;
	return a->to == b->to && a->from == b->from && a->bytes == b->bytes &&
	       memcmp(&a->rows, &b->rows, sizeof(a->rows)) == 0;
}

static bool compare_graphs(CUgraph to, CUgraph by, struct difference *d);

static bool compare_nodes(CUgraphNode to, CUgraphNode by, struct difference *d)
{
	if (to->type != by->type)
		return differ(d, CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED, by,
			      "a node has another type");
	if (!has_same_edges(to, by))
		return differ(d, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, by,
			      "a node has other edges");
	if (to->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC ||
	    to->type == CU_GRAPH_NODE_TYPE_MEM_FREE)
		return differ(d, CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED, by,
			      "nodes that allocate or free memory cannot be updated");
	if ((to->type == CU_GRAPH_NODE_TYPE_MEMCPY ||
	     to->type == CU_GRAPH_NODE_TYPE_MEMSET) &&
	    !can_move(to->work, by->work))
		return differ(d, CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED, by,
			      "copies and fills of several rows cannot be changed, nor "
			      "the size of a fill's elements");
	if (to->condition != by->condition || to->n_graphs != by->n_graphs)
		return differ(d, CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED, by,
			      "a conditional node has another type or number of "
			      "graphs");
	for (uint32_t i = 0; i < to->n_graphs; i++)
		if (!compare_graphs(to->graphs[i], by->graphs[i], d))
			return false;
	return true;
}

static bool compare_graphs(CUgraph to, CUgraph by, struct difference *d)
{
	CUgraphNode b = by->first;

	if (to->count != by->count)
		return differ(d, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, NULL,
			      "the graphs have different numbers of nodes");
	emu_graph_number(to);
	emu_graph_number(by);
	for (CUgraphNode a = to->first; a; a = a->next, b = b->next)
		if (!compare_nodes(a, b, d))
			return false;
	return true;
}

/* ---- updating ------------------------------------------------------------------- */

static CUresult update(CUgraph to, CUgraph by)
{
	CUgraphNode b = by->first;
	CUresult result = CUDA_SUCCESS;

	for (CUgraphNode a = to->first; a && !result; a = a->next, b = b->next) {
		struct emu_work *work = b->work ? emu_work_copy(b->work) : NULL;

		if (b->work && !work)
			return CUDA_ERROR_OUT_OF_MEMORY;
		emu_node_set_work(a, work);
		a->event = b->event;
		if (b->handle && emu_conditional_hold(b->handle)) {
			emu_conditional_leave(a->handle);
			a->handle = b->handle;
		}
		for (uint32_t i = 0; i < a->n_graphs && !result; i++)
			result = update(a->graphs[i], b->graphs[i]);
	}
	return result;
}

CUresult cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph,
			      CUgraphExecUpdateResultInfo *info)
{
	struct difference d = {.result = CU_GRAPH_EXEC_UPDATE_SUCCESS};
	CUresult result = emu_driver_enter();

	if (!result && (!exec || !graph || !info))
		result = emu_driver_fail(CUDA_ERROR_INVALID_VALUE,
					 "cuGraphExecUpdate: an argument is NULL");
	if (result)
		return emu_driver_leave(result);
	if (!compare_graphs(exec->graph, graph, &d))
		result = emu_driver_fail(
		    CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, "cuGraphExecUpdate: %s (%s)",
		    d.what, d.node ? emu_node_title(d.node->type) : "no node");
	else
		result = update(exec->graph, graph);
	if (result && !d.result)
		d.result = CU_GRAPH_EXEC_UPDATE_ERROR;
	*info = (CUgraphExecUpdateResultInfo){d.result, d.node, NULL};
	return emu_driver_leave(result);
}

CUresult cuGraphExecChildGraphNodeSetParams(CUgraphExec exec, CUgraphNode node,
					    CUgraph graph)
{
	struct difference d = {0};
	CUresult result = emu_driver_enter();
	CUgraphNode found = NULL;

	if (!result && (!exec || !graph))
		result = CUDA_ERROR_INVALID_VALUE;
	if (!result)
		result = emu_node_check("cuGraphExecChildGraphNodeSetParams", node,
					CU_GRAPH_NODE_TYPE_GRAPH);
	if (!result)
		found = emu_graph_find_copy(exec->graph, node->id);
	if (!result && !found)
		result = emu_driver_fail(CUDA_ERROR_INVALID_VALUE,
					 "cuGraphExecChildGraphNodeSetParams: the node "
					 "is not of this graph");
	if (!result && !compare_graphs(found->graphs[0], graph, &d))
		result =
		    emu_driver_fail(CUDA_ERROR_INVALID_VALUE,
				    "cuGraphExecChildGraphNodeSetParams: %s", d.what);
	if (!result)
		result = update(found->graphs[0], graph);
	return emu_driver_leave(result);
}
