/* SPDX-License-Identifier: Apache-2.0 */
/* test_captures.c - the nodes and edges of captures, and captures that must fail. */
#include "graph_unit.h"

static CUstream one, two;
static CUevent fork, join;
static void *word;

static int open_streams(void **state)
{
	OK(cudaStreamCreate(&one));
	OK(cudaStreamCreate(&two));
	OK(cudaEventCreate(&fork));
	OK(cudaEventCreate(&join));
	word = new_word(0);
	return 0;
}

static int close_streams(void **state)
{
	OK(cudaStreamDestroy(one));
	OK(cudaStreamDestroy(two));
	OK(cudaEventDestroy(fork));
	OK(cudaEventDestroy(join));
	OK(cudaFree(word));
	return 0;
}

static void begin_both(void)
{
	OK(cudaStreamBeginCapture(one, 0));
	OK(cudaMemsetAsync(word, 1, 4, one));
	OK(cudaEventRecord(fork, one));
	OK(cudaStreamWaitEvent(two, fork, 0));
}

/* fill -> fill in each stream -> fill after both */
static void test_edges(void **state)
{
	CUgraphNode from[4], to[4];
	size_t count = 4;
	CUgraph graph;

	begin_both();
	OK(cudaMemsetAsync(word, 2, 2, one));
	OK(cudaMemset2DAsync((char *)word + 2, 2, 2, 2, 1, two));
	OK(cudaEventRecord(join, two));
	OK(cudaStreamWaitEvent(one, join, 0));
	OK(cudaMemsetAsync(word, 3, 4, one));
	OK(cudaStreamEndCapture(one, &graph));
	OK(cudaGraphGetEdges(graph, from, to, NULL, &count));
	assert_int_equal(count, 4);
	assert_ptr_equal(from[0], from[1]);
	assert_ptr_not_equal(to[0], to[1]);
	assert_ptr_equal(to[2], to[3]);
	OK(cudaGraphDestroy(graph));
}

static void test_unjoined(void **state)
{
	CUgraph graph = (CUgraph)(void *)word;

	begin_both();
	OK(cudaMemsetAsync(word, 2, 4, two));
	FAILS(cudaStreamEndCapture(one, &graph), CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
	assert_null(graph);
	OK(cudaStreamSynchronize(two));
	/* A stream that has joined without work need not be waited for. */
	begin_both();
	OK(cudaStreamEndCapture(one, &graph));
	OK(cudaGraphDestroy(graph));
	/* An event that was recorded outside. */
	OK(cudaEventRecord(join, two));
	OK(cudaStreamBeginCapture(one, 0));
	FAILS(cudaStreamWaitEvent(one, join, 0), CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
	OK(cudaStreamWaitEvent(one, join, 1));
	OK(cudaEventRecordWithFlags(join, one, 1));
	OK(cudaStreamEndCapture(one, &graph));
	OK(cudaEventSynchronize(join));
	OK(cudaGraphDestroy(graph));
}

/* A capture into a graph of the program, after a node that it has. */
static void test_to_graph(void **state)
{
	CUgraph graph, found = NULL;
	const CUgraphNode *tails = NULL;
	CUgraphNode first, second, dependency;
	CUgraphExec exec;
	uint64_t id = 0;
	size_t count = 9;
	int status = -1;

	OK(cudaStreamGetCaptureInfo(one, &status, &id, NULL, NULL, NULL, NULL));
	assert_int_equal(status, 0);
	OK(cudaGraphCreate(&graph, 0));
	first = node_of(graph, put_kernel, word, 5, NULL);
	second = node_of(graph, add_kernel, word, 1, first);
	OK(cudaStreamBeginCaptureToGraph(one, graph, &first, NULL, 1, 0));
	OK(cudaStreamGetCaptureInfo(one, &status, &id, &found, &tails, NULL, &count));
	assert_int_equal(status, 1);
	assert_true(id > 0);
	assert_ptr_equal(found, graph);
	assert_int_equal(count, 1);
	assert_ptr_equal(tails[0], first);
	OK(cudaStreamUpdateCaptureDependencies(one, &second, NULL, 1, 1));
	OK(cudaMemsetAsync(word, 2, 4, one));
	OK(cudaStreamGetCaptureInfo(one, &status, NULL, NULL, &tails, NULL, &count));
	count = 1;
	OK(cudaGraphNodeGetDependencies(tails[0], &dependency, NULL, &count));
	assert_ptr_equal(dependency, second);
	OK(cudaStreamEndCapture(one, NULL));
	FAILS(cudaStreamUpdateCaptureDependencies(one, &second, NULL, 1, 1),
	      CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
	OK(cudaGraphInstantiate(&exec, graph, 0));
	run_exec(exec);
	assert_int_equal(word_at(word), 0x02020202);
	OK(cudaGraphExecDestroy(exec));
	OK(cudaGraphDestroy(graph));
}

/* A launch in a capture is a child graph; a copy of rows is one node. */
static void test_launch(void **state)
{
	CUgraph graph, outer;
	CUgraphExec exec;
	CUgraphNode node;
	size_t count = 1;
	int type = -1;

	OK(cudaGraphCreate(&graph, 0));
	(void)node_of(graph, put_kernel, word, 5, NULL);
	OK(cudaGraphInstantiate(&exec, graph, 0));
	OK(cudaStreamBeginCapture(one, 0));
	OK(cudaGraphLaunch(exec, one));
	OK(cudaStreamEndCapture(one, &outer));
	OK(cudaGraphGetNodes(outer, &node, &count));
	OK(cudaGraphNodeGetType(node, &type));
	assert_int_equal(type, CU_GRAPH_NODE_TYPE_GRAPH);
	OK(cudaGraphExecDestroy(exec));
	OK(cudaGraphDestroy(graph));
	OK(cudaGraphInstantiate(&exec, outer, 0));
	run_exec(exec);
	assert_int_equal(word_at(word), 5);
	OK(cudaGraphExecDestroy(exec));
	OK(cudaGraphDestroy(outer));
	OK(cudaStreamBeginCapture(one, 0));
	OK(cudaMemcpy2DAsync(word, 2, word, 2, 2, 2, cudaMemcpyDefault, one));
	OK(cudaStreamEndCapture(one, &graph));
	OK(cudaGraphGetNodes(graph, NULL, &count));
	assert_int_equal(count, 1);
	OK(cudaGraphDestroy(graph));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(test_edges, open_streams, close_streams),
	    cmocka_unit_test_setup_teardown(test_unjoined, open_streams, close_streams),
	    cmocka_unit_test_setup_teardown(test_to_graph, open_streams, close_streams),
	    cmocka_unit_test_setup_teardown(test_launch, open_streams, close_streams),
	};

	return load_graph_kernels() ? cmocka_run_group_tests(tests, NULL, NULL) : 1;
}
