/* SPDX-License-Identifier: Apache-2.0 */
/* graph_node_calls.c - nodes of graphs and their parameters. */
#include <string.h>

#include "runtime/cudart.h"

/* ---- kernels ----------------------------------------------------------------- */

CUresult emu_runtime_kernel_node(const struct cudaKernelNodeParams *p,
				 CUDA_KERNEL_NODE_PARAMS *to)
{
	*to = (CUDA_KERNEL_NODE_PARAMS){.gridDimX = p->gridDim.x,
					.gridDimY = p->gridDim.y,
					.gridDimZ = p->gridDim.z,
					.blockDimX = p->blockDim.x,
					.blockDimY = p->blockDim.y,
					.blockDimZ = p->blockDim.z,
					.sharedMemBytes = p->sharedMemBytes,
					.kernelParams = p->kernelParams,
					.extra = p->extra};
	return emu_runtime_function(p->func, &to->func);
}

cudaError_t cudaGraphAddKernelNode(CUgraphNode *node, CUgraph graph,
				   const CUgraphNode *before, size_t count,
				   const struct cudaKernelNodeParams *p)
{
	CUDA_KERNEL_NODE_PARAMS kernel = {0};
	const CUresult result =
	    p ? emu_runtime_kernel_node(p, &kernel) : CUDA_ERROR_INVALID_VALUE;

	return emu_runtime_keep(
	    result ? result
		   : cuGraphAddKernelNode_v2(node, graph, before, count, &kernel));
}

cudaError_t cudaGraphKernelNodeSetParams(CUgraphNode node,
					 const struct cudaKernelNodeParams *p)
{
	CUDA_KERNEL_NODE_PARAMS kernel = {0};
	const CUresult result =
	    p ? emu_runtime_kernel_node(p, &kernel) : CUDA_ERROR_INVALID_VALUE;

	return emu_runtime_keep(result ? result
				       : cuGraphKernelNodeSetParams_v2(node, &kernel));
}

cudaError_t cudaGraphExecKernelNodeSetParams(CUgraphExec exec, CUgraphNode node,
					     const struct cudaKernelNodeParams *p)
{
	CUDA_KERNEL_NODE_PARAMS kernel = {0};
	const CUresult result =
	    p ? emu_runtime_kernel_node(p, &kernel) : CUDA_ERROR_INVALID_VALUE;

	return emu_runtime_keep(
	    result ? result : cuGraphExecKernelNodeSetParams_v2(exec, node, &kernel));
}

cudaError_t cudaGraphKernelNodeGetParams(CUgraphNode node,
					 struct cudaKernelNodeParams *p)
{
	CUDA_KERNEL_NODE_PARAMS k = {0};
	const CUresult result =
	    p ? cuGraphKernelNodeGetParams_v2(node, &k) : CUDA_ERROR_INVALID_VALUE;

	if (!result)
		*p = (struct cudaKernelNodeParams){
		    .func = (void *)(uintptr_t)emu_runtime_stub(k.func),
		    .gridDim = {k.gridDimX, k.gridDimY, k.gridDimZ},
		    .blockDim = {k.blockDimX, k.blockDimY, k.blockDimZ},
		    .sharedMemBytes = k.sharedMemBytes,
		    .kernelParams = k.kernelParams,
		};
	return emu_runtime_keep(result);
}

cudaError_t cudaGraphKernelNodeGetAttribute(CUgraphNode node, int id,
					    CUlaunchAttributeValue *value)
{
	EMU_CALL(cuGraphKernelNodeGetAttribute(node, id, value));
}

cudaError_t cudaGraphKernelNodeSetAttribute(CUgraphNode node, int id,
					    const CUlaunchAttributeValue *value)
{
	EMU_CALL(cuGraphKernelNodeSetAttribute(node, id, value));
}

cudaError_t cudaGraphKernelNodeCopyAttributes(CUgraphNode to, CUgraphNode from)
{
	EMU_CALL(cuGraphKernelNodeCopyAttributes(to, from));
}

/* ---- copies ------------------------------------------------------------------- */

