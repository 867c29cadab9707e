/* SPDX-License-Identifier: Apache-2.0 */
/* test_graph_edges.c - nodes and edges of graphs, copies of graphs, and cycles. */
#include "graph_unit.h"

/* a -> b -> d, a -> c -> d: *word = 1, += 2, += 4, += 8 */
struct diamond {
	CUgraph graph;
	CUgraphNode a, b, c, d;
	void *word;
};

static struct diamond make(void)
{
	struct diamond x = {.word = new_word(0)};

	OK(cudaGraphCreate(&x.graph, 0));
	x.a = node_of(x.graph, put_kernel, x.word, 1, NULL);
	x.b = node_of(x.graph, add_kernel, x.word, 2, x.a);
	x.c = node_of(x.graph, add_kernel, x.word, 4, x.b);
	x.d = node_of(x.graph, add_kernel, x.word, 8, x.b);
	return x;
}

static void test_lists(void **state)
{
	struct diamond x = make();
	CUgraphNode nodes[5] = {0}, from[4], to[4], found;
	CUgraphEdgeData data[4];
	size_t count = 5;

	/* a -> b, b -> c, b -> d; then also c -> d */
	OK(cudaGraphAddDependencies(x.graph, &x.c, &x.d, NULL, 1));
	OK(cudaGraphGetNodes(x.graph, nodes, &count));
	assert_int_equal(count, 4);
	assert_ptr_equal(nodes[0], x.a);
	assert_null(nodes[4]);
	OK(cudaGraphGetRootNodes(x.graph, NULL, &count));
	assert_int_equal(count, 1);
	OK(cudaGraphGetRootNodes(x.graph, &found, &count));
	assert_ptr_equal(found, x.a);
	OK(cudaGraphGetEdges(x.graph, NULL, NULL, NULL, &count));
	assert_int_equal(count, 4);
	OK(cudaGraphGetEdges(x.graph, from, to, data, &count));
	assert_ptr_equal(from[0], x.a);
	assert_ptr_equal(to[0], x.b);
	assert_ptr_equal(from[3], x.c);
	assert_ptr_equal(to[3], x.d);
	assert_int_equal(data[3].type, 0);
	/* The forms of CUDA 12. */
	OK(cuGraphGetEdges(x.graph, from, to, &count));
	assert_ptr_equal(to[3], x.d);
	OK(cuGraphRemoveDependencies(x.graph, &x.c, &x.d, 1));
	OK(cuGraphNodeGetDependencies(x.d, NULL, &count));
	assert_int_equal(count, 1);
	OK(cuGraphAddDependencies(x.graph, &x.c, &x.d, 1));
	OK(cuGraphNodeGetDependentNodes(x.c, NULL, &count));
	assert_int_equal(count, 1);
	count = 4;
	OK(cudaGraphNodeGetDependencies(x.d, nodes, NULL, &count));
	assert_int_equal(count, 2);
	assert_ptr_equal(nodes[1], x.c);
	OK(cudaGraphNodeGetDependentNodes(x.b, NULL, NULL, &count));
	assert_int_equal(count, 2);
	/* An array that is too small has the first ones. */
	count = 1;
	OK(cudaGraphNodeGetDependentNodes(x.b, nodes, NULL, &count));
	assert_int_equal(count, 1);
	assert_ptr_equal(nodes[0], x.c);
	OK(cudaGraphDestroy(x.graph));
	OK(cudaFree(x.word));
}

static void test_edges(void **state)
{
	struct diamond x = make();
	CUgraphNode none = NULL;
	CUgraphExec exec;
	size_t count = 0;

	FAILS(cudaGraphAddDependencies(x.graph, &x.a, &x.b, NULL, 1),
	      CUDA_ERROR_INVALID_VALUE);
	SAYS(INVALID_VALUE, "cuGraphAddDependencies: pair 0 has an edge");
	FAILS(cudaGraphAddDependencies(x.graph, &x.a, &x.a, NULL, 1),
	      CUDA_ERROR_INVALID_VALUE);
	FAILS(cudaGraphAddDependencies(x.graph, &none, &x.a, NULL, 1),
	      CUDA_ERROR_INVALID_VALUE);
	FAILS(cudaGraphRemoveDependencies(x.graph, &x.c, &x.d, NULL, 1),
	      CUDA_ERROR_INVALID_VALUE);
	SAYS(INVALID_VALUE, "has not an edge");
	OK(cudaGraphAddDependencies(x.graph, &x.c, &x.d, NULL, 1));
	OK(cudaGraphRemoveDependencies(x.graph, &x.b, &x.d, NULL, 1));
	OK(cudaGraphNodeGetDependencies(x.d, NULL, NULL, &count));
	assert_int_equal(count, 1);
	/* The edges of a node end with it: d is a root after c. */
	OK(cudaGraphDestroyNode(x.c));
	OK(cudaGraphGetRootNodes(x.graph, NULL, &count));
	assert_int_equal(count, 2);
	OK(cudaGraphAddDependencies(x.graph, &x.b, &x.d, NULL, 1));
	OK(cudaGraphInstantiate(&exec, x.graph, 0));
	OK(cudaGraphDestroy(x.graph));
	run_exec(exec);
	assert_int_equal(word_at(x.word), 1 + 2 + 8);
	OK(cudaGraphExecDestroy(exec));
	FAILS(cudaGraphExecDestroy(exec), CUDA_ERROR_INVALID_VALUE);
	OK(cudaFree(x.word));
}

