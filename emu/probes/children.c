/* SPDX-License-Identifier: Apache-2.0 */
/* children.c - see children.h. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "children.h"

#include <stdarg.h>
#include <stdbool.h>
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
	/* Not exit(), because CUDA's exit handlers wait for a dead context. */
	_exit(ENDED_BY_TRAP);
}

static void run_child(const struct probe_questions *q, struct probe_answer *answers,
		      int first)
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
static int after_child(struct probe_answer *answers, int first, int count, int status)
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
	const size_t bytes = ((size_t)q->count + 1) * sizeof(struct probe_answer);
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

/* Writes a line for each answer, except digits; false: not written. */
static bool record(const char *path, const struct probe_questions *q,
		   const struct probe_answer *answers)
{
	FILE *file = fopen(path, "w");

	if (!file) {
		perror(path);
		return false;
	}
	fprintf(file, "# probes/%s on %s\n", q->program, answers[q->count].text);
	for (int i = 0; i < q->count; i++) {
		const bool is_digit = q->digits_from && i >= q->digits_from;
		const bool is_end = !is_digit || (i - q->digits_from) % 64 == 63;

		fprintf(file, "%s%s", answers[i].text, is_end ? "\n" : "");
	}
	return fclose(file) == 0;
}

int probe_main(int argc, char **argv, const struct probe_questions *q)
{
	int differences = 0, traps = 0;
	struct probe_answer *answers;

	if (argc != 2) {
		fprintf(stderr, "usage: %s RECORDING\n", argv[0]);
		return 2;
	}
	answers = probe_ask(q);
	if (!answers || !record(argv[1], q, answers))
		return 2;
	for (int i = 0; i < q->count; i++) {
		differences += answers[i].differs;
		traps += answers[i].is_trap;
	}
	if (q->explain)
		q->explain(answers);
	printf("%d of %d %s differ, %d end in a trap\n", differences, q->count,
	       q->things, traps);
	return differences != 0;
}
