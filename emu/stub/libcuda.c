/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libcuda.c - what -lcuda links: the names of the driver interface, in a library
 * called libcuda.so.1 as the real one is.  A program that is linked with it
 * finds the software GPU or a real driver when it starts; a call that reaches
 * these functions says that it has found neither.
 */
#define CUDA_ERROR_STUB_LIBRARY 34

#define F(name, arguments)                                                             \
	__attribute__((visibility("default"))) int name(void);                         \
	int name(void)                                                                 \
	{                                                                              \
		return CUDA_ERROR_STUB_LIBRARY;                                        \
	}

#include "driver/cuda_api.def"
