/* SPDX-License-Identifier: Apache-2.0 */
/* child.c - see child.h. */
#include "child.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Seconds between SIGTERM and SIGKILL. */
#define GRACE_S 2

double now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

void record_path(const struct job *job, uint64_t seed, char *to, size_t size)
{
	snprintf(to, size, "%s/%" PRIu64 ".jsonl", job->records, seed);
}

/* ---- starting ------------------------------------------------------------ */

static void set_number(const char *name, uint64_t value)
{
	char text[32];

	snprintf(text, sizeof(text), "%" PRIu64, value);
	setenv(name, text, 1);
}

static void set_path(const char *folder)
{
	const char *old = getenv("LD_LIBRARY_PATH");
	char *both = NULL;

	if (!old || !*old) {
		setenv("LD_LIBRARY_PATH", folder, 1);
	} else if (asprintf(&both, "%s:%s", folder, old) > 0) {
		setenv("LD_LIBRARY_PATH", both, 1);
		free(both);
	}
}

static void set_environment(const struct job *job, uint64_t seed)
{
	const struct options *o = job->options;
	char path[4200];

	set_path(job->cuda);
	set_number("NIBEMU_SEED", seed);
	record_path(job, seed, path, sizeof(path));
	setenv("NIBEMU_REPORTS", path, 1);
	if (o->device)
		setenv("NIBEMU_DEVICE", o->device, 1);
	if (o->waive)
		setenv("NIBEMU_WAIVE", o->waive, 1);
	if (o->continues)
		setenv("NIBEMU_CONTINUE", "1", 1);
	if (o->is_strict)
		setenv("NIBEMU_STRICT", "1", 1);
	if (o->has_time)
		setenv("NIBEMU_TIME", "1", 1);
	if (o->is_verbose)
		setenv("NIBEMU_VERBOSE", "1", 1);
	if (job->jobs > 1) {
		const long processors = sysconf(_SC_NPROCESSORS_ONLN);
		const uint64_t each = (uint64_t)processors / job->jobs;

		/* The number of threads does not change the results. */
		setenv("NIBEMU_THREADS", "1", 0);
		if (each > 1)
			set_number("NIBEMU_THREADS", each);
	}
}

/* In the child: its group, signals and files.  output: a pipe for what it prints; -1:
 * it prints where nibemu does, or to standard error if JSON goes to the output. */
static void become_a_child(pid_t parent, int output, bool has_json)
{
	sigset_t none;

	(void)setpgid(0, 0);
	/* Ends the program if nibemu is killed. */
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(127);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	signal(SIGINT, SIG_DFL);
	signal(SIGTERM, SIG_DFL);
	signal(SIGHUP, SIG_DFL);
	signal(SIGPIPE, SIG_DFL);
	signal(SIGCHLD, SIG_DFL);
	if (output >= 0) {
		const int nothing = open("/dev/null", O_RDONLY);

		dup2(nothing, STDIN_FILENO);
		dup2(output, STDOUT_FILENO);
		dup2(output, STDERR_FILENO);
		return;
	}
	if (has_json)
		dup2(STDERR_FILENO, STDOUT_FILENO);
	if (isatty(STDIN_FILENO) && tcgetpgrp(STDIN_FILENO) == getpgid(parent)) {
		/* Ctrl-C and input are the program's. */
		signal(SIGTTOU, SIG_IGN);
		(void)tcsetpgrp(STDIN_FILENO, getpid());
		signal(SIGTTOU, SIG_DFL);
	}
}

/* In the child: does not return. */
__attribute__((noreturn)) static void run_program(const struct job *job, uint64_t seed,
						  int failure)
{
	int error;

	set_environment(job, seed);
	execv(job->program->path, job->options->program);
	error = errno;
	(void)!write(failure, &error, sizeof(error));
	_exit(127);
}

static const char *why_not_started(int error)
{
	return error == ENOEXEC
		   ? "not a program of this machine (a script begins with #!)"
	       : error == ENOENT ? "its interpreter or loader does not exist"
				 : strerror(error);
}

/* Waits until the program has begun; returns the error if it could not. */
static int begin_of(int failure)
{
	int error = 0;
	ssize_t got;

	do
		got = read(failure, &error, sizeof(error));
	while (got < 0 && errno == EINTR);
	return got == (ssize_t)sizeof(error) ? error : 0;
}

