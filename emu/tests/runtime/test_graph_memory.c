/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_graph_memory.c - memory that graphs allocate and free, by nodes and by captures,
 * and what a graph with such nodes must not do.
 */
#include "graph_unit.h"

static CUDA_MEM_ALLOC_NODE_PARAMS bytes_on_device(size_t bytes)
{
	return (CUDA_MEM_ALLOC_NODE_PARAMS){
	    .poolProps = {.allocType = 1, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}},
	    .bytesize = bytes};
}

static uint64_t sum_of(int attribute)
{
	uint64_t value = 0;

	OK(cudaDeviceGetGraphMemAttribute(0, attribute, &value));
	return value;
}

static void *pointer_of(CUdeviceptr at)
{
	return (void *)(uintptr_t)at;
}

/* Allocate, put 5, copy to word, free; twice. */
static void test_nodes(void **state)
{
	CUDA_MEM_ALLOC_NODE_PARAMS p = bytes_on_device(4096), read;
	void *word = new_word(0), *freed = NULL, *at;
	CUgraphNode alloc, put, copy, end;
	CUgraphExec exec;
	CUgraph graph;
	uint64_t zero = 0;

	OK(cudaGraphCreate(&graph, 0));
	OK(cudaGraphAddMemAllocNode(&alloc, graph, NULL, 0, &p));
	at = pointer_of(p.dptr);
	OK(cudaGraphMemAllocNodeGetParams(alloc, &read));
	assert_int_equal(read.dptr, p.dptr);
	assert_int_equal(read.bytesize, 4096);
	put = node_of(graph, put_kernel, at, 5, alloc);
	OK(cudaGraphAddMemcpyNode1D(&copy, graph, &put, 1, word, at, 4, 3));
	OK(cudaGraphAddMemFreeNode(&end, graph, &copy, 1, at));
	OK(cudaGraphMemFreeNodeGetParams(end, &freed));
	assert_ptr_equal(freed, at);
	OK(cudaGraphInstantiate(&exec, graph, 0));
	assert_int_equal(sum_of(2), 0);
	run_exec(exec);
	run_exec(exec);
	assert_int_equal(word_at(word), 5);
	/* The pages stay for the next launch, of any graph, until they are trimmed. */
	assert_int_equal(sum_of(0), 4096);
	assert_int_equal(sum_of(2), 4096);
	FAILS(cudaDeviceSetGraphMemAttribute(0, 0, &zero), CUDA_ERROR_INVALID_VALUE);
	FAILS(cudaDeviceGetGraphMemAttribute(0, 4, &zero), CUDA_ERROR_INVALID_VALUE);
	OK(cudaDeviceGraphMemTrim(0));
	assert_int_equal(sum_of(2), 0);
	assert_int_equal(sum_of(3), 4096);
	OK(cudaDeviceSetGraphMemAttribute(0, 3, &zero));
	assert_int_equal(sum_of(3), 0);
	/* Outside the graph the bytes do not exist. */
	FAILS(cudaMemcpy(word, at, 4, cudaMemcpyDefault), CUDA_ERROR_INVALID_VALUE);
	OK(cudaGraphExecDestroy(exec));
	OK(cudaGraphDestroy(graph));
	OK(cudaFree(word));
}

/* Memory that the graph does not free: freed by a call, and at the next launch. */
static void test_left(void **state)
{
	CUDA_MEM_ALLOC_NODE_PARAMS p = bytes_on_device(4);
	CUgraphNode alloc;
	CUgraphExec exec;
	CUgraph graph;

	OK(cudaGraphCreate(&graph, 0));
	OK(cudaGraphAddMemAllocNode(&alloc, graph, NULL, 0, &p));
	(void)node_of(graph, put_kernel, pointer_of(p.dptr), 6, alloc);
	OK(cudaGraphInstantiate(&exec, graph, 0));
	run_exec(exec);
	assert_int_equal(word_at(pointer_of(p.dptr)), 6);
	assert_int_equal(sum_of(0), 4);
	FAILS(cudaGraphLaunch(exec, NULL), CUDA_ERROR_INVALID_VALUE);
	SAYS(INVALID_VALUE, "nothing has freed it since");
	OK(cudaFree(pointer_of(p.dptr)));
	FAILS(cudaFree(pointer_of(p.dptr)), CUDA_ERROR_INVALID_VALUE);
	run_exec(exec);
	OK(cudaFreeAsync(pointer_of(p.dptr), NULL));
	OK(cudaGraphExecDestroy(exec));
	OK(cudaGraphInstantiate(&exec, graph,
				CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH));
	run_exec(exec);
	run_exec(exec);
	/* It stays when the graph ends, until it is freed. */
	OK(cudaGraphExecDestroy(exec));
	OK(cudaGraphDestroy(graph));
	assert_int_equal(word_at(pointer_of(p.dptr)), 6);
	OK(cudaFree(pointer_of(p.dptr)));
	OK(cudaDeviceGraphMemTrim(0));
	assert_int_equal(sum_of(0), 0);
}

