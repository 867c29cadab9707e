/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_graph_params.c - parameters of nodes: read, changed in a graph, changed in a
 * graph that can be launched, and taken from another graph.
 */
#include "graph_unit.h"

static void *word;

static int set_word(void **state)
{
	word = new_word(0);
	return 0;
}

static int free_word(void **state)
{
	OK(cudaFree(word));
	return 0;
}

static void test_kernel(void **state)
{
	uint32_t n = 30;
	void *arguments[] = {&word, &n};
	struct cudaKernelNodeParams p = launch_of(add_kernel, arguments), read;
	CUgraphNode first, node, stranger;
	CUgraph graph, other;
	CUgraphExec exec;

	OK(cudaGraphCreate(&graph, 0));
	OK(cudaGraphCreate(&other, 0));
	stranger = node_of(other, add_kernel, word, 1, NULL);
	first = node_of(graph, put_kernel, word, 1, NULL);
	node = node_of(graph, add_kernel, word, 2, first);
	OK(cudaGraphKernelNodeGetParams(node, &read));
	assert_ptr_equal(read.func, add_kernel);
	assert_int_equal(read.blockDim.x, 1);
	assert_ptr_equal(*(void **)read.kernelParams[0], word);
	assert_int_equal(*(uint32_t *)read.kernelParams[1], 2);
	OK(cudaGraphInstantiate(&exec, graph, 0));
	/* Only the graph changes; then only the one that can be launched. */
	OK(cudaGraphKernelNodeSetParams(node, &p));
	run_exec(exec);
	assert_int_equal(word_at(word), 3);
	n = 400;
	OK(cudaGraphExecKernelNodeSetParams(exec, node, &p));
	run_exec(exec);
	assert_int_equal(word_at(word), 401);
	OK(cudaGraphKernelNodeGetParams(node, &read));
	assert_int_equal(*(uint32_t *)read.kernelParams[1], 30);
	/* Another kernel; a node of another graph; a kernel that cannot run. */
	p.func = put_kernel;
	OK(cudaGraphExecKernelNodeSetParams(exec, node, &p));
	run_exec(exec);
	assert_int_equal(word_at(word), 400);
	FAILS(cudaGraphExecKernelNodeSetParams(exec, stranger, &p),
	      CUDA_ERROR_INVALID_VALUE);
	SAYS(INVALID_VALUE, "not of the graph from which");
	p.blockDim.x = 2000;
	FAILS(cudaGraphExecKernelNodeSetParams(exec, node, &p),
	      CUDA_ERROR_INVALID_VALUE);
	FAILS(cudaGraphKernelNodeSetParams(node, &p), CUDA_ERROR_INVALID_VALUE);
	FAILS(cudaGraphExecKernelNodeSetParams(exec, NULL, &p),
	      CUDA_ERROR_INVALID_VALUE);
	FAILS(cudaGraphExecKernelNodeSetParams(exec, node, NULL),
	      CUDA_ERROR_INVALID_VALUE);
	run_exec(exec);
	OK(cudaGraphExecDestroy(exec));
	OK(cudaGraphDestroy(graph));
	OK(cudaGraphDestroy(other));
}

static void test_attributes(void **state)
{
	CUlaunchAttributeValue value = {.cooperative = 1}, read = {.priority = 9};
	const uint32_t n = 5;
	void *arguments[] = {&word, (void *)(uintptr_t)&n};
	struct cudaKernelNodeParams p = launch_of(put_kernel, arguments);
	CUgraphNode node, other;
	CUgraphExec exec;
	CUgraph graph;

	OK(cudaGraphCreate(&graph, 0));
	node = node_of(graph, put_kernel, word, 1, NULL);
	other = node_of(graph, put_kernel, word, 2, node);
	OK(cudaGraphKernelNodeGetAttribute(node, CU_LAUNCH_ATTRIBUTE_COOPERATIVE,
					   &read));
	assert_int_equal(read.cooperative, 0);
	OK(cudaGraphKernelNodeSetAttribute(node, CU_LAUNCH_ATTRIBUTE_COOPERATIVE,
					   &value));
	value.priority = -3;
	OK(cudaGraphKernelNodeSetAttribute(node, CU_LAUNCH_ATTRIBUTE_PRIORITY, &value));
	/* New parameters keep the attributes. */
	OK(cudaGraphKernelNodeSetParams(node, &p));
	OK(cudaGraphKernelNodeCopyAttributes(other, node));
	OK(cudaGraphKernelNodeGetAttribute(other, CU_LAUNCH_ATTRIBUTE_COOPERATIVE,
					   &read));
	assert_int_equal(read.cooperative, 1);
	OK(cudaGraphKernelNodeGetAttribute(other, CU_LAUNCH_ATTRIBUTE_PRIORITY, &read));
	assert_int_equal(read.priority, -3);
	FAILS(cudaGraphKernelNodeSetAttribute(
		  node, CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE, &value),
	      CUDA_ERROR_NOT_SUPPORTED);
	SAYS(NOT_SUPPORTED, "DEVICE_UPDATABLE_KERNEL_NODE");
	OK(cudaGraphInstantiate(&exec, graph, 0));
	run_exec(exec);
	assert_int_equal(word_at(word), 2);
	/* A node that is switched off. */
	OK(cudaGraphNodeSetEnabled(exec, other, 0));
	run_exec(exec);
	assert_int_equal(word_at(word), 5);
	OK(cudaGraphExecDestroy(exec));
	OK(cudaGraphDestroy(graph));
}

