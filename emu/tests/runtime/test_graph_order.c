/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_graph_order.c - accesses of nodes that no edge orders are reported, and those of
 * ordered nodes are not.  Each case runs in a process of its own, because a report
 * ends the use of the device.
 */
#include <stdbool.h>
#include <sys/wait.h>
#include <unistd.h>

#include "graph_unit.h"

static void *word, *other;
static CUgraph graph;

static CUgraphNode put(CUgraphNode before)
{
	return node_of(graph, put_kernel, word, 1, before);
}

/* Launches in a stream, and again; the result is that of the wait. */
static CUresult launch(void)
{
	CUgraphExec exec;
	CUstream stream;
	CUresult result;

	OK(cudaStreamCreate(&stream));
	OK(cudaGraphInstantiate(&exec, graph, 0));
	result = cudaGraphLaunch(exec, stream);
	if (!result)
		result = cudaGraphLaunch(exec, stream);
	return result ? result : (CUresult)cudaDeviceSynchronize();
}

/* ---- cases ------------------------------------------------------------------- */

static CUresult two_roots(bool has_edge)
{
	CUgraphNode first = put(NULL);

	(void)put(has_edge ? first : NULL);
	return launch();
}

static CUresult fork_of_two(bool has_edge)
{
	CUgraphNode root, a, b;

	OK(cudaGraphAddEmptyNode(&root, graph, NULL, 0));
	a = put(root);
	b = put(root);
	if (has_edge)
		OK(cudaGraphAddDependencies(graph, &a, &b, NULL, 1));
	return launch();
}

/* A diamond: the last node reads what both branches wrote. */
static CUresult join(bool has_edge)
{
	CUgraphNode root, a, b, last;

	OK(cudaGraphAddEmptyNode(&root, graph, NULL, 0));
	a = put(root);
	b = node_of(graph, put_kernel, other, 2, root);
	last = node_of(graph, add_kernel, word, 4, has_edge ? a : b);
	OK(cudaGraphAddDependencies(graph, has_edge ? &b : &root, &last, NULL, 1));
	return launch();
}

/* A copy of two rows, of which the second is the word. */
static CUresult rows(bool has_edge)
{
	const struct cudaMemcpy3DParms p = {.srcPtr = {other, 4, 4, 2},
					    .dstPtr = {(char *)word - 4, 4, 4, 2},
					    .extent = {4, 2, 1}};
	CUgraphNode first = put(NULL), copy;

	OK(cudaGraphAddMemcpyNode(&copy, graph, &first, has_edge, &p));
	return launch();
}

/* The nodes of a child graph come after the node before it. */
static CUresult child(bool has_edge)
{
	CUgraphNode first, node;
	CUgraph inner;

	OK(cudaGraphCreate(&inner, 0));
	(void)node_of(inner, put_kernel, other, 1, NULL);
	(void)node_of(inner, put_kernel, word, 1, NULL);
	first = put(NULL);
	OK(cudaGraphAddChildGraphNode(&node, graph, &first, has_edge, inner));
	return launch();
}

/* Work of a stream before and after the launch, and of another stream. */
static CUresult streams(bool has_edge)
{
	CUgraphExec exec;
	CUstream one, two;

	(void)put(NULL);
	(void)node_of(graph, put_kernel, other, 1, NULL);
	OK(cudaStreamCreate(&one));
	OK(cudaStreamCreate(&two));
	OK(cudaGraphInstantiate(&exec, graph, 0));
	OK(cudaMemsetAsync(other, 1, 4, one));
	OK(cudaGraphLaunch(exec, one));
	OK(cudaMemsetAsync(other, 1, 4, one));
	if (has_edge)
		OK(cudaStreamSynchronize(one));
	return cudaMemsetAsync(other, 1, 4, two);
}

