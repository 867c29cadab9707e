/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_stream.h - a caller's streams and graphs, with the same driver as the library.  A
 * call that the driver refuses ends the program, unless its comment states otherwise.
 */
#ifndef NIB_TESTS_GPU_STREAM_H
#define NIB_TESTS_GPU_STREAM_H

#include <stdbool.h>
#include <stddef.h>

/* After gpu_begin(). */
void gpu_driver_open(void);
/* Makes the GPU's primary context this thread's; tells if it still is. */
void *gpu_context_set(int ordinal);
bool gpu_context_is(const void *context);

/* In this thread's context; the default stream does not wait for it. */
void *gpu_stream_new(void);
void gpu_stream_free(void *stream);

struct gpu_graph {
	void *graph, *exec;
	size_t nodes, kernels; /* kernels: of the nodes */
};

/*
 * Between begin and end the driver refuses, on every thread, what may allocate
 * or wait.  end: NULL, or what was wrong; then graph holds nothing.
 */
void gpu_capture_begin(void *stream);
const char *gpu_capture_end(void *stream, struct gpu_graph *graph);
void gpu_graph_launch(const struct gpu_graph *graph, void *stream);
void gpu_graph_free(struct gpu_graph *graph);

#endif
