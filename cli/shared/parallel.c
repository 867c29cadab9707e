/* SPDX-License-Identifier: Apache-2.0 */
/*
 * parallel.c - the command's own loops on several threads: see parallel.h.
 *
 * Threads are started for a loop and end with it: 30 us each, for loops of
 * milliseconds.  OpenMP's runtime would end the process where no thread can be
 * started, as in a container with a limit of processes.
 */
#include "parallel.h"

#include <pthread.h>
#include <signal.h>
#include <stddef.h>

#include "nibblas.h"

#define MAX_THREADS 64

static int loop_threads;

void cli_set_loop_threads(int threads)
{
	loop_threads = threads;
}

static int default_threads(void)
{
	struct nib_device_info info = {.struct_bytes = sizeof(info)};
	struct nib_device *cpu;

	if (nib_device_open("cpu", NULL, &cpu, NULL))
		return 1;
	if (nib_device_get_info(cpu, &info, NULL))
		info.threads = 1;
	nib_device_close(cpu);
	return info.threads;
}

struct range {
	void (*body)(void *arg, int64_t begin, int64_t end);
	void *arg;
	int64_t begin, end;
	pthread_t thread;
};

static void *run(void *arg)
{
	const struct range *range = arg;

	range->body(range->arg, range->begin, range->end);
	return NULL;
}

/* Signals of the terminal are the first thread's; a fault is its own thread's. */
static void block_signals(sigset_t *saved)
{
	static const int faults[] = {SIGBUS, SIGSEGV, SIGFPE, SIGILL, SIGTRAP};
	sigset_t all;

	sigfillset(&all);
	for (size_t i = 0; i < sizeof(faults) / sizeof(*faults); i++)
		sigdelset(&all, faults[i]);
	pthread_sigmask(SIG_SETMASK, &all, saved);
}

static int threads_for(int64_t count, int64_t least)
{
	int threads;

	if (count < 2 * least)
		return 1;
	if (!loop_threads)
		loop_threads = default_threads();
	threads = loop_threads < MAX_THREADS ? loop_threads : MAX_THREADS;
	return count / least < threads ? (int)(count / least) : threads;
}

void cli_parallel(int64_t count, int64_t least,
		  void (*body)(void *arg, int64_t begin, int64_t end), void *arg)
{
	const int threads = threads_for(count, least);
	struct range ranges[MAX_THREADS];
	sigset_t saved;
	int started = 1;

	if (threads <= 1) {
		body(arg, 0, count);
		return;
	}
	block_signals(&saved);
	for (int i = 0; i < threads; i++)
		ranges[i] = (struct range){
		    .body = body,
		    .arg = arg,
		    .begin = count / threads * i,
		    .end = i + 1 < threads ? count / threads * (i + 1) : count};
	while (started < threads && pthread_create(&ranges[started].thread, NULL, run,
						   &ranges[started]) == 0)
		started++;
	pthread_sigmask(SIG_SETMASK, &saved, NULL);
	run(&ranges[0]);
	for (int i = started; i < threads; i++)
		run(&ranges[i]);
	for (int i = 1; i < started; i++)
		pthread_join(ranges[i].thread, NULL);
}
