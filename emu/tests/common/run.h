/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run.h - runs short PTX programs on the software GPU for tests: without the driver,
 * one kernel, with input and output in device memory.
 */
#ifndef EMU_TESTS_RUN_H
#define EMU_TESTS_RUN_H

#include "hardware/memory.h"
#include "instruction/decode.h"
#include "machine/grid.h"

#define EMU_TEXT_BYTES 65536

struct emu_job {
	const char *ptx; /* a module; its kernels have the parameters in, out */
	const void *in;
	size_t in_bytes;
	void *out; /* undefined before, unless keeps_out */
	size_t out_bytes;
	bool keeps_out;
	uint32_t grid, block, cluster; /* 0: 1, 32, 1 */
	uint32_t shared_bytes;
	uint64_t seed, budget;
	uint32_t threads;  /* of the host; 0: this one */
	uint32_t resident; /* clusters that the GPU holds; 0: all */
	bool is_cooperative;
	const char *target;	       /* NULL: sm_90a */
	bool is_strict;		       /* tcgen05 by PTX's order */
	struct emu_findings *findings; /* NULL: it ends with the first report */
	/* The module's second kernel follows and may begin early. */
	bool is_chain;
	/* Writes into the device's copy of in, which is at address. */
	void (*prepare)(uint64_t address, uint8_t *in);
	struct emu_traffic *traffic; /* NULL: not counted */
	struct emu_time *time;	     /* NULL: no time */
	uint64_t instructions;	     /* of threads: set */
};

/* False with err.  out has the bytes that the kernel has written; others are 0xFF. */
bool emu_run_job(struct emu_job *job, struct emu_error *err);

/*
 * A module around a body.  It has %in, %out (64 bits), %lane, %warp (32),
 * %tid (32), and registers %p<32>, %h<32> (16), %r<64>, %d<64> (64 bits),
 * %f<32>, %g<32> (f64).  target NULL: sm_90a.
 */
const char *emu_module_text(const char *body);
const char *emu_module_text_for(const char *target, const char *body);

/* Runs a body; if that fails, the test fails. */
void emu_must_run(const char *body, struct emu_job *job);
/* The body must fail, and its report must have all words (NULL at the end). */
void emu_must_fail(const char *body, struct emu_job *job, ...);

uint32_t emu_test_random(void);
uint64_t emu_test_random_64(void);

#endif
