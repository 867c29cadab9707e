/* SPDX-License-Identifier: Apache-2.0 */
/* children.c - see children.h. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "children.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ENDED_WELL = 0, ENDED_BY_TRAP = 77 };

void probe_trap(struct probe_answer *answer, const char *format, ...)
{
	va_list list;

	va_start(list, format);
	vsnprintf(answer->text, sizeof(answer->text), format, list);
	va_end(list);
	answer->is_trap = 1;
	fflush(stdout);
	/* Not exit(): what CUDA registered there waits for a dead context. */
	_exit(ENDED_BY_TRAP);
}

static void run_child(const struct probe_questions *q,
		      struct probe_answer *answers, int first)
{
	alarm(PROBE_SECONDS);
	q->begin(answers[q->count].text, PROBE_TEXT);
	for (int i = first; i < q->count; i++) {
		alarm(PROBE_SECONDS);
		answers[i].is_asked = 1;
		q->ask(i, &answers[i]);
	}
	fflush(stdout);
	_exit(ENDED_WELL);
}

/* The next question, or -1: the child ended before it could ask. */
static int after_child(struct probe_answer *answers, int first, int count,
		       int status)
{
	int next = first;

	while (next < count && answers[next].is_asked)
		next++;
	if (WIFEXITED(status) && WEXITSTATUS(status) == ENDED_WELL)
		return count;
	if (next == first)
		return -1;
	if (WIFEXITED(status) && WEXITSTATUS(status) != ENDED_BY_TRAP)
		return -1;
	if (WIFSIGNALED(status)) {
		struct probe_answer *last = &answers[next - 1];

		last->is_trap = 1;
		snprintf(last->text, sizeof(last->text), "trap signal%d",
			 WTERMSIG(status));
	}
	return next;
}

struct probe_answer *probe_ask(const struct probe_questions *q)
{
	const size_t bytes =
	    ((size_t)q->count + 1) * sizeof(struct probe_answer);
	struct probe_answer *answers = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
					    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int next = 0;

	if (answers == MAP_FAILED) {
		perror("mmap");
		return NULL;
	}
	while (next >= 0 && next < q->count) {
		pid_t child;
		int status;

		fflush(stdout);
		child = fork();
		if (child == 0)
			run_child(q, answers, next);
		if (child < 0 || waitpid(child, &status, 0) != child) {
			perror("child");
			next = -1;
		} else {
			next = after_child(answers, next, q->count, status);
		}
	}
	if (next >= 0)
		return answers;
	fprintf(stderr, "a child process could not ask\n");
	probe_free(answers, q->count);
	return NULL;
}

void probe_free(struct probe_answer *answers, int count)
{
	munmap(answers, ((size_t)count + 1) * sizeof(*answers));
}
