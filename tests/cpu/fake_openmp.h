/* SPDX-License-Identifier: Apache-2.0 */
/* fake_openmp.h - what a test sets in, and reads from, fake_openmp.c. */
#ifndef FAKE_OPENMP_H
#define FAKE_OPENMP_H

struct fake_openmp {
	int most_threads; /* of a region, 1 to 16 */
	long late_ns;	  /* each thread but the caller begins later */
	_Atomic int regions;
};

/* Symbols that a runtime exports; here also the settings. */
__attribute__((visibility("default"))) extern struct fake_openmp fake_openmp;
__attribute__((visibility("default"))) int omp_get_thread_num(void);
__attribute__((visibility("default"))) void
GOMP_parallel(void (*body)(void *data), void *data, unsigned threads, unsigned flags);

#endif