/* Two streams of a capture, joined by an event or not until after the second one. */
static CUresult captured(bool has_edge)
{
	CUstream one, two;
	CUevent fork, join;
	CUgraphExec exec;

	OK(cudaStreamCreate(&one));
	OK(cudaStreamCreate(&two));
	OK(cudaEventCreate(&fork));
	OK(cudaEventCreate(&join));
	OK(cudaStreamBeginCapture(one, 0));
	OK(cudaEventRecord(fork, one));
	OK(cudaStreamWaitEvent(two, fork, 0));
	OK(cudaMemsetAsync(word, 1, 4, two));
	OK(cudaEventRecord(join, two));
	if (has_edge)
		OK(cudaStreamWaitEvent(one, join, 0));
	OK(cudaMemsetAsync(word, 1, 4, one));
	OK(cudaStreamWaitEvent(one, join, 0));
	OK(cudaStreamEndCapture(one, &graph));
	OK(cudaGraphInstantiate(&exec, graph, 0));
	return cudaGraphLaunch(exec, one);
}

/* An event node orders the graph with a stream. */
static CUresult event(bool has_edge)
{
	CUgraphExec exec;
	CUstream one, two;
	CUgraphNode node, last;
	CUevent e;

	OK(cudaStreamCreate(&one));
	OK(cudaStreamCreate(&two));
	OK(cudaEventCreate(&e));
	node = put(NULL);
	OK(cudaGraphAddEventRecordNode(&last, graph, &node, has_edge, e));
	(void)node_of(graph, put_kernel, other, 1, NULL);
	OK(cudaGraphInstantiate(&exec, graph, 0));
	OK(cudaGraphLaunch(exec, one));
	OK(cudaStreamWaitEvent(two, e, 0));
	return cudaMemsetAsync(word, 1, 4, two);
}

/* A programmatic edge does not wait for the end of a kernel that never says so. */
static CUresult programmatic(bool has_edge)
{
	const CUgraphEdgeData data = {.type = has_edge ? 0 : 1};
	CUgraphNode first = put(NULL);
	CUgraphNode second = node_of(graph, add_kernel, word, 1, NULL);

	OK(cudaGraphAddDependencies(graph, &first, &second, &data, 1));
	return launch();
}

static const struct {
	const char *name;
	CUresult (*run)(bool has_edge);
	const char *text; /* of the report; NULL: that of streams */
} cases[] = {
    {"two roots", two_roots, NULL},
    {"fork", fork_of_two, NULL},
    {"join", join, NULL},
    {"rows", rows, NULL},
    {"child", child, NULL},
    {"streams", streams, NULL},
    {"captured", captured, NULL},
    {"event node", event, NULL},
    {"programmatic", programmatic, "another grid"},
};

/* ---- running ------------------------------------------------------------------- */

/* Exits with 0 if there is a report of the order where there is no edge. */
static void run(size_t i, bool has_edge)
{
	void *words;

	/* Dependent grids overlap on seeds other than 0. */
	if ((cases[i].text && setenv("NIBEMU_SEED", "1", 1)) || !load_graph_kernels())
		_exit(2);
	OK(cudaMalloc(&words, 16));
	OK(cudaMemset(words, 0, 16));
	other = words;
	word = (char *)words + 12;
	OK(cudaGraphCreate(&graph, 0));
	if (has_edge) {
		OK(cases[i].run(true));
		OK(cudaDeviceSynchronize());
		_exit(0);
	}
	FAILS(cases[i].run(false), CUDA_ERROR_LAUNCH_FAILED);
	SAYS(LAUNCH_FAILED,
	     cases[i].text ? cases[i].text : "nothing orders the two streams");
	_exit(0);
}

static void test_cases(void **state)
{
	for (size_t i = 0; i < 2 * sizeof(cases) / sizeof(*cases); i++) {
		const pid_t child = fork();
		int status = -1;

		assert_true(child >= 0);
		if (!child)
			run(i / 2, i % 2);
		assert_int_equal(waitpid(child, &status, 0), child);
		if (status)
			fail_msg("%s, %s: status %d", cases[i / 2].name,
				 i % 2 ? "ordered" : "not ordered", status);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_cases)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
