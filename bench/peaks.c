/* SPDX-License-Identifier: Apache-2.0 */
/*
 * peaks.c - samples of what this machine can do at most: their list, the
 * threads that take them on the CPU, whose loops are in peak_kernels.c, and the
 * library's probes that take them on a GPU.
 */
#include "peaks.h"

#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device.h"
#include "machine.h"
#include "nibblas_tune.h"
#include "peak_kernels.h"
#include "text.h"

/* Timed seconds of one sample of an instruction's rate, at most, and the share of that
 * which is run before, untimed. */
#define TIMED_S	   0.004
#define WARM_SHARE 0.25

/* Memory is sampled slice by slice, so that every slice is out of the caches.
 */
#define SLICES 4
/* A thread's part is a multiple of this: of 256 bytes for each of 8 streams, and of
 * both halves of a copy. */
#define PIECE_BYTES 4096
/* A block, where threads read blocks in turn. */
#define TURN_BYTES ((size_t)64 << 10)

/* One read is of this many bytes, or of an eighth of a smaller GPU's memory;
 * some 2 ms are read with one wait at the end. */
#define GPU_READ_BYTES (INT64_C(4) << 30)
#define GPU_READ_RUNS  2
/* Some 20 ms: long enough for the clock to settle under the load. */
#define GPU_MULTIPLY_FLOP INT64_C(16000000000000)
/* Some 2 ms, of which the wait is half a percent. */
#define GPU_CYCLES INT64_C(4000000)

struct memory {
	unsigned char *data;
	size_t n_bytes;
	int next_slice;
};

struct peaks {
	struct series **series;
	int count;
	struct memory memory;	   /* made when first needed */
	struct memory small_paged; /* the same */
	double timed_s;		   /* of a sample of an instruction's rate */
	struct nib_device *gpu;	   /* NULL: there is none */
	void *gpu_memory;	   /* made when first needed */
	int64_t gpu_bytes;
};

/*
 * What the loops multiply: bytes that are neither zero nor a power of two, as
 * floats and bfloat16s about 0.7, so that a peak costs the power of real work
 * and the sums stay finite.
 */
#define OPERAND                                                                        \
	"\x33\x3f\x33\x3f\x33\x3f\x33\x3f\x33\x3f\x33\x3f\x33\x3f\x33\x3f"             \
	"\x33\x3f\x33\x3f\x33\x3f\x33\x3f\x33\x3f\x33\x3f\x33\x3f\x33\x3f"             \
	"\x33\x3f\x33\x3f\x33\x3f\x33\x3f\x33\x3f\x33\x3f\x33\x3f\x33\x3f"             \
	"\x33\x3f\x33\x3f\x33\x3f\x33\x3f\x33\x3f\x33\x3f\x33\x3f\x33\x3f"

#if PEAK_HAS_LOOPS
#define LOOP(name) peak_loop_##name
#else
#define LOOP(name) NULL
#endif

/* One line a kind. */
static const struct peak {
	const char *name, *unit;
	peak_loop loop; /* NULL: not an instruction of the processor */
	double units;	/* of one instruction */
} table[] = {
    [PEAK_CLOCK] = {"clock", "cycle", LOOP(clock), 1},
    [PEAK_FMA] = {"f32 fma", "FLOP", LOOP(fma_avx512), 32},
    [PEAK_FMA_AVX2] = {"f32 fma avx2", "FLOP", LOOP(fma_avx2), 16},
    [PEAK_MUL_ADD_SSE] = {"f32 mul add sse", "FLOP", LOOP(mul_add_sse), 8},
    [PEAK_DOT_BF16] = {"vdpbf16ps", "FLOP", LOOP(dot_bf16), 64},
    [PEAK_PMADDWD] = {"pmaddwd sse2", "OP", LOOP(pmaddwd), 16},
    [PEAK_MADD8_AVX2] = {"vpmaddubsw avx2", "OP", LOOP(madd8_avx2), 64},
    [PEAK_MADD8_AVX512] = {"vpmaddubsw avx512", "OP", LOOP(madd8_avx512), 128},
    [PEAK_DOT8_AVXVNNI] = {"vpdpbusd avxvnni", "OP", LOOP(dot8_avxvnni), 64},
    [PEAK_DOT8_AVX512] = {"vpdpbusd", "OP", LOOP(dot8_avx512), 128},
    [PEAK_TILE_BF16] = {"tdpbf16ps", "FLOP", LOOP(tile_bf16), 16 * 16 * 32 * 2},
    [PEAK_READ] = {"read bandwidth", "B", NULL, 0},
    [PEAK_WRITE] = {"write bandwidth", "B", NULL, 0},
    [PEAK_COPY] = {"copy bandwidth", "B", NULL, 0},
    [PEAK_GPU_READ] = {"read bandwidth", "B", NULL, 0},
    [PEAK_GPU_MULTIPLY] = {"wgmma f16", "FLOP", NULL, 0},
    [PEAK_GPU_MMA] = {"mma f16", "FLOP", NULL, 0},
    [PEAK_GPU_FP4] = {"tcgen05 nvfp4", "FLOP", NULL, 0},
    [PEAK_GPU_CLOCK] = {"clock", "cycle", NULL, 0},
    [PEAK_GEMM] = {"gemm", "FLOP", NULL, 0},
};

