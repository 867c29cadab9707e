/* SPDX-License-Identifier: Apache-2.0 */
/*
 * peaks.h - the rates that bound this machine, measured: the limits of rows.
 *
 * A peak is the rate of one instruction in a loop that does nothing else, or
 * the rate at which plain loops move memory.  Other work on the machine slows
 * peaks and kernels alike, so peaks are sampled again in every round of a
 * comparison.
 */
#ifndef NIB_BENCH_PEAKS_H
#define NIB_BENCH_PEAKS_H

#include <stdbool.h>
#include <stddef.h>

#include "activations.h"
#include "nibblas.h"
#include "stats.h"

enum peak_kind {
	PEAK_CLOCK,	   /* cycles: a chain of dependent additions */
	PEAK_FMA,	   /* f32, widest vectors here, 2 a multiply-add */
	PEAK_FMA_AVX2,	   /* f32, 32-byte vectors */
	PEAK_MUL_ADD_SSE,  /* f32, what every x86-64 has */
	PEAK_DOT_BF16,	   /* vdpbf16ps, 2 a multiply-add */
	PEAK_PMADDWD,	   /* 16-bit, SSE2: what every x86-64 has */
	PEAK_MADD8_AVX2,   /* vpmaddubsw, 32-byte vectors */
	PEAK_MADD8_AVX512, /* vpmaddubsw, 64-byte vectors */
	PEAK_DOT8_AVXVNNI, /* vpdpbusd, 32-byte vectors */
	PEAK_DOT8_AVX512,  /* vpdpbusd, 64-byte vectors */
	PEAK_TILE_BF16,	   /* tdpbf16ps, 2 a multiply-add */
	PEAK_READ,	   /* memory, bytes read */
	PEAK_WRITE,	   /* memory, bytes written past the caches */
	PEAK_COPY,	   /* memory, bytes read plus bytes written */
	PEAK_GPU_READ,	   /* a GPU's memory, bytes read */
	PEAK_GPU_MULTIPLY, /* wgmma of fp16, 2 a multiply-add */
	PEAK_GPU_MMA,	   /* mma.sync of fp16, 2 a multiply-add */
	PEAK_GPU_FP4,	   /* tcgen05.mma of NVFP4, 2 a multiply-add */
	PEAK_GPU_CLOCK,	   /* cycles of a multiprocessor */
	PEAK_KINDS,
	PEAK_GEMM = PEAK_KINDS, /* a GEMM of many rows, see peaks_gemm() */
};

#define PEAK_MAX_THREADS 1024

/* How the threads of PEAK_READ go through memory. */
struct read_pattern {
	int threads;	  /* that read: all of the series, or fewer */
	int streams;	  /* of a thread: parts of its memory that it reads in turn */
	int ahead_bytes;  /* of prefetches; 0: none */
	bool takes_turns; /* threads read blocks in turn, instead of a part each */
	bool small_pages;
};

/* All samples of one rate, in units a second. */
struct series {
	enum peak_kind kind;
	int threads;			  /* 1 for a GPU */
	int64_t k;			  /* PEAK_GEMM */
	enum cli_activations activations; /* PEAK_GEMM */
	char name[64];	  /* "vpdpbusd", "gemm avx512vnni k=2048": a limit_kind */
	char backend[32]; /* "cpu", "cpu-avx512vnni", "cuda-sm90" */
	const char *unit; /* "OP", "FLOP", "B", "cycle" */
	struct bench_samples samples;
	struct read_pattern pattern; /* PEAK_READ; no threads: not chosen yet */
	double reached;		     /* by a row of the run; 0: none was faster */
};

/*
 * The rate that a limit is computed with.  Bandwidth belongs to the whole
 * machine and changes with its other users: the median of the samples from
 * first on.  An instruction's rate does not, and others can only slow it: the
 * upper quartile of all samples.  GEMMs are few and longer than a time slice of
 * another program: the fastest.  0 without samples.
 */
double series_rate(const struct series *series, int first);
/* "2 threads, huge pages, 2 streams each": the pattern of reads; "" for others. */
#define SERIES_PATTERN_TEXT 128
void series_pattern(const struct series *series, char text[SERIES_PATTERN_TEXT]);
bool series_is_memory(const struct series *series);

struct peaks;

/* NULL when memory is short. */
struct peaks *peaks_create(void);
void peaks_free(struct peaks *peaks); /* NULL is fine */
/*
 * From now on the kinds of a GPU are those of the device name, "cuda:0"; once
 * only.  Without it they are not available.
 */
enum nib_status peaks_use_gpu(struct peaks *peaks, const char *name,
			      struct nib_error *err);

bool peak_is_gpu(enum peak_kind kind);
const char *peak_name(enum peak_kind kind);
/*
 * The instruction that "cpu-avx512vnni" or "cuda-sm90" multiplies such activations
 * with: of bf16 vdpbf16ps where the processor has it, of other floats f32 fma.
 */
enum peak_kind peak_multiply(const char *backend, enum cli_activations activations);
/* tdpbf16ps in place of vdpbf16ps on processors with AMX, else kind. */
enum peak_kind peak_widest(enum peak_kind kind);
/* How that backend reads memory. */
enum peak_kind peak_read_memory(const char *backend);

/*
 * Takes one sample (about 5 ms, of a GPU's multiplications 20) on threads
 * threads, one to a processor, and returns it in units a second; 0 if it is not
 * available here, or if memory or threads could not be had.
 */
double peaks_sample(struct peaks *peaks, enum peak_kind kind, int threads);
/* Samples of the CPU's instructions take at most so long from now on, or 5 ms. */
void peaks_limit_samples(struct peaks *peaks, double seconds);
/*
 * Chooses the pattern with which this many threads read memory fastest, unless that was
 * done: numbers of threads, streams and prefetches, until budget_s is spent.
 */
#define PEAKS_CHOOSE_S 2
void peaks_choose_read(struct peaks *peaks, int threads, double budget_s);
/* Every peak of this machine, or of the GPU, n times. */
void peaks_sample_all(struct peaks *peaks, int threads, int n);

/* A series, made if it does not exist; it is never moved.  NULL: no memory. */
struct series *peaks_series(struct peaks *peaks, enum peak_kind kind, int threads);
/*
 * The rate of a GEMM of many rows over this k, packed and warm: the limit of
 * products of few rows.  The rate of an instruction would be no limit for them,
 * since every block needs its scales multiplied as well.
 */
struct series *peaks_gemm(struct peaks *peaks, const char *backend, int threads,
			  int64_t k, enum cli_activations activations);
/*
 * series_rate(), for memory at least what the run has found for as many threads or
 * fewer: by plain loops, or by a row (reached).
 */
double peaks_rate(const struct peaks *peaks, const struct series *series, int first);
/* All series in the order in which they were made. */
int peaks_count(const struct peaks *peaks);
const struct series *peaks_at(const struct peaks *peaks, int i);

#endif