static uint32_t target[4];
static int calls;

static void call(void *argument)
{
	calls += *(const int *)argument;
}

/* Fill, copy, call; each is read, and changed where it can be launched. */
static void test_others(void **state)
{
	static int one = 1, ten = 10;
	CUDA_MEMSET_NODE_PARAMS fill = {(uintptr_t)word, 0, 7, 4, 1, 1}, f;
	CUDA_HOST_NODE_PARAMS host = {call, &one}, h;
	struct cudaMemcpy3DParms c;
	CUgraphNode nodes[3];
	CUgraphExec exec;
	CUgraph graph;
	unsigned on = 9;

	OK(cudaGraphCreate(&graph, 0));
	OK(cudaGraphAddMemsetNode(&nodes[0], graph, NULL, 0, &fill));
	OK(cudaGraphAddMemcpyNode1D(&nodes[1], graph, &nodes[0], 1, target, word, 4,
				    2));
	OK(cudaGraphAddHostNode(&nodes[2], graph, &nodes[1], 1, &host));
	OK(cudaGraphMemsetNodeGetParams(nodes[0], &f));
	assert_int_equal(f.value, 7);
	assert_int_equal(f.width, 1);
	OK(cudaGraphMemcpyNodeGetParams(nodes[1], &c));
	assert_ptr_equal(c.srcPtr.ptr, word);
	assert_ptr_equal(c.dstPtr.ptr, target);
	assert_int_equal(c.extent.width, 4);
	OK(cudaGraphHostNodeGetParams(nodes[2], &h));
	assert_ptr_equal(h.userData, &one);
	OK(cudaGraphInstantiate(&exec, graph, 0));
	fill.value = 8;
	OK(cudaGraphExecMemsetNodeSetParams(exec, nodes[0], &fill));
	OK(cudaGraphExecMemcpyNodeSetParams1D(exec, nodes[1], &target[2], word, 4, 2));
	host.userData = &ten;
	OK(cudaGraphExecHostNodeSetParams(exec, nodes[2], &host));
	calls = 0;
	run_exec(exec);
	assert_int_equal(target[0], 0);
	assert_int_equal(target[2], 8);
	assert_int_equal(calls, 10);
	/* The copy's own form, and of the graph itself. */
	c.dstPtr.ptr = &target[3];
	OK(cudaGraphExecMemcpyNodeSetParams(exec, nodes[1], &c));
	OK(cudaGraphMemcpyNodeSetParams(nodes[1], &c));
	OK(cudaGraphMemsetNodeSetParams(nodes[0], &fill));
	OK(cudaGraphHostNodeSetParams(nodes[2], &host));
	run_exec(exec);
	assert_int_equal(target[3], 8);
	/* Two rows were not one; a node of another kind; a node that cannot be off. */
	fill.height = 2;
	fill.pitch = 4;
	FAILS(cudaGraphExecMemsetNodeSetParams(exec, nodes[0], &fill),
	      CUDA_ERROR_INVALID_VALUE);
	SAYS(INVALID_VALUE, "only copies and fills of one row");
	FAILS(cudaGraphExecMemsetNodeSetParams(exec, nodes[1], &fill),
	      CUDA_ERROR_INVALID_VALUE);
	SAYS(INVALID_VALUE, "the node is a copy node: a fill node is needed");
	FAILS(cudaGraphNodeSetEnabled(exec, nodes[2], 0), CUDA_ERROR_INVALID_VALUE);
	OK(cudaGraphNodeSetEnabled(exec, nodes[1], 0));
	OK(cudaGraphNodeGetEnabled(exec, nodes[1], &on));
	assert_int_equal(on, 0);
	OK(cudaGraphExecDestroy(exec));
	OK(cudaGraphDestroy(graph));
}

