/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_features.c - compares the processor's features that the library detects with
 * those that the kernel reports.
 */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "backend/cpu/features.h"
#include "common/unit.h"

static void names_and_backends(void **state)
{
	static const char *const names[CPU_ISA_COUNT] = {
	    "scalar", "avx2", "avxvnni", "avx512bw", "avx512vnni",
	    "amx",    "neon", "neondot", "neoni8mm", "neonbf16"};
	char backend[32];

	for (int i = 0; i < CPU_ISA_COUNT; i++) {
		assert_string_equal(cpu_isa_name((enum cpu_isa)i), names[i]);
		snprintf(backend, sizeof(backend), "cpu-%s", names[i]);
		assert_string_equal(cpu_isa_backend((enum cpu_isa)i), backend);
	}
}

/* Every level of this architecture below the best one exists, too; avxvnni need not. */
static void levels(void **state)
{
	const enum cpu_isa best = cpu_isa_best();

	for (int i = 0; i < CPU_ISA_COUNT; i++) {
		char reason[80] = "x";
		const bool is_own =
		    i == CPU_SCALAR || (best >= CPU_NEON) == (i >= (int)CPU_NEON);
		const bool is_there =
		    cpu_isa_available((enum cpu_isa)i, reason, sizeof(reason));

		if (i != CPU_AVXVNNI || i >= (int)best)
			assert_int_equal(is_there, is_own && i <= (int)best);
		assert_int_equal(reason[0] == '\0', is_there);
		assert_int_equal(cpu_isa_available((enum cpu_isa)i, NULL, 0), is_there);
	}
}

static void caches(void **state)
{
	int64_t l1 = 0, l2 = 0;

	cpu_caches(&l1, &l2);
	assert_true(l1 >= 0 && l2 >= 0);
	if (l1 && l2)
		assert_true(l1 <= l2);
}

/* The first line of /proc/cpuinfo with this name, without spaces around it. */
static bool read_cpuinfo(const char *name, char *value, int bytes)
{
	FILE *file = fopen("/proc/cpuinfo", "r");
	bool found = false;
	char *text;

	while (file && !found && fgets(value, bytes, file)) {
		found = strncmp(value, name, strlen(name)) == 0;
		text = found ? strchr(value, ':') : NULL;
		if (!text)
			continue;
		text += 1 + strspn(text + 1, " ");
		memmove(value, text, strlen(text) + 1);
		for (size_t n = strlen(value);
		     n && (value[n - 1] == ' ' || value[n - 1] == '\n'); n--)
			value[n - 1] = '\0';
	}
	if (file)
		fclose(file);
	return found;
}

/* Only x86-64 has these lines. */
static void says_what_the_kernel_says(void **state)
{
	static const struct {
		const char *name, *kernel;
	} known[] = {
	    {"avx2", " avx2 "},
	    {"fma", " fma "},
	    {"f16c", " f16c "},
	    {"avxvnni", " avx_vnni "},
	    {"avx512f", " avx512f "},
	    {"avx512dq", " avx512dq "},
	    {"avx512bw", " avx512bw "},
	    {"avx512vl", " avx512vl "},
	    {"avx512vbmi", " avx512vbmi "},
	    {"avx512vnni", " avx512_vnni "},
	    {"amx_tile", " amx_tile "},
	    {"amx_bf16", " amx_bf16 "},
	    {"avx512bf16", " avx512_bf16 "},
	};
	char hardware[64], features[128], name[256], want[128] = "";
	static char flags[16384];

#ifndef __x86_64__
	/* Under qemu the file is of the machine around it. */
	printf("skipped: /proc/cpuinfo is read on x86-64 alone\n");
	skip();
#endif
	cpu_describe(hardware, sizeof(hardware), features, sizeof(features));
	if (!read_cpuinfo("model name", name, sizeof(name)) ||
	    !read_cpuinfo("flags", flags + 1, sizeof(flags) - 2)) {
		printf("skipped: /proc/cpuinfo names no processor\n");
		skip();
	}
	assert_string_equal(hardware, name);
	flags[0] = ' ';
	strcat(flags, " ");
	for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++)
		if (strstr(flags, known[i].kernel))
			strcat(strcat(want, want[0] ? " " : ""), known[i].name);
	assert_string_equal(features, want);
}

/* Texts that do not fit are cut. */
static void little_space(void **state)
{
	char hardware[64], features[128];

	cpu_describe(hardware, sizeof(hardware), features, sizeof(features));
	for (size_t n = 1; n < sizeof(features); n++) {
		char name[sizeof(features) + 1], text[sizeof(features) + 1];

		memset(name, 0x55, sizeof(name));
		memset(text, 0x55, sizeof(text));
		cpu_describe(name, n, text, n);
		assert_true(strlen(name) < n && strlen(text) < n);
		assert_memory_equal(name, hardware, n > 1 ? strlen(name) : 0);
		assert_memory_equal(text, features, strlen(text));
		for (size_t i = n; i < sizeof(text); i++) {
			assert_int_equal(name[i], 0x55);
			assert_int_equal(text[i], 0x55);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(names_and_backends),
	    cmocka_unit_test(levels),
	    cmocka_unit_test(caches),
	    cmocka_unit_test(says_what_the_kernel_says),
	    cmocka_unit_test(little_space),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