/* An edge may lead to a node that was added earlier: the order follows the edges. */
static void test_order(void **state)
{
	void *word = new_word(0);
	CUgraph graph;
	CUgraphExec exec;
	CUgraphNode add, put;

	OK(cudaGraphCreate(&graph, 0));
	add = node_of(graph, add_kernel, word, 5, NULL);
	put = node_of(graph, put_kernel, word, 100, NULL);
	OK(cudaGraphAddDependencies(graph, &put, &add, NULL, 1));
	OK(cudaGraphInstantiateWithFlags(&exec, graph, 0));
	run_exec(exec);
	assert_int_equal(word_at(word), 105);
	OK(cudaGraphExecDestroy(exec));
	OK(cudaGraphDestroy(graph));
	OK(cudaFree(word));
}

static void test_cycle(void **state)
{
	struct diamond x = make();
	CUDA_GRAPH_INSTANTIATE_PARAMS p = {0};
	CUgraphExec exec;

	OK(cudaGraphAddDependencies(x.graph, &x.d, &x.b, NULL, 1));
	FAILS(cudaGraphInstantiate(&exec, x.graph, 0), CUDA_ERROR_INVALID_VALUE);
	SAYS(INVALID_VALUE, "a cycle");
	FAILS(cudaGraphInstantiateWithParams(&exec, x.graph, &p),
	      CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(p.result_out, 2);
	assert_non_null(p.hErrNode_out);
	assert_ptr_not_equal(p.hErrNode_out, x.a);
	OK(cudaGraphRemoveDependencies(x.graph, &x.d, &x.b, NULL, 1));
	OK(cudaGraphInstantiateWithParams(&exec, x.graph, &p));
	assert_int_equal(p.result_out, 0);
	assert_null(p.hErrNode_out);
	FAILS(cudaGraphInstantiate(&exec, NULL, 0), CUDA_ERROR_INVALID_VALUE);
	FAILS(cudaGraphInstantiate(&exec, x.graph, 4), CUDA_ERROR_NOT_SUPPORTED);
	SAYS(NOT_SUPPORTED, "DEVICE_LAUNCH");
	FAILS(cudaGraphInstantiate(&exec, x.graph, 16), CUDA_ERROR_INVALID_VALUE);
	OK(cudaGraphExecDestroy(exec));
	OK(cudaGraphDestroy(x.graph));
	OK(cudaFree(x.word));
}

static void test_clone(void **state)
{
	struct diamond x = make();
	CUgraphNode copy, child, in_child;
	CUgraph clone, outer, inner;
	CUgraphExec exec;
	size_t count = 0;
	int type = -1;

	OK(cudaGraphAddDependencies(x.graph, &x.c, &x.d, NULL, 1));
	OK(cudaGraphClone(&clone, x.graph));
	OK(cudaGraphNodeFindInClone(&copy, x.b, clone));
	assert_ptr_not_equal(copy, x.b);
	OK(cudaGraphNodeGetDependentNodes(copy, NULL, NULL, &count));
	assert_int_equal(count, 2);
	FAILS(cudaGraphNodeFindInClone(&copy, copy, clone), CUDA_ERROR_INVALID_VALUE);
	SAYS(INVALID_VALUE, "no copy of this kernel node");
	/* The clone does not change with the graph. */
	OK(cudaGraphDestroyNode(x.d));
	OK(cudaGraphGetNodes(clone, NULL, &count));
	assert_int_equal(count, 4);
	/* A child graph is a copy, too, which belongs to its node. */
	OK(cudaGraphCreate(&outer, 0));
	OK(cudaGraphAddChildGraphNode(&child, outer, NULL, 0, clone));
	OK(cudaGraphNodeGetType(child, &type));
	assert_int_equal(type, CU_GRAPH_NODE_TYPE_GRAPH);
	OK(cudaGraphChildGraphNodeGetGraph(child, &inner));
	OK(cudaGraphNodeFindInClone(&copy, x.a, clone));
	OK(cudaGraphNodeFindInClone(&in_child, copy, inner));
	FAILS(cudaGraphDestroy(inner), CUDA_ERROR_INVALID_VALUE);
	FAILS(cudaGraphChildGraphNodeGetGraph(in_child, &inner),
	      CUDA_ERROR_INVALID_VALUE);
	SAYS(INVALID_VALUE, "a kernel node: a child graph node is needed");
	OK(cudaGraphAddEmptyNode(&copy, outer, &child, 1));
	(void)node_of(outer, add_kernel, x.word, 100, copy);
	OK(cudaGraphInstantiate(&exec, outer, 0));
	OK(cudaGraphDestroy(outer));
	OK(cudaGraphDestroy(clone));
	OK(cudaGraphDestroy(x.graph));
	run_exec(exec);
	assert_int_equal(word_at(x.word), 1 + 2 + 4 + 8 + 100);
	OK(cudaGraphExecDestroy(exec));
	OK(cudaFree(x.word));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_lists), cmocka_unit_test(test_edges),
	    cmocka_unit_test(test_order), cmocka_unit_test(test_cycle),
	    cmocka_unit_test(test_clone),
	};

	return load_graph_kernels() ? cmocka_run_group_tests(tests, NULL, NULL) : 1;
}
