/* SPDX-License-Identifier: Apache-2.0 */
/*
 * graph_nodes.c - nodes that programs add to a graph by hand.  A node is added as if a
 * stream of its own had captured the work.  Nodes run in the order in which they were
 * added, which respects their dependencies, because those exist before them.
 */
#include "driver/queue.h"

/* ---- adding -------------------------------------------------------------- */

static bool has_node(CUgraph graph, CUgraphNode node)
{
	const struct emu_work *w = graph->first;

	while (w && w != (const struct emu_work *)(const void *)node)
		w = w->next;
	return w;
}

/* Checks a graph and the dependencies, and makes the stream capture into the graph. */
static CUresult begin(struct CUstream_st *stream, CUgraphNode *node, CUgraph graph,
		      const CUgraphNode *before, size_t count)
{
	CUresult result = emu_driver_enter();

	if (!result && (!node || !graph || (count && !before)))
		result = CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; !result && i < count; i++)
		if (!has_node(graph, before[i]))
			result = CUDA_ERROR_INVALID_VALUE;
	if (!result) {
		stream->graph = graph;
		stream->next = emu_driver.streams;
		emu_driver.streams = stream;
	}
	return emu_driver_leave(result);
}

/* Ends the capture and returns the node. */
static CUresult end(const struct CUstream_st *stream, CUresult result,
		    CUgraphNode *node)
{
	struct CUstream_st **at = &emu_driver.streams;

	(void)emu_driver_enter();
	while (*at != stream)
		at = &(*at)->next;
	*at = stream->next;
	if (!result)
		*node = (CUgraphNode)(void *)stream->graph->last;
	return emu_driver_leave(result);
}

/* ---- nodes --------------------------------------------------------------- */

CUresult cuGraphAddKernelNode_v2(CUgraphNode *node, CUgraph graph,
				 const CUgraphNode *before, size_t count,
				 const CUDA_KERNEL_NODE_PARAMS *p)
{
	struct CUstream_st stream = {0};
	CUresult result =
	    p ? begin(&stream, node, graph, before, count) : CUDA_ERROR_INVALID_VALUE;
	CUfunction function;

	if (result)
		return result;
	function = p->func ? p->func : (CUfunction)(void *)p->kern;
	result = cuLaunchKernel(function, p->gridDimX, p->gridDimY, p->gridDimZ,
				p->blockDimX, p->blockDimY, p->blockDimZ,
				p->sharedMemBytes, &stream, p->kernelParams, p->extra);
	return end(&stream, result, node);
}

CUresult cuGraphAddMemcpyNode(CUgraphNode *node, CUgraph graph,
			      const CUgraphNode *before, size_t count,
			      const CUDA_MEMCPY3D *p, CUcontext context)
{
	struct CUstream_st stream = {0};
	CUresult result =
	    p ? begin(&stream, node, graph, before, count) : CUDA_ERROR_INVALID_VALUE;

	(void)context;
	if (result)
		return result;
	/* Each row would be a node. */
	if (p->Height != 1 || p->Depth != 1)
		result = emu_driver_fail(CUDA_ERROR_NOT_SUPPORTED,
					 "a copy node of more than one row");
	else
		result = cuMemcpy3DAsync_v2(p, &stream);
	return end(&stream, result, node);
}

CUresult cuGraphAddMemsetNode(CUgraphNode *node, CUgraph graph,
			      const CUgraphNode *before, size_t count,
			      const CUDA_MEMSET_NODE_PARAMS *p, CUcontext context)
{
	struct CUstream_st stream = {0};
	CUresult result =
	    p ? begin(&stream, node, graph, before, count) : CUDA_ERROR_INVALID_VALUE;

	(void)context;
	if (result)
		return result;
	if (p->height != 1)
		result = emu_driver_fail(CUDA_ERROR_NOT_SUPPORTED,
					 "a fill node of more than one row");
	else if (p->elementSize == 1)
		result =
		    cuMemsetD8Async(p->dst, (unsigned char)p->value, p->width, &stream);
	else if (p->elementSize == 2)
		result = cuMemsetD16Async(p->dst, (unsigned short)p->value, p->width,
					  &stream);
	else if (p->elementSize == 4)
		result = cuMemsetD32Async(p->dst, p->value, p->width, &stream);
	else
		result = CUDA_ERROR_INVALID_VALUE;
	return end(&stream, result, node);
}

CUresult cuGraphAddHostNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *before,
			    size_t count, const CUDA_HOST_NODE_PARAMS *p)
{
	struct CUstream_st stream = {0};
	CUresult result =
	    p ? begin(&stream, node, graph, before, count) : CUDA_ERROR_INVALID_VALUE;

	if (result)
		return result;
	result = cuLaunchHostFunc(&stream, p->fn, p->userData);
	return end(&stream, result, node);
}
