/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_topology.c - what nib reads of processors, nodes and caches, from trees of files
 * like those of sysfs: two nodes with two caches each, a part of them, and none.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/shared/topology.c"
#include "common/unit.h"

static char root[64];

/* Writes text to root/path, whose folders are made. */
static void put(const char *path, const char *text)
{
	char full[256];
	FILE *file;

	snprintf(full, sizeof(full), "%s/%s", root, path);
	for (char *at = full + strlen(root) + 1; (at = strchr(at, '/')) != NULL; at++) {
		*at = '\0';
		assert_true(mkdir(full, 0700) == 0 || errno == EEXIST);
		*at = '/';
	}
	file = fopen(full, "w");
	assert_non_null(file);
	fputs(text, file);
	fclose(file);
}

/* Processors 0 to 7: L2 of their own, an L3 for each pair. */
static int make_two_nodes(void **state)
{
	static const char *const pairs[] = {"0,4\n", "1,5\n", "2,6\n", "3,7\n"};
	char path[64];

	(void)state;
	strcpy(root, "/tmp/nib-topology-XXXXXX");
	assert_non_null(mkdtemp(root));
	for (int cpu = 0; cpu < 8; cpu++) {
		snprintf(path, sizeof(path), "cpu/cpu%d/cache/index0/size", cpu);
		put(path, "2048K\n");
		snprintf(path, sizeof(path), "cpu/cpu%d/cache/index1/size", cpu);
		put(path, "32768K\n");
		snprintf(path, sizeof(path), "cpu/cpu%d/cache/index1/shared_cpu_list",
			 cpu);
		put(path, pairs[cpu % 4]);
	}
	put("node/online", "0,2\n");
	put("node/node0/cpulist", "0-1,4-5\n");
	put("node/node0/meminfo", "Node 0 MemTotal:       1048576 kB\n"
				  "Node 0 MemFree:             12 kB\n");
	put("node/node2/cpulist", "2-3,6-7\n");
	return 0;
}

static int remove_tree(void **state)
{
	char command[128];

	(void)state;
	snprintf(command, sizeof(command), "rm -r %s", root);
	return system(command); /* NOLINT(cert-env33-c): a folder of ours */
}

static void test_all(void **state)
{
	struct topology t;

	(void)state;
	topology_read(root, "0-7", &t);
	assert_int_equal(t.processors, 8);
	assert_string_equal(t.allowed, "0-7");
	assert_int_equal(t.largest_cache_bytes, INT64_C(32) << 20);
	/* Four caches, each counted once. */
	assert_int_equal(t.all_caches_bytes, INT64_C(128) << 20);
	assert_int_equal(t.nodes_count, 2);
	assert_int_equal(t.nodes[0].id, 0);
	assert_string_equal(t.nodes[0].processors, "0-1,4-5");
	assert_int_equal(t.nodes[0].memory_bytes, INT64_C(1) << 30);
	assert_int_equal(t.nodes[1].id, 2);
	assert_string_equal(t.nodes[1].allowed, "2-3,6-7");
	assert_int_equal(t.nodes[1].memory_bytes, 0);
}

static void test_some(void **state)
{
	struct topology t;

	(void)state;
	topology_read(root, "4,1,5", &t);
	assert_int_equal(t.processors, 3);
	assert_string_equal(t.allowed, "1,4-5");
	/* 1 and 5 share one. */
	assert_int_equal(t.all_caches_bytes, INT64_C(64) << 20);
	assert_string_equal(t.nodes[0].allowed, "1,4-5");
	assert_string_equal(t.nodes[1].allowed, "");
}

/* A processor that sysfs does not describe, and lists that are too long for text. */
static void test_unknown(void **state)
{
	char odd[4096] = "", end[] = ",...";
	struct topology t;

	(void)state;
	topology_read(root, "900", &t);
	assert_int_equal(t.processors, 1);
	assert_int_equal(t.all_caches_bytes, 0);
	topology_read("/nowhere", "0-3", &t);
	assert_int_equal(t.nodes_count, 0);
	assert_int_equal(t.largest_cache_bytes, 0);
	for (int i = 1; i < 600; i += 2)
		snprintf(odd + strlen(odd), sizeof(odd) - strlen(odd), "%d,", i);
	topology_read("/nowhere", odd, &t);
	assert_int_equal(t.processors, 300);
	assert_string_equal(t.allowed + strlen(t.allowed) - strlen(end), end);
}

/* This machine's own: at least the processor that the test runs on. */
static void test_here(void **state)
{
	struct topology t;

	(void)state;
	topology_read(TOPOLOGY_SYSFS, NULL, &t);
	assert_true(t.processors > 0);
	assert_true(t.all_caches_bytes >= t.largest_cache_bytes);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_all),
	    cmocka_unit_test(test_some),
	    cmocka_unit_test(test_unknown),
	    cmocka_unit_test(test_here),
	};

	return cmocka_run_group_tests(tests, make_two_nodes, remove_tree);
}
