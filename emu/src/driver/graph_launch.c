/* SPDX-License-Identifier: Apache-2.0 */
/* graph_launch.c - runs the nodes of a graph in their order. */
#include <stdlib.h>
#include <string.h>

#include "driver/graph.h"
#include "driver/graph_memory.h"
#include "driver/stream.h"

/* The work that something has seen: clocks of streams (stream_order.h). */
struct seen {
	uint32_t clocks[EMU_STREAMS];
};

struct launch {
	CUgraphExec exec;
	CUstream stream;
	uint64_t end; /* of the budget: instructions of the machine */
};

static CUresult run_graph(const struct launch *l, CUgraph graph, struct seen *seen);

/* Calls the function of a node when the work before it has ended, without the lock. */
static CUresult call_host(const struct emu_work *w)
{
	CUresult result = emu_driver_flush();

	if (result)
		return result;
	(void)emu_driver_leave(CUDA_SUCCESS);
	w->function(w->argument);
	return emu_driver_enter();
}

/* True if each node before may still run when the kernel begins. */
static bool is_programmatic(const struct CUgraphNode_st *n)
{
	size_t i = 0;

	if (n->type != CU_GRAPH_NODE_TYPE_KERNEL ||
	    !emu_device_has_hopper(emu_driver.machine.device))
		return false;

	while (i < n->n_before &&
	       n->before[i].data.type == CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC)
		i++;
	return n->n_before && i == n->n_before;
}

static CUresult run_work(const struct launch *l, const struct CUgraphNode_st *n,
			 struct seen *seen)
{
	const uint32_t number =
	    n->chain ? l->exec->streams[n->chain - 1] : emu_stream_number(l->stream);
	struct emu_work *w;

	if (n->work->kind == EMU_WORK_HOST)
		return call_host(n->work);
	w = emu_work_copy(n->work);
	if (!w)
		return CUDA_ERROR_OUT_OF_MEMORY;
	w->is_dependent |= is_programmatic(n);
	emu_stream_order_node(&emu_driver.order, number, seen->clocks, &w->order);
	return emu_driver_submit(w);
}

/* ---- conditions ---------------------------------------------------------------- */

static CUresult run_while(const struct launch *l, const struct CUgraphNode_st *n,
			  struct seen *seen)
{
	const struct emu_machine *m = &emu_driver.machine;
	CUresult result = CUDA_SUCCESS;

	while (!result && emu_conditional_value(n->handle)) {
		const uint64_t before = m->instructions;

		result = run_graph(l, n->graphs[0], seen);
		if (!result)
			result = emu_driver_flush();
		if (!result && (m->instructions == before || m->instructions > l->end))
			result = emu_driver_fail(
			    CUDA_ERROR_LAUNCH_FAILED,
			    "cuGraphLaunch: a WHILE node does not end: %s",
			    m->instructions == before
				? "its graph runs no kernel that could set its value "
				  "to 0"
				: "its kernels have run NIBEMU_BUDGET instructions");
	}
	if (result == CUDA_ERROR_LAUNCH_FAILED)
		emu_driver.failed = result;
	return result;
}

static CUresult run_condition(const struct launch *l, const struct CUgraphNode_st *n,
			      struct seen *seen)
{
	const CUresult result = emu_driver_flush();
	const uint32_t value = emu_conditional_value(n->handle);
	const uint32_t chosen = n->condition == CU_GRAPH_COND_TYPE_IF ? !value : value;

	if (result)
		return result;
	if (n->condition == CU_GRAPH_COND_TYPE_WHILE)
		return run_while(l, n, seen);
	return chosen < n->n_graphs ? run_graph(l, n->graphs[chosen], seen)
				    : CUDA_SUCCESS;
}

/* ---- nodes ------------------------------------------------------------------- */

/* Runs a node.  seen: what the nodes before it have seen; then also this node's work.
 */
static CUresult run_node(const struct launch *l, const struct CUgraphNode_st *n,
			 struct seen *seen)
{
	CUresult result;

