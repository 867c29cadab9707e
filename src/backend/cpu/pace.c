/* SPDX-License-Identifier: Apache-2.0 */
/* pace.c - whether threads gain time; see pace.h. */
#include "pace.h"

#include <time.h>

/*
 * Threads are no longer used when the balance is below this, which is less than a time
 * slice of Linux (3 ms on two cores).  After a period on the caller only the balance
 * begins at half of it, so that the next try costs at most a run of a few milliseconds.
 */
#define LEAST_NS INT64_C(-2000000)
/* The most gains that are kept; at this limit the cores count as free. */
#define MOST_NS INT64_C(20000000)
/* The periods on the caller only double from the first to the last, so that tries cost
 * less than 1 % if the cores stay busy. */
#define FIRST_CALLER_ONLY_NS INT64_C(30000000)
#define LAST_CALLER_ONLY_NS  INT64_C(480000000)

int64_t cpu_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

bool cpu_pace_uses_caller_only(struct cpu_pace *pace, int64_t now_ns)
{
	const int64_t until =
	    atomic_load_explicit(&pace->caller_only_until_ns, memory_order_relaxed);

	if (until == 0)
		return false;
	if (now_ns < until)
		return true;
	atomic_store(&pace->balance_ns, LEAST_NS / 2);
	atomic_store(&pace->caller_only_until_ns, 0);
	return false;
}

static void use_caller_only(struct cpu_pace *pace, int64_t now_ns)
{
	int64_t ns = 2 * atomic_load(&pace->caller_only_ns);

	if (ns < FIRST_CALLER_ONLY_NS)
		ns = FIRST_CALLER_ONLY_NS;
	if (ns > LAST_CALLER_ONLY_NS)
		ns = LAST_CALLER_ONLY_NS;
	atomic_store(&pace->caller_only_ns, ns);
	atomic_store(&pace->caller_only_until_ns, now_ns + ns);
}

void cpu_pace_report(struct cpu_pace *pace, int64_t now_ns, int64_t took_ns,
		     int64_t caller_only_ns)
{
	const int64_t balance =
	    atomic_load(&pace->balance_ns) + caller_only_ns - took_ns;

	if (balance < LEAST_NS)
		use_caller_only(pace, now_ns);
	atomic_store(&pace->balance_ns, balance < MOST_NS ? balance : MOST_NS);
	if (balance >= MOST_NS)
		atomic_store(&pace->caller_only_ns, 0);
}