cudaError_t cudaGraphAddMemcpyNode(CUgraphNode *node, CUgraph graph,
				   const CUgraphNode *before, size_t count,
				   const struct cudaMemcpy3DParms *p)
{
	CUDA_MEMCPY3D copy;

	if (!p)
		return emu_runtime_keep(CUDA_ERROR_INVALID_VALUE);
	copy = emu_runtime_box(p);
	EMU_CALL(cuGraphAddMemcpyNode(node, graph, before, count, &copy, NULL));
}

cudaError_t cudaGraphMemcpyNodeSetParams(CUgraphNode node,
					 const struct cudaMemcpy3DParms *p)
{
	CUDA_MEMCPY3D copy;

	if (!p)
		return emu_runtime_keep(CUDA_ERROR_INVALID_VALUE);
	copy = emu_runtime_box(p);
	EMU_CALL(cuGraphMemcpyNodeSetParams(node, &copy));
}

cudaError_t cudaGraphExecMemcpyNodeSetParams(CUgraphExec exec, CUgraphNode node,
					     const struct cudaMemcpy3DParms *p)
{
	CUDA_MEMCPY3D copy;

	if (!p)
		return emu_runtime_keep(CUDA_ERROR_INVALID_VALUE);
	copy = emu_runtime_box(p);
	EMU_CALL(cuGraphExecMemcpyNodeSetParams(exec, node, &copy, NULL));
}

/* A copy of one row.  `kind` is ignored, as in cudaMemcpy. */
static CUDA_MEMCPY3D row(void *to, const void *from, size_t bytes)
{
	return (CUDA_MEMCPY3D){.srcMemoryType = CU_MEMORYTYPE_HOST,
			       .srcHost = from,
			       .dstMemoryType = CU_MEMORYTYPE_HOST,
			       .dstHost = to,
			       .WidthInBytes = bytes,
			       .Height = 1,
			       .Depth = 1};
}

cudaError_t cudaGraphAddMemcpyNode1D(CUgraphNode *node, CUgraph graph,
				     const CUgraphNode *before, size_t count, void *to,
				     const void *from, size_t bytes, int kind)
{
	const CUDA_MEMCPY3D copy = row(to, from, bytes);

	(void)kind;
	EMU_CALL(cuGraphAddMemcpyNode(node, graph, before, count, &copy, NULL));
}

cudaError_t cudaGraphMemcpyNodeSetParams1D(CUgraphNode node, void *to, const void *from,
					   size_t bytes, int kind)
{
	const CUDA_MEMCPY3D copy = row(to, from, bytes);

	(void)kind;
	EMU_CALL(cuGraphMemcpyNodeSetParams(node, &copy));
}

cudaError_t cudaGraphExecMemcpyNodeSetParams1D(CUgraphExec exec, CUgraphNode node,
					       void *to, const void *from, size_t bytes,
					       int kind)
{
	const CUDA_MEMCPY3D copy = row(to, from, bytes);

	(void)kind;
	EMU_CALL(cuGraphExecMemcpyNodeSetParams(exec, node, &copy, NULL));
}

cudaError_t cudaGraphAddMemcpyNodeToSymbol(CUgraphNode *node, CUgraph graph,
					   const CUgraphNode *before, size_t count,
					   const void *symbol, const void *from,
					   size_t bytes, size_t offset, int kind)
{
	CUdeviceptr at = 0;
	const CUresult result = emu_runtime_symbol(symbol, offset, bytes, &at);

	return result
		   ? emu_runtime_keep(result)
		   : cudaGraphAddMemcpyNode1D(node, graph, before, count,
					      (void *)(uintptr_t)at, from, bytes, kind);
}

cudaError_t cudaGraphMemcpyNodeSetParamsToSymbol(CUgraphNode node, const void *symbol,
						 const void *from, size_t bytes,
						 size_t offset, int kind)
{
	CUdeviceptr at = 0;
	const CUresult result = emu_runtime_symbol(symbol, offset, bytes, &at);

	return result ? emu_runtime_keep(result)
		      : cudaGraphMemcpyNodeSetParams1D(node, (void *)(uintptr_t)at,
						       from, bytes, kind);
}

