/* SPDX-License-Identifier: Apache-2.0 */
/* machine.c - what the bench asks the operating system about this machine. */
#include "machine.h"

#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "stats.h"
#include "text.h"
#include "topology.h"

/*
 * From sysfs: sysconf() on glibc 2.36 multiplies the L3 of AMD processors in
 * virtual machines by some number of threads.
 */
static const struct topology *topology(void)
{
	static struct topology here;

	if (!here.processors)
		topology_read(TOPOLOGY_SYSFS, NULL, &here);
	return &here;
}

int64_t machine_cache_bytes(void)
{
	const int64_t bytes = topology()->all_caches_bytes;

	return bytes > 0 ? bytes : INT64_C(32) << 20;
}

int64_t machine_free_bytes(void)
{
	static const char key[] = "MemAvailable:";
	FILE *file = fopen("/proc/meminfo", "r");
	char line[128];
	int64_t kib = 0;

	while (file && !kib && fgets(line, sizeof line, file)) {
		if (!strncmp(line, key, strlen(key)))
			kib = strtoll(line + strlen(key), NULL, 10);
	}
	if (file)
		fclose(file);
	return kib > 0 ? kib * 1024 : INT64_C(4) << 30;
}

void machine_bind_thread(int i)
{
	cpu_set_t allowed, one;

	if (sched_getaffinity(0, sizeof allowed, &allowed) != 0)
		return;
	i %= CPU_COUNT(&allowed);
	for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		if (!CPU_ISSET(cpu, &allowed) || i-- > 0)
			continue;
		CPU_ZERO(&one);
		CPU_SET(cpu, &one);
		/* Refused: the scheduler places the thread, as ever. */
		(void)sched_setaffinity(0, sizeof one, &one);
		return;
	}
}

void machine_describe(char *text, size_t text_bytes)
{
	struct nib_device_info info = {.struct_bytes = sizeof info};
	struct nib_device *device = NULL;
	struct utsname os = {0};
	char l2[CLI_SIZE_TEXT], l3[CLI_SIZE_TEXT];
	double gib =
	    (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE) / (1 << 30);

	if (nib_device_open("cpu", NULL, &device, NULL) == NIB_STATUS_OK)
		(void)nib_device_get_info(device, &info, NULL);
	uname(&os);
	snprintf(text, text_bytes, "%s, %ld processors, L2 %s, L3 %s, %.0f GiB, %s %s",
		 info.hardware[0] ? info.hardware : "unknown processor",
		 sysconf(_SC_NPROCESSORS_ONLN),
		 cli_size_text((double)info.l2_bytes, l2),
		 cli_size_text((double)topology()->largest_cache_bytes, l3), gib,
		 os.sysname, os.release);
	nib_device_close(device);
}

/* Ticks of all processors since the start: false if the system does not say. */
static bool read_ticks(double *busy, double *all)
{
	/* cpu user nice system idle iowait irq softirq steal ... */
	enum { IDLE = 3, WAITING = 4, KINDS = 8 };
	FILE *file = fopen("/proc/stat", "r");
	char line[512] = "", *at = line + strlen("cpu");
	bool is_read =
	    file && fgets(line, sizeof line, file) && !strncmp(line, "cpu ", 4);

	if (file)
		fclose(file);
	*busy = *all = 0;
	for (int i = 0; i < KINDS && is_read; i++) {
		const double ticks = strtod(at, &at);

		*all += ticks;
		if (i != IDLE && i != WAITING)
			*busy += ticks;
	}
	return is_read;
}

/* Seconds of processors that these processes and this one have used. */
static double own_seconds(const pid_t *own, int count)
{
	struct timespec t;
	double seconds = 0;

	for (int i = -1; i < count; i++) {
		clockid_t clock = CLOCK_PROCESS_CPUTIME_ID;

		/* One that has ended uses nothing any more. */
		if ((i < 0 || clock_getcpuclockid(own[i], &clock) == 0) &&
		    clock_gettime(clock, &t) == 0)
			seconds += (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
	}
	return seconds;
}

#define LOAD_WINDOW_US 200000

void machine_measure_load(struct machine_load *load, const pid_t *own, int count)
{
	double busy[2], all[2], own_s, begin_s;

	load->processors = (double)sysconf(_SC_NPROCESSORS_ONLN);
	load->others = -1;
	if (getloadavg(&load->average, 1) != 1)
		load->average = 0;
	bench_settle();
	own_s = own_seconds(own, count);
	begin_s = cli_now_s();
	if (!read_ticks(&busy[0], &all[0]))
		return;
	usleep(LOAD_WINDOW_US);
	if (!read_ticks(&busy[1], &all[1]) || !(all[1] > all[0]))
		return;
	own_s = (own_seconds(own, count) - own_s) / (cli_now_s() - begin_s);
	load->others =
	    fmax(load->processors * (busy[1] - busy[0]) / (all[1] - all[0]) - own_s, 0);
}

void *machine_alloc_pages(size_t n_bytes, bool huge)
{
	void *p = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		return NULL;
	(void)madvise(p, n_bytes, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
	memset(p, 0, n_bytes);
	return p;
}

void *machine_alloc(size_t n_bytes)
{
	return machine_alloc_pages(n_bytes, true);
}

void machine_free(void *p, size_t n_bytes)
{
	if (p)
		munmap(p, n_bytes);
}

enum nib_status machine_no_memory(const char *what, struct nib_error *err)
{
	err->status = NIB_STATUS_OUT_OF_MEMORY;
	snprintf(err->message, sizeof err->message, "no memory for %s", what);
	return NIB_STATUS_OUT_OF_MEMORY;
}