#if PEAK_HAS_LOOPS
/* The widest multiply-add of floats that this processor has. */
static struct peak peak_here(enum peak_kind kind)
{
	if (kind != PEAK_FMA || __builtin_cpu_supports("avx512f"))
		return table[kind];
	return table[__builtin_cpu_supports("fma") ? PEAK_FMA_AVX2 : PEAK_MUL_ADD_SSE];
}

/* Whether the library's set of this name runs here.  Not every compiler knows AVX-VNNI,
 * and tile registers are granted by the kernel. */
static bool has_backend(const char *backend)
{
	struct nib_backend_info info = {.struct_bytes = sizeof info};

	for (int i = 0; i < nib_backend_count(); i++)
		if (!nib_backend_get_info(i, &info, NULL) &&
		    !strcmp(info.backend, backend))
			return info.is_open;
	return false;
}

static bool is_available(enum peak_kind kind)
{
	switch (kind) {
	case PEAK_FMA_AVX2:
		return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
	case PEAK_DOT_BF16:
		return __builtin_cpu_supports("avx512bf16");
	case PEAK_MADD8_AVX2:
		return __builtin_cpu_supports("avx2");
	case PEAK_MADD8_AVX512:
		return __builtin_cpu_supports("avx512bw");
	case PEAK_DOT8_AVX512:
		return __builtin_cpu_supports("avx512vnni");
	case PEAK_DOT8_AVXVNNI:
		return has_backend("cpu-avxvnni");
	case PEAK_TILE_BF16:
		return has_backend("cpu-amx");
	default:
		return true;
	}
}
#else
static struct peak peak_here(enum peak_kind kind)
{
	return table[kind];
}

static bool is_available(enum peak_kind kind)
{
	return !strcmp(table[kind].unit, "B");
}
#endif

static bool is_gpu_multiply(enum peak_kind kind)
{
	return kind == PEAK_GPU_MULTIPLY || kind == PEAK_GPU_MMA ||
	       kind == PEAK_GPU_FP4;
}

bool peak_is_gpu(enum peak_kind kind)
{
	return kind >= PEAK_GPU_READ && kind < PEAK_KINDS;
}

const char *peak_name(enum peak_kind kind)
{
	return table[kind].name;
}

/* What multiplies floats on a CPU. */
static enum peak_kind peak_floats(const char *backend, enum cli_activations activations)
{
	if (!strcmp(backend, "cpu-amx") && activations == ACT_BF16)
		return PEAK_TILE_BF16;
	if (!strcmp(backend, "cpu-avx512vnni") && activations == ACT_BF16 &&
	    is_available(PEAK_DOT_BF16))
		return PEAK_DOT_BF16;
	if (!strncmp(backend, "cpu-avx512", 10) || !strcmp(backend, "cpu-amx"))
		return PEAK_FMA;
	return strncmp(backend, "cpu-avx", 7) ? PEAK_MUL_ADD_SSE : PEAK_FMA_AVX2;
}

