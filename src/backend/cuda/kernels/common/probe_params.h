/* SPDX-License-Identifier: Apache-2.0 */
/*
 * probe_params.h - the parameters of the probe kernels (peaks.cuh and peaks.cu of each
 * architecture), and constants shared by host and device.
 */
#ifndef NIB_CUDA_PROBE_PARAMS_H
#define NIB_CUDA_PROBE_PARAMS_H

#include <stdint.h>

/* 16 bytes are read at a time, of which a thread has several under way. */
#define NIB_PROBE_READ_BYTES   16
#define NIB_PROBE_READ_THREADS 512
/* Blocks of a multiprocessor that read. */
#define NIB_PROBE_READ_BLOCKS 2

/* Two warpgroups, each m64n256k16, four of which are a step. */
#define NIB_PROBE_MULTIPLY_THREADS 256
#define NIB_PROBE_MULTIPLY_ROWS	   128
#define NIB_PROBE_MULTIPLY_N	   256
#define NIB_PROBE_MULTIPLY_K	   64
/* The operations of one block's step. */
#define NIB_PROBE_MULTIPLY_FLOP                                                        \
	(2 * NIB_PROBE_MULTIPLY_ROWS * NIB_PROBE_MULTIPLY_N * NIB_PROBE_MULTIPLY_K)

/* Blackwell: the tensor core multiplies 128 x 256 x 64 four times a step. */
#define NIB_PROBE_FP4_THREADS 128
#define NIB_PROBE_FP4_ROWS    128
#define NIB_PROBE_FP4_N	      256
#define NIB_PROBE_FP4_K	      256
#define NIB_PROBE_FP4_FLOP    (2 * NIB_PROBE_FP4_ROWS * NIB_PROBE_FP4_N * NIB_PROBE_FP4_K)

struct nib_probe_args {
	const void *data; /* to read */
	/* READ: units of 16 bytes; MULTIPLY: steps of each block; CYCLES. */
	int64_t count;
	/* NULL; the kernels cannot know, and so must keep what they compute. */
	uint32_t *result;
};

#endif