static void test_events(void **state)
{
	CUgraphNode record, wait;
	CUevent first, second, found;
	CUgraphExec exec;
	CUgraph graph;
	float ms = -1;

	OK(cudaEventCreate(&first));
	OK(cudaEventCreate(&second));
	OK(cudaEventRecord(first, NULL));
	OK(cudaEventRecord(second, NULL));
	OK(cudaGraphCreate(&graph, 0));
	OK(cudaGraphAddEventWaitNode(&wait, graph, NULL, 0, first));
	OK(cudaGraphAddEventRecordNode(
	    &record, graph, &(CUgraphNode){node_of(graph, put_kernel, word, 1, wait)},
	    1, first));
	OK(cudaGraphEventWaitNodeGetEvent(wait, &found));
	assert_ptr_equal(found, first);
	OK(cudaGraphInstantiate(&exec, graph, 0));
	OK(cudaGraphExecEventRecordNodeSetEvent(exec, record, second));
	OK(cudaGraphExecEventWaitNodeSetEvent(exec, wait, second));
	OK(cudaGraphEventRecordNodeGetEvent(record, &found));
	assert_ptr_equal(found, first);
	run_exec(exec);
	/* Time is counted in instructions, so that the kernel takes some. */
	OK(cudaEventElapsedTime(&ms, first, second));
	assert_true(ms > 0);
	OK(cudaGraphEventRecordNodeSetEvent(record, second));
	OK(cudaGraphEventWaitNodeSetEvent(wait, second));
	FAILS(cudaGraphAddEventWaitNode(&wait, graph, NULL, 0, NULL),
	      CUDA_ERROR_INVALID_VALUE);
	OK(cudaGraphExecDestroy(exec));
	OK(cudaGraphDestroy(graph));
	OK(cudaEventDestroy(first));
	OK(cudaEventDestroy(second));
}

/* put(n), add(n) */
static CUgraph make(uint32_t n, CUgraphNode *last)
{
	CUgraph graph;

	OK(cudaGraphCreate(&graph, 0));
	*last = node_of(graph, add_kernel, word, n,
			node_of(graph, put_kernel, word, n, NULL));
	return graph;
}

