/* SPDX-License-Identifier: Apache-2.0 */
/* graph_calls.c - graphs: their nodes and edges, launches and updates. */
#include "runtime/cudart.h"

cudaError_t cudaGraphCreate(CUgraph *graph, unsigned flags)
{
	EMU_CALL(cuGraphCreate(graph, flags));
}

cudaError_t cudaGraphClone(CUgraph *clone, CUgraph graph)
{
	EMU_CALL(cuGraphClone(clone, graph));
}

cudaError_t cudaGraphDestroy(CUgraph graph)
{
	EMU_CALL(cuGraphDestroy(graph));
}

cudaError_t cudaGraphNodeFindInClone(CUgraphNode *node, CUgraphNode original,
				     CUgraph clone)
{
	EMU_CALL(cuGraphNodeFindInClone(node, original, clone));
}

cudaError_t cudaGraphDestroyNode(CUgraphNode node)
{
	EMU_CALL(cuGraphDestroyNode(node));
}

cudaError_t cudaGraphNodeGetType(CUgraphNode node, int *type)
{
	EMU_CALL(cuGraphNodeGetType(node, type));
}

cudaError_t cudaGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *count)
{
	EMU_CALL(cuGraphGetNodes(graph, nodes, count));
}

cudaError_t cudaGraphGetRootNodes(CUgraph graph, CUgraphNode *nodes, size_t *count)
{
	EMU_CALL(cuGraphGetRootNodes(graph, nodes, count));
}

cudaError_t cudaGraphGetEdges(CUgraph graph, CUgraphNode *from, CUgraphNode *to,
			      CUgraphEdgeData *data, size_t *count)
{
	EMU_CALL(cuGraphGetEdges_v2(graph, from, to, data, count));
}

cudaError_t cudaGraphNodeGetDependencies(CUgraphNode node, CUgraphNode *before,
					 CUgraphEdgeData *data, size_t *count)
{
	EMU_CALL(cuGraphNodeGetDependencies_v2(node, before, data, count));
}

cudaError_t cudaGraphNodeGetDependentNodes(CUgraphNode node, CUgraphNode *after,
					   CUgraphEdgeData *data, size_t *count)
{
	EMU_CALL(cuGraphNodeGetDependentNodes_v2(node, after, data, count));
}

cudaError_t cudaGraphAddDependencies(CUgraph graph, const CUgraphNode *from,
				     const CUgraphNode *to, const CUgraphEdgeData *data,
				     size_t count)
{
	EMU_CALL(cuGraphAddDependencies_v2(graph, from, to, data, count));
}

cudaError_t cudaGraphRemoveDependencies(CUgraph graph, const CUgraphNode *from,
					const CUgraphNode *to,
					const CUgraphEdgeData *data, size_t count)
{
	EMU_CALL(cuGraphRemoveDependencies_v2(graph, from, to, data, count));
}

cudaError_t cudaGraphInstantiate(CUgraphExec *exec, CUgraph graph,
				 unsigned long long flags)
{
	EMU_CALL(cuGraphInstantiateWithFlags(exec, graph, flags));
}

cudaError_t cudaGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph,
					  unsigned long long flags)
{
	EMU_CALL(cuGraphInstantiateWithFlags(exec, graph, flags));
}

cudaError_t cudaGraphInstantiateWithParams(CUgraphExec *exec, CUgraph graph,
					   CUDA_GRAPH_INSTANTIATE_PARAMS *p)
{
	EMU_CALL(cuGraphInstantiateWithParams(exec, graph, p));
}

cudaError_t cudaGraphExecGetFlags(CUgraphExec exec, uint64_t *flags)
{
	EMU_CALL(cuGraphExecGetFlags(exec, flags));
}

cudaError_t cudaGraphExecUpdate(CUgraphExec exec, CUgraph graph,
				CUgraphExecUpdateResultInfo *info)
{
	EMU_CALL(cuGraphExecUpdate_v2(exec, graph, info));
}

cudaError_t cudaGraphUpload(CUgraphExec exec, CUstream stream)
{
	EMU_CALL(cuGraphUpload(exec, stream));
}

cudaError_t cudaGraphLaunch(CUgraphExec exec, CUstream stream)
{
	EMU_CALL(cuGraphLaunch(exec, stream));
}

cudaError_t cudaGraphExecDestroy(CUgraphExec exec)
{
	EMU_CALL(cuGraphExecDestroy(exec));
}

cudaError_t cudaGraphNodeSetEnabled(CUgraphExec exec, CUgraphNode node,
				    unsigned is_enabled)
{
	EMU_CALL(cuGraphNodeSetEnabled(exec, node, is_enabled));
}

cudaError_t cudaGraphNodeGetEnabled(CUgraphExec exec, CUgraphNode node,
				    unsigned *is_enabled)
{
	EMU_CALL(cuGraphNodeGetEnabled(exec, node, is_enabled));
}
