/* SPDX-License-Identifier: Apache-2.0 */
/*
 * baseline.c - the processes that baselines live in, and what they do there: a
 * request and a reply are one packet each, over a pair of sockets.
 *
 * The process dequantises the operands of a shape, passes them to the library one
 * multiplication at a time, checks one row of the results, and times calls.  A
 * group is its multiplications one after the other; a dual GEMM is two
 * multiplications without silu.  Weights are rotated through as many copies as
 * it takes to find them out of the caches.
 */
#include "baseline.h"

#include <dlfcn.h>
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "job.h"
#include "machine.h"
#include "text.h"

const struct baseline_engine *const baseline_engines[BASELINES] = {
    &baseline_onednn_bf16,  &baseline_onednn_f32, &baseline_onednn_f32_avx2,
    &baseline_openblas_f32, &baseline_ggml_nvfp4,
};

bool baseline_refuse(char reason[BASELINE_REASON], const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(reason, BASELINE_REASON, format, args);
	va_end(args);
	return false;
}

void *baseline_dlopen(const char *const *names, char reason[BASELINE_REASON])
{
	for (int i = 0; names[i]; i++) {
		void *library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);

		if (library)
			return library;
	}
	baseline_refuse(reason, "not installed: %s not found", names[0]);
	return NULL;
}

/* ---- the process: a shape's multiplications ------------------------------ */

struct work {
	const struct baseline_engine *engine;
	const struct shape_list *list;
	struct data_options options;
	bool is_open;

	/* The shape that is prepared: as many copies of per_copy. */
	struct baseline_matmul *matmuls;
	int64_t n_matmuls, per_copy, next;
	float *c; /* of all multiplications of one copy */
	size_t c_bytes;
	struct nib_device *device;
};

static size_t a_bytes(const struct baseline_matmul *mm)
{
	return (size_t)(mm->m * mm->k) * sizeof(float);
}

static size_t b_bytes(const struct baseline_matmul *mm)
{
	return (size_t)(mm->n * mm->k) * sizeof(float);
}

static void free_plain(struct baseline_matmul *mm)
{
	machine_free(mm->a, a_bytes(mm));
	machine_free(mm->b, b_bytes(mm));
	mm->a = mm->b = NULL;
}

static void work_release(struct work *work)
{
	for (int64_t i = 0; i < work->n_matmuls; i++) {
		free_plain(&work->matmuls[i]);
		if (work->matmuls[i].packed)
			work->engine->unpack(work->matmuls[i].packed);
	}
	free(work->matmuls);
	machine_free(work->c, work->c_bytes);
	nib_device_close(work->device);
	work->matmuls = NULL;
	work->n_matmuls = work->per_copy = work->next = 0;
	work->c = NULL;
	work->device = NULL;
}

/* One multiplication of the shape, as NVFP4 views of batch 1. */
struct part {
	struct nib_fp4 a, b;
};

/* Rows of operands as data.c lays them out: linear, and without gaps. */
static struct nib_fp4 rows_of(const struct nib_fp4 *q, int64_t first, int64_t rows)
{
	struct nib_fp4 part = *q;

	part.codes = (char *)q->codes + first * (q->k / 2);
	part.scales = (char *)q->scales + first * (q->k / NIB_NVFP4_BLOCK);
	part.rows = rows;
	part.batch = 1;
	return part;
}

static struct nib_fp4 batch_of(const struct nib_fp4 *q, int64_t i)
{
	return rows_of(q, i * q->rows, q->rows);
}

/* The i-th part of a call, dual ones counted twice; false past the end. */
static bool get_part(const struct data *data, int64_t i, struct part *part)
{
	const struct nib_moe_problem *moe = &data->moe_views;
	const int dual = data->op == NIB_OP_DUAL_GEMM ? 2 : 1;
	const bool second = i % dual;

	i /= dual;
	if (data->is_moe && i < moe->problem.b.batch) {
		int64_t first = moe->row_offsets[i];

		part->a =
		    rows_of(&moe->problem.a, first, moe->row_offsets[i + 1] - first);
		part->b = batch_of(second ? &moe->problem.b2 : &moe->problem.b, i);
		return true;
	}
	for (int64_t p = 0; p < data->count && !data->is_moe; p++) {
		const struct nib_problem *v = &data->views[p];

		if (i < v->a.batch) {
			part->a = batch_of(&v->a, i);
			part->b = batch_of(second ? &v->b2 : &v->b, i);
			return true;
		}
		i -= v->a.batch;
	}
	return false;
}

/* ---- preparing ----------------------------------------------------------- */

/* Row 0 of the result against sums in double: layout or type mistakes. */
static bool check(const struct baseline_matmul *mm, double tolerance,
		  char reason[BASELINE_REASON])
{
	for (int64_t n = 0; n < mm->n; n += mm->n / 8 + 1) {
		double sum = 0, magnitude = 0;

		for (int64_t k = 0; k < mm->k; k++) {
			double x = (double)mm->a[k] * (double)mm->b[n * mm->k + k];

			sum += x;
			magnitude += fabs(x);
		}
		if (!(fabs((double)mm->c[n] - sum) <= tolerance * magnitude))
			return baseline_refuse(reason,
					       "wrong result: c[0, %lld] = %g, want %g",
					       (long long)n, (double)mm->c[n], sum);
	}
	return true;
}