enum peak_kind peak_multiply(const char *backend, enum cli_activations activations)
{
	if (!strcmp(backend, "cuda-sm100"))
		return PEAK_GPU_FP4;
	if (!strcmp(backend, "cuda-sm80"))
		return PEAK_GPU_MMA;
	if (!strncmp(backend, "cuda", 4))
		return PEAK_GPU_MULTIPLY;
	/* Activations of int8 go to the kernels of NVFP4. */
	if (cli_activations_kind(activations) == NIB_ACTIVATIONS_DENSE)
		return peak_floats(backend, activations);
	if (!strcmp(backend, "cpu-amx") && activations == ACT_NVFP4)
		return PEAK_TILE_BF16;
	if (!strcmp(backend, "cpu-avx512vnni") || !strcmp(backend, "cpu-amx"))
		return PEAK_DOT8_AVX512;
	if (!strcmp(backend, "cpu-avx512bw"))
		return PEAK_MADD8_AVX512;
	if (!strcmp(backend, "cpu-avxvnni"))
		return PEAK_DOT8_AVXVNNI;
	if (!strcmp(backend, "cpu-avx2"))
		return PEAK_MADD8_AVX2;
	return PEAK_PMADDWD;
}

enum peak_kind peak_widest(enum peak_kind kind)
{
	return kind == PEAK_DOT_BF16 && is_available(PEAK_TILE_BF16) ? PEAK_TILE_BF16
								     : kind;
}

enum peak_kind peak_read_memory(const char *backend)
{
	return strncmp(backend, "cuda", 4) ? PEAK_READ : PEAK_GPU_READ;
}

/* ---- series -------------------------------------------------------------- */

bool series_is_memory(const struct series *series)
{
	return !strcmp(series->unit, "B");
}

double series_rate(const struct series *series, int first)
{
	if (series_is_memory(series))
		return bench_samples_median(&series->samples, first);
	return bench_samples_quantile(&series->samples, 0,
				      series->kind == PEAK_GEMM ? 1 : 0.75);
}

double peaks_rate(const struct peaks *peaks, const struct series *series, int first)
{
	double rate = series_rate(series, first);

	for (int i = 0; i < peaks->count && rate > 0 && series_is_memory(series); i++) {
		const struct series *s = peaks->series[i];

		if (s->kind != series->kind || s->threads > series->threads)
			continue;
		rate = fmax(rate, s->reached);
		if (s != series)
			rate = fmax(rate, series_rate(s, 0));
	}
	return rate;
}

struct peaks *peaks_create(void)
{
	struct peaks *peaks = calloc(1, sizeof(*peaks));

	if (peaks)
		peaks->timed_s = TIMED_S;
	return peaks;
}

void peaks_limit_samples(struct peaks *peaks, double seconds)
{
	peaks->timed_s = fmin(TIMED_S, seconds);
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
	machine_free(peaks->memory.data, peaks->memory.n_bytes);
	machine_free(peaks->small_paged.data, peaks->small_paged.n_bytes);
	nib_device_free(peaks->gpu, peaks->gpu_memory);
	nib_device_close(peaks->gpu);
	free(peaks);
}

enum nib_status peaks_use_gpu(struct peaks *peaks, const char *name,
			      struct nib_error *err)
{
	return nib_device_open(name, NULL, &peaks->gpu, err);
}

/* The series that is like want, or a new one. */
static struct series *find(struct peaks *peaks, const struct series *want)
{
	struct series **list, *s;

	for (int i = 0; i < peaks->count; i++) {
		s = peaks->series[i];
		if (s->kind == want->kind && s->threads == want->threads &&
		    s->k == want->k && s->activations == want->activations &&
		    !strcmp(s->backend, want->backend))
			return s;
	}
	list =
	    realloc(peaks->series, (size_t)(peaks->count + 1) * sizeof(*peaks->series));
	if (!list)
		return NULL;
	peaks->series = list;
	s = malloc(sizeof *s);
	if (!s)
		return NULL;
	*s = *want;
	list[peaks->count++] = s;
	return s;
}

struct series *peaks_series(struct peaks *peaks, enum peak_kind kind, int threads)
{
	struct series s = {.kind = kind,
			   .threads = threads,
			   .backend = "cpu",
			   .unit = table[kind].unit};

	snprintf(s.name, sizeof s.name, "%s", table[kind].name);
	if (peak_is_gpu(kind) && peaks->gpu)
		snprintf(s.backend, sizeof s.backend, "%s", cli_backend(peaks->gpu));
	return find(peaks, &s);
}

