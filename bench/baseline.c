/* SPDX-License-Identifier: Apache-2.0 */
/*
 * baseline.c - the processes that baselines live in: requests and replies of fixed size
 * over two pipes.  baseline_work.c is the other end.
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

#include "baseline_engine.h"
#include "baseline_work.h"

static const struct baseline_engine *const engines[] = {
    &baseline_onednn_bf16,
    &baseline_onednn_f32,
    &baseline_onednn_f32_avx2,
    &baseline_openblas_f32,
};

struct baseline {
	pid_t pid;
	int to, from; /* pipes */
};

int baseline_count(void)
{
	return (int)(sizeof(engines) / sizeof(engines[0]));
}

const char *baseline_backend(int index)
{
	return engines[index]->backend;
}

enum peak_kind baseline_limit(int index)
{
	return engines[index]->limit;
}

double baseline_bytes(int index, const struct shape *shape)
{
	int dual = shape->op == OP_DUAL_GEMM || shape->op == OP_GROUP_DUAL ||
		   shape->op == OP_MOE_DUAL;
	double bytes = 0;

	for (int64_t i = 0; i < shape->count; i++) {
		double m = (double)shape->sizes[i].m;
		double n = (double)shape->sizes[i].n * (dual ? 2 : 1);
		double k = (double)shape->sizes[i].k;

		if (m > 0)
			bytes += (m + n) * k * engines[index]->operand_bytes +
				 m * n * (double)sizeof(float);
	}
	return bytes * (double)(shape->batch ? shape->batch : 1);
}

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

/* The life of the process: requests until the pipe closes. */
static void serve(int from, int to, const struct baseline_engine *engine,
		  const struct shape_list *list,
		  const struct data_options *options)
{
	struct baseline_work *work = baseline_work_new(engine, list, options);
	struct baseline_request request;
	struct baseline_reply reply;

	while (work && transfer(from, &request, sizeof request, false)) {
		memset(&reply, 0, sizeof reply);
		baseline_work_answer(work, &request, &reply);
		if (!transfer(to, &reply, sizeof reply, true))
			break;
	}
	/* Not exit(): what the parent has buffered is the parent's to print. */
	_exit(0);
}

struct baseline *baseline_start(int index, const struct shape_list *list,
				const struct data_options *options)
{
	struct baseline *baseline = calloc(1, sizeof *baseline);
	int down[2], up[2];

	if (!baseline || pipe(down) != 0) {
		free(baseline);
		return NULL;
	}
	if (pipe(up) != 0) {
		close(down[0]);
		close(down[1]);
		free(baseline);
		return NULL;
	}
	baseline->pid = fork();
	if (baseline->pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(down[1]);
		close(up[0]);
		serve(down[0], up[1], engines[index], list, options);
	}
	close(down[0]);
	close(up[1]);
	baseline->to = down[1];
	baseline->from = up[0];
	if (baseline->pid < 0) {
		close(baseline->to);
		close(baseline->from);
		free(baseline);
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
	kill(baseline->pid, SIGKILL);
	while (waitpid(baseline->pid, NULL, 0) < 0 && errno == EINTR)
		;
	free(baseline);
}

static bool ask(struct baseline *baseline, struct baseline_request *request,
		struct baseline_reply *reply)
{
	return transfer(baseline->to, request, sizeof *request, true) &&
	       transfer(baseline->from, reply, sizeof *reply, false);
}

bool baseline_prepare(struct baseline *baseline, int64_t shape, int threads,
		      char reason[BASELINE_REASON])
{
	struct baseline_request request = {
	    .verb = BASELINE_PREPARE, .shape = shape, .threads = threads};
	struct baseline_reply reply;

	if (!ask(baseline, &request, &reply)) {
		snprintf(reason, BASELINE_REASON, "its process died");
		return false;
	}
	memcpy(reason, reply.reason, BASELINE_REASON);
	return reply.ok;
}

int baseline_turn(struct baseline *baseline, double budget_s, int max_samples,
		  double samples_s[BASELINE_MAX_SAMPLES], double *spent_s)
{
	struct baseline_request request = {.verb = BASELINE_TURN,
					   .budget_s = budget_s,
					   .max_samples = max_samples};
	struct baseline_reply reply;

	if (!ask(baseline, &request, &reply) || !reply.ok)
		return 0;
	memcpy(samples_s, reply.samples_s, sizeof reply.samples_s);
	*spent_s = reply.spent_s;
	return reply.count;
}

void baseline_release(struct baseline *baseline)
{
	struct baseline_request request = {.verb = BASELINE_RELEASE};
	struct baseline_reply reply;

	(void)ask(baseline, &request, &reply);
}