static void test_update(void **state)
{
	CUgraphExecUpdateResultInfo info = {.result = -1};
	CUgraphNode last, other_last, node;
	CUgraph graph = make(1, &last), other = make(10, &other_last);
	CUgraphExec exec;

	OK(cudaGraphInstantiate(&exec, graph, 0));
	OK(cudaGraphExecUpdate(exec, other, &info));
	assert_int_equal(info.result, CU_GRAPH_EXEC_UPDATE_SUCCESS);
	run_exec(exec);
	assert_int_equal(word_at(word), 20);
	/* Other edges, another type, another number of nodes: nothing changes. */
	node = node_of(other, add_kernel, word, 1, NULL);
	FAILS(cudaGraphExecUpdate(exec, other, &info),
	      CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
	assert_int_equal(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
	assert_null(info.errorNode);
	OK(cudaGraphDestroyNode(node));
	OK(cudaGraphDestroyNode(other_last));
	other_last = node_of(other, add_kernel, word, 1, NULL);
	FAILS(cudaGraphExecUpdate(exec, other, &info),
	      CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
	SAYS(GRAPH_EXEC_UPDATE_FAILURE, "other edges (kernel)");
	assert_int_equal(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
	assert_ptr_equal(info.errorNode, other_last);
	OK(cudaGraphDestroyNode(other_last));
	OK(cudaGraphAddEmptyNode(&node, other, NULL, 0));
	FAILS(cudaGraphExecUpdate(exec, other, &info),
	      CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
	assert_int_equal(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED);
	assert_ptr_equal(info.errorNode, node);
	run_exec(exec);
	assert_int_equal(word_at(word), 20);
	/* Nodes of the graph still name those of the one that can be launched. */
	OK(cudaGraphNodeSetEnabled(exec, last, 0));
	run_exec(exec);
	assert_int_equal(word_at(word), 10);
	FAILS(cudaGraphExecUpdate(exec, NULL, &info), CUDA_ERROR_INVALID_VALUE);
	OK(cudaGraphExecDestroy(exec));
	OK(cudaGraphDestroy(graph));
	OK(cudaGraphDestroy(other));
}

static void test_child(void **state)
{
	CUgraphNode last, node, unused;
	CUgraph graph, child = make(1, &last), other = make(10, &last), inner;
	CUgraphExec exec;

	OK(cudaGraphCreate(&graph, 0));
	OK(cudaGraphAddChildGraphNode(&node, graph, NULL, 0, child));
	OK(cudaGraphInstantiate(&exec, graph, 0));
	OK(cudaGraphExecChildGraphNodeSetParams(exec, node, other));
	run_exec(exec);
	assert_int_equal(word_at(word), 20);
	OK(cudaGraphAddEmptyNode(&unused, other, NULL, 0));
	FAILS(cudaGraphExecChildGraphNodeSetParams(exec, node, other),
	      CUDA_ERROR_INVALID_VALUE);
	SAYS(INVALID_VALUE, "different numbers of nodes");
	/* A node of the child names its copy. */
	OK(cudaGraphChildGraphNodeGetGraph(node, &inner));
	OK(cudaGraphGetRootNodes(inner, &unused, &(size_t){1}));
	OK(cudaGraphNodeSetEnabled(exec, unused, 0));
	run_exec(exec);
	assert_int_equal(word_at(word), 30);
	OK(cudaGraphExecDestroy(exec));
	OK(cudaGraphDestroy(graph));
	OK(cudaGraphDestroy(child));
	OK(cudaGraphDestroy(other));
}

/* The same by the functions for any node. */
static void test_any(void **state)
{
	uint32_t n = 3;
	void *arguments[] = {&word, &n};
	struct cudaGraphNodeParams p = {.type = CU_GRAPH_NODE_TYPE_KERNEL},
				   copy = {.type = CU_GRAPH_NODE_TYPE_MEMCPY},
				   other = {.type = 9};
	CUgraphEdgeData edge = {.type = 2};
	CUgraphNode node, second, third;
	CUgraphExec exec;
	CUgraph graph;

	p.kernel = launch_of(put_kernel, arguments);
	copy.memcpy.copyParams = (struct cudaMemcpy3DParms){.srcPtr = {word, 4, 4, 1},
							    .dstPtr = {target, 4, 4, 1},
							    .extent = {4, 1, 1}};
	OK(cudaGraphCreate(&graph, 0));
	OK(cudaGraphAddNode(&node, graph, NULL, NULL, 0, &p));
	OK(cudaGraphAddNode(&second, graph, &node, NULL, 1, &copy));
	FAILS(cudaGraphAddNode(&third, graph, &node, &edge, 1, &p),
	      CUDA_ERROR_INVALID_VALUE);
	SAYS(INVALID_VALUE, "has type 2");
	FAILS(cudaGraphAddNode(&third, graph, NULL, NULL, 0, &other),
	      CUDA_ERROR_NOT_SUPPORTED);
	SAYS(NOT_SUPPORTED, "semaphore wait nodes (type 9)");
	OK(cudaGraphInstantiate(&exec, graph, 0));
	n = 4;
	OK(cudaGraphExecNodeSetParams(exec, node, &p));
	OK(cudaGraphNodeSetParams(node, &p));
	run_exec(exec);
	assert_int_equal(target[0], 4);
	other.type = CU_GRAPH_NODE_TYPE_EMPTY;
	FAILS(cudaGraphNodeSetParams(node, &other), CUDA_ERROR_NOT_SUPPORTED);
	OK(cudaGraphExecDestroy(exec));
	OK(cudaGraphDestroy(graph));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(test_kernel, set_word, free_word),
	    cmocka_unit_test_setup_teardown(test_attributes, set_word, free_word),
	    cmocka_unit_test_setup_teardown(test_others, set_word, free_word),
	    cmocka_unit_test_setup_teardown(test_events, set_word, free_word),
	    cmocka_unit_test_setup_teardown(test_update, set_word, free_word),
	    cmocka_unit_test_setup_teardown(test_child, set_word, free_word),
	    cmocka_unit_test_setup_teardown(test_any, set_word, free_word),
	};

	return load_graph_kernels() ? cmocka_run_group_tests(tests, NULL, NULL) : 1;
}
