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
#define WORDS	       16     /* columns of tensor memory that a lane fills */

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
 * Appends the common start of a program.  After it:
 *
 *   %in, %out   the CTA's struct input and struct output
 *   %w          true in all warps but the first
 *   %one        true in thread 0 of the even CTA
 *   %r3         the address of 512 columns of tensor memory
 *   %r7         the same for the warp's lanes: columns below 256 are zero, those from
 *               256 on are input.tmem
 *   dynamic     input.image, in shared memory
 *   bar         an mbarrier that expects one arrival
 *
 * It also changes %r1 to %r15, %d1, %x, %p1 and %p2.
 */
void emu_bring(int ctas);
/* A job for such a program: one cluster of `ctas` CTAs.  The caller sets in and out. */
struct emu_job emu_tcgen05_job(int ctas);

#endif
