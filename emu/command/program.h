/* SPDX-License-Identifier: Apache-2.0 */
/*
 * program.h - what is known about a program before it runs: whether it can be
 * started, and why the loader might not find the software GPU.
 */
#ifndef NIBEMU_PROGRAM_H
#define NIBEMU_PROGRAM_H

#include <stdbool.h>
#include <stddef.h>

struct program {
	char path[4096]; /* as execv takes it */
	/*
	 * Why perhaps no kernel runs on the software GPU, and what to do.  It is
	 * printed if none did.  "" if nothing is wrong.
	 */
	char suspicion[1200];
};

/*
 * Finds the program, by PATH if its name has no slash.  False with a message in
 * error: it cannot be started.
 */
bool program_find(struct program *p, const char *name, char *error, size_t size);

#endif
