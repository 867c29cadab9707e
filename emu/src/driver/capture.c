/* SPDX-License-Identifier: Apache-2.0 */
/*
 * capture.c - captures: what streams would run becomes nodes of a graph.  Each stream
 * of a capture has tails, the nodes after which its next node comes.  An event keeps
 * those of the stream in which it is recorded, for the streams that wait for it.
 */
#include <stdlib.h>
#include <string.h>

#include "driver/graph.h"
#include "driver/stream.h"

/* ---- tails ----------------------------------------------------------------- */

static bool has_tail(const struct emu_tails *t, const struct CUgraphNode_st *node)
{
	for (size_t i = 0; i < t->count; i++)
		if (t->nodes[i] == node)
			return true;
	return false;
}

static CUresult add_tails(struct emu_tails *to, const CUgraphNode *nodes, size_t count)
{
	CUgraphNode *grown =
	    realloc(to->nodes, (to->count + count + 1) * sizeof(CUgraphNode));

	if (!grown)
		return CUDA_ERROR_OUT_OF_MEMORY;
	to->nodes = grown;
	for (size_t i = 0; i < count; i++)
		if (!has_tail(to, nodes[i]))
			grown[to->count++] = nodes[i];
	return CUDA_SUCCESS;
}

static CUresult set_tails(struct emu_tails *to, const CUgraphNode *nodes, size_t count)
{
	to->count = 0;
	return add_tails(to, nodes, count);
}

/* Adds a node after the stream's tails, and makes it the only one. */
static CUresult add_node(CUstream stream, int type, struct emu_work *work,
			 CUgraphNode *added)
{
	CUgraphNode node = emu_node_add(stream->graph, type, work);
	CUresult result = node ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;

	if (!node)
		emu_work_free(work);
	for (size_t i = 0; i < stream->tails.count && !result; i++)
		result = emu_node_depend(node, stream->tails.nodes[i], NULL);
	if (!result)
		result = set_tails(&stream->tails, &node, 1);
	if (added)
		*added = node;
	return result;
}

static CUresult capture_work(CUstream stream, struct emu_work *work)
{
	static const int types[] = {
	    [EMU_WORK_KERNEL] = CU_GRAPH_NODE_TYPE_KERNEL,
	    [EMU_WORK_COPY] = CU_GRAPH_NODE_TYPE_MEMCPY,
	    [EMU_WORK_SET] = CU_GRAPH_NODE_TYPE_MEMSET,
	    [EMU_WORK_ALLOC] = CU_GRAPH_NODE_TYPE_MEM_ALLOC,
	    [EMU_WORK_FREE] = CU_GRAPH_NODE_TYPE_MEM_FREE,
	    [EMU_WORK_HOST] = CU_GRAPH_NODE_TYPE_HOST,
	};

	return add_node(stream, types[work->kind], work, NULL);
}

CUresult emu_stream_submit(CUstream stream, struct emu_work *work)
{
	if (emu_stream_is_capturing(stream))
		return capture_work(stream, work);
	emu_stream_order_begin(&emu_driver.order, emu_stream_number(stream),
			       &work->order);
	return emu_driver_submit(work);
}

CUresult emu_capture_graph(CUstream stream, CUgraph graph)
{
	CUgraphNode node = NULL;
	CUresult result = add_node(stream, CU_GRAPH_NODE_TYPE_GRAPH, NULL, &node);

	if (result)
		return result;
	node->graphs = calloc(1, sizeof(*node->graphs));
	if (node->graphs)
		node->graphs[0] = emu_graph_copy(graph);
	if (!node->graphs || !node->graphs[0])
		return CUDA_ERROR_OUT_OF_MEMORY;
	node->graphs[0]->owner = node;
	node->n_graphs = 1;
	return CUDA_SUCCESS;
}

/* ---- events ---------------------------------------------------------------- */

CUresult emu_capture_record(CUevent event, CUstream stream, bool is_node)
{
	CUgraphNode node = NULL;
	CUresult result;

	if (is_node) {
		result = add_node(stream, CU_GRAPH_NODE_TYPE_EVENT_RECORD, NULL, &node);
		if (!result)
			node->event = event;
		return result;
	}
	event->capture = stream->graph->capture;
	return set_tails(&event->tails, stream->tails.nodes, stream->tails.count);
}

