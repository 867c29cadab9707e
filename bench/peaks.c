/* SPDX-License-Identifier: Apache-2.0 */
/* peaks.c - samples of the machine's limits: threads, durations, bookkeeping.
 */
#include "peaks.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "gpu_peaks.h"
#include "machine.h"
#include "peak_kernels.h"

/* Untimed and timed seconds of one sample of an instruction's rate. */
#define WARM_S	0.001
#define TIMED_S 0.004

/* Memory is sampled slice by slice, so that every slice is out of the caches.
 */
#define SLICES 4

struct series {
	enum peak_kind kind;
	int threads;
	struct bench_samples samples;
};

struct peaks {
	struct series **series;
	int count;
	unsigned char *memory; /* made when first needed */
	size_t memory_bytes;
	int next_slice;
	struct gpu_peaks *gpu; /* NULL: there is none */
	struct bench_samples none;
};

/*
 * What the loops multiply: bytes that are neither zero nor a power of two, as
 * floats and bfloat16s about 0.7, so that a peak costs the power of real work
 * and the sums stay finite.
 */
#define OPERAND                                                                \
	"\x33\x3f\x33\x3f\x33\x3f\x33\x3f\x33\x3f\x33\x3f\x33\x3f\x33\x3f"     \
	"\x33\x3f\x33\x3f\x33\x3f\x33\x3f\x33\x3f\x33\x3f\x33\x3f\x33\x3f"     \
	"\x33\x3f\x33\x3f\x33\x3f\x33\x3f\x33\x3f\x33\x3f\x33\x3f\x33\x3f"     \
	"\x33\x3f\x33\x3f\x33\x3f\x33\x3f\x33\x3f\x33\x3f\x33\x3f\x33\x3f"

struct compute {
	peak_loop loop;
	double units; /* of one instruction */
};

static struct compute compute_of(enum peak_kind kind)
{
	switch (kind) {
	case PEAK_CLOCK:
		return (struct compute){peak_loop_clock, 1};
	case PEAK_FMA:
		if (__builtin_cpu_supports("avx512f"))
			return (struct compute){peak_loop_fma_avx512, 32};
		if (__builtin_cpu_supports("fma"))
			return (struct compute){peak_loop_fma_avx2, 16};
		return (struct compute){peak_loop_mul_add_sse, 8};
	case PEAK_FMA_AVX2:
		return (struct compute){peak_loop_fma_avx2, 16};
	case PEAK_DOT_BF16:
		return (struct compute){peak_loop_dot_bf16, 64};
	case PEAK_PMADDWD:
		return (struct compute){peak_loop_pmaddwd, 16};
	case PEAK_MADD8_AVX2:
		return (struct compute){peak_loop_madd8_avx2, 64};
	case PEAK_MADD8_AVX512:
		return (struct compute){peak_loop_madd8_avx512, 128};
	case PEAK_DOT8_AVX512:
		return (struct compute){peak_loop_dot8_avx512, 128};
	default:
		return (struct compute){NULL, 0};
	}
}

const char *peak_name(enum peak_kind kind)
{
	static const char *const names[PEAK_KINDS] = {
	    [PEAK_CLOCK] = "clock",
	    [PEAK_FMA] = "f32 fma",
	    [PEAK_FMA_AVX2] = "f32 fma avx2",
	    [PEAK_DOT_BF16] = "vdpbf16ps",
	    [PEAK_PMADDWD] = "pmaddwd sse2",
	    [PEAK_MADD8_AVX2] = "vpmaddubsw avx2",
	    [PEAK_MADD8_AVX512] = "vpmaddubsw avx512",
	    [PEAK_DOT8_AVX512] = "vpdpbusd",
	    [PEAK_READ] = "read bandwidth",
	    [PEAK_WRITE] = "write bandwidth",
	    [PEAK_COPY] = "copy bandwidth",
	    [PEAK_GPU_READ] = "read bandwidth",
	    [PEAK_GPU_MULTIPLY] = "wgmma f16",
	    [PEAK_GPU_CLOCK] = "clock",
	};

	return names[kind];
}

