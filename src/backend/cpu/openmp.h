/* SPDX-License-Identifier: Apache-2.0 */
/*
 * openmp.h - runs tasks on the OpenMP threads of another library of the process.
 *
 * A program whose own loops use OpenMP, as PyTorch's do, has a thread for each
 * core already, and these threads spin between two loops.  A second set of
 * threads would compete with them for the cores.
 */
#ifndef NIB_CPU_OPENMP_H
#define NIB_CPU_OPENMP_H

#include <stdbool.h>

#include "nibblas.h"

struct cpu_openmp;

/*
 * Finds the OpenMP runtime that a loaded library is linked with: libgomp, or
 * LLVM's and Intel's, which export libgomp's functions too.  It stays loaded
 * until cpu_openmp_close().
 */
enum nib_status cpu_openmp_open(const char *library, struct cpu_openmp **openmp,
				struct nib_error *err);
void cpu_openmp_close(struct cpu_openmp *openmp);

/* False in a process that was forked after cpu_openmp_open(), because its runtime still
 * expects threads that the fork did not copy. */
bool cpu_openmp_usable(const struct cpu_openmp *openmp);

/*
 * As cpu_pool_run(): calls task(arg, 0 .. tasks-1) in a parallel region of
 * `threads` threads, and returns when all have returned.  Thread i runs task i;
 * a task whose thread is late, or is missing because the runtime gives fewer
 * threads, runs on another.  Several callers may run at once: OpenMP has
 * threads for each of them.
 */
void cpu_openmp_run(const struct cpu_openmp *openmp, int threads, int tasks,
		    void (*task)(void *arg, int i), void *arg);

#endif