CUresult emu_capture_wait(CUstream stream, CUevent event, bool is_node)
{
	const struct CUstream_st *s = emu_driver.streams;
	CUgraphNode node = NULL;
	CUresult result;

	if (is_node && emu_stream_is_capturing(stream)) {
		result = add_node(stream, CU_GRAPH_NODE_TYPE_WAIT_EVENT, NULL, &node);
		if (!result)
			node->event = event;
		return result;
	}
	if (!event->capture)
		return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
	while (s && (!s->is_origin || s->graph->capture != event->capture))
		s = s->next;
	if (!s)
		return CUDA_ERROR_CAPTURED_EVENT;
	if ((uintptr_t)stream <= 2)
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	if (stream->graph && stream->graph != s->graph)
		return CUDA_ERROR_STREAM_CAPTURE_MERGE;
	if (!stream->graph)
		stream->tails.count = 0;
	stream->graph = s->graph;
	return add_tails(&stream->tails, event->tails.nodes, event->tails.count);
}

/* ---- begin and end ----------------------------------------------------------- */

/* Ends the capture of a graph in all of its streams. */
static void leave(const struct CUgraph_st *graph)
{
	for (struct CUstream_st *s = emu_driver.streams; s; s = s->next)
		if (s->graph == graph) {
			s->graph = NULL;
			s->is_origin = s->is_kept = false;
			s->tails.count = 0;
		}
}

void emu_capture_leave(CUstream stream)
{
	struct CUgraph_st *graph = stream->graph;
	const bool is_kept = stream->is_kept;

	if (!stream->is_origin)
		return;
	leave(graph);
	if (!is_kept)
		emu_graph_free(graph);
}

static CUresult check_begin(CUstream stream)
{
	if (!emu_stream_is_valid(stream))
		return CUDA_ERROR_INVALID_HANDLE;
	if ((uintptr_t)stream <= 2)
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	return stream->graph ? CUDA_ERROR_STREAM_CAPTURE_UNMATCHED : CUDA_SUCCESS;
}

static void begin(CUstream stream, CUgraph graph)
{
	static uint64_t captures;

	graph->capture = ++captures;
	stream->graph = graph;
	stream->is_origin = true;
}

CUresult cuStreamBeginCapture_v2(CUstream stream, int mode)
{
	CUresult result = emu_driver_enter();
	CUgraph graph;

	(void)mode;
	if (!result)
		result = check_begin(stream);
	if (!result) {
		graph = emu_graph_new();
		if (graph)
			begin(stream, graph);
		else
			result = CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (!result)
		stream->tails.count = 0;
	return emu_driver_leave(result);
}

CUresult cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph,
				     const CUgraphNode *before,
				     const CUgraphEdgeData *data, size_t count,
				     int mode)
{
	CUresult result = emu_driver_enter();

	(void)mode;
	(void)data;
	if (!result && (!graph || (count && !before)))
		result = CUDA_ERROR_INVALID_VALUE;
	if (!result)
		result = check_begin(stream);
	for (size_t i = 0; !result && i < count; i++)
		if (!emu_graph_has(graph, before[i]))
			result = emu_driver_fail(
			    CUDA_ERROR_INVALID_VALUE,
			    "cuStreamBeginCaptureToGraph: dependency %zu is not a node "
			    "of the graph",
			    i);
	if (!result)
		result = set_tails(&stream->tails, before, count);
	if (!result) {
		begin(stream, graph);
		stream->is_kept = true;
	}
	return emu_driver_leave(result);
}

CUresult cuStreamIsCapturing(CUstream stream, int *state)
{
	CUresult result = emu_driver_enter();

	if (!result && !emu_stream_is_valid(stream))
		result = CUDA_ERROR_INVALID_HANDLE;
	else if (!result)
		*state = emu_stream_is_capturing(stream);
	return emu_driver_leave(result);
}

/* Marks the nodes from which edges lead to the stream's tails.  NULL: no memory. */
static bool *find_joined(const struct CUstream_st *stream)
{
	CUgraph graph = stream->graph;
	CUgraphNode *nodes = calloc(graph->count + 1, sizeof(*nodes));
	bool *is_joined = calloc(graph->count + 1, sizeof(*is_joined));
	bool changes = nodes && is_joined;

	emu_graph_number(graph);
	for (CUgraphNode n = graph->first; changes && n; n = n->next)
		nodes[n->place] = n;
	for (size_t i = 0; changes && i < stream->tails.count; i++)
		is_joined[stream->tails.nodes[i]->place] = true;
	/* Mostly once: edges of captures come from nodes that were added before. */
	while (changes) {
		changes = false;
		for (size_t k = graph->count; k-- > 0;)
			for (size_t i = 0;
			     is_joined[k] && nodes[k] && i < nodes[k]->n_before; i++) {
				const size_t from = nodes[k]->before[i].node->place;

				changes |= from > k && !is_joined[from];
				is_joined[from] = true;
			}
	}
	free(nodes);
	return is_joined;
}