struct series *peaks_gemm(struct peaks *peaks, const char *backend, int threads,
			  int64_t k, enum cli_activations activations)
{
	const char *of = cli_activations_names[activations];
	const bool is_nvfp4 = activations == ACT_NVFP4;
	struct series s = {.kind = PEAK_GEMM,
			   .threads = threads,
			   .k = k,
			   .activations = activations,
			   .unit = table[PEAK_GEMM].unit};

	snprintf(s.backend, sizeof s.backend, "%s", backend);
	/* Backends are called "cpu-" and the instruction set's name. */
	snprintf(s.name, sizeof s.name, "gemm %s%s%s k=%lld", strchr(backend, '-') + 1,
		 is_nvfp4 ? "" : " ", is_nvfp4 ? "" : of, (long long)k);
	return find(peaks, &s);
}

int peaks_count(const struct peaks *peaks)
{
	return peaks->count;
}

const struct series *peaks_at(const struct peaks *peaks, int i)
{
	return peaks->series[i];
}

/* ---- sampling ------------------------------------------------------------ */

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
	double timed_s; /* instructions */
	/* Memory kinds: blocks of n_bytes at p, p + stride, ... before end. */
	unsigned char *p, *end;
	size_t n_bytes, stride;
	const struct read_pattern *pattern;
	uint64_t sum;
	double begin_s, end_s;
	double units;
};

