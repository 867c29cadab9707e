/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tcgen05.h - builds PTX for the tests of tcgen05, line by line, with a common start:
 * operands in shared and tensor memory, and a barrier for commits.
 */
#ifndef EMU_TESTS_TCGEN05_H
#define EMU_TESTS_TCGEN05_H

#include "common/run.h"

#define TCGEN05_TARGET "sm_100a"
#define IMAGE	       65536u /* bytes of shared memory of a CTA */
#define WORDS	       16     /* columns of tensor memory that a lane brings */

/* The program so far; set it to "" for a new one. */
extern char emu_text[EMU_TEXT_BYTES];

__attribute__((format(printf, 1, 2))) void emu_append(const char *format, ...);
/* Adds the text unchanged. */
void emu_add(const char *more);
/* {%x0,%x1,...} */
void emu_append_registers(const char *name, uint32_t count);

/* The input of a CTA: the arguments are the same in both CTAs, the images are not. */
struct input {
	uint64_t a, b; /* descriptors, addresses relative to the image */
	uint32_t idesc, accumulates, padding[10];
	uint32_t tmem[128][WORDS];
	uint8_t image[IMAGE];
};

struct output {
	uint32_t d[128][256];
};

/*
 * A start with %in, %out of the CTA; %w: all warps but the first, %one: thread
 * 0 of the even CTA; %r3 is the address of 512 columns, %r7 the warp's lanes of
 * it, whose columns from 256 on are tmem's and those below zeros; image is at
 * dynamic; bar waits for one arrival.  Uses %r1 to %r15, %d1, %x, %p1, %p2.
 */
void emu_bring(int ctas);
/* A job of one cluster of so many CTAs for it; the caller sets in and out. */
struct emu_job emu_tcgen05_job(int ctas);

#endif