/* Fails if another stream has nodes for which the first stream has not waited. */
static CUresult check_joined(const struct CUstream_st *origin)
{
	const struct CUstream_st *s = emu_driver.streams;
	CUresult result = CUDA_SUCCESS;
	bool *is_joined;

	while (s && (s == origin || s->graph != origin->graph))
		s = s->next;
	if (!s)
		return CUDA_SUCCESS;
	is_joined = find_joined(origin);
	if (!is_joined)
		return CUDA_ERROR_OUT_OF_MEMORY;
	for (; s; s = s->next)
		for (size_t i = 0; s->graph == origin->graph && i < s->tails.count; i++)
			if (!is_joined[s->tails.nodes[i]->place])
				result = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
	free(is_joined);
	return result;
}

CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph)
{
	CUresult result = emu_driver_enter();

	if (!result && !emu_stream_is_valid(stream))
		result = CUDA_ERROR_INVALID_HANDLE;
	else if (!result && (!emu_stream_is_capturing(stream) || !stream->is_origin))
		result = CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
	if (result)
		return emu_driver_leave(result);
	result = check_joined(stream);
	/* A capture into a graph of the program need not return it. */
	if (!result && !graph && !stream->is_kept)
		result = CUDA_ERROR_INVALID_VALUE;
	if (graph)
		*graph = result ? NULL : stream->graph;
	if (result)
		emu_capture_leave(stream);
	else
		leave(stream->graph);
	return emu_driver_leave(result);
}

/* ---- state ------------------------------------------------------------------- */

/* Edges of captures have no data. */
CUresult cuStreamGetCaptureInfo_v3(CUstream stream, int *status, uint64_t *id,
				   CUgraph *graph, const CUgraphNode **before,
				   const CUgraphEdgeData **data, size_t *count)
{
	CUresult result = emu_driver_enter();

	if (!result && !status)
		result = CUDA_ERROR_INVALID_VALUE;
	if (!result && !emu_stream_is_valid(stream))
		result = CUDA_ERROR_INVALID_HANDLE;
	if (result)
		return emu_driver_leave(result);
	*status = emu_stream_is_capturing(stream);
	if (!*status)
		return emu_driver_leave(CUDA_SUCCESS);
	if (id)
		*id = stream->graph->capture;
	if (graph)
		*graph = stream->graph;
	if (before)
		*before = stream->tails.nodes;
	if (data)
		*data = NULL;
	if (count)
		*count = stream->tails.count;
	return emu_driver_leave(CUDA_SUCCESS);
}

CUresult cuStreamGetCaptureInfo_v2(CUstream stream, int *status, uint64_t *id,
				   CUgraph *graph, const CUgraphNode **before,
				   size_t *count)
{
	return cuStreamGetCaptureInfo_v3(stream, status, id, graph, before, NULL,
					 count);
}

/* flags: 0 adds the nodes to the tails, 1 replaces them. */
CUresult cuStreamUpdateCaptureDependencies_v2(CUstream stream, CUgraphNode *nodes,
					      const CUgraphEdgeData *data, size_t count,
					      unsigned flags)
{
	CUresult result = emu_driver_enter();

	(void)data;
	if (!result && !emu_stream_is_valid(stream))
		result = CUDA_ERROR_INVALID_HANDLE;
	if (!result && (flags > 1 || (count && !nodes)))
		result = CUDA_ERROR_INVALID_VALUE;
	if (!result && !emu_stream_is_capturing(stream))
		result = CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
	for (size_t i = 0; !result && i < count; i++)
		if (!emu_graph_has(stream->graph, nodes[i]))
			result = CUDA_ERROR_INVALID_VALUE;
	if (!result)
		result = flags ? set_tails(&stream->tails, nodes, count)
			       : add_tails(&stream->tails, nodes, count);
	return emu_driver_leave(result);
}

CUresult cuStreamUpdateCaptureDependencies(CUstream stream, CUgraphNode *nodes,
					   size_t count, unsigned flags)
{
	return cuStreamUpdateCaptureDependencies_v2(stream, nodes, NULL, count, flags);
}

/*
 * Only keeps the mode, because no call is refused for another thread's capture.
 */
CUresult cuThreadExchangeStreamCaptureMode(int *mode)
{
	static _Thread_local int current;
	const int before = current;

	if (!mode || *mode < 0 || *mode > 2)
		return CUDA_ERROR_INVALID_VALUE;
	current = *mode;
	*mode = before;
	return CUDA_SUCCESS;
}
