/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nvfp4.h - the NVFP4 multiplication of kernels/nvfp4.cu on the software B200, its
 * operands, and its expected results.
 */
#ifndef EMU_TESTS_NVFP4_H
#define EMU_TESTS_NVFP4_H

#include "hardware/emu.h"

enum nvfp4_data {
	NVFP4_EXACT, /* scales 0.5, 1, 2: every sum is a float */
	NVFP4_ANY,   /* all scales but NaN, both signs */
};

struct nvfp4_job {
	const char *text; /* PTX; NULL: as nvcc made it */
	const char *kernel;
	int ctas, width; /* of a tile: CTAs, columns */
	int m, n, k;	 /* k in multiples of 64 */
	uint32_t clusters;
	enum nvfp4_data data;
	uint64_t seed;
	bool is_strict, is_unchecked;
	uint64_t instructions; /* set: of threads */
	double seconds;	       /* set: of this thread's processor */
};

/* The PTX; NULL without nvcc. */
const char *nvfp4_text(void);
/* A module of only one of its kernels; for free(). */
char *nvfp4_kernel_text(const char *kernel);

/*
 * Runs it.  False with err: the report, or the first result that is not what
 * the order of sums of the hardware makes of it, bit by bit, or not within the
 * bound of the exact sum.
 */
bool nvfp4_run(struct nvfp4_job *job, struct emu_error *err);

#endif
