/* SPDX-License-Identifier: Apache-2.0 */
/* test_graph_nodes.c - graphs that a program builds node by node. */
#include <stdlib.h>

#include "add_one.h"
#include "common/unit.h"
#include "runtime/cudart.h"

static CUkernel kernel;
static uint32_t result[2];
static int calls;

/* Runs when the copy before it has ended. */
static void count_right(void *argument)
{
	calls += result[0] == *(const uint32_t *)argument;
}

static void count_call(void *argument)
{
	++*(int *)argument;
}

/* Fill with 6, add 1, copy to the host, call a function; then the same again. */
static void test_chain(void **state)
{
	static uint32_t expected = 7;
	CUDA_MEMSET_NODE_PARAMS fill = {
	    .value = 6, .elementSize = 4, .width = 2, .height = 1};
	CUDA_HOST_NODE_PARAMS host = {count_right, &expected};
	struct cudaKernelNodeParams launch = {.gridDim = {1, 1, 1},
					      .blockDim = {1, 1, 1}};
	CUgraphNode first, second, third, fourth, nodes[4];
	CUgraph graph, clone;
	CUgraphExec exec;
	size_t count = 0;
	void *words, *arguments[] = {&words};
	int type = -1;

	assert_int_equal(cudaMalloc(&words, 8), CUDA_SUCCESS);
	assert_int_equal(cudaGraphCreate(&graph, 0), CUDA_SUCCESS);
	fill.dst = (uintptr_t)words;
	assert_int_equal(cudaGraphAddMemsetNode(&first, graph, NULL, 0, &fill),
			 CUDA_SUCCESS);
	launch.func = kernel;
	launch.kernelParams = arguments;
	assert_int_equal(cudaGraphAddKernelNode(&second, graph, &first, 1, &launch),
			 CUDA_SUCCESS);
	assert_int_equal(
	    cudaGraphAddMemcpyNode1D(&third, graph, &second, 1, result, words, 8, 2),
	    CUDA_SUCCESS);
	assert_int_equal(cudaGraphAddHostNode(&fourth, graph, &third, 1, &host),
			 CUDA_SUCCESS);
	assert_int_equal(cudaGraphGetNodes(graph, NULL, &count), CUDA_SUCCESS);
	assert_int_equal(count, 4);
	assert_int_equal(cudaGraphGetNodes(graph, nodes, &count), CUDA_SUCCESS);
	assert_ptr_equal(nodes[3], fourth);
	assert_int_equal(cudaGraphNodeGetType(fourth, &type), CUDA_SUCCESS);
	assert_int_equal(type, 3);
	/* Nothing runs before the launch. */
	assert_int_equal(cudaDeviceSynchronize(), CUDA_SUCCESS);
	assert_int_equal(result[0], 0);
	assert_int_equal(cudaGraphClone(&clone, graph), CUDA_SUCCESS);
	assert_int_equal(cudaGraphDestroy(graph), CUDA_SUCCESS);
	assert_int_equal(cudaGraphInstantiate(&exec, clone, 0), CUDA_SUCCESS);
	assert_int_equal(cudaGraphLaunch(exec, NULL), CUDA_SUCCESS);
	assert_int_equal(cudaGraphLaunch(exec, NULL), CUDA_SUCCESS);
	assert_int_equal(cudaDeviceSynchronize(), CUDA_SUCCESS);
	assert_int_equal(result[0], 7);
	assert_int_equal(result[1], 6);
	assert_int_equal(calls, 2);
	assert_int_equal(cudaGraphExecDestroy(exec), CUDA_SUCCESS);
	assert_int_equal(cudaGraphDestroy(clone), CUDA_SUCCESS);
	assert_int_equal(cudaFree(words), CUDA_SUCCESS);
}

