/* SPDX-License-Identifier: Apache-2.0 */
/* parallel.h - the command's own loops on several threads. */
#ifndef NIB_CLI_PARALLEL_H
#define NIB_CLI_PARALLEL_H

#include <stdint.h>

/* Elements for which a thread is worth starting, some 100 us of work. */
#define CLI_LOOP_ELEMS ((int64_t)1 << 17)

/* The same as a number of rows of k elements. */
static inline int64_t cli_rows_of_loop(int64_t k)
{
	return k >= CLI_LOOP_ELEMS ? 1 : CLI_LOOP_ELEMS / (k > 0 ? k : 1);
}

/* Threads of the loops that follow; 0: as many as a "cpu" device has. */
void cli_set_loop_threads(int threads);

/*
 * Calls body(arg, begin, end) for ranges that make up 0 .. count, on several threads
 * at once, and returns when all are done.  A range has at least `least` elements, so
 * that a short loop stays on the caller's thread.  Threads that the system refuses
 * are done without.
 */
void cli_parallel(int64_t count, int64_t least,
		  void (*body)(void *arg, int64_t begin, int64_t end), void *arg);

#endif
