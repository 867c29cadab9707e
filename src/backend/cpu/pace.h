/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pace.h - decides whether runs of a device use its threads or the caller only.
 *
 * Several threads are slower than one if other programs keep the cores busy: a run
 * waits for a thread that the system has stopped in the middle of a task, for
 * milliseconds.  Each run with threads reports how long it took, and how long the
 * caller would have taken by itself.  The balance of these gains and losses decides:
 * when it is negative, runs use only the caller for a period, then try the threads
 * again.  Gains are kept up to a limit, so that a rare interruption changes nothing if
 * threads gain time otherwise.
 */
#ifndef NIB_CPU_PACE_H
#define NIB_CPU_PACE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Zero-initialised.  Several threads may use it at once. */
struct cpu_pace {
	_Atomic int64_t caller_only_until_ns; /* 0: threads are used */
	_Atomic int64_t caller_only_ns;	      /* the last time on the caller only */
	_Atomic int64_t balance_ns;
};

/* A monotonic clock. */
int64_t cpu_now_ns(void);

/* Whether a run that begins at now_ns uses the caller's thread only. */
bool cpu_pace_uses_caller_only(struct cpu_pace *pace, int64_t now_ns);

/*
 * A run with threads ended at now_ns and took took_ns; the caller would have
 * taken caller_only_ns.
 */
void cpu_pace_report(struct cpu_pace *pace, int64_t now_ns, int64_t took_ns,
		     int64_t caller_only_ns);

#endif
