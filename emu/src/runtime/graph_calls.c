/* SPDX-License-Identifier: Apache-2.0 */
/* graph_calls.c - nodes of graphs; those of fills and functions are the driver's. */
#include "runtime/cudart.h"

cudaError_t cudaGraphCreate(CUgraph *graph, unsigned flags)
{
	const CUresult result = emu_runtime_begin();

	return emu_runtime_keep(result ? result : cuGraphCreate(graph, flags));
}

cudaError_t cudaGraphClone(CUgraph *clone, CUgraph graph)
{
	return emu_runtime_keep(cuGraphClone(clone, graph));
}

cudaError_t cudaGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *count)
{
	return emu_runtime_keep(cuGraphGetNodes(graph, nodes, count));
}

cudaError_t cudaGraphNodeGetType(CUgraphNode node, int *type)
{
	return emu_runtime_keep(cuGraphNodeGetType(node, type));
}

cudaError_t cudaGraphAddKernelNode(CUgraphNode *node, CUgraph graph,
				   const CUgraphNode *before, size_t count,
				   const struct cudaKernelNodeParams *p)
{
	CUDA_KERNEL_NODE_PARAMS kernel = {0};
	CUresult result =
	    p ? emu_runtime_function(p->func, &kernel.func) : CUDA_ERROR_INVALID_VALUE;

	if (result)
		return emu_runtime_keep(result);
	kernel.gridDimX = p->gridDim.x;
	kernel.gridDimY = p->gridDim.y;
	kernel.gridDimZ = p->gridDim.z;
	kernel.blockDimX = p->blockDim.x;
	kernel.blockDimY = p->blockDim.y;
	kernel.blockDimZ = p->blockDim.z;
	kernel.sharedMemBytes = p->sharedMemBytes;
	kernel.kernelParams = p->kernelParams;
	kernel.extra = p->extra;
	return emu_runtime_keep(
	    cuGraphAddKernelNode_v2(node, graph, before, count, &kernel));
}

cudaError_t cudaGraphAddMemcpyNode(CUgraphNode *node, CUgraph graph,
				   const CUgraphNode *before, size_t count,
				   const struct cudaMemcpy3DParms *p)
{
	CUDA_MEMCPY3D copy;

	if (!p)
		return emu_runtime_keep(CUDA_ERROR_INVALID_VALUE);
	copy = emu_runtime_box(p);
	return emu_runtime_keep(
	    cuGraphAddMemcpyNode(node, graph, before, count, &copy, NULL));
}

cudaError_t cudaGraphAddMemcpyNode1D(CUgraphNode *node, CUgraph graph,
				     const CUgraphNode *before, size_t count, void *to,
				     const void *from, size_t bytes, int kind)
{
	const CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_HOST,
				    .srcHost = from,
				    .dstMemoryType = CU_MEMORYTYPE_HOST,
				    .dstHost = to,
				    .WidthInBytes = bytes,
				    .Height = 1,
				    .Depth = 1};

	(void)kind;
	return emu_runtime_keep(
	    cuGraphAddMemcpyNode(node, graph, before, count, &copy, NULL));
}

cudaError_t cudaGraphAddMemsetNode(CUgraphNode *node, CUgraph graph,
				   const CUgraphNode *before, size_t count,
				   const CUDA_MEMSET_NODE_PARAMS *p)
{
	return emu_runtime_keep(
	    cuGraphAddMemsetNode(node, graph, before, count, p, NULL));
}

cudaError_t cudaGraphAddHostNode(CUgraphNode *node, CUgraph graph,
				 const CUgraphNode *before, size_t count,
				 const CUDA_HOST_NODE_PARAMS *p)
{
	return emu_runtime_keep(cuGraphAddHostNode(node, graph, before, count, p));
}
