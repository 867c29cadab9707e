/* SPDX-License-Identifier: Apache-2.0 */
/*
 * peer.c - the processes that peers live in: requests and replies of fixed size
 * over two pipes.  peer_work.c is the other end.
 */
#include "peer.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "peer_engine.h"
#include "peer_work.h"

static const struct peer_engine *const engines[] = {
    &peer_onednn_bf16,
    &peer_onednn_f32,
    &peer_onednn_f32_avx2,
    &peer_openblas_f32,
};

struct peer {
	pid_t pid;
	int to, from; /* pipes */
};

int peer_count(void)
{
	return (int)(sizeof(engines) / sizeof(engines[0]));
}

const char *peer_room(int index)
{
	return engines[index]->room;
}

enum peak_kind peer_limit(int index)
{
	return engines[index]->limit;
}

double peer_bytes(int index, const struct shape *shape)
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
static void serve(int from, int to, const struct peer_engine *engine,
		  const struct shape_list *list,
		  const struct data_options *options)
{
	struct peer_work *work = peer_work_new(engine, list, options);
	struct peer_request request;
	struct peer_reply reply;

	while (work && transfer(from, &request, sizeof request, false)) {
		memset(&reply, 0, sizeof reply);
		peer_work_answer(work, &request, &reply);
		if (!transfer(to, &reply, sizeof reply, true))
			break;
	}
	/* Not exit(): what the parent has buffered is the parent's to print. */
	_exit(0);
}

struct peer *peer_start(int index, const struct shape_list *list,
			const struct data_options *options)
{
	struct peer *peer = calloc(1, sizeof *peer);
	int down[2], up[2];

	if (!peer || pipe(down) != 0) {
		free(peer);
		return NULL;
	}
	if (pipe(up) != 0) {
		close(down[0]);
		close(down[1]);
		free(peer);
		return NULL;
	}
	peer->pid = fork();
	if (peer->pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(down[1]);
		close(up[0]);
		serve(down[0], up[1], engines[index], list, options);
	}
	close(down[0]);
	close(up[1]);
	peer->to = down[1];
	peer->from = up[0];
	if (peer->pid < 0) {
		close(peer->to);
		close(peer->from);
		free(peer);
		return NULL;
	}
	return peer;
}

void peer_stop(struct peer *peer)
{
	if (!peer)
		return;
	close(peer->to);
	close(peer->from);
	kill(peer->pid, SIGKILL);
	while (waitpid(peer->pid, NULL, 0) < 0 && errno == EINTR)
		;
	free(peer);
}

static bool ask(struct peer *peer, struct peer_request *request,
		struct peer_reply *reply)
{
	return transfer(peer->to, request, sizeof *request, true) &&
	       transfer(peer->from, reply, sizeof *reply, false);
}

bool peer_prepare(struct peer *peer, int64_t shape, int threads,
		  char reason[PEER_REASON])
{
	struct peer_request request = {
	    .verb = PEER_PREPARE, .shape = shape, .threads = threads};
	struct peer_reply reply;

	if (!ask(peer, &request, &reply)) {
		snprintf(reason, PEER_REASON, "its process died");
		return false;
	}
	memcpy(reason, reply.reason, PEER_REASON);
	return reply.ok;
}

int peer_turn(struct peer *peer, double budget_s, int max_samples,
	      double samples_s[PEER_MAX_SAMPLES], double *spent_s)
{
	struct peer_request request = {.verb = PEER_TURN,
				       .budget_s = budget_s,
				       .max_samples = max_samples};
	struct peer_reply reply;

	if (!ask(peer, &request, &reply) || !reply.ok)
		return 0;
	memcpy(samples_s, reply.samples_s, sizeof reply.samples_s);
	*spent_s = reply.spent_s;
	return reply.count;
}

void peer_release(struct peer *peer)
{
	struct peer_request request = {.verb = PEER_RELEASE};
	struct peer_reply reply;

	(void)ask(peer, &request, &reply);
}
