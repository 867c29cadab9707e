/* SPDX-License-Identifier: Apache-2.0 */
/* child.c - runs a program and keeps what it prints: see child.h. */
#include "child.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "message.h"
#include "stop.h"
#include "text.h"

extern char **environ;

/* Starts it; 0 or an errno. */
static int spawn(const char *const argv[], int out, int err, pid_t *pid)
{
	posix_spawn_file_actions_t files;
	int error = posix_spawn_file_actions_init(&files);

	if (error)
		return error;
	error = posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null",
						 O_RDONLY, 0);
	if (!error)
		error = posix_spawn_file_actions_adddup2(&files, out, STDOUT_FILENO);
	if (!error)
		error = posix_spawn_file_actions_adddup2(&files, err, STDERR_FILENO);
	if (!error)
		/* posix_spawnp() does not write to the arguments. */
		error =
		    posix_spawnp(pid, argv[0], &files, NULL, (char **)argv, environ);
	posix_spawn_file_actions_destroy(&files);
	return error;
}

static pid_t wait_end(pid_t pid, int *status)
{
	pid_t ended;

	do
		ended = waitpid(pid, status, 0);
	while (ended < 0 && errno == EINTR);
	return ended;
}

/* Waits until it ends, or kills it. */
static void wait_for(pid_t pid, double limit_s, struct child *child)
{
	const struct timespec pause = {.tv_nsec = 10000000};
	const double begin_s = cli_now_s();
	int status = 0;
	pid_t ended = 0;

	while (ended == 0) {
		ended = waitpid(pid, &status, WNOHANG);
		child->seconds = cli_now_s() - begin_s;
		if (ended)
			break;
		child->timed_out = child->seconds > limit_s;
		if (child->timed_out || cli_must_stop()) {
			kill(pid, SIGKILL);
			ended = wait_end(pid, &status);
		} else {
			nanosleep(&pause, NULL);
		}
	}
	child->exit_code = ended == pid && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
	child->signal = ended == pid && WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

/* The text of a file, cut to CHILD_BYTES; NULL with errno. */
static char *read_text(FILE *file)
{
	long bytes;
	char *text;

	if (fseek(file, 0, SEEK_END) || (bytes = ftell(file)) < 0 ||
	    fseek(file, 0, SEEK_SET))
		return NULL;
	bytes = bytes < CHILD_BYTES ? bytes : CHILD_BYTES;
	text = malloc((size_t)bytes + 1);
	if (text)
		text[fread(text, 1, (size_t)bytes, file)] = '\0';
	return text;
}

static int run(const char *const argv[], double limit_s, FILE *out, FILE *err,
	       struct child *child)
{
	pid_t pid = 0;

	errno = spawn(argv, fileno(out), fileno(err), &pid);
	if (errno)
		return CLI_FAILED;
	wait_for(pid, limit_s, child);
	child->out = read_text(out);
	child->err = read_text(err);
	return child->out && child->err ? CLI_OK : CLI_FAILED;
}

int child_run(const char *const argv[], double limit_s, struct child *child)
{
	FILE *out = tmpfile(), *err = tmpfile();
	int code = CLI_FAILED, error;

	*child = (struct child){0};
	/* The child has copies of them. */
	if (out && err && !fcntl(fileno(out), F_SETFD, FD_CLOEXEC) &&
	    !fcntl(fileno(err), F_SETFD, FD_CLOEXEC))
		code = run(argv, limit_s, out, err, child);
	error = errno;
	if (out)
		fclose(out);
	if (err)
		fclose(err);
	errno = error;
	return code;
}

void child_free(struct child *child)
{
	free(child->out);
	free(child->err);
	*child = (struct child){0};
}