bool child_start(struct child *c, const struct job *job, uint64_t seed,
		 bool takes_output, char *error, size_t size)
{
	const char *json = job->options->json;
	const pid_t parent = getpid();
	int output[2] = {-1, -1}, failure[2] = {-1, -1}, code = 0;

	if (pipe2(failure, O_CLOEXEC) || (takes_output && pipe2(output, O_CLOEXEC))) {
		snprintf(error, size, "no pipe: %s", strerror(errno));
		return false;
	}
	fflush(NULL);
	c->pid = fork();
	if (c->pid == 0) {
		become_a_child(parent, output[1], json && strcmp(json, "-") == 0);
		run_program(job, seed, failure[1]);
	}
	code = c->pid < 0 ? errno : 0;
	close(failure[1]);
	if (takes_output) {
		close(output[1]);
		(void)fcntl(output[0], F_SETFL, O_NONBLOCK);
	}
	if (!code)
		code = begin_of(failure[0]);
	close(failure[0]);
	c->pipe = output[0];
	c->begin_s = now_s();
	c->end_s = job->options->timeout_s ? c->begin_s + job->options->timeout_s : 0;
	c->is_told = c->is_late = false;
	if (!code)
		return true;
	if (c->pid > 0)
		(void)waitpid(c->pid, NULL, 0);
	c->pid = 0;
	snprintf(error, size, "%s: %s", job->program->path, why_not_started(code));
	return false;
}

/* ---- while it runs ------------------------------------------------------- */

void child_read(struct child *c, struct output *to)
{
	char buffer[4096];
	ssize_t got;

	while (c->pipe >= 0) {
		got = read(c->pipe, buffer, sizeof(buffer));
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0 && errno == EAGAIN)
			return;
		if (got <= 0) {
			close(c->pipe);
			c->pipe = -1;
			return;
		}
		if (!to->text)
			to->text = calloc(1, OUTPUT_BYTES);
		for (ssize_t i = 0; i < got && to->text; i++)
			to->text[to->bytes++ % OUTPUT_BYTES] = buffer[i];
	}
}

void child_end(struct child *c)
{
	(void)kill(-c->pid, c->is_told ? SIGKILL : SIGTERM);
	(void)kill(-c->pid, SIGCONT);
	c->is_told = true;
	c->end_s = now_s() + GRACE_S;
}

/* Ctrl-Z in the program's terminal also stops nibemu. */
static void stop_with(pid_t pid)
{
	const bool has_terminal = isatty(STDIN_FILENO);

	signal(SIGTTOU, SIG_IGN);
	if (has_terminal)
		(void)tcsetpgrp(STDIN_FILENO, getpgrp());
	(void)raise(SIGSTOP);
	if (has_terminal && tcgetpgrp(STDIN_FILENO) == getpgrp())
		(void)tcsetpgrp(STDIN_FILENO, pid);
	signal(SIGTTOU, SIG_DFL);
	(void)kill(-pid, SIGCONT);
}

bool child_has_ended(struct child *c, int *status)
{
	const pid_t got =
	    waitpid(c->pid, status, WNOHANG | (c->pipe < 0 ? WUNTRACED : 0));

	if (got != c->pid)
		return false;
	if (WIFSTOPPED(*status)) {
		stop_with(c->pid);
		return false;
	}
	/* Ends the processes that it has started and not ended. */
	(void)kill(-c->pid, SIGKILL);
	c->pid = 0;
	if (c->pipe < 0 && isatty(STDIN_FILENO)) {
		signal(SIGTTOU, SIG_IGN);
		(void)tcsetpgrp(STDIN_FILENO, getpgrp());
		signal(SIGTTOU, SIG_DFL);
	}
	return true;
}

/* ---- output -------------------------------------------------------------- */

void output_print(FILE *to, const struct output *o, unsigned most)
{
	const uint64_t kept = o->bytes < OUTPUT_BYTES ? o->bytes : OUTPUT_BYTES;
	uint64_t first = o->bytes - kept, begin = o->bytes;
	char last = '\n';

	if (!o->text)
		return;
	/* The last line's end begins no further line. */
	for (unsigned lines = 0; begin > first; begin--) {
		if (o->text[(begin - 1) % OUTPUT_BYTES] == '\n' && begin != o->bytes &&
		    ++lines == most)
			break;
	}
	if (begin > 0)
		fprintf(to, "  (%" PRIu64 " bytes before)\n", begin);
	for (uint64_t i = begin; i < o->bytes; i++) {
		if (last == '\n')
			fputs("  ", to);
		last = o->text[i % OUTPUT_BYTES];
		fputc(last, to);
	}
	if (last != '\n')
		fputc('\n', to);
}