/* q in floats, in memory of its own. */
static float *dequantize(struct work *work, const struct nib_fp4 *q)
{
	struct nib_dense dense = {
	    .dtype = NIB_DTYPE_FP32, .rows = q->rows, .cols = q->k};
	size_t bytes = (size_t)(q->rows * q->k) * sizeof(float);

	dense.data = machine_alloc(bytes);
	if (dense.data && nib_dequantize(work->device, q, 1.0f, &dense, NULL, NULL)) {
		machine_free(dense.data, bytes);
		return NULL;
	}
	return dense.data;
}

/* Adds a multiplication; the first one's result is checked. */
static bool add_matmul(struct work *work, const struct part *part, float *c,
		       char reason[BASELINE_REASON])
{
	struct baseline_matmul *mm = &work->matmuls[work->n_matmuls++];
	bool done;

	*mm = (struct baseline_matmul){.m = part->a.rows,
				       .n = part->b.rows,
				       .k = part->a.k,
				       .a = dequantize(work, &part->a),
				       .b = dequantize(work, &part->b),
				       .c = c};
	if (!mm->a || !mm->b)
		return baseline_refuse(reason, "out of memory");
	done = !work->engine->pack || work->engine->pack(mm, reason);
	if (done && work->n_matmuls == 1) {
		work->engine->run(mm);
		done = check(mm, work->engine->tolerance, reason);
	}
	if (mm->packed)
		free_plain(mm);
	return done;
}

/* Adds all parts of data once more. */
static bool add_copy(struct work *work, const struct data *data,
		     char reason[BASELINE_REASON])
{
	float *c = work->c;
	struct part part;

	for (int64_t i = 0; get_part(data, i, &part); i++) {
		if (part.a.rows == 0)
			continue;
		if (!add_matmul(work, &part, c, reason))
			return false;
		c += part.a.rows * part.b.rows;
	}
	return true;
}

static bool make_operands(struct work *work, const struct data *data,
			  char reason[BASELINE_REASON])
{
	double weights = 0, plain = 0, need;
	struct part part;
	int64_t copies;

	work->c_bytes = 0;
	for (int64_t i = 0; get_part(data, i, &part); i++) {
		double b = (double)(part.b.rows * part.b.k);

		if (part.a.rows == 0)
			continue;
		weights += b * work->engine->b_bytes;
		plain = fmax(plain, b * sizeof(float));
		work->c_bytes += (size_t)(part.a.rows * part.b.rows) * sizeof(float);
		work->per_copy++;
	}
	copies = job_copies(weights, (double)machine_cache_bytes());
	need = (double)copies * weights + plain + (double)work->c_bytes;
	if (need > 0.8 * (double)machine_free_bytes())
		return baseline_refuse(reason, "needs %.1f GiB of memory",
				       need / (1 << 30));
	work->matmuls =
	    calloc((size_t)(copies * work->per_copy) + 1, sizeof *work->matmuls);
	work->c = machine_alloc(work->c_bytes);
	if (!work->matmuls || !work->c)
		return baseline_refuse(reason, "out of memory");
	for (int64_t i = 0; i < copies; i++) {
		if (!add_copy(work, data, reason))
			return false;
	}
	return true;
}

/* As baseline_prepare(). */
static bool work_prepare(struct work *work, int64_t shape, int threads,
			 char reason[BASELINE_REASON])
{
	const struct nib_device_options device = {.struct_bytes = sizeof device,
						  .threads = threads};
	const struct baseline_engine *engine = work->engine;
	struct nib_error err = {0};
	struct data *data = NULL;
	bool done = false;

	work_release(work);
	if (!engine->open)
		return baseline_refuse(reason, "not built with %s's headers (%s)",
				       engine->library, engine->package);
	if (!work->is_open && !engine->open(reason))
		return false;
	work->is_open = true;
	engine->set_threads(threads);
	if (nib_device_open("cpu", &device, &work->device, &err) != NIB_STATUS_OK ||
	    data_new(&work->list->shapes[shape], &work->options, NULL, &data, &err) !=
		NIB_STATUS_OK)
		baseline_refuse(reason, "%.150s", err.message);
	else
		done = make_operands(work, data, reason);
	data_free(data);
	if (!done)
		work_release(work);
	return done;
}

/* ---- running ------------------------------------------------------------- */

/* Seconds of runs copies, one after the other. */
static double run_copies(struct work *work, int runs)
{
	double begin = cli_now_s();

	for (int64_t i = 0; i < runs * work->per_copy; i++) {
		work->engine->run(&work->matmuls[work->next]);
		work->next = (work->next + 1) % work->n_matmuls;
	}
	return cli_now_s() - begin;
}