static void run_memory(struct worker *w)
{
	for (unsigned char *p = w->p; p < w->end; p += w->stride) {
		switch (w->kind) {
		case PEAK_READ:
			w->sum |= peak_read(p, w->n_bytes, w->pattern->streams,
					    (size_t)w->pattern->ahead_bytes);
			break;
		case PEAK_WRITE:
			peak_write(p, w->n_bytes);
			break;
		default:
			peak_copy(p, w->n_bytes);
		}
		w->units += (double)w->n_bytes;
	}
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
	const struct peak c = peak_here(w->kind);
	int64_t loops = 4096;

	machine_bind_thread(w->index);
	if (c.loop) {
		double begin = cli_now_s(), spent;

		do {
			c.loop(loops, OPERAND);
			w->units += (double)loops;
			spent = cli_now_s() - begin;
		} while (spent < w->timed_s * WARM_SHARE);
		loops = (int64_t)(w->units * w->timed_s / spent) + 1;
	}
	if (!pass_gate(w->gate))
		return NULL;
	w->begin_s = cli_now_s();
	if (c.loop) {
		c.loop(loops, OPERAND);
		w->units = (double)loops * PEAK_UNROLL * c.units;
	} else {
		run_memory(w);
	}
	w->end_s = cli_now_s();
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
static bool make_memory(struct memory *memory, bool huge_pages)
{
	int64_t bytes = INT64_C(256) << 20;
	int64_t cached = 8 * machine_cache_bytes();
	int64_t most = machine_free_bytes() / 8;

	if (memory->data)
		return true;
	if (bytes < cached)
		bytes = cached;
	if (bytes > most)
		bytes = most;
	bytes &= ~((INT64_C(1) << 22) - 1);
	memory->data = machine_alloc_pages((size_t)bytes, huge_pages);
	memory->n_bytes = (size_t)bytes;
	return memory->data != NULL;
}

/* Deals the next slice to the workers: a part each, or blocks in turn. */
static void deal_slice(struct memory *memory, struct worker *workers,
		       const struct read_pattern *pattern)
{
	const size_t slice = memory->n_bytes / SLICES, count = (size_t)pattern->threads;
	unsigned char *p = memory->data + (size_t)memory->next_slice * slice;
	size_t part = slice / count & ~(size_t)(PIECE_BYTES - 1);

	memory->next_slice = (memory->next_slice + 1) % SLICES;
	for (size_t i = 0; i < count; i++) {
		struct worker *w = &workers[i];

		w->pattern = pattern;
		w->n_bytes = pattern->takes_turns ? TURN_BYTES : part;
		w->stride = pattern->takes_turns ? count * TURN_BYTES : part;
		w->p = p + i * w->n_bytes;
		w->end =
		    p + (pattern->takes_turns ? part * count / w->stride * w->stride
					      : (i + 1) * part);
	}
}

/* Units a second of all workers, from the first one's begin to the last one's end. */
static double rate_of(const struct worker *workers, int threads)
{
	double begin = workers[0].begin_s, end = 0, units = 0;

	for (int i = 0; i < threads; i++) {
		begin = workers[i].begin_s < begin ? workers[i].begin_s : begin;
		end = workers[i].end_s > end ? workers[i].end_s : end;
		units += workers[i].units;
	}
	return end > begin ? units / (end - begin) : 0;
}

/* Units a second of the processor's kinds. */
static double sample_cpu(struct peaks *peaks, enum peak_kind kind,
			 const struct read_pattern *pattern)
{
	const bool is_memory = !strcmp(table[kind].unit, "B");
	const int threads = pattern->threads;
	struct memory *memory =
	    pattern->small_pages ? &peaks->small_paged : &peaks->memory;
	struct worker *workers;
	double per_s = 0;

	if (!is_available(kind) || threads < 1 || threads > PEAK_MAX_THREADS ||
	    (is_memory && !make_memory(memory, !pattern->small_pages)))
		return 0;
	workers = calloc((size_t)threads, sizeof *workers);
	if (!workers)
		return 0;
	for (int i = 0; i < threads; i++) {
		workers[i].kind = kind;
		workers[i].timed_s = peaks->timed_s;
		workers[i].index = i;
	}
	if (is_memory)
		deal_slice(memory, workers, pattern);
	if (run_workers(workers, threads))
		per_s = rate_of(workers, threads);
	free(workers);
	return per_s;
}

/* ---- how memory is read -------------------------------------------------- */

/* Samples of a pattern: the fastest counts, since others can only slow it. */
#define PATTERN_SAMPLES 3
/* A pattern replaces another if it is faster by this factor. */
#define PATTERN_GAIN 1.01

static const struct read_pattern usual_pattern = {.streams = 1};

void series_pattern(const struct series *series, char text[SERIES_PATTERN_TEXT])
{
	const struct read_pattern *p = &series->pattern;
	char streams[32] = "", ahead[40] = "";

	*text = '\0';
	if (!p->threads)
		return;
	if (p->streams > 1)
		snprintf(streams, sizeof streams, ", %d streams each", p->streams);
	if (p->ahead_bytes)
		snprintf(ahead, sizeof ahead, ", prefetches %d bytes ahead",
			 p->ahead_bytes);
	snprintf(text, SERIES_PATTERN_TEXT, "%d thread%s, %s pages%s%s%s", p->threads,
		 p->threads == 1 ? "" : "s", p->small_pages ? "small" : "huge", streams,
		 ahead, p->takes_turns ? ", blocks in turn" : "");
}

/* Pattern i that differs from best in one respect; false past the last one. */
static bool vary(const struct read_pattern *best, int threads, int i,
		 struct read_pattern *varied)
{
	*varied = *best;
	switch (i) {
	case 0:
	case 1:
	case 2:
		varied->streams = 2 << i;
		return true;
	case 3:
	case 4:
	case 5:
		varied->ahead_bytes = 512 << 2 * (i - 3);
		return true;
	case 6:
		varied->takes_turns = threads > 1;
		return true;
	case 7:
		varied->threads = (3 * threads + 3) / 4;
		return true;
	case 8:
		varied->threads = (threads + 1) / 2;
		return true;
	case 9:
		varied->small_pages = true;
		return true;
	default:
		return false;
	}
}

static bool differs(const struct read_pattern *a, const struct read_pattern *b)
{
	return a->threads != b->threads || a->streams != b->streams ||
	       a->ahead_bytes != b->ahead_bytes || a->takes_turns != b->takes_turns ||
	       a->small_pages != b->small_pages;
}

static double fastest_of(struct peaks *peaks, const struct read_pattern *pattern)
{
	double most = 0;

	for (int i = 0; i < PATTERN_SAMPLES; i++) {
		const double per_s = sample_cpu(peaks, PEAK_READ, pattern);

		most = per_s > most ? per_s : most;
	}
	return most;
}

void peaks_choose_read(struct peaks *peaks, int threads, double budget_s)
{
	struct series *s = peaks_series(peaks, PEAK_READ, threads);
	const double end_s = cli_now_s() + budget_s;
	struct read_pattern varied;
	double most;

	if (!s || s->pattern.threads || !make_memory(&peaks->memory, true))
		return;
	s->pattern = usual_pattern;
	s->pattern.threads = threads;
	most = fastest_of(peaks, &s->pattern);
	for (int i = 0; cli_now_s() < end_s && vary(&s->pattern, threads, i, &varied);
	     i++) {
		double per_s = 0;

		if (differs(&varied, &s->pattern))
			per_s = fastest_of(peaks, &varied);
		if (per_s > PATTERN_GAIN * most) {
			most = per_s;
			s->pattern = varied;
		}
	}
}

/* ---- a GPU --------------------------------------------------------------- */

static bool make_gpu_memory(struct peaks *peaks)
{
	struct nib_device_info info = {.struct_bytes = sizeof info};

	if (nib_device_get_info(peaks->gpu, &info, NULL))
		return false;
	peaks->gpu_bytes = info.memory_bytes / 8 / 4096 * 4096;
	if (peaks->gpu_bytes > GPU_READ_BYTES)
		peaks->gpu_bytes = GPU_READ_BYTES;
	return nib_device_alloc(peaks->gpu, (size_t)peaks->gpu_bytes,
				&peaks->gpu_memory, NULL) == NIB_STATUS_OK;
}

/* Units a second of runs probes, enqueued between two waits. */
static double time_probes(const struct peaks *peaks, enum nib_probe probe,
			  int64_t amount, int runs)
{
	const void *data = probe == NIB_PROBE_READ ? peaks->gpu_memory : NULL;
	double begin, units = 0;
	int64_t done;

	if (nib_device_wait(peaks->gpu, NULL, NULL))
		return 0;
	begin = cli_now_s();
	for (int i = 0; i < runs; i++) {
		if (nib_device_probe(peaks->gpu, probe, data, amount, &done, NULL,
				     NULL))
			return 0;
		units += (double)done;
	}
	if (nib_device_wait(peaks->gpu, NULL, NULL))
		return 0;
	return units / (cli_now_s() - begin);
}

/* Units a second of a GPU's kinds. */
static double sample_gpu(struct peaks *peaks, enum peak_kind kind)
{
	enum nib_probe probe = NIB_PROBE_CYCLES;
	int64_t amount = GPU_CYCLES;
	int runs = 1;

	if (kind == PEAK_GPU_READ) {
		if (!peaks->gpu_memory && !make_gpu_memory(peaks))
			return 0;
		probe = NIB_PROBE_READ;
		amount = peaks->gpu_bytes;
		runs = GPU_READ_RUNS;
	} else if (is_gpu_multiply(kind)) {
		probe = NIB_PROBE_MULTIPLY;
		amount = GPU_MULTIPLY_FLOP;
	}
	/* The first launch of a kernel is slow, and an idle clock lower. */
	(void)time_probes(peaks, probe, amount / 16 / 16 * 16, 1);
	return time_probes(peaks, probe, amount, runs);
}

double peaks_sample(struct peaks *peaks, enum peak_kind kind, int threads)
{
	struct series *s = peaks_series(peaks, kind, threads);
	struct read_pattern pattern = usual_pattern;
	double per_s = 0;

	if (!s)
		return 0;
	if (s->pattern.threads)
		pattern = s->pattern;
	else
		pattern.threads = threads;
	if (!peak_is_gpu(kind))
		per_s = sample_cpu(peaks, kind, &pattern);
	else if (peaks->gpu)
		per_s = sample_gpu(peaks, kind);
	if (per_s <= 0 || !bench_samples_add(&s->samples, per_s))
		return 0;
	return per_s;
}

/* Only one kind of products is the rate of a GPU's tensor cores. */
static bool is_sampled(const struct peaks *peaks, enum peak_kind kind)
{
	if (!peaks->gpu)
		return !peak_is_gpu(kind);
	if (is_gpu_multiply(kind))
		return kind == peak_multiply(cli_backend(peaks->gpu), ACT_NVFP4);
	return peak_is_gpu(kind);
}

void peaks_sample_all(struct peaks *peaks, int threads, int n)
{
	if (!peaks->gpu)
		peaks_choose_read(peaks, threads, PEAKS_CHOOSE_S);
	for (int i = 0; i < n * PEAK_KINDS; i++) {
		const enum peak_kind kind = (enum peak_kind)(i % PEAK_KINDS);

		if (is_sampled(peaks, kind))
			peaks_sample(peaks, kind, threads);
	}
}
