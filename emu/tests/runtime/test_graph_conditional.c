/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_graph_conditional.c - IF, WHILE and SWITCH nodes, whose values kernels set, and
 * what is refused.  A case that fails a launch runs in a process of its own.
 */
#include <sys/wait.h>
#include <unistd.h>

#include "graph_unit.h"

/* A conditional node after `before`, and its graphs. */
static CUgraph *add_condition(CUgraph graph, CUgraphConditionalHandle handle, int type,
			      unsigned size, CUgraphNode before)
{
	struct cudaGraphNodeParams p = {.type = CU_GRAPH_NODE_TYPE_CONDITIONAL};
	CUgraphNode node;

	p.conditional.handle = handle;
	p.conditional.type = type;
	p.conditional.size = size;
	OK(cudaGraphAddNode(&node, graph, before ? &before : NULL, NULL, before != NULL,
			    &p));
	return p.conditional.phGraph_out;
}

static CUgraphNode down_node(CUgraph graph, void *word, CUgraphConditionalHandle handle)
{
	void *arguments[] = {&word, &handle};
	const struct cudaKernelNodeParams k = launch_of(down_kernel, arguments);
	CUgraphNode node = NULL;

	OK(cudaGraphAddKernelNode(&node, graph, NULL, 0, &k));
	return node;
}

/* The word counts down; the graph of the node adds 1 to sum for each value but 0. */
static void test_while(void **state)
{
	void *word = new_word(0), *sum = new_word(0);
	CUgraphConditionalHandle handle;
	CUgraph graph, body;
	CUgraphNode in_body;
	CUgraphExec exec;
	uint32_t value = 5;

	OK(cudaGraphCreate(&graph, 0));
	OK(cudaGraphConditionalHandleCreate(&handle, graph, 1,
					    CU_GRAPH_COND_ASSIGN_DEFAULT));
	body = add_condition(graph, handle, CU_GRAPH_COND_TYPE_WHILE, 1, NULL)[0];
	in_body = down_node(body, word, handle);
	(void)node_of(body, add_kernel, sum, 1, in_body);
	OK(cudaGraphInstantiate(&exec, graph, 0));
	for (int i = 0; i < 2; i++) {
		OK(cudaMemcpy(word, &value, 4, cudaMemcpyDefault));
		run_exec(exec);
		assert_int_equal(word_at(word), 0);
		assert_int_equal(word_at(sum), 5 * (i + 1));
	}
	OK(cudaGraphExecDestroy(exec));
	OK(cudaGraphDestroy(graph));
	OK(cudaFree(word));
	OK(cudaFree(sum));
}

/* The value is *word - 1: IF and ELSE, or graph 0, 1, 2, or none. */
static uint32_t choose(int type, unsigned size, uint32_t first)
{
	void *word = new_word(first), *result = new_word(99);
	CUgraphConditionalHandle handle;
	CUgraph graph, *bodies, clone;
	CUgraphNode node;
	CUgraphExec exec;
	uint32_t value;

	OK(cudaGraphCreate(&graph, 0));
	OK(cudaGraphConditionalHandleCreate(&handle, graph, 0, 0));
	node = down_node(graph, word, handle);
	bodies = add_condition(graph, handle, type, size, node);
	for (unsigned i = 0; i < size; i++)
		(void)node_of(bodies[i], put_kernel, result, i, NULL);
	OK(cudaGraphClone(&clone, graph));
	OK(cudaGraphDestroy(graph));
	OK(cudaGraphInstantiate(&exec, clone, 0));
	run_exec(exec);
	value = word_at(result);
	OK(cudaGraphExecDestroy(exec));
	OK(cudaGraphDestroy(clone));
	OK(cudaFree(word));
	OK(cudaFree(result));
	return value;
}

static void test_choice(void **state)
{
	assert_int_equal(choose(CU_GRAPH_COND_TYPE_IF, 1, 1), 99);
	assert_int_equal(choose(CU_GRAPH_COND_TYPE_IF, 1, 2), 0);
	assert_int_equal(choose(CU_GRAPH_COND_TYPE_IF, 2, 1), 1);
	assert_int_equal(choose(CU_GRAPH_COND_TYPE_IF, 2, 7), 0);
	assert_int_equal(choose(CU_GRAPH_COND_TYPE_SWITCH, 3, 1), 0);
	assert_int_equal(choose(CU_GRAPH_COND_TYPE_SWITCH, 3, 3), 2);
	assert_int_equal(choose(CU_GRAPH_COND_TYPE_SWITCH, 3, 4), 99);
}