cudaError_t cudaGraphExecMemcpyNodeSetParamsToSymbol(CUgraphExec exec, CUgraphNode node,
						     const void *symbol,
						     const void *from, size_t bytes,
						     size_t offset, int kind)
{
	CUdeviceptr at = 0;
	const CUresult result = emu_runtime_symbol(symbol, offset, bytes, &at);

	return result ? emu_runtime_keep(result)
		      : cudaGraphExecMemcpyNodeSetParams1D(
			    exec, node, (void *)(uintptr_t)at, from, bytes, kind);
}

cudaError_t cudaGraphAddMemcpyNodeFromSymbol(CUgraphNode *node, CUgraph graph,
					     const CUgraphNode *before, size_t count,
					     void *to, const void *symbol, size_t bytes,
					     size_t offset, int kind)
{
	CUdeviceptr at = 0;
	const CUresult result = emu_runtime_symbol(symbol, offset, bytes, &at);

	return result
		   ? emu_runtime_keep(result)
		   : cudaGraphAddMemcpyNode1D(node, graph, before, count, to,
					      (const void *)(uintptr_t)at, bytes, kind);
}

cudaError_t cudaGraphMemcpyNodeSetParamsFromSymbol(CUgraphNode node, void *to,
						   const void *symbol, size_t bytes,
						   size_t offset, int kind)
{
	CUdeviceptr at = 0;
	const CUresult result = emu_runtime_symbol(symbol, offset, bytes, &at);

	return result ? emu_runtime_keep(result)
		      : cudaGraphMemcpyNodeSetParams1D(
			    node, to, (const void *)(uintptr_t)at, bytes, kind);
}

cudaError_t cudaGraphExecMemcpyNodeSetParamsFromSymbol(CUgraphExec exec,
						       CUgraphNode node, void *to,
						       const void *symbol, size_t bytes,
						       size_t offset, int kind)
{
	CUdeviceptr at = 0;
	const CUresult result = emu_runtime_symbol(symbol, offset, bytes, &at);

	return result ? emu_runtime_keep(result)
		      : cudaGraphExecMemcpyNodeSetParams1D(
			    exec, node, to, (const void *)(uintptr_t)at, bytes, kind);
}

cudaError_t cudaGraphMemcpyNodeGetParams(CUgraphNode node, struct cudaMemcpy3DParms *p)
{
	CUDA_MEMCPY3D c = {0};
	const CUresult result =
	    p ? cuGraphMemcpyNodeGetParams(node, &c) : CUDA_ERROR_INVALID_VALUE;

	if (!result)
		*p = (struct cudaMemcpy3DParms){
		    .srcPtr = {(void *)(uintptr_t)c.srcDevice, c.srcPitch,
			       c.WidthInBytes, c.srcHeight},
		    .dstPtr = {(void *)(uintptr_t)c.dstDevice, c.dstPitch,
			       c.WidthInBytes, c.dstHeight},
		    .extent = {c.WidthInBytes, c.Height, c.Depth},
		    .kind = cudaMemcpyDefault};
	return emu_runtime_keep(result);
}

/* ---- fills, functions, events, graphs -------------------------------------------- */

cudaError_t cudaGraphAddMemsetNode(CUgraphNode *node, CUgraph graph,
				   const CUgraphNode *before, size_t count,
				   const CUDA_MEMSET_NODE_PARAMS *p)
{
	EMU_CALL(cuGraphAddMemsetNode(node, graph, before, count, p, NULL));
}

cudaError_t cudaGraphMemsetNodeGetParams(CUgraphNode node, CUDA_MEMSET_NODE_PARAMS *p)
{
	EMU_CALL(cuGraphMemsetNodeGetParams(node, p));
}

cudaError_t cudaGraphMemsetNodeSetParams(CUgraphNode node,
					 const CUDA_MEMSET_NODE_PARAMS *p)
{
	EMU_CALL(cuGraphMemsetNodeSetParams(node, p));
}