const char *peak_unit(enum peak_kind kind)
{
	switch (kind) {
	case PEAK_CLOCK:
	case PEAK_GPU_CLOCK:
		return "cycle";
	case PEAK_FMA:
	case PEAK_FMA_AVX2:
	case PEAK_DOT_BF16:
	case PEAK_GPU_MULTIPLY:
		return "FLOP";
	case PEAK_READ:
	case PEAK_WRITE:
	case PEAK_COPY:
	case PEAK_GPU_READ:
		return "B";
	default:
		return "OP";
	}
}

bool peak_is_memory(enum peak_kind kind)
{
	return strcmp(peak_unit(kind), "B") == 0;
}

bool peak_is_gpu(enum peak_kind kind)
{
	return kind >= PEAK_GPU_READ;
}

bool peak_available(enum peak_kind kind)
{
	switch (kind) {
	case PEAK_FMA_AVX2:
		return __builtin_cpu_supports("avx2") &&
		       __builtin_cpu_supports("fma");
	case PEAK_DOT_BF16:
		return __builtin_cpu_supports("avx512bf16");
	case PEAK_MADD8_AVX2:
		return __builtin_cpu_supports("avx2");
	case PEAK_MADD8_AVX512:
		return __builtin_cpu_supports("avx512bw");
	case PEAK_DOT8_AVX512:
		return __builtin_cpu_supports("avx512vnni");
	default:
		return true;
	}
}

struct peaks *peaks_create(void)
{
	return calloc(1, sizeof(struct peaks));
}

void peaks_free(struct peaks *peaks)
{
	if (!peaks)
		return;
	for (int i = 0; i < peaks->count; i++) {
		bench_samples_free(&peaks->series[i]->samples);
		free(peaks->series[i]);
	}
	free(peaks->series);
	machine_free(peaks->memory, peaks->memory_bytes);
	gpu_peaks_close(peaks->gpu);
	free(peaks);
}

enum nib_status peaks_use_gpu(struct peaks *peaks, const char *name,
			      struct nib_error *err)
{
	gpu_peaks_close(peaks->gpu);
	return gpu_peaks_open(name, &peaks->gpu, err);
}

const char *peaks_backend(const struct peaks *peaks, enum peak_kind kind)
{
	return peak_is_gpu(kind) ? gpu_peaks_backend(peaks->gpu) : "cpu";
}

/* The series of (kind, threads), made if it is not there; NULL: no memory. */
static struct series *find_series(struct peaks *peaks, enum peak_kind kind,
				  int threads)
{
	struct series **list, *s;

	for (int i = 0; i < peaks->count; i++) {
		if (peaks->series[i]->kind == kind &&
		    peaks->series[i]->threads == threads)
			return peaks->series[i];
	}
	list = realloc(peaks->series,
		       (size_t)(peaks->count + 1) * sizeof(*peaks->series));
	if (!list)
		return NULL;
	peaks->series = list;
	s = calloc(1, sizeof *s);
	if (!s)
		return NULL;
	s->kind = kind;
	s->threads = threads;
	list[peaks->count++] = s;
	return s;
}

const struct bench_samples *peaks_samples(struct peaks *peaks,
					  enum peak_kind kind, int threads)
{
	const struct series *s = find_series(peaks, kind, threads);

	return s ? &s->samples : &peaks->none;
}

int peaks_series_count(const struct peaks *peaks)
{
	return peaks->count;
}

const struct bench_samples *peaks_series_at(const struct peaks *peaks, int i,
					    enum peak_kind *kind, int *threads)
{
	*kind = peaks->series[i]->kind;
	*threads = peaks->series[i]->threads;
	return &peaks->series[i]->samples;
}

/* -------------------------------------------------------------------------- */

/* Where the threads of a sample wait until all are warm. */
struct gate {
	atomic_int arrived;
	atomic_int open; /* 1: go, -1: go home */
};

/* One thread of a sample, and what it did. */
struct worker {
	pthread_t thread;
	struct gate *gate;
	int index;
	enum peak_kind kind;
	unsigned char *p; /* memory kinds */
	size_t n_bytes;
	uint64_t sum;
	double begin_s, end_s;
	double units;
};

static void run_memory(struct worker *w)
{
	switch (w->kind) {
	case PEAK_READ:
		w->sum = peak_read(w->p, w->n_bytes);
		break;
	case PEAK_WRITE:
		peak_write(w->p, w->n_bytes);
		break;
	default:
		peak_copy(w->p, w->n_bytes);
	}
	w->units = (double)w->n_bytes;
}