/* As baseline_run(). */
static int work_run(struct work *work, double budget_s,
		    double samples_s[BASELINE_MAX_SAMPLES], double *spent_s)
{
	int runs, count = 0;

	if (!work->n_matmuls)
		return 0;
	run_copies(work, 1);
	runs = job_runs_a_sample(run_copies(work, 1));
	do {
		double s = run_copies(work, runs);

		*spent_s += s;
		samples_s[count++] = s / runs;
	} while (*spent_s < budget_s && count < BASELINE_MAX_SAMPLES);
	return count;
}

/* ---- requests and replies ------------------------------------------------ */

enum verb { PREPARE, RUN, RELEASE };

struct request {
	enum verb verb;
	int64_t shape;
	int threads;
	double budget_s;
};

struct reply {
	bool ok;
	char reason[BASELINE_REASON];
	char version[BASELINE_VERSION];
	int64_t copies;
	int count;
	double samples_s[BASELINE_MAX_SAMPLES];
	double spent_s;
};

struct baseline {
	pid_t pid;
	int socket;
	int64_t copies;
	char version[BASELINE_VERSION];
};

pid_t baseline_process(const struct baseline *baseline)
{
	return baseline->pid;
}

int64_t baseline_copies(const struct baseline *baseline)
{
	return baseline->copies;
}

const char *baseline_version(const struct baseline *baseline)
{
	return baseline->version;
}

/* One packet; false when the other process is gone. */
static bool transfer(int socket, void *data, size_t n_bytes, bool sends)
{
	ssize_t n;

	do
		n = sends ? send(socket, data, n_bytes, MSG_NOSIGNAL)
			  : recv(socket, data, n_bytes, 0);
	while (n < 0 && errno == EINTR);
	return n == (ssize_t)n_bytes;
}

/* ---- the child ----------------------------------------------------------- */

static void answer(struct work *work, const struct request *request,
		   struct reply *reply)
{
	*reply = (struct reply){.ok = true};
	if (request->verb == PREPARE) {
		reply->ok =
		    work_prepare(work, request->shape, request->threads, reply->reason);
		if (work->per_copy)
			reply->copies = work->n_matmuls / work->per_copy;
		if (reply->ok && work->engine->version)
			work->engine->version(reply->version);
	} else if (request->verb == RUN)
		reply->count = work_run(work, request->budget_s, reply->samples_s,
					&reply->spent_s);
	else
		work_release(work);
}

/* Answers requests until the other end is closed. */
static void serve(int socket, struct work *work)
{
	struct request request;
	struct reply reply;

	while (transfer(socket, &request, sizeof request, false)) {
		answer(work, &request, &reply);
		if (!transfer(socket, &reply, sizeof reply, true))
			break;
	}
	/* Not exit(): what the parent has buffered is the parent's to print. */
	_exit(0);
}

/* ---- the parent ---------------------------------------------------------- */

struct baseline *baseline_start(const struct baseline_engine *engine,
				const struct shape_list *list,
				const struct data_options *options)
{
	struct work work = {.engine = engine, .list = list, .options = *options};
	struct baseline *baseline = calloc(1, sizeof *baseline);
	int ends[2] = {-1, -1};

	if (!baseline)
		return NULL;
	baseline->pid = socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) ? -1 : fork();
	if (baseline->pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(ends[0]);
		work.options.packed = 0;
		work.options.layout = NIB_SCALE_LAYOUT_LINEAR;
		work.options.out = NIB_DTYPE_FP32;
		serve(ends[1], &work);
	}
	close(ends[1]);
	baseline->socket = ends[0];
	if (baseline->pid < 0) {
		baseline_stop(baseline);
		return NULL;
	}
	return baseline;
}

void baseline_stop(struct baseline *baseline)
{
	if (!baseline)
		return;
	close(baseline->socket);
	if (baseline->pid > 0) {
		kill(baseline->pid, SIGKILL);
		while (waitpid(baseline->pid, NULL, 0) < 0 && errno == EINTR)
			;
	}
	free(baseline);
}

/* False if the process died. */
static bool ask(struct baseline *baseline, struct request request, struct reply *reply)
{
	return transfer(baseline->socket, &request, sizeof request, true) &&
	       transfer(baseline->socket, reply, sizeof *reply, false);
}

bool baseline_prepare(struct baseline *baseline, int64_t shape, int threads,
		      char reason[BASELINE_REASON])
{
	struct request request = {PREPARE, shape, threads, 0};
	struct reply reply;

	if (!ask(baseline, request, &reply))
		return baseline_refuse(reason, "its process died");
	memcpy(reason, reply.reason, BASELINE_REASON);
	baseline->copies = reply.copies;
	if (*reply.version)
		memcpy(baseline->version, reply.version, BASELINE_VERSION);
	return reply.ok;
}

int baseline_run(struct baseline *baseline, double budget_s,
		 double samples_s[BASELINE_MAX_SAMPLES], double *spent_s)
{
	struct reply reply;

	if (!ask(baseline, (struct request){.verb = RUN, .budget_s = budget_s}, &reply))
		return 0;
	memcpy(samples_s, reply.samples_s, sizeof reply.samples_s);
	*spent_s = reply.spent_s;
	return reply.count;
}

void baseline_release(struct baseline *baseline)
{
	struct reply reply;

	(void)ask(baseline, (struct request){.verb = RELEASE}, &reply);
}
