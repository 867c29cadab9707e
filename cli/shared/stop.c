/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stop.c - what ends a command from outside: signals, input files that get
 * shorter while they are mapped, and memory that runs out where a function has
 * no other way to say so.  The library installs no handlers; the command
 * may, because the process is its own.
 */
#include <jansson.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "message.h"
#include "stop.h"

/* A handler runs on any thread, that of progress for one: so atomic, not
 * sig_atomic_t, which is for the thread that was interrupted. */
static atomic_int interrupted, is_deferred, input_was_cut, memory_failed;

/* write() and _exit() are what a handler may call. */
static void say_interrupted(void)
{
	const char *const parts[] = {"nib ", cli_command_name, ": interrupted\n"};

	for (int i = 0; i < 3; i++)
		if (write(STDERR_FILENO, parts[i], strlen(parts[i])) < 0)
			return;
}

static void on_interrupt(int number)
{
	interrupted = number;
	if (is_deferred)
		return;
	say_interrupted();
	_exit(CLI_SIGNAL + number);
}

/*
 * Puts zeros where a page of a mapped file is gone, because the file got
 * shorter.  The thread that reads goes on, and the command ends at its next
 * cli_stopped(), so that it can remove what it has begun.
 */
static void on_bus_error(int number, siginfo_t *info, void *unused)
{
	const uintptr_t bytes = (uintptr_t)sysconf(_SC_PAGESIZE);
	void *page = (void *)((uintptr_t)info->si_addr / bytes * bytes);

	(void)unused;
	input_was_cut = 1;
	if (info->si_code == BUS_ADRERR &&
	    mmap(page, bytes, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED)
		return;
	signal(number, SIG_DFL); /* the access comes again and ends nib */
}

void cli_catch_signals(int defer)
{
	static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
	struct sigaction action = {.sa_handler = on_interrupt}, old;
	struct sigaction bus = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO};

	is_deferred = defer;
	/* A closed pipe and a file size limit are errors of the write, so that
	 * a command can remove what it has begun. */
	signal(SIGPIPE, SIG_IGN);
	signal(SIGXFSZ, SIG_IGN);
	sigaction(SIGBUS, &bus, NULL);
	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
		/* nohup's SIG_IGN stays as it is. */
		if (!sigaction(numbers[i], NULL, &old) && old.sa_handler != SIG_IGN)
			sigaction(numbers[i], &action, NULL);
}

int cli_must_stop(void)
{
	return interrupted || input_was_cut || memory_failed;
}

void cli_out_of_memory(void)
{
	memory_failed = 1;
}

static void *json_memory(size_t bytes)
{
	void *memory = malloc(bytes);

	if (!memory)
		cli_out_of_memory();
	return memory;
}

void cli_watch_memory(void)
{
	json_set_alloc_funcs(json_memory, free);
}

int cli_check_memory(void)
{
	return memory_failed ? cli_error(CLI_FAILED, "not enough memory") : CLI_OK;
}

int cli_stopped(void)
{
	if (interrupted)
		return cli_error((enum cli_exit)(CLI_SIGNAL + interrupted),
				 "interrupted; nothing was written");
	if (input_was_cut)
		return cli_error(CLI_INPUT,
				 "an input file got shorter while it was read");
	return cli_check_memory();
}
