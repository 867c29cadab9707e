/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_check_same_bits.c [N] - runs of every kind on the GPU give the same bits N times
 * (1,000): replayed from a graph with other contents, on two streams, from two threads,
 * on two GPUs, one after the other without waiting, and after a run that was refused.
 * A small test repeats everything twice, with smaller products.
 *
 * A run that can be captured neither allocates nor waits, because the driver refuses
 * both while a stream is captured.
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu_job.h"
#include "gpu_stream.h"

#define REPLAYS	    100
#define TURNS	    40
#define THREAD_RUNS 100

static void verdict(const struct gpu_job *job, const char *what, const char *why)
{
	char name[128];

	snprintf(name, sizeof(name), "%s: %s", gpu_kind_name(job->kind), what);
	gpu_verdict(!why, name, why ? why : "");
}

static const char *compare(const struct gpu_job *job, const uint8_t *want,
			   const uint8_t *got)
{
	static char text[64];
	size_t i = 0;

	if (memcmp(want, got, job->bytes) == 0)
		return NULL;
	while (want[i] == got[i])
		i++;
	snprintf(text, sizeof(text), "bits differ from byte %zu on", i);
	return text;
}

/* The job's results; NULL, after a line of text, if they are wrong. */
static uint8_t *right_results(struct gpu_job *job, void *stream)
{
	uint8_t *want = gpu_take(job->bytes);
	const char *why = gpu_job_result(job, stream, want, &gpu_test.err);

	if (!why)
		why = gpu_job_check(job, want);
	if (!why)
		return want;
	verdict(job, "one run", why);
	free(want);
	return NULL;
}

/* ---- run after run ------------------------------------------------------- */

/* What the kind's name promises. */
static void check_kind(const struct gpu_job *job)
{
	const bool is_vector = strstr(job->explanation, "vector kernel") ||
			       strstr(job->explanation, "skinny kernel") ||
			       strstr(job->explanation, "wide kernel") ||
			       strstr(job->explanation, "mma kernel");

	printf("     %s: %s\n", gpu_kind_name(job->kind), job->explanation);
	if (job->kind == GPU_SPLIT_GEMM)
		verdict(job, "split-k",
			job->k_slices > 1 && !is_vector ? NULL : job->explanation);
	if (job->kind == GPU_GEMV || job->kind == GPU_FEW_ROWS)
		verdict(job, "vector kernel", is_vector ? NULL : job->explanation);
}

static void check_runs(enum gpu_kind kind, int runs)
{
	struct gpu_job *job = gpu_job_new(kind);
	uint8_t *want = right_results(job, NULL);
	uint8_t *got = gpu_take(job->bytes);
	const char *why = NULL;
	char what[64];
	int i;

	check_kind(job);
	for (i = 1; want && i < runs && !why; i++) {
		why = gpu_job_result(job, NULL, got, &gpu_test.err);
		if (!why)
			why = compare(job, want, got);
	}
	if (want && !why && !gpu_job_unchanged(job))
		why = "an input changed";
	snprintf(what, sizeof(what), "%d runs of %d", i, runs);
	if (want)
		verdict(job, what, why);
	free(want);
	free(got);
	gpu_job_free(job);
}

/* ---- graphs -------------------------------------------------------------- */

/* The plan's first run is the captured one. */
static bool capture(const struct gpu_job *job, void *stream, struct gpu_graph *graph)
{
	const bool may_allocate = job->kind == GPU_QUANTIZE_AMAX;
	enum nib_status status;
	const char *why;
	char what[96];

	gpu_test.err.message[0] = '\0';
	gpu_capture_begin(stream);
	status = gpu_job_run(job, stream, &gpu_test.err);
	why = gpu_capture_end(stream, graph);
	if (status)
		why = gpu_test.err.message;
	else if (!why && !may_allocate && graph->kernels != graph->nodes)
		why = "not only kernels";
	snprintf(what, sizeof(what), "captured in a graph of %zu nodes, %zu kernels",
		 graph->nodes, graph->kernels);
	verdict(job, what, why);
	return !status && graph->exec;
}

static const char *replay(struct gpu_job *job, const struct gpu_graph *graph,
			  void *stream, const uint8_t *want, uint8_t *got)
{
	gpu_job_poison(job);
	gpu_graph_launch(graph, stream);
	if (nib_device_wait(job->gpu, stream, &gpu_test.err))
		return gpu_test.err.message;
	if (!gpu_job_fetch(job, got))
		return "a guard band has changed";
	return compare(job, want, got);
}