cudaError_t cudaGraphExecMemsetNodeSetParams(CUgraphExec exec, CUgraphNode node,
					     const CUDA_MEMSET_NODE_PARAMS *p)
{
	EMU_CALL(cuGraphExecMemsetNodeSetParams(exec, node, p, NULL));
}

cudaError_t cudaGraphAddHostNode(CUgraphNode *node, CUgraph graph,
				 const CUgraphNode *before, size_t count,
				 const CUDA_HOST_NODE_PARAMS *p)
{
	EMU_CALL(cuGraphAddHostNode(node, graph, before, count, p));
}

cudaError_t cudaGraphHostNodeGetParams(CUgraphNode node, CUDA_HOST_NODE_PARAMS *p)
{
	EMU_CALL(cuGraphHostNodeGetParams(node, p));
}

cudaError_t cudaGraphHostNodeSetParams(CUgraphNode node, const CUDA_HOST_NODE_PARAMS *p)
{
	EMU_CALL(cuGraphHostNodeSetParams(node, p));
}

cudaError_t cudaGraphExecHostNodeSetParams(CUgraphExec exec, CUgraphNode node,
					   const CUDA_HOST_NODE_PARAMS *p)
{
	EMU_CALL(cuGraphExecHostNodeSetParams(exec, node, p));
}

cudaError_t cudaGraphAddChildGraphNode(CUgraphNode *node, CUgraph graph,
				       const CUgraphNode *before, size_t count,
				       CUgraph child)
{
	EMU_CALL(cuGraphAddChildGraphNode(node, graph, before, count, child));
}

cudaError_t cudaGraphChildGraphNodeGetGraph(CUgraphNode node, CUgraph *graph)
{
	EMU_CALL(cuGraphChildGraphNodeGetGraph(node, graph));
}

cudaError_t cudaGraphExecChildGraphNodeSetParams(CUgraphExec exec, CUgraphNode node,
						 CUgraph graph)
{
	EMU_CALL(cuGraphExecChildGraphNodeSetParams(exec, node, graph));
}

cudaError_t cudaGraphAddEmptyNode(CUgraphNode *node, CUgraph graph,
				  const CUgraphNode *before, size_t count)
{
	EMU_CALL(cuGraphAddEmptyNode(node, graph, before, count));
}

cudaError_t cudaGraphAddEventRecordNode(CUgraphNode *node, CUgraph graph,
					const CUgraphNode *before, size_t count,
					CUevent event)
{
	EMU_CALL(cuGraphAddEventRecordNode(node, graph, before, count, event));
}

cudaError_t cudaGraphEventRecordNodeGetEvent(CUgraphNode node, CUevent *event)
{
	EMU_CALL(cuGraphEventRecordNodeGetEvent(node, event));
}

cudaError_t cudaGraphEventRecordNodeSetEvent(CUgraphNode node, CUevent event)
{
	EMU_CALL(cuGraphEventRecordNodeSetEvent(node, event));
}

cudaError_t cudaGraphExecEventRecordNodeSetEvent(CUgraphExec exec, CUgraphNode node,
						 CUevent event)
{
	EMU_CALL(cuGraphExecEventRecordNodeSetEvent(exec, node, event));
}

cudaError_t cudaGraphAddEventWaitNode(CUgraphNode *node, CUgraph graph,
				      const CUgraphNode *before, size_t count,
				      CUevent event)
{
	EMU_CALL(cuGraphAddEventWaitNode(node, graph, before, count, event));
}

cudaError_t cudaGraphEventWaitNodeGetEvent(CUgraphNode node, CUevent *event)
{
	EMU_CALL(cuGraphEventWaitNodeGetEvent(node, event));
}

cudaError_t cudaGraphEventWaitNodeSetEvent(CUgraphNode node, CUevent event)
{
	EMU_CALL(cuGraphEventWaitNodeSetEvent(node, event));
}

cudaError_t cudaGraphExecEventWaitNodeSetEvent(CUgraphExec exec, CUgraphNode node,
					       CUevent event)
{
	EMU_CALL(cuGraphExecEventWaitNodeSetEvent(exec, node, event));
}

