/* SPDX-License-Identifier: Apache-2.0 */
/* graph_unit.h - kernels and short forms that the tests of graphs share. */
#ifndef EMU_TEST_GRAPH_UNIT_H
#define EMU_TEST_GRAPH_UNIT_H

#include <stdlib.h>
#include <string.h>

#include "common/unit.h"
#include "runtime/cudart.h"

#define OK(call)	  assert_int_equal(call, CUDA_SUCCESS)
#define FAILS(call, with) assert_int_equal(call, with)
#define SAYS(with, text)                                                               \
	assert_non_null(strstr(cudaGetErrorString(CUDA_ERROR_##with), text))

static const char graph_kernels[] =
    ".version 8.0\n.target sm_80\n.address_size 64\n"
    ".extern .func cudaGraphSetConditional(.param .b64 h, .param .b32 v);\n"
    /* *p += n */
    ".visible .entry add(.param .u64 p, .param .u32 n) {\n"
    ".reg .u32 %r<3>; .reg .u64 %a;\n"
    "ld.param.u64 %a, [p];\nld.param.u32 %r1, [n];\n"
    "ld.global.u32 %r0, [%a];\nadd.u32 %r0, %r0, %r1;\n"
    "st.global.u32 [%a], %r0;\nret;\n}\n"
    /* *p = n */
    ".visible .entry put(.param .u64 p, .param .u32 n) {\n"
    ".reg .u32 %r; .reg .u64 %a;\n"
    "ld.param.u64 %a, [p];\nld.param.u32 %r, [n];\n"
    "st.global.u32 [%a], %r;\nret;\n}\n"
    /* *p -= 1, which is then the value of the condition h */
    ".visible .entry down(.param .u64 p, .param .u64 h) {\n"
    ".reg .u32 %r; .reg .u64 %a, %h;\n"
    "ld.param.u64 %a, [p];\nld.param.u64 %h, [h];\n"
    "ld.global.u32 %r, [%a];\nsub.u32 %r, %r, 1;\nst.global.u32 [%a], %r;\n"
    "{ .param .b64 one; .param .b32 two;\n"
    "st.param.b64 [one], %h; st.param.b32 [two], %r;\n"
    "call.uni cudaGraphSetConditional, (one, two); }\nret;\n}\n";

static CUkernel add_kernel, put_kernel, down_kernel;

/* Loads the kernels; false if that fails. */
static inline int load_graph_kernels(void)
{
	CUlibrary library;

	return setenv("NIBEMU_MEMORY_BYTES", "0x10000000", 1) == 0 &&
	       cudaLibraryLoadData(&library, graph_kernels, NULL, NULL, 0, NULL, NULL,
				   0) == 0 &&
	       cudaLibraryGetKernel(&add_kernel, library, "add") == 0 &&
	       cudaLibraryGetKernel(&put_kernel, library, "put") == 0 &&
	       cudaLibraryGetKernel(&down_kernel, library, "down") == 0;
}

/* The parameters of a kernel of one thread. */
static inline struct cudaKernelNodeParams launch_of(CUkernel kernel, void **arguments)
{
	return (struct cudaKernelNodeParams){.func = kernel,
					     .gridDim = {1, 1, 1},
					     .blockDim = {1, 1, 1},
					     .kernelParams = arguments};
}

/* Adds a node for kernel(p, n), where n has 4 bytes. */
static inline CUgraphNode node_of(CUgraph graph, CUkernel kernel, void *p, uint32_t n,
				  CUgraphNode before)
{
	void *arguments[] = {&p, &n};
	const struct cudaKernelNodeParams k = launch_of(kernel, arguments);
	CUgraphNode node = NULL;

	OK(cudaGraphAddKernelNode(&node, graph, before ? &before : NULL, before != NULL,
				  &k));
	return node;
}

static inline void *new_word(uint32_t value)
{
	void *word = NULL;

	OK(cudaMalloc(&word, 4));
	OK(cudaMemcpy(word, &value, 4, cudaMemcpyDefault));
	return word;
}

static inline uint32_t word_at(const void *pointer)
{
	uint32_t value = 0;

	OK(cudaMemcpy(&value, pointer, 4, cudaMemcpyDefault));
	return value;
}

/* Launches in the default stream, and waits. */
static inline void run_exec(CUgraphExec exec)
{
	OK(cudaGraphLaunch(exec, NULL));
	OK(cudaDeviceSynchronize());
}

#endif
