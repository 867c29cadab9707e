/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fake_ggml.h - a library with the functions of ggml that the plug-in takes at load.
 * It can be another ggml: with another version, other numbers, or structures with one
 * more member.
 */
#ifndef NIB_FAKE_GGML_H
#define NIB_FAKE_GGML_H

#include <stddef.h>

enum fake_change {
	FAKE_NOTHING,
	FAKE_VERSION,	  /* 0.9.6 */
	FAKE_TYPE_SIZE,	  /* 40 bytes for 64 values of NVFP4 */
	FAKE_BLOCK_SIZE,  /* 32 values */
	FAKE_TYPE_NAME,	  /* 40 is another type */
	FAKE_OP_NAME,	  /* an operation before MUL_MAT_ID */
	FAKE_SOURCES,	  /* a tensor's sources are one pointer later */
	FAKE_FLAGS,	  /* a tensor that is computed has another flag */
	FAKE_REGISTRY,	  /* a function before get_device */
	FAKE_DEVICE,	  /* a function before supports_op */
	FAKE_PROPERTIES,  /* eight bytes fewer */
	FAKE_BUFFER_TYPE, /* a function before is_host */
	FAKE_BUFFER,	  /* without the functions *_2d: ggml 0.9.8 */
	FAKE_MADE_BUFFER, /* ggml_backend_buffer_init() exchanges two functions */
	FAKE_STREAM,	  /* a function before graph_compute */
	FAKE_API_VERSION, /* ggml_backend_load() wants another one */
};

struct fake_ggml {
	enum fake_change change;
	char log[1024];	  /* of all loads */
	const char *name; /* of the last backend that was accepted */
	size_t devices;
	int made;     /* contexts and buffers that were not freed */
	void *buffer; /* the last one, for free() */
	/* Loads a backend as ggml_backend_load() does; NULL if it is refused. */
	void *(*load)(const char *path);
};

#endif