/* ---- memory and conditions ---------------------------------------------------- */

cudaError_t cudaGraphAddMemAllocNode(CUgraphNode *node, CUgraph graph,
				     const CUgraphNode *before, size_t count,
				     CUDA_MEM_ALLOC_NODE_PARAMS *p)
{
	EMU_CALL(cuGraphAddMemAllocNode(node, graph, before, count, p));
}

cudaError_t cudaGraphMemAllocNodeGetParams(CUgraphNode node,
					   CUDA_MEM_ALLOC_NODE_PARAMS *p)
{
	EMU_CALL(cuGraphMemAllocNodeGetParams(node, p));
}

cudaError_t cudaGraphAddMemFreeNode(CUgraphNode *node, CUgraph graph,
				    const CUgraphNode *before, size_t count,
				    void *pointer)
{
	EMU_CALL(cuGraphAddMemFreeNode(node, graph, before, count, (uintptr_t)pointer));
}

cudaError_t cudaGraphMemFreeNodeGetParams(CUgraphNode node, void *to)
{
	EMU_CALL(cuGraphMemFreeNodeGetParams(node, to));
}

cudaError_t cudaGraphConditionalHandleCreate(CUgraphConditionalHandle *handle,
					     CUgraph graph, unsigned start,
					     unsigned flags)
{
	EMU_CALL(cuGraphConditionalHandleCreate(handle, graph, NULL, start, flags));
}

/* ---- any node ------------------------------------------------------------------ */

/* The driver's form of a node's parameters. */
static CUresult convert(const struct cudaGraphNodeParams *p, CUgraphNodeParams *to)
{
	*to = (CUgraphNodeParams){.type = p->type};
	switch (p->type) {
	case CU_GRAPH_NODE_TYPE_KERNEL:
		return emu_runtime_kernel_node(&p->kernel, &to->kernel);
	case CU_GRAPH_NODE_TYPE_MEMCPY:
		to->memcpy.copyParams = emu_runtime_box(&p->memcpy.copyParams);
		return CUDA_SUCCESS;
	case CU_GRAPH_NODE_TYPE_CONDITIONAL:
		to->conditional =
		    (CUDA_CONDITIONAL_NODE_PARAMS){.handle = p->conditional.handle,
						   .type = p->conditional.type,
						   .size = p->conditional.size};
		return CUDA_SUCCESS;
	default: /* the same for both */
		memcpy(to->reserved1, p->reserved1, sizeof(to->reserved1));
		return CUDA_SUCCESS;
	}
}

cudaError_t cudaGraphAddNode(CUgraphNode *node, CUgraph graph,
			     const CUgraphNode *before, const CUgraphEdgeData *data,
			     size_t count, struct cudaGraphNodeParams *p)
{
	CUresult result = p ? emu_runtime_begin() : CUDA_ERROR_INVALID_VALUE;
	CUgraphNodeParams driver;

	if (!result)
		result = convert(p, &driver);
	if (!result)
		result = cuGraphAddNode_v2(node, graph, before, data, count, &driver);
	if (!result && p->type == CU_GRAPH_NODE_TYPE_CONDITIONAL)
		p->conditional.phGraph_out = driver.conditional.phGraph_out;
	if (!result && p->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
		p->alloc.dptr = driver.alloc.dptr;
	return emu_runtime_keep(result);
}

cudaError_t cudaGraphNodeSetParams(CUgraphNode node, struct cudaGraphNodeParams *p)
{
	CUgraphNodeParams driver;
	const CUresult result = p ? convert(p, &driver) : CUDA_ERROR_INVALID_VALUE;

	return emu_runtime_keep(result ? result : cuGraphNodeSetParams(node, &driver));
}

cudaError_t cudaGraphExecNodeSetParams(CUgraphExec exec, CUgraphNode node,
				       struct cudaGraphNodeParams *p)
{
	CUgraphNodeParams driver;
	const CUresult result = p ? convert(p, &driver) : CUDA_ERROR_INVALID_VALUE;

	return emu_runtime_keep(result ? result
				       : cuGraphExecNodeSetParams(exec, node, &driver));
}
