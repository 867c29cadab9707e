/* SPDX-License-Identifier: Apache-2.0 */
/*
 * topology.h - processors, memory nodes and caches, as sysfs describes them for the
 * processors that this process may use.
 */
#ifndef NIB_TOPOLOGY_H
#define NIB_TOPOLOGY_H

#include <stdint.h>

#define TOPOLOGY_SYSFS	   "/sys/devices/system"
#define TOPOLOGY_MAX_NODES 64
#define TOPOLOGY_TEXT	   160

struct topology_node {
	int id;
	/* "0-15,32": all of the node, and those that the process may use ("": none). */
	char processors[TOPOLOGY_TEXT], allowed[TOPOLOGY_TEXT];
	int64_t memory_bytes; /* 0: not known */
};

struct topology {
	int processors;		     /* that the process may use */
	char allowed[TOPOLOGY_TEXT]; /* "0-3" */
	int64_t largest_cache_bytes; /* of one processor; 0: not known */
	int64_t all_caches_bytes;    /* the largest caches of all of them, together */
	int nodes_count;	     /* 0: not known */
	struct topology_node nodes[TOPOLOGY_MAX_NODES]; /* by id */
};

/*
 * Reads the topology below sysfs (TOPOLOGY_SYSFS) for the processors of a list such as
 * "0-3,8"; NULL: those that this process may use (sched_getaffinity()).
 */
void topology_read(const char *sysfs, const char *processors, struct topology *t);

#endif
