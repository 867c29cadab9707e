/* SPDX-License-Identifier: Apache-2.0 */
/*
 * features.c - the names of instruction sets and the sizes of caches, for every
 * processor, and the description of processors that are not x86 (x86/features_x86.c).
 */
#include "features.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#if defined(__APPLE__)
#include <sys/sysctl.h>
#endif
#include <sys/utsname.h>
#include <unistd.h>

static const char *const isa_names[CPU_ISA_COUNT] = {
    "scalar", "avx2", "avxvnni", "avx512bw", "avx512vnni",
    "amx",    "neon", "neondot", "neoni8mm", "neonbf16"};
static const char *const isa_backends[CPU_ISA_COUNT] = {
    "cpu-scalar", "cpu-avx2", "cpu-avxvnni", "cpu-avx512bw", "cpu-avx512vnni",
    "cpu-amx",	  "cpu-neon", "cpu-neondot", "cpu-neoni8mm", "cpu-neonbf16"};

const char *cpu_isa_name(enum cpu_isa isa)
{
	return isa_names[isa];
}

const char *cpu_isa_backend(enum cpu_isa isa)
{
	return isa_backends[isa];
}

enum cpu_isa cpu_isa_best(void)
{
	enum cpu_isa isa = CPU_ISA_COUNT - 1;

	while (isa > CPU_SCALAR && !cpu_isa_available(isa, NULL, 0))
		isa--;
	return isa;
}

/* ---- caches ------------------------------------------------------------- */

/*
 * Reads a file below cpu0's index-th cache, without stdio, which allocates;
 * false: there is none.
 */
static bool read_cache(int index, const char *file, char text[32])
{
	char path[96];
	ssize_t n = -1;
	int fd;

	snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu0/cache/index%d/%s",
		 index, file);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd >= 0) {
		n = read(fd, text, 31);
		close(fd);
	}
	text[n > 0 ? n : 0] = '\0';
	return n > 0;
}

/* Linux also lists caches if sysconf() knows none, as on Arm. */
static int64_t listed_cache(long level)
{
	char text[32], *unit;
	int64_t size;

	for (int i = 0; read_cache(i, "type", text); i++) {
		if (text[0] == 'I' || !read_cache(i, "level", text) ||
		    strtol(text, NULL, 10) != level || !read_cache(i, "size", text))
			continue;
		size = strtol(text, &unit, 10);
		return *unit == 'K' ? size << 10 : *unit == 'M' ? size << 20 : size;
	}
	return 0;
}

void cpu_caches(int64_t *l1_bytes, int64_t *l2_bytes)
{
	long l1 = 0, l2 = 0;

#ifdef _SC_LEVEL1_DCACHE_SIZE
	l1 = sysconf(_SC_LEVEL1_DCACHE_SIZE);
	l2 = sysconf(_SC_LEVEL2_CACHE_SIZE);
#endif
#if defined(__APPLE__)
	/* Those of the fast cores. */
	size_t bytes = sizeof(l1);

	sysctlbyname("hw.perflevel0.l1dcachesize", &l1, &bytes, NULL, 0);
	bytes = sizeof(l2);
	sysctlbyname("hw.perflevel0.l2cachesize", &l2, &bytes, NULL, 0);
#endif
	*l1_bytes = l1 > 0 ? l1 : listed_cache(1);
	*l2_bytes = l2 > 0 ? l2 : listed_cache(2);
}

/* ---- other processors --------------------------------------------------- */

#if !defined(__x86_64__) && !defined(__aarch64__)
bool cpu_isa_available(enum cpu_isa isa, char *reason, size_t reason_bytes)
{
	if (reason_bytes)
		snprintf(reason, reason_bytes, "%s",
			 isa == CPU_SCALAR ? ""
			 : isa >= CPU_NEON ? "needs a 64-bit Arm processor"
					   : "needs an x86-64 processor");
	return isa == CPU_SCALAR;
}

bool cpu_has_bf16(void)
{
	return false;
}

bool cpu_prefers_bf16(void)
{
	return false;
}

/* Linux has no names of Arm processors, only numbers: the architecture's name
 * is used instead. */
void cpu_describe(char *hardware, size_t hardware_bytes, char *features,
		  size_t features_bytes)
{
	struct utsname names;

	snprintf(hardware, hardware_bytes, "%s",
		 uname(&names) == 0 ? names.machine : "unknown");
	if (features_bytes)
		features[0] = '\0';
}
#endif