/* A copy of the driver's form, and a function that a stream captures. */
static void test_captured_function(void **state)
{
	static uint32_t expected = 5;
	uint32_t from = 5;
	struct cudaMemcpy3DParms copy = {.srcPtr = {&from, 4, 4, 1},
					 .dstPtr = {result, 4, 4, 1},
					 .extent = {4, 1, 1}};
	CUgraph graph, built;
	CUgraphExec exec;
	CUgraphNode node;
	CUstream stream;

	assert_int_equal(cudaGraphCreate(&built, 0), CUDA_SUCCESS);
	assert_int_equal(cudaGraphAddMemcpyNode(&node, built, NULL, 0, &copy),
			 CUDA_SUCCESS);
	assert_int_equal(cudaGraphInstantiate(&exec, built, 0), CUDA_SUCCESS);
	assert_int_equal(cudaGraphLaunch(exec, NULL), CUDA_SUCCESS);
	assert_int_equal(cudaGraphExecDestroy(exec), CUDA_SUCCESS);
	assert_int_equal(cudaGraphDestroy(built), CUDA_SUCCESS);
	calls = 0;
	assert_int_equal(cudaStreamCreate(&stream), CUDA_SUCCESS);
	assert_int_equal(cudaStreamBeginCapture(stream, 0), CUDA_SUCCESS);
	assert_int_equal(cudaLaunchHostFunc(stream, count_right, &expected),
			 CUDA_SUCCESS);
	assert_int_equal(cudaStreamEndCapture(stream, &graph), CUDA_SUCCESS);
	assert_int_equal(calls, 0);
	assert_int_equal(cudaGraphInstantiate(&exec, graph, 0), CUDA_SUCCESS);
	assert_int_equal(cudaGraphLaunch(exec, stream), CUDA_SUCCESS);
	assert_int_equal(cudaStreamSynchronize(stream), CUDA_SUCCESS);
	assert_int_equal(calls, 1);
	assert_int_equal(cudaGraphExecDestroy(exec), CUDA_SUCCESS);
	assert_int_equal(cudaGraphDestroy(graph), CUDA_SUCCESS);
	assert_int_equal(cudaStreamDestroy(stream), CUDA_SUCCESS);
}

