/* SPDX-License-Identifier: Apache-2.0 */
/* runs.c - see runs.h. */
#include "runs.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

static volatile sig_atomic_t signals; /* that ask nibemu to end */

static void take_signal(int number)
{
	if (number != SIGCHLD)
		signals = signals + 1;
}

/* Signals are handled only while ppoll waits, whose mask is old. */
static void begin_signals(sigset_t *old)
{
	static const int numbers[] = {SIGCHLD, SIGINT, SIGTERM, SIGHUP};
	struct sigaction action = {.sa_handler = take_signal};
	sigset_t blocked;

	sigemptyset(&blocked);
	for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++) {
		sigaddset(&blocked, numbers[i]);
		sigaction(numbers[i], &action, NULL);
	}
	sigprocmask(SIG_BLOCK, &blocked, old);
	signal(SIGPIPE, SIG_IGN);
}

/* ---- what came of a run -------------------------------------------------- */

static enum result judge(const struct run *r, const struct child *c,
			 bool is_interrupted)
{
	const bool is_good = WIFEXITED(r->status) && !WEXITSTATUS(r->status);

	if (records_first_report(&r->records))
		return RESULT_REPORT;
	if (c->is_late)
		return RESULT_TIMEOUT;
	if (is_interrupted || (WIFSIGNALED(r->status) && WTERMSIG(r->status) == SIGINT))
		return RESULT_INTERRUPTED;
	if (records_find(&r->records, "refused"))
		return RESULT_REFUSED;
	if (!records_find(&r->records, "ran"))
		return RESULT_UNUSED;
	return is_good ? RESULT_CLEAN : RESULT_FAILED;
}

static bool finish(struct runs *r, const struct job *job, struct child *c, char *error,
		   size_t size)
{
	struct run *run = &r->list[c->run];
	char path[4200];
	bool ok;

	run->seconds = now_s() - c->begin_s;
	child_read(c, &run->output);
	if (c->pipe >= 0)
		close(c->pipe);
	record_path(job, run->seed, path, sizeof(path));
	ok = records_read(&run->records, path);
	(void)remove(path);
	run->result = judge(run, c, r->is_interrupted);
	if (run->result == RESULT_INTERRUPTED)
		r->is_interrupted = true;
	if (run->result == RESULT_CLEAN && !job->options->is_verbose) {
		free(run->output.text);
		run->output.text = NULL;
	}
	if (!ok)
		snprintf(error, size, "no memory for reports");
	return ok;
}

/* ---- all runs ------------------------------------------------------------ */

struct loop {
	struct runs *runs;
	const struct job *job;
	struct child *children; /* job->jobs of them */
	struct pollfd *polls;
	size_t next, running;
	sigset_t mask;
};

static bool start_some(struct loop *l, char *error, size_t size)
{
	for (uint32_t k = 0; k < l->job->jobs; k++) {
		struct child *c = &l->children[k];

		if (c->pid || l->next == l->runs->count || l->runs->is_interrupted)
			continue;
		c->run = l->next;
		if (!child_start(c, l->job, l->runs->list[l->next].seed,
				 l->job->options->has_seeds, error, size))
			return false;
		l->next++;
		l->running++;
	}
	return true;
}

/* Waits until a run prints, ends or is late, or a signal comes. */
static void wait_for_something(struct loop *l)
{
	double first = 0;
	struct timespec most = {0};
	nfds_t count = 0;

	for (uint32_t k = 0; k < l->job->jobs; k++) {
		const struct child *c = &l->children[k];

		if (!c->pid)
			continue;
		if (c->pipe >= 0)
			l->polls[count++] = (struct pollfd){c->pipe, POLLIN, 0};
		if (c->end_s > 0 && (first == 0 || c->end_s < first))
			first = c->end_s;
	}
	if (first > 0) {
		const double left = first - now_s();

		most.tv_sec = left > 0 ? (time_t)left : 0;
		most.tv_nsec =
		    left > 0 ? (long)((left - (double)most.tv_sec) * 1e9) : 0;
	}
	(void)ppoll(l->polls, count, first > 0 ? &most : NULL, &l->mask);
}

/* False with error: no memory. */
static bool look_at(struct loop *l, struct child *c, char *error, size_t size)
{
	struct run *run = &l->runs->list[c->run];

	child_read(c, &run->output);
	if (child_has_ended(c, &run->status)) {
		l->running--;
		return finish(l->runs, l->job, c, error, size);
	}
	if (c->end_s > 0 && now_s() >= c->end_s) {
		c->is_late = c->is_late || !c->is_told;
		child_end(c);
	}
	return true;
}

static void end_all(struct loop *l)
{
	l->runs->is_interrupted = true;
	for (uint32_t k = 0; k < l->job->jobs; k++)
		if (l->children[k].pid)
			child_end(&l->children[k]);
}

static bool run_loop(struct loop *l, char *error, size_t size)
{
	int seen = 0;
	bool ok = true;

	while (ok &&
	       (l->running || (l->next < l->runs->count && !l->runs->is_interrupted))) {
		ok = start_some(l, error, size);
		if (ok)
			wait_for_something(l);
		if (signals != seen) {
			seen = signals;
			end_all(l);
		}
		for (uint32_t k = 0; ok && k < l->job->jobs; k++)
			if (l->children[k].pid)
				ok = look_at(l, &l->children[k], error, size);
	}
	/* After an error, ends all runs. */
	for (uint32_t k = 0; k < l->job->jobs; k++)
		if (l->children[k].pid)
			(void)kill(-l->children[k].pid, SIGKILL);
	return ok;
}

bool runs_do(struct runs *r, const struct job *job, char *error, size_t size)
{
	const struct options *o = job->options;
	struct loop l = {.runs = r, .job = job};
	bool ok;

	*r = (struct runs){.count = (size_t)(o->last_seed - o->first_seed) + 1};
	r->list = calloc(r->count, sizeof(*r->list));
	l.children = calloc(job->jobs, sizeof(*l.children));
	l.polls = calloc(job->jobs, sizeof(*l.polls));
	ok = r->list && l.children && l.polls;
	if (!ok)
		snprintf(error, size, "no memory for %zu runs", r->count);
	for (size_t i = 0; ok && i < r->count; i++)
		r->list[i].seed = o->first_seed + i;
	if (ok) {
		begin_signals(&l.mask);
		ok = run_loop(&l, error, size);
	}
	free(l.children);
	free(l.polls);
	return ok;
}

void runs_free(struct runs *r)
{
	for (size_t i = 0; r->list && i < r->count; i++) {
		records_free(&r->list[i].records);
		free(r->list[i].output.text);
	}
	free(r->list);
	*r = (struct runs){0};
}
