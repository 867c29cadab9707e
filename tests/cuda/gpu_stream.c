/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_stream.c - see gpu_stream.h; names and numbers are those of cuda.h. */
#include "gpu_stream.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STREAM_NON_BLOCKING 1
#define CAPTURE_GLOBAL	    0
#define NODE_KERNEL	    0

typedef int result;

static struct {
	result (*cuGetErrorName)(result, const char **);
	result (*cuDeviceGet)(int *, int);
	result (*cuDevicePrimaryCtxRetain)(void **, int);
	result (*cuCtxSetCurrent)(void *);
	result (*cuCtxGetCurrent)(void **);
	result (*cuStreamCreate)(void **, unsigned);
	result (*cuStreamDestroy_v2)(void *);
	result (*cuStreamBeginCapture_v2)(void *, int);
	result (*cuStreamEndCapture)(void *, void **);
	result (*cuGraphGetNodes)(void *, void **, size_t *);
	result (*cuGraphNodeGetType)(void *, int *);
	result (*cuGraphInstantiateWithFlags)(void **, void *, unsigned long long);
	result (*cuGraphLaunch)(void *, void *);
	result (*cuGraphExecDestroy)(void *);
	result (*cuGraphDestroy)(void *);
} cu;

static const char *name_of(result code)
{
	const char *name = NULL;

	return cu.cuGetErrorName(code, &name) || !name ? "unknown" : name;
}

static void must(result code, const char *what)
{
	if (!code)
		return;
	printf("FAIL %s: %s\n", what, name_of(code));
	exit(1);
}

static void find(void *library, const char *name, void *function)
{
	void *symbol = dlsym(library, name);

	if (!symbol) {
		printf("FAIL the driver has no %s\n", name);
		exit(1);
	}
	/* ISO C has no cast between the two kinds of pointers. */
	memcpy(function, &symbol, sizeof(symbol));
}

void gpu_driver_open(void)
{
	const char *path = getenv("NIB_CUDA_LIBRARY");
	void *library = dlopen(path && *path ? path : "libcuda.so.1", RTLD_NOW);

	if (!library) {
		printf("FAIL %s\n", dlerror());
		exit(1);
	}
#define FIND(name) find(library, #name, &cu.name)
	FIND(cuGetErrorName);
	FIND(cuDeviceGet);
	FIND(cuDevicePrimaryCtxRetain);
	FIND(cuCtxSetCurrent);
	FIND(cuCtxGetCurrent);
	FIND(cuStreamCreate);
	FIND(cuStreamDestroy_v2);
	FIND(cuStreamBeginCapture_v2);
	FIND(cuStreamEndCapture);
	FIND(cuGraphGetNodes);
	FIND(cuGraphNodeGetType);
	FIND(cuGraphInstantiateWithFlags);
	FIND(cuGraphLaunch);
	FIND(cuGraphExecDestroy);
	FIND(cuGraphDestroy);
#undef FIND
}

void *gpu_context_set(int ordinal)
{
	void *context = NULL;
	int device = 0;

	must(cu.cuDeviceGet(&device, ordinal), "cuDeviceGet");
	must(cu.cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
	must(cu.cuCtxSetCurrent(context), "cuCtxSetCurrent");
	return context;
}

bool gpu_context_is(const void *context)
{
	void *current = NULL;

	must(cu.cuCtxGetCurrent(&current), "cuCtxGetCurrent");
	return current == context;
}

void *gpu_stream_new(void)
{
	void *stream = NULL;

	must(cu.cuStreamCreate(&stream, STREAM_NON_BLOCKING), "cuStreamCreate");
	return stream;
}

void gpu_stream_free(void *stream)
{
	must(cu.cuStreamDestroy_v2(stream), "cuStreamDestroy");
}

/* ---- graphs -------------------------------------------------------------- */

void gpu_capture_begin(void *stream)
{
	must(cu.cuStreamBeginCapture_v2(stream, CAPTURE_GLOBAL),
	     "cuStreamBeginCapture");
}

static void count_nodes(struct gpu_graph *graph)
{
	void **nodes;
	int type;

	must(cu.cuGraphGetNodes(graph->graph, NULL, &graph->nodes), "cuGraphGetNodes");
	nodes = calloc(graph->nodes + 1, sizeof(*nodes));
	if (!nodes)
		exit(1);
	must(cu.cuGraphGetNodes(graph->graph, nodes, &graph->nodes), "cuGraphGetNodes");
	for (size_t i = 0; i < graph->nodes; i++) {
		must(cu.cuGraphNodeGetType(nodes[i], &type), "cuGraphNodeGetType");
		graph->kernels += type == NODE_KERNEL;
	}
	free(nodes);
}

const char *gpu_capture_end(void *stream, struct gpu_graph *graph)
{
	result code;

	memset(graph, 0, sizeof(*graph));
	code = cu.cuStreamEndCapture(stream, &graph->graph);
	if (code || !graph->graph)
		return code ? name_of(code) : "nothing was captured";
	count_nodes(graph);
	code = cu.cuGraphInstantiateWithFlags(&graph->exec, graph->graph, 0);
	if (!code)
		return NULL;
	must(cu.cuGraphDestroy(graph->graph), "cuGraphDestroy");
	memset(graph, 0, sizeof(*graph));
	return name_of(code);
}

void gpu_graph_launch(const struct gpu_graph *graph, void *stream)
{
	must(cu.cuGraphLaunch(graph->exec, stream), "cuGraphLaunch");
}

void gpu_graph_free(struct gpu_graph *graph)
{
	if (graph->exec)
		must(cu.cuGraphExecDestroy(graph->exec), "cuGraphExecDestroy");
	if (graph->graph)
		must(cu.cuGraphDestroy(graph->graph), "cuGraphDestroy");
	memset(graph, 0, sizeof(*graph));
}