/* Each time other tokens, weights, scales, alpha, shares of the experts. */
static const char *replay_all(struct gpu_job *job, const struct gpu_graph *graph,
			      void *stream)
{
	uint8_t *before = gpu_take(job->bytes), *want = gpu_take(job->bytes);
	uint8_t *got = gpu_take(job->bytes);
	const char *why = NULL;

	for (int i = 0; i < gpu_repeats(REPLAYS) && !why; i++) {
		if (i % 4 == 0)
			gpu_job_fill(job);
		why = gpu_job_result(job, stream, want, &gpu_test.err);
		if (!why && i % 20 == 0)
			why = gpu_job_check(job, want);
		if (!why && i % 4 == 0 && memcmp(before, want, job->bytes) == 0)
			why = "other contents, the same results";
		if (!why)
			why = replay(job, graph, stream, want, got);
		memcpy(before, want, job->bytes);
	}
	free(before);
	free(want);
	free(got);
	return why;
}

static void check_graph(enum gpu_kind kind, void *stream)
{
	struct gpu_job *job = gpu_job_new(kind);
	struct gpu_graph graph;

	if (capture(job, stream, &graph))
		verdict(job, "replays with changed contents",
			replay_all(job, &graph, stream));
	gpu_graph_free(&graph);
	gpu_job_free(job);
}

/* ---- several at once ----------------------------------------------------- */

/* One after the other or at once, without waiting between. */
static const char *run_pair(const struct gpu_job *x, const struct gpu_job *y,
			    void *x_stream, void *y_stream)
{
	gpu_job_poison(x);
	gpu_job_poison(y);
	for (int i = 0; i < gpu_repeats(TURNS); i++)
		if (gpu_job_run(x, x_stream, &gpu_test.err) ||
		    gpu_job_run(y, y_stream, &gpu_test.err))
			return gpu_test.err.message;
	return nib_device_wait(x->gpu, x_stream, &gpu_test.err) ||
		       nib_device_wait(y->gpu, y_stream, &gpu_test.err)
		   ? gpu_test.err.message
		   : NULL;
}

static const char *same_results(const struct gpu_job *job, const uint8_t *want)
{
	uint8_t *got = gpu_take(job->bytes);
	const char *why = gpu_job_fetch(job, got) ? compare(job, want, got)
						  : "a guard band has changed";

	free(got);
	return why;
}

static void check_pair(struct gpu_job *x, struct gpu_job *y, void *x_stream,
		       void *y_stream, const char *what)
{
	uint8_t *want_x = right_results(x, x_stream);
	uint8_t *want_y = right_results(y, y_stream);

	if (want_x && want_y) {
		const char *why = run_pair(x, y, x_stream, y_stream);

		verdict(x, what, why ? why : same_results(x, want_x));
		verdict(y, what, why ? why : same_results(y, want_y));
	}
	free(want_x);
	free(want_y);
}

/* Two jobs of one plan and one workspace: a stream keeps them apart. */
static void check_turns(enum gpu_kind kind, void *stream)
{
	struct gpu_job *x = gpu_job_new(kind), *y = gpu_job_new_like(x);
	const struct gpu_twin own = y->workspace;

	y->workspace = x->workspace;
	check_pair(x, y, stream, stream, "alternating on one stream");
	y->workspace = own;
	gpu_job_free(y);
	gpu_job_free(x);
}

/* Runs on two streams: jobs of two kinds, then two jobs of one plan. */
static void check_streams(enum gpu_kind kind, enum gpu_kind other, void *stream,
			  void *stream2)
{
	struct gpu_job *x = gpu_job_new(kind), *y = gpu_job_new(other);
	struct gpu_job *z = gpu_job_new_like(x);

	check_pair(x, y, stream, stream2, "on two streams");
	check_pair(x, z, stream, stream2, "one plan on two streams");
	gpu_job_free(z);
	gpu_job_free(y);
	gpu_job_free(x);
}

struct thread {
	struct gpu_job *job;
	void *stream;
	uint8_t *want, *got;
	struct nib_error err;
	const char *why;
};

static void *run_thread(void *argument)
{
	struct thread *t = argument;

	for (int i = 0; i < gpu_repeats(THREAD_RUNS) && !t->why; i++) {
		t->why = gpu_job_result(t->job, t->stream, t->got, &t->err);
		if (!t->why && memcmp(t->got, t->want, t->job->bytes) != 0)
			t->why = "bits differ";
	}
	return NULL;
}

