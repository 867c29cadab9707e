/* SPDX-License-Identifier: Apache-2.0 */
/*
 * peaks.h - what this machine can do, measured: the limits of the tables.
 *
 * A peak is the rate of one instruction in a loop that does nothing else, or
 * the rate at which plain loops move memory.  Other work on the machine slows
 * peaks and kernels alike, so peaks are sampled again with every row, in turn
 * with the kernels, and a row's limit comes from the samples of its own turns.
 */
#ifndef NIB_BENCH_PEAKS_H
#define NIB_BENCH_PEAKS_H

#include <stdbool.h>
#include <stddef.h>

#include "nibblas.h"
#include "stats.h"

enum peak_kind {
	PEAK_CLOCK,	   /* cycles: a chain of dependent additions */
	PEAK_FMA,	   /* f32, widest vectors here, 2 a multiply-add */
	PEAK_FMA_AVX2,	   /* f32, 32-byte vectors */
	PEAK_DOT_BF16,	   /* vdpbf16ps, 2 a multiply-add */
	PEAK_PMADDWD,	   /* 16-bit, SSE2: what every x86-64 has */
	PEAK_MADD8_AVX2,   /* vpmaddubsw, 32-byte vectors */
	PEAK_MADD8_AVX512, /* vpmaddubsw, 64-byte vectors */
	PEAK_DOT8_AVX512,  /* vpdpbusd, 64-byte vectors */
	PEAK_READ,	   /* memory, bytes read */
	PEAK_WRITE,	   /* memory, bytes written past the caches */
	PEAK_COPY,	   /* memory, bytes read plus bytes written */
	PEAK_GPU_READ,	   /* a GPU's memory, bytes read */
	PEAK_GPU_MULTIPLY, /* wgmma of fp16, 2 a multiply-add */
	PEAK_GPU_CLOCK,	   /* cycles of a multiprocessor */
	PEAK_KINDS,
};

#define PEAK_MAX_THREADS 1024

struct peaks;

/* NULL when memory is short. */
struct peaks *peaks_create(void);
void peaks_free(struct peaks *peaks); /* NULL is fine */
/*
 * The kinds of a GPU are from now on those of the device name, "cuda:0"; their
 * threads are 1.  Without it they are not available.
 */
enum nib_status peaks_use_gpu(struct peaks *peaks, const char *name,
			      struct nib_error *err);
/* The backend of a kind: "cpu", "cuda-sm90". */
const char *peaks_backend(const struct peaks *peaks, enum peak_kind kind);

/* "vpdpbusd", "read bandwidth": the limit_kind of rows. */
const char *peak_name(enum peak_kind kind);
/* What one unit is: "OP", "FLOP", "B", "cycle". */
const char *peak_unit(enum peak_kind kind);
bool peak_is_memory(enum peak_kind kind);
bool peak_is_gpu(enum peak_kind kind);
/* False if this processor lacks the instruction. */
bool peak_available(enum peak_kind kind);

/*
 * Takes one sample (about 5 ms, of a GPU's multiplications 20) on threads
 * threads, one to a processor, and returns it in units a second; 0 if it is not
 * available here, or if memory or threads could not be had.
 */
double peaks_sample(struct peaks *peaks, enum peak_kind kind, int threads);
/* All samples taken for (kind, threads), in order; never NULL. */
const struct bench_samples *peaks_samples(struct peaks *peaks,
					  enum peak_kind kind, int threads);
/* All that was ever asked for, in the order of the first time. */
int peaks_series_count(const struct peaks *peaks);
const struct bench_samples *peaks_series_at(const struct peaks *peaks, int i,
					    enum peak_kind *kind, int *threads);

#endif