/* A second stream captures into the graph of the first, until the capture ends. */
static void test_two_streams(void **state)
{
	CUstream one, two, three;
	CUevent fork, join;
	CUgraph graph, other;
	CUgraphExec exec;
	int captures = -1;

	assert_int_equal(cudaStreamCreate(&one), CUDA_SUCCESS);
	assert_int_equal(cudaStreamCreate(&two), CUDA_SUCCESS);
	assert_int_equal(cudaStreamCreate(&three), CUDA_SUCCESS);
	assert_int_equal(cudaEventCreate(&fork), CUDA_SUCCESS);
	assert_int_equal(cudaEventCreate(&join), CUDA_SUCCESS);
	assert_int_equal(cudaStreamBeginCapture(one, 0), CUDA_SUCCESS);
	assert_int_equal(cudaEventRecord(fork, one), CUDA_SUCCESS);
	assert_int_equal(cudaEventSynchronize(fork), CUDA_ERROR_CAPTURED_EVENT);
	assert_int_equal(cudaStreamWaitEvent(NULL, fork, 0),
			 CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	assert_int_equal(cudaStreamWaitEvent(two, fork, 0), CUDA_SUCCESS);
	assert_int_equal(cudaLaunchHostFunc(two, count_call, &calls), CUDA_SUCCESS);
	assert_int_equal(cudaEventRecord(join, two), CUDA_SUCCESS);
	assert_int_equal(cudaStreamWaitEvent(one, join, 0), CUDA_SUCCESS);
	assert_int_equal(cudaLaunchHostFunc(one, count_call, &calls), CUDA_SUCCESS);
	/* Two captures do not merge, and only the first stream ends its own. */
	assert_int_equal(cudaStreamBeginCapture(three, 0), CUDA_SUCCESS);
	assert_int_equal(cudaStreamWaitEvent(three, join, 0),
			 CUDA_ERROR_STREAM_CAPTURE_MERGE);
	assert_int_equal(cudaStreamEndCapture(three, &other), CUDA_SUCCESS);
	assert_int_equal(cudaStreamEndCapture(two, &graph),
			 CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
	assert_int_equal(cudaStreamEndCapture(one, &graph), CUDA_SUCCESS);
	assert_int_equal(cudaStreamIsCapturing(two, &captures), CUDA_SUCCESS);
	assert_int_equal(captures, 0);
	assert_int_equal(cudaStreamWaitEvent(two, join, 0), CUDA_ERROR_CAPTURED_EVENT);
	calls = 0;
	assert_int_equal(cudaGraphInstantiate(&exec, graph, 0), CUDA_SUCCESS);
	assert_int_equal(cudaGraphLaunch(exec, one), CUDA_SUCCESS);
	assert_int_equal(cudaStreamSynchronize(one), CUDA_SUCCESS);
	assert_int_equal(calls, 2);
	/* An event that is recorded again is an ordinary one; a stream that is
	 * destroyed ends its capture. */
	assert_int_equal(cudaEventRecord(join, two), CUDA_SUCCESS);
	assert_int_equal(cudaEventSynchronize(join), CUDA_SUCCESS);
	assert_int_equal(cudaStreamBeginCapture(one, 0), CUDA_SUCCESS);
	assert_int_equal(cudaEventRecord(fork, one), CUDA_SUCCESS);
	assert_int_equal(cudaStreamWaitEvent(two, fork, 0), CUDA_SUCCESS);
	assert_int_equal(cudaStreamDestroy(one), CUDA_SUCCESS);
	assert_int_equal(cudaStreamSynchronize(two), CUDA_SUCCESS);
	assert_int_equal(cudaStreamDestroy(two), CUDA_SUCCESS);
	assert_int_equal(cudaStreamDestroy(three), CUDA_SUCCESS);
	assert_int_equal(cudaEventDestroy(fork), CUDA_SUCCESS);
	assert_int_equal(cudaEventDestroy(join), CUDA_SUCCESS);
	assert_int_equal(cudaGraphExecDestroy(exec), CUDA_SUCCESS);
	assert_int_equal(cudaGraphDestroy(graph), CUDA_SUCCESS);
	assert_int_equal(cudaGraphDestroy(other), CUDA_SUCCESS);
}

static void test_refused(void **state)
{
	CUDA_HOST_NODE_PARAMS host = {count_right, NULL}, none = {NULL, NULL};
	CUDA_MEMSET_NODE_PARAMS fill = {
	    .dst = 256, .elementSize = 3, .width = 1, .height = 1};
	CUgraphNode node, stranger;
	CUgraph graph, other;
	size_t count = 9;

	assert_int_equal(cudaGraphCreate(&graph, 1), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cudaGraphCreate(&graph, 0), CUDA_SUCCESS);
	assert_int_equal(cudaGraphCreate(&other, 0), CUDA_SUCCESS);
	assert_int_equal(cudaGraphAddHostNode(&stranger, other, NULL, 0, &host),
			 CUDA_SUCCESS);
	/* A dependency of another graph, and one that is missing. */
	assert_int_equal(cudaGraphAddHostNode(&node, graph, &stranger, 1, &host),
			 CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cudaGraphAddHostNode(&node, graph, NULL, 1, &host),
			 CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cudaGraphAddHostNode(&node, NULL, NULL, 0, &host),
			 CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cudaGraphAddHostNode(&node, graph, NULL, 0, &none),
			 CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cudaGraphAddKernelNode(&node, graph, NULL, 0, NULL),
			 CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cudaGraphAddMemsetNode(&node, graph, NULL, 0, &fill),
			 CUDA_ERROR_INVALID_VALUE);
	/* A pitch that is less than a row. */
	fill.elementSize = 4;
	fill.height = 2;
	assert_int_equal(cudaGraphAddMemsetNode(&node, graph, NULL, 0, &fill),
			 CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cudaGraphGetNodes(graph, NULL, &count), CUDA_SUCCESS);
	assert_int_equal(count, 0);
	assert_int_equal(cudaGraphDestroy(graph), CUDA_SUCCESS);
	assert_int_equal(cudaGraphDestroy(other), CUDA_SUCCESS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_chain),
	    cmocka_unit_test(test_captured_function),
	    cmocka_unit_test(test_two_streams),
	    cmocka_unit_test(test_refused),
	};
	CUlibrary library;

	if (setenv("NIBEMU_MEMORY_BYTES", "0x10000000", 1) != 0 ||
	    cudaLibraryLoadData(&library, add_one, NULL, NULL, 0, NULL, NULL, 0) != 0 ||
	    cudaLibraryGetKernel(&kernel, library, "add") != 0)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