static void check_threads(struct gpu_job *x, struct gpu_job *y, void *x_stream,
			  void *y_stream, const char *what)
{
	struct thread t[2] = {{.job = x, .stream = x_stream},
			      {.job = y, .stream = y_stream}};
	pthread_t id;

	for (int i = 0; i < 2; i++) {
		t[i].want = right_results(t[i].job, t[i].stream);
		t[i].got = gpu_take(t[i].job->bytes);
	}
	if (t[0].want && t[1].want) {
		if (pthread_create(&id, NULL, run_thread, &t[1]) != 0)
			gpu_must(NIB_STATUS_OUT_OF_MEMORY, "thread");
		run_thread(&t[0]);
		pthread_join(id, NULL);
		verdict(x, what, t[0].why);
		verdict(y, what, t[1].why);
	}
	for (int i = 0; i < 2; i++) {
		free(t[i].want);
		free(t[i].got);
	}
}

static void check_thread_kinds(void *stream, void *stream2)
{
	struct gpu_job *x = gpu_job_new(GPU_GEMM);
	struct gpu_job *like = gpu_job_new_like(x);

	check_threads(x, like, stream, stream2, "one plan, two threads");
	for (int kind = 0; kind < GPU_KINDS; kind++) {
		struct gpu_job *y = gpu_job_new((enum gpu_kind)kind);

		check_threads(x, y, stream, stream2, "two threads");
		gpu_job_free(y);
	}
	gpu_job_free(like);
	gpu_job_free(x);
}

/* Runs x on the first GPU and y on GPU `ordinal`, which may be the first. */
static void check_device(const char *name, int ordinal, void *context, void *stream)
{
	struct nib_device *const first = gpu_test.gpu;
	struct nib_device *second = NULL;
	struct nib_error err;
	struct gpu_job *x, *y;
	void *stream2;
	char what[64];

	if (nib_device_open(name, NULL, &second, &err)) {
		printf("skipped: %s with cuda:0: %s\n", name, err.message);
		return;
	}
	gpu_test.gpu = second;
	gpu_context_set(ordinal);
	stream2 = gpu_stream_new();
	y = gpu_job_new(GPU_DUAL_MOE);
	snprintf(what, sizeof(what), "next to another on %s", name);
	gpu_test.gpu = first;
	gpu_context_set(0);
	x = gpu_job_new(GPU_SPLIT_GEMM);
	check_pair(x, y, stream, stream2, what);
	check_threads(x, y, stream, stream2, what);
	gpu_verdict(gpu_context_is(context), "the thread's context stays", "");
	gpu_job_free(x);
	gpu_job_free(y);
	gpu_stream_free(stream2);
	nib_device_close(second);
}

/* ---- refused runs -------------------------------------------------------- */

/* A run that must be refused, with what in its message; c is untouched. */
static const char *refused(const struct gpu_job *job, const struct nib_problem *p,
			   void *stream, const char *message)
{
	const struct nib_run_options options = {
	    .struct_bytes = sizeof(options),
	    .workspace = gpu_device_of(&job->workspace),
	    .workspace_bytes = job->workspace.bytes,
	    .stream = stream,
	};
	enum nib_status status;

	gpu_job_poison(job);
	gpu_test.err.message[0] = '\0';
	status = nib_run(job->plan, p, job->count, &options, &gpu_test.err);
	if (status != NIB_STATUS_BAD_ARGUMENT)
		return "not refused";
	if (!strstr(gpu_test.err.message, message))
		return gpu_test.err.message;
	gpu_must(nib_device_wait(job->gpu, NULL, &gpu_test.err), "wait");
	return gpu_is_unchanged(&job->memory[job->count - 1].c) ? NULL
								: "c was written";
}