static bool pass_gate(struct gate *gate)
{
	atomic_fetch_add(&gate->arrived, 1);
	while (atomic_load(&gate->open) == 0)
		sched_yield();
	return atomic_load(&gate->open) > 0;
}

static void *work(void *arg)
{
	struct worker *w = arg;
	struct compute c = compute_of(w->kind);
	int64_t turns = 4096;

	machine_bind_thread(w->index);
	if (c.loop) {
		double begin = bench_now_s(), spent;

		do {
			c.loop(turns, OPERAND);
			w->units += (double)turns;
			spent = bench_now_s() - begin;
		} while (spent < WARM_S);
		turns = (int64_t)(w->units * TIMED_S / spent) + 1;
	}
	if (!pass_gate(w->gate))
		return NULL;
	w->begin_s = bench_now_s();
	if (c.loop) {
		c.loop(turns, OPERAND);
		w->units = (double)turns * PEAK_UNROLL * c.units;
	} else {
		run_memory(w);
	}
	w->end_s = bench_now_s();
	return NULL;
}

/* Runs all workers at once; false if the threads could not be had. */
static bool run_workers(struct worker *workers, int threads)
{
	struct gate gate = {0};
	int started = 0;

	for (; started < threads; started++) {
		workers[started].gate = &gate;
		if (pthread_create(&workers[started].thread, NULL, work,
				   &workers[started]) != 0)
			break;
	}
	while (started == threads && atomic_load(&gate.arrived) < threads)
		sched_yield();
	atomic_store(&gate.open, started == threads ? 1 : -1);
	for (int i = 0; i < started; i++)
		pthread_join(workers[i].thread, NULL);
	return started == threads;
}

/* 256 MiB, or more where that would fit into the caches, or what there is. */
static bool make_memory(struct peaks *peaks)
{
	int64_t bytes = INT64_C(256) << 20;
	int64_t cached = 8 * machine_cache_bytes();
	int64_t most = machine_free_bytes() / 8;

	if (bytes < cached)
		bytes = cached;
	if (bytes > most)
		bytes = most;
	bytes &= ~((INT64_C(1) << 22) - 1);
	peaks->memory = machine_alloc((size_t)bytes);
	peaks->memory_bytes = (size_t)bytes;
	return peaks->memory != NULL;
}

/* Units a second of the processor's kinds. */
static double sample_cpu(struct peaks *peaks, enum peak_kind kind, int threads)
{
	bool is_memory = peak_is_memory(kind);
	double begin = 0, end = 0, units = 0;
	struct worker *workers;
	size_t share = 0;

	if (!peak_available(kind) || threads < 1 ||
	    threads > PEAK_MAX_THREADS ||
	    (is_memory && !peaks->memory && !make_memory(peaks)))
		return 0;
	workers = calloc((size_t)threads, sizeof *workers);
	if (!workers)
		return 0;
	if (is_memory)
		share = peaks->memory_bytes / SLICES / (size_t)threads & ~511ul;
	for (int i = 0; i < threads; i++) {
		workers[i].kind = kind;
		workers[i].index = i;
		workers[i].n_bytes = share;
		if (is_memory)
			workers[i].p = peaks->memory +
				       (size_t)peaks->next_slice *
					   (peaks->memory_bytes / SLICES) +
				       (size_t)i * share;
	}
	peaks->next_slice = (peaks->next_slice + 1) % SLICES;
	if (run_workers(workers, threads)) {
		begin = workers[0].begin_s;
		for (int i = 0; i < threads; i++) {
			begin = workers[i].begin_s < begin ? workers[i].begin_s
							   : begin;
			end = workers[i].end_s > end ? workers[i].end_s : end;
			units += workers[i].units;
		}
	}
	free(workers);
	return end > begin ? units / (end - begin) : 0;
}

double peaks_sample(struct peaks *peaks, enum peak_kind kind, int threads)
{
	struct series *s = find_series(peaks, kind, threads);
	double per_s = 0;

	if (!s)
		return 0;
	if (!peak_is_gpu(kind))
		per_s = sample_cpu(peaks, kind, threads);
	else if (peaks->gpu)
		per_s = gpu_peaks_sample(peaks->gpu, kind);
	if (per_s <= 0 || !bench_samples_add(&s->samples, per_s))
		return 0;
	return per_s;
}
