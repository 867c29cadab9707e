/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libcuda.c - the library that -lcuda links: the names of the driver interface, with
 * the soname libcuda.so.1 like the real one.  A program that is linked with it loads
 * the software GPU or a real driver when it starts.  If it finds neither, its calls
 * reach these functions, which return an error that reports it.
 */
#define CUDA_ERROR_STUB_LIBRARY 34

#define F(name, arguments)                                                             \
	__attribute__((visibility("default"))) int name(void);                         \
	int name(void)                                                                 \
	{                                                                              \
		return CUDA_ERROR_STUB_LIBRARY;                                        \
	}

#include "driver/cuda_api.def"
