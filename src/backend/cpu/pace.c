/* SPDX-License-Identifier: Apache-2.0 */
/* pace.c - whether threads are worth their while: see pace.h. */
#include "pace.h"

#include <time.h>

/*
 * A debt of one time slice of Linux (3 ms on two cores) ends the use of threads.
 * After a time on the caller only, half of it does: a run of a few milliseconds
 * is what the next try costs at most.
 */
#define MAX_DEBT_NS INT64_C(2000000)
/* Times on the caller only double from the first to the last, so that tries
 * cost less than 1 % where the cores stay busy. */
#define FIRST_ALONE_NS INT64_C(30000000)
#define LAST_ALONE_NS  INT64_C(480000000)
/* Gains after which the cores count as free again. */
#define RECOVERED_NS INT64_C(20000000)

int64_t cpu_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

bool cpu_pace_is_alone(struct cpu_pace *pace, int64_t now_ns)
{
	const int64_t until =
	    atomic_load_explicit(&pace->alone_until_ns, memory_order_relaxed);

	if (until == 0)
		return false;
	if (now_ns < until)
		return true;
	atomic_store(&pace->debt_ns, MAX_DEBT_NS / 2);
	atomic_store(&pace->alone_until_ns, 0);
	return false;
}

static void go_alone(struct cpu_pace *pace, int64_t now_ns)
{
	int64_t ns = 2 * atomic_load(&pace->alone_ns);

	if (ns < FIRST_ALONE_NS)
		ns = FIRST_ALONE_NS;
	if (ns > LAST_ALONE_NS)
		ns = LAST_ALONE_NS;
	atomic_store(&pace->alone_ns, ns);
	atomic_store(&pace->gain_ns, 0);
	atomic_store(&pace->alone_until_ns, now_ns + ns);
}

void cpu_pace_report(struct cpu_pace *pace, int64_t now_ns, int64_t took_ns,
		     int64_t alone_ns)
{
	const int64_t loss = took_ns - alone_ns;
	const int64_t debt = atomic_load(&pace->debt_ns) + loss;

	if (debt > MAX_DEBT_NS) {
		go_alone(pace, now_ns);
		return;
	}
	atomic_store(&pace->debt_ns, debt > 0 ? debt : 0);
	if (debt > 0)
		return;
	if (atomic_fetch_sub(&pace->gain_ns, loss) - loss > RECOVERED_NS)
		atomic_store(&pace->alone_ns, 0);
}