static void check_refused(enum gpu_kind kind, void *stream)
{
	struct gpu_job *job = gpu_job_new(kind);
	const int last = job->count - 1;
	struct nib_problem p[GPU_JOB_ITEMS];
	uint8_t *want = right_results(job, stream);

	if (!want) {
		gpu_job_free(job);
		return;
	}
	gpu_job_problems(job, p);
	p[last].a.codes = gpu_host_of(&job->memory[last].a[0]);
	verdict(job, "a host pointer is refused",
		refused(job, p, stream, "host memory"));
	gpu_job_problems(job, p);
	p[last].c.data = (uint8_t *)p[last].c.data + 8;
	verdict(job, "a misaligned pointer is refused",
		refused(job, p, stream, "multiple of 16"));
	gpu_job_problems(job, p);
	p[0].b.rows--;
	p[0].c.cols--;
	verdict(job, "other sizes are refused",
		refused(job, p, stream, "the plan was made for"));
	/* CUDA leaves undefined what a driver does with such a handle. */
	if (gpu_in_software()) {
		void *gone = gpu_stream_new();

		gpu_stream_free(gone);
		gpu_job_problems(job, p);
		verdict(job, "a destroyed stream is refused",
			refused(job, p, gone, "is the stream destroyed"));
	}
	verdict(job, "a good run after these",
		gpu_job_result(job, stream, want, &gpu_test.err)
		    ? gpu_test.err.message
		    : gpu_job_check(job, want));
	free(want);
	gpu_job_free(job);
}

/* Offsets that only the device sees: rows past the end belong to no expert. */
static void check_offsets(void *stream)
{
	struct gpu_job *job = gpu_job_new(GPU_MOE);
	const struct gpu_twin *t = &job->moe_memory.offsets;
	const int64_t experts = job->moe.experts;
	const size_t bytes = t->bytes;
	int32_t *offsets = gpu_host_of(t);
	int32_t *good = gpu_take(bytes);
	uint8_t *want = right_results(job, stream);
	uint8_t *got = gpu_take(job->bytes);
	const char *why;

	memcpy(good, offsets, bytes);
	offsets[experts] = (int32_t)job->moe.rows;
	gpu_upload(t);
	why = want ? gpu_job_result(job, stream, want, &gpu_test.err) : "";
	offsets[experts] += 1000;
	gpu_upload(t);
	if (!why)
		why = gpu_job_result(job, stream, got, &gpu_test.err);
	verdict(job, "offsets past the rows", why ? why : compare(job, want, got));
	for (int64_t e = 0; e <= experts; e++)
		offsets[e] = (int32_t)(job->moe.rows + experts / 2 - e);
	gpu_upload(t);
	verdict(job, "offsets that go down",
		gpu_job_result(job, stream, got, &gpu_test.err));
	/* Up, down, up: every second expert has rows, and no two the same. */
	for (int64_t e = 0, top = 2 * job->moe.rows; e <= experts; e++) {
		const int64_t step = top / (experts + 1 - e / 2 * 2);
		const int64_t low = top - step + gpu_rnd_below(step / 2 + 1);

		offsets[e] = (int32_t)(e % 2 ? top : low);
		if (e % 2)
			top = offsets[e - 1];
	}
	gpu_upload(t);
	verdict(job, "offsets in no order",
		gpu_job_result(job, stream, got, &gpu_test.err));
	memcpy(offsets, good, bytes);
	gpu_upload(t);
	why = gpu_job_result(job, stream, got, &gpu_test.err);
	verdict(job, "a good run after these", why ? why : gpu_job_check(job, got));
	free(good);
	free(want);
	free(got);
	gpu_job_free(job);
}

int main(int argc, char **argv)
{
	const int runs = argc > 1 ? atoi(argv[1]) : gpu_repeats(1000);
	void *context, *stream, *stream2;
	int code;

	if (!gpu_begin(&code))
		return code;
	gpu_driver_open();
	context = gpu_context_set(0);
	stream = gpu_stream_new();
	stream2 = gpu_stream_new();
	for (int kind = 0; kind < GPU_KINDS; kind++) {
		check_runs((enum gpu_kind)kind, runs);
		check_graph((enum gpu_kind)kind, stream);
		if (kind < GPU_QUANTIZE)
			check_turns((enum gpu_kind)kind, stream);
	}
	for (int kind = 0; kind < GPU_QUANTIZE; kind++)
		check_streams((enum gpu_kind)kind,
			      (enum gpu_kind)((kind + 4) % GPU_KINDS), stream, stream2);
	check_thread_kinds(stream, stream2);
	check_refused(GPU_GEMM, stream);
	check_refused(GPU_GROUP, stream);
	check_refused(GPU_GEMV, stream);
	check_offsets(stream);
	gpu_verdict(gpu_context_is(context), "the thread's context stays", "");
	check_device("cuda:0", 0, context, stream);
	check_device("cuda:1", 1, context, stream);
	gpu_stream_free(stream);
	gpu_stream_free(stream2);
	return gpu_end();
}
