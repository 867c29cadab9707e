/* SPDX-License-Identifier: Apache-2.0 */
/*
 * baseline.c - the processes that baselines live in: requests and replies of
 * fixed size over two pipes.
 */
#include "baseline.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

const struct baseline_engine *const baseline_engines[BASELINES] = {
    &baseline_onednn_bf16,
    &baseline_onednn_f32,
    &baseline_onednn_f32_avx2,
    &baseline_openblas_f32,
};

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
	int count;
	double samples_s[BASELINE_MAX_SAMPLES];
	double spent_s;
};

struct baseline {
	pid_t pid;
	int to, from; /* pipes */
};

static bool transfer(int fd, void *data, size_t n_bytes, bool writes)
{
	char *p = data;

	while (n_bytes) {
		ssize_t n =
		    writes ? write(fd, p, n_bytes) : read(fd, p, n_bytes);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return false;
		p += n;
		n_bytes -= (size_t)n;
	}
	return true;
}

/* ---- the child ----------------------------------------------------------- */

static void answer(struct baseline_work *work, const struct request *request,
		   struct reply *reply)
{
	*reply = (struct reply){.ok = true};
	if (request->verb == PREPARE)
		reply->ok = baseline_work_prepare(
		    work, request->shape, request->threads, reply->reason);
	else if (request->verb == RUN)
		reply->count = baseline_work_run(
		    work, request->budget_s, reply->samples_s, &reply->spent_s);
	else
		baseline_work_release(work);
}

/* Answers requests until the pipe closes. */
static void serve(int from, int to, struct baseline_work *work)
{
	struct request request;
	struct reply reply;

	while (work && transfer(from, &request, sizeof request, false)) {
		answer(work, &request, &reply);
		if (!transfer(to, &reply, sizeof reply, true))
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
	struct baseline *baseline = calloc(1, sizeof *baseline);
	int down[2] = {-1, -1}, up[2] = {-1, -1};

	if (!baseline)
		return NULL;
	baseline->pid = pipe(down) || pipe(up) ? -1 : fork();
	if (baseline->pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(down[1]);
		close(up[0]);
		serve(down[0], up[1], baseline_work_new(engine, list, options));
	}
	close(down[0]);
	close(up[1]);
	baseline->to = down[1];
	baseline->from = up[0];
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
	close(baseline->to);
	close(baseline->from);
	if (baseline->pid > 0) {
		kill(baseline->pid, SIGKILL);
		while (waitpid(baseline->pid, NULL, 0) < 0 && errno == EINTR)
			;
	}
	free(baseline);
}

/* False if the process died. */
static bool ask(struct baseline *baseline, struct request request,
		struct reply *reply)
{
	return transfer(baseline->to, &request, sizeof request, true) &&
	       transfer(baseline->from, reply, sizeof *reply, false);
}

bool baseline_prepare(struct baseline *baseline, int64_t shape, int threads,
		      char reason[BASELINE_REASON])
{
	struct request request = {PREPARE, shape, threads, 0};
	struct reply reply;

	if (!ask(baseline, request, &reply)) {
		snprintf(reason, BASELINE_REASON, "its process died");
		return false;
	}
	memcpy(reason, reply.reason, BASELINE_REASON);
	return reply.ok;
}

int baseline_run(struct baseline *baseline, double budget_s,
		 double samples_s[BASELINE_MAX_SAMPLES], double *spent_s)
{
	struct reply reply;

	if (!ask(baseline, (struct request){.verb = RUN, .budget_s = budget_s},
		 &reply))
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
