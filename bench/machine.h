/* SPDX-License-Identifier: Apache-2.0 */
/* machine.h - what the bench asks the operating system about this machine. */
#ifndef NIB_BENCH_MACHINE_H
#define NIB_BENCH_MACHINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "nibblas.h"

/* The largest caches of all processors that this process may use, together, in bytes;
 * 32 MiB when it is not known. */
int64_t machine_cache_bytes(void);
/* Memory that is free for use now, in bytes; 4 GiB when it is not known. */
int64_t machine_free_bytes(void);
/* Binds the calling thread to the i-th processor that this process may use. */
void machine_bind_thread(int i);
/* "AMD EPYC, 2 processors, L2 1 MiB, L3 32 MiB, 23 GiB, Linux 6.1.0" into text. */
void machine_describe(char *text, size_t text_bytes);

/* How busy the machine is with other programs. */
struct machine_load {
	double processors;
	double average; /* the load average of a minute, this process in it */
	double others;	/* processors that other programs use; < 0: unknown */
};
/* From here on times are to be doubted: processors that other programs use. */
#define MACHINE_BUSY 0.25
/* Sleeps for a fifth of a second.  What computes then is another program, or one
 * of own, which are processes of this one. */
void machine_measure_load(struct machine_load *load, const pid_t *own, int count);

/*
 * Pages of zeros, huge ones where the system has them; NULL when memory is
 * short.  Touched, so that no page fault is left for the measurement.
 */
void *machine_alloc(size_t n_bytes);
/* The same, or with huge false only small pages. */
void *machine_alloc_pages(size_t n_bytes, bool huge);
void machine_free(void *p, size_t n_bytes); /* NULL is fine */
/* Says in err that memory is short for what; returns NIB_STATUS_OUT_OF_MEMORY. */
enum nib_status machine_no_memory(const char *what, struct nib_error *err);

#endif
