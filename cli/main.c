/* SPDX-License-Identifier: Apache-2.0 */
/* main.c - the command nib: finds the command, reads its options, runs it. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"
#include "progress.h"

extern const struct cli_command command_info, command_plan, command_check,
    command_bench, command_report, command_demo, command_quantize, command_inspect,
    command_verify, command_repair, command_run, command_selftest, command_tune,
    command_completion, command_help;

/* In the order of the overview: models first, then measurements. */
const struct cli_command *const cli_commands[] = {
    &command_quantize, &command_inspect,    &command_verify, &command_repair,
    &command_run,      &command_info,	    &command_plan,   &command_check,
    &command_bench,    &command_report,	    &command_demo,   &command_selftest,
    &command_tune,     &command_completion, &command_help,   NULL,
};

const struct cli_command *cli_find_command(const char *name)
{
	for (size_t i = 0; cli_commands[i]; i++)
		if (!strcmp(cli_commands[i]->name, name))
			return cli_commands[i];
	return NULL;
}

/* Whether standard output is a pipe that nobody reads any more. */
static int reader_is_gone(void)
{
	struct pollfd out = {.fd = STDOUT_FILENO, .events = POLLOUT};

	return poll(&out, 1, 0) == 1 && (out.revents & POLLERR);
}

/*
 * A full disk or a closed pipe must not look like success.  The write that
 * failed may be long past, with its errno lost and nothing left to flush.
 */
static int close_output(int code)
{
	int failed = ferror(stdout);

	errno = 0;
	if (fflush(stdout))
		failed = 1;
	if (!failed)
		return code;
	if (errno != EPIPE && !reader_is_gone())
		cli_error(CLI_FAILED, "cannot write to standard output%s%s",
			  errno ? ": " : "", errno ? strerror(errno) : "");
	return CLI_FAILED;
}

int cli_run(const struct cli_command *command, int argc, char **argv)
{
	struct cli_shared *args = calloc(1, command->args_bytes);
	int wants_help, code;

	cli_command_name = command->name;
	if (args)
		args->files = calloc((size_t)argc + 1, sizeof(*args->files));
	if (!args || !args->files) {
		free(args);
		return cli_no_memory("arguments");
	}
	code = cli_parse(command, argc, argv, args, &wants_help);
	progress_set_quiet(args->quiet);
	if (!code && wants_help)
		cli_print_help(command, stdout);
	else if (!code)
		code = command->run(args);
	progress_end();
	code = code ? code : cli_check_memory();
	cli_args_free(command, args);
	free(args->files);
	free(args);
	return code;
}

/*
 * If a standard descriptor is closed, the next file that is opened gets its number,
 * and messages would be written into that file.  Opens /dev/null in its place: for
 * writing as standard input, for reading as the outputs, so that using it fails as
 * before.
 */
static void keep_standard_descriptors(void)
{
	for (int fd = 0; fd <= STDERR_FILENO; fd++)
		if (fcntl(fd, F_GETFD) < 0)
			(void)!open("/dev/null", fd ? O_RDONLY : O_WRONLY);
}

int main(int argc, char **argv)
{
	const char *name = argc > 1 ? argv[1] : NULL;
	const struct cli_command *command = name ? cli_find_command(name) : NULL;
	int code = CLI_OK;

	keep_standard_descriptors();
	cli_catch_signals(command && command->defers_signals);
	cli_watch_memory();
	if (!name) {
		cli_print_overview(stderr);
		return CLI_USAGE;
	}
	if (!strcmp(name, "--version") || !strcmp(name, "-V")) {
		printf("nib %s\n", nib_version());
	} else if (!strcmp(name, "--help") || !strcmp(name, "-h")) {
		cli_print_overview(stdout);
	} else {
		code = command ? cli_run(command, argc - 2, argv + 2)
			       : cli_unknown_command(name);
	}
	return close_output(code);
}