static void test_capture(void **state)
{
	void *word = new_word(0), *at;
	CUgraph graph;
	CUgraphExec exec;
	CUgraphNode nodes[3];
	CUstream stream;
	size_t count = 3;
	int type = -1;

	OK(cudaStreamCreate(&stream));
	OK(cudaStreamBeginCapture(stream, 0));
	OK(cudaMallocAsync(&at, 4, stream));
	FAILS(cudaFreeAsync(word, stream), CUDA_ERROR_INVALID_VALUE);
	SAYS(INVALID_VALUE, "is not memory of a graph");
	OK(cudaMemsetAsync(at, 7, 4, stream));
	OK(cudaMemcpyAsync(word, at, 4, cudaMemcpyDefault, stream));
	OK(cudaFreeAsync(at, stream));
	OK(cudaStreamEndCapture(stream, &graph));
	OK(cudaGraphGetNodes(graph, nodes, &count));
	OK(cudaGraphNodeGetType(nodes[0], &type));
	assert_int_equal(type, CU_GRAPH_NODE_TYPE_MEM_ALLOC);
	OK(cudaGraphInstantiate(&exec, graph, 0));
	OK(cudaGraphLaunch(exec, stream));
	OK(cudaStreamSynchronize(stream));
	assert_int_equal(word_at(word), 0x07070707);
	OK(cudaGraphExecDestroy(exec));
	OK(cudaGraphDestroy(graph));
	OK(cudaStreamDestroy(stream));
	OK(cudaFree(word));
}

/* One copy at a time, no clone, no child, no node less. */
static void test_refused(void **state)
{
	CUDA_MEM_ALLOC_NODE_PARAMS p = bytes_on_device(4), bad = bytes_on_device(0);
	void *word = new_word(0);
	CUgraphExecUpdateResultInfo info;
	CUgraphNode alloc, node;
	CUgraphExec exec, second;
	CUgraph graph, other;
	CUstream stream;

	OK(cudaGraphCreate(&graph, 0));
	OK(cudaGraphCreate(&other, 0));
	FAILS(cudaGraphAddMemAllocNode(&alloc, graph, NULL, 0, &bad),
	      CUDA_ERROR_INVALID_VALUE);
	FAILS(cudaGraphAddMemFreeNode(&node, graph, NULL, 0, word),
	      CUDA_ERROR_INVALID_VALUE);
	OK(cudaGraphAddMemAllocNode(&alloc, graph, NULL, 0, &p));
	OK(cudaGraphAddMemFreeNode(&node, graph, &alloc, 1, pointer_of(p.dptr)));
	OK(cudaGraphInstantiate(&exec, graph, 0));
	FAILS(cudaGraphInstantiate(&second, graph, 0), CUDA_ERROR_NOT_SUPPORTED);
	FAILS(cudaGraphClone(&other, graph), CUDA_ERROR_NOT_SUPPORTED);
	SAYS(NOT_SUPPORTED, "cuGraphClone: a graph with nodes that allocate");
	FAILS(cudaGraphAddChildGraphNode(&node, other, NULL, 0, graph),
	      CUDA_ERROR_NOT_SUPPORTED);
	FAILS(cudaGraphDestroyNode(alloc), CUDA_ERROR_NOT_SUPPORTED);
	FAILS(cudaGraphRemoveDependencies(graph, &alloc, &node, NULL, 1),
	      CUDA_ERROR_NOT_SUPPORTED);
	FAILS(cudaGraphExecUpdate(exec, graph, &info),
	      CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
	assert_int_equal(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED);
	OK(cudaStreamCreate(&stream));
	OK(cudaStreamBeginCapture(stream, 0));
	FAILS(cudaGraphLaunch(exec, stream), CUDA_ERROR_NOT_SUPPORTED);
	OK(cudaStreamDestroy(stream));
	OK(cudaGraphExecDestroy(exec));
	OK(cudaGraphInstantiate(&exec, graph, 0));
	run_exec(exec);
	OK(cudaGraphExecDestroy(exec));
	OK(cudaGraphDestroy(graph));
	OK(cudaGraphDestroy(other));
	OK(cudaFree(word));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_nodes),
	    cmocka_unit_test(test_left),
	    cmocka_unit_test(test_capture),
	    cmocka_unit_test(test_refused),
	};

	return load_graph_kernels() ? cmocka_run_group_tests(tests, NULL, NULL) : 1;
}