static void no_call(void *argument)
{
	(void)argument;
}

static void test_refused(void **state)
{
	const CUDA_HOST_NODE_PARAMS host = {no_call, NULL};
	struct cudaGraphNodeParams p = {.type = CU_GRAPH_NODE_TYPE_CONDITIONAL};
	CUgraphConditionalHandle handle;
	CUgraphNode node;
	CUgraph graph;
	CUgraphExec exec;

	OK(cudaGraphCreate(&graph, 0));
	FAILS(cudaGraphConditionalHandleCreate(&handle, graph, 0, 2),
	      CUDA_ERROR_INVALID_VALUE);
	OK(cudaGraphConditionalHandleCreate(&handle, graph, 0, 0));
	p.conditional.handle = handle;
	p.conditional.size = 3;
	FAILS(cudaGraphAddNode(&node, graph, NULL, NULL, 0, &p),
	      CUDA_ERROR_INVALID_VALUE);
	SAYS(INVALID_VALUE, "a conditional node of 3 graphs: IF has 1 or 2");
	p.conditional.type = 3;
	FAILS(cudaGraphAddNode(&node, graph, NULL, NULL, 0, &p),
	      CUDA_ERROR_INVALID_VALUE);
	p.conditional.type = CU_GRAPH_COND_TYPE_SWITCH;
	p.conditional.handle = handle + 1;
	FAILS(cudaGraphAddNode(&node, graph, NULL, NULL, 0, &p),
	      CUDA_ERROR_INVALID_VALUE);
	SAYS(INVALID_VALUE, "is not the handle of a condition");
	p.conditional.handle = handle;
	OK(cudaGraphAddNode(&node, graph, NULL, NULL, 0, &p));
	OK(cudaGraphAddHostNode(&node, p.conditional.phGraph_out[1], NULL, 0, &host));
	FAILS(cudaGraphInstantiate(&exec, graph, 0), CUDA_ERROR_NOT_SUPPORTED);
	SAYS(NOT_SUPPORTED, "a host node in the graph of a conditional node");
	OK(cudaGraphDestroyNode(node));
	OK(cudaGraphInstantiate(&exec, graph, 0));
	run_exec(exec);
	OK(cudaGraphExecDestroy(exec));
	OK(cudaGraphDestroy(graph));
}

/* ---- launches that fail ---------------------------------------------------------- */

/* Exits with 0 if the launch fails with the text. */
static void fail_launch(int type, CUgraphConditionalHandle offset, const char *text)
{
	CUgraphConditionalHandle handle;
	CUgraph graph, body;
	CUgraphExec exec;

	if (!load_graph_kernels())
		_exit(2);
	OK(cudaGraphCreate(&graph, 0));
	OK(cudaGraphConditionalHandleCreate(&handle, graph, 1,
					    CU_GRAPH_COND_ASSIGN_DEFAULT));
	body = add_condition(graph, handle, type, 1, NULL)[0];
	if (offset)
		(void)down_node(body, new_word(2), handle + offset);
	OK(cudaGraphInstantiate(&exec, graph, 0));
	(void)cudaGraphLaunch(exec, NULL);
	FAILS(cudaDeviceSynchronize(), CUDA_ERROR_LAUNCH_FAILED);
	SAYS(LAUNCH_FAILED, text);
	_exit(0);
}

static void expect_failure(int type, CUgraphConditionalHandle offset, const char *text)
{
	const pid_t child = fork();
	int status = -1;

	assert_true(child >= 0);
	if (!child)
		fail_launch(type, offset, text);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
}

/* In processes of their own, before the driver is opened in this one. */
static void test_failures(void **state)
{
	expect_failure(CU_GRAPH_COND_TYPE_WHILE, 0,
		       "runs no kernel that could set its value");
	expect_failure(CU_GRAPH_COND_TYPE_IF, 5, "is not the handle of a condition");
}

int main(void)
{
	const struct CMUnitTest before[] = {cmocka_unit_test(test_failures)};
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_while),
	    cmocka_unit_test(test_choice),
	    cmocka_unit_test(test_refused),
	};

	return cmocka_run_group_tests(before, NULL, NULL) || !load_graph_kernels() ||
	       cmocka_run_group_tests(tests, NULL, NULL);
}
