/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_graph_threads.c - threads that build, change, launch and destroy graphs at the
 * same time, each its own, also by captures.
 */
#include <pthread.h>

#include "graph_unit.h"

#define THREADS	 4
#define LAUNCHES 12

/* cmocka's assertions are for one thread, so that these count. */
#define GOOD(call) (w->errors += (call) != 0)

struct worker {
	pthread_t thread;
	void *word;
	uint32_t number;
	int errors;
};

/* put(number), add(k) for k = 1 .. LAUNCHES */
static void launch_graph(struct worker *w, CUstream stream)
{
	uint32_t n = w->number;
	void *arguments[] = {&w->word, &n};
	struct cudaKernelNodeParams put = launch_of(put_kernel, arguments);
	struct cudaKernelNodeParams add = launch_of(add_kernel, arguments);
	CUgraphNode first, second;
	CUgraph graph, clone;
	CUgraphExec exec;

	GOOD(cudaGraphCreate(&graph, 0));
	GOOD(cudaGraphAddKernelNode(&first, graph, NULL, 0, &put));
	GOOD(cudaGraphAddKernelNode(&second, graph, &first, 1, &add));
	GOOD(cudaGraphClone(&clone, graph));
	GOOD(cudaGraphInstantiate(&exec, graph, 0));
	for (n = 1; n <= LAUNCHES; n++) {
		uint32_t value = 0;

		GOOD(cudaGraphExecKernelNodeSetParams(exec, second, &add));
		GOOD(cudaGraphLaunch(exec, stream));
		GOOD(cudaMemcpyAsync(&value, w->word, 4, cudaMemcpyDefault, stream));
		GOOD(cudaStreamSynchronize(stream));
		w->errors += value != w->number + n;
	}
	GOOD(cudaGraphExecDestroy(exec));
	GOOD(cudaGraphDestroy(clone));
	GOOD(cudaGraphDestroy(graph));
}

/* Memory of a graph, filled and copied to the word. */
static void capture(struct worker *w, CUstream stream)
{
	uint32_t value = 0;
	CUgraph graph;
	CUgraphExec exec;
	void *at = NULL;

	GOOD(cudaStreamBeginCapture(stream, 2));
	GOOD(cudaMallocAsync(&at, 4, stream));
	GOOD(cudaMemsetAsync(at, (int)w->number, 4, stream));
	GOOD(cudaMemcpyAsync(w->word, at, 4, cudaMemcpyDefault, stream));
	GOOD(cudaFreeAsync(at, stream));
	GOOD(cudaStreamEndCapture(stream, &graph));
	GOOD(cudaGraphInstantiate(&exec, graph, 0));
	GOOD(cudaGraphLaunch(exec, stream));
	GOOD(cudaMemcpyAsync(&value, w->word, 4, cudaMemcpyDefault, stream));
	GOOD(cudaStreamSynchronize(stream));
	w->errors += value != w->number * 0x01010101;
	GOOD(cudaGraphExecDestroy(exec));
	GOOD(cudaGraphDestroy(graph));
}

static void *work(void *argument)
{
	struct worker *w = argument;
	CUstream stream;

	GOOD(cudaStreamCreate(&stream));
	for (int i = 0; i < 4; i++) {
		launch_graph(w, stream);
		capture(w, stream);
	}
	GOOD(cudaStreamDestroy(stream));
	return NULL;
}

static void test_threads(void **state)
{
	struct worker workers[THREADS];

	for (uint32_t i = 0; i < THREADS; i++)
		workers[i] = (struct worker){.word = new_word(0), .number = i + 1};
	OK(cudaDeviceSynchronize());
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(
		    pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
	for (int i = 0; i < THREADS; i++) {
		assert_int_equal(pthread_join(workers[i].thread, NULL), 0);
		assert_int_equal(workers[i].errors, 0);
		OK(cudaFree(workers[i].word));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_threads)};

	return load_graph_kernels() ? cmocka_run_group_tests(tests, NULL, NULL) : 1;
}