	switch (n->type) {
	case CU_GRAPH_NODE_TYPE_EMPTY:
		return CUDA_SUCCESS;
	case CU_GRAPH_NODE_TYPE_GRAPH:
		return run_graph(l, n->graphs[0], seen);
	case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
		emu_stream_order_merge(seen->clocks, n->event->seen);
		return CUDA_SUCCESS;
	case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
		result = emu_driver_flush();
		emu_event_set(n->event, seen->clocks);
		return result;
	case CU_GRAPH_NODE_TYPE_CONDITIONAL:
		return run_condition(l, n, seen);
	default:
		return n->is_disabled ? CUDA_SUCCESS : run_work(l, n, seen);
	}
}

/* seen: what has been seen before the graph, and then also all of it. */
static CUresult run_graph(const struct launch *l, CUgraph graph, struct seen *seen)
{
	struct seen *all = malloc((graph->count + 1) * sizeof(*all));
	struct seen end = *seen;
	CUresult result = all ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;

	for (size_t k = 0; k < graph->count && !result; k++) {
		const struct CUgraphNode_st *n = graph->order[k];

		all[k] = *seen;
		for (size_t i = 0; i < n->n_before; i++)
			emu_stream_order_merge(all[k].clocks,
					       all[n->before[i].node->index].clocks);
		result = run_node(l, n, &all[k]);
		emu_stream_order_merge(end.clocks, all[k].clocks);
	}
	*seen = end;
	free(all);
	return result;
}

/* ---- launches ------------------------------------------------------------------ */

/* Before a launch: values of conditions, and memory that the last launch has left. */
static CUresult prepare(CUgraph graph, bool frees)
{
	CUresult result = CUDA_SUCCESS;

	for (CUgraphNode n = graph->first; n && !result; n = n->next) {
		if (n->handle)
			emu_conditional_begin(n->handle);
		if (n->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC &&
		    n->work->reservation->is_live && frees)
			result = emu_reservation_change(n->work->reservation, false);
		for (uint32_t i = 0; i < n->n_graphs && !result; i++)
			result = prepare(n->graphs[i], frees);
	}
	return result;
}

static CUresult launch(CUgraphExec exec, CUstream stream)
{
	const struct emu_machine *m = &emu_driver.machine;
	const uint32_t number = emu_stream_number(stream);
	const struct launch l = {exec, stream, m->instructions + m->options.budget};
	struct seen seen = {{0}};
	CUresult result = emu_driver_flush();

	if (!result)
		result = prepare(exec->graph,
				 exec->flags &
				     CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH);
	if (result)
		return result;
	/* A graph does not run twice at the same time. */
	emu_stream_order_seen(&emu_driver.order, number, seen.clocks);
	emu_stream_order_merge(seen.clocks, exec->seen);
	result = run_graph(&l, exec->graph, &seen);
	memcpy(exec->seen, seen.clocks, sizeof(exec->seen));
	emu_stream_order_wait(&emu_driver.order, number, seen.clocks);
	return result;
}

CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream)
{
	CUresult result = emu_driver_enter();

	if (!result && !exec)
		result = CUDA_ERROR_INVALID_VALUE;
	if (!result && !emu_stream_is_valid(stream))
		result = CUDA_ERROR_INVALID_HANDLE;
	if (!result && emu_stream_is_capturing(stream))
		result =
		    emu_graph_has_memory(exec->graph)
			? emu_driver_fail(CUDA_ERROR_NOT_SUPPORTED,
					  "cuGraphLaunch in a capture: a graph "
					  "with nodes that allocate or free memory "
					  "is not a child")
			: emu_capture_graph(stream, exec->graph);
	else if (!result)
		result = launch(exec, stream);
	return emu_driver_leave(result);
}

/* Graphs need no preparation on the device. */
CUresult cuGraphUpload(CUgraphExec exec, CUstream stream)
{
	CUresult result = emu_driver_enter();

	if (!result && !exec)
		result = CUDA_ERROR_INVALID_VALUE;
	if (!result && !emu_stream_is_valid(stream))
		result = CUDA_ERROR_INVALID_HANDLE;
	return emu_driver_leave(result);
}
