/* SPDX-License-Identifier: Apache-2.0 */
/*
 * probe_params.h - the parameters of the probe kernels (peaks.cuh and peaks.cu of each
 * architecture), and constants shared by host and device.
 */
#ifndef NIB_CUDA_PROBE_PARAMS_H
#define NIB_CUDA_PROBE_PARAMS_H

#include <stdint.h>

/* The bytes of one load; a thread has several in flight. */
#define NIB_PROBE_READ_BYTES   16
#define NIB_PROBE_READ_THREADS 512
/* CTAs per SM of the read probe. */
#define NIB_PROBE_READ_BLOCKS 2

/* Two warpgroups, each of which computes m64n256k16 four times in a step. */
#define NIB_PROBE_MULTIPLY_THREADS 256
#define NIB_PROBE_MULTIPLY_ROWS	   128
#define NIB_PROBE_MULTIPLY_N	   256
#define NIB_PROBE_MULTIPLY_K	   64
/* The operations of a step of one CTA. */
#define NIB_PROBE_MULTIPLY_FLOP                                                        \
	(2 * NIB_PROBE_MULTIPLY_ROWS * NIB_PROBE_MULTIPLY_N * NIB_PROBE_MULTIPLY_K)

/* Blackwell: the tensor core multiplies 128 x 256 x 64 four times in a step. */
#define NIB_PROBE_FP4_THREADS 128
#define NIB_PROBE_FP4_ROWS    128
#define NIB_PROBE_FP4_N	      256
#define NIB_PROBE_FP4_K	      256
#define NIB_PROBE_FP4_FLOP    (2 * NIB_PROBE_FP4_ROWS * NIB_PROBE_FP4_N * NIB_PROBE_FP4_K)

struct nib_probe_args {
	const void *data; /* to read */
	/* READ: loads of 16 bytes; MULTIPLY: steps of each CTA; CYCLES: cycles. */
	int64_t count;
	/* NULL.  The compiler does not know that, so it must keep the computations. */
	uint32_t *result;
};

#endif
