/* SPDX-License-Identifier: Apache-2.0 */
/* topology.c - processors, memory nodes and caches: see topology.h. */
#include "topology.h"

#include <sched.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Caches of a processor: index0, index1, ... */
#define MAX_CACHES 8

/* ---- lists of processors ------------------------------------------------- */

/* "0-3,8" as a set; ends at the first character that is not of a list. */
static void parse_list(const char *list, cpu_set_t *set)
{
	CPU_ZERO(set);
	while (*list >= '0' && *list <= '9') {
		char *end;
		long first = strtol(list, &end, 10), last = first;

		if (*end == '-')
			last = strtol(end + 1, &end, 10);
		for (long i = first; i <= last && i < CPU_SETSIZE; i++)
			CPU_SET((size_t)i, set);
		list = end + (*end == ',');
	}
}

/* The list of a set; one that is too long ends with "...". */
static void print_list(const cpu_set_t *set, char text[TOPOLOGY_TEXT])
{
	size_t used = 0;

	*text = '\0';
	for (size_t i = 0; i < CPU_SETSIZE; i++) {
		size_t last = i;

		if (!CPU_ISSET(i, set))
			continue;
		while (last + 1 < CPU_SETSIZE && CPU_ISSET(last + 1, set))
			last++;
		if (used + 24 > TOPOLOGY_TEXT) {
			snprintf(text + used, TOPOLOGY_TEXT - used, ",...");
			return;
		}
		used += (size_t)snprintf(text + used, TOPOLOGY_TEXT - used,
					 last > i ? "%s%zu-%zu" : "%s%zu",
					 used ? "," : "", i, last);
		i = last;
	}
}

/* ---- files --------------------------------------------------------------- */

/* The first line of a file that contains word, from the word's end on; false: none. */
__attribute__((format(printf, 4, 5))) static bool
read_line(const char *word, char *line, int bytes, const char *path_format, ...)
{
	char path[512];
	bool found = false;
	va_list args;
	FILE *file;

	va_start(args, path_format);
	vsnprintf(path, sizeof(path), path_format, args);
	va_end(args);
	file = fopen(path, "r");
	while (file && !found && fgets(line, bytes, file)) {
		const char *at = strstr(line, word);

		found = at != NULL;
		if (found)
			memmove(line, at + strlen(word), strlen(at + strlen(word)) + 1);
	}
	if (file)
		fclose(file);
	return found;
}

/* ---- caches and nodes ---------------------------------------------------- */

/* The largest cache of a processor, and the processors that share it. */
static int64_t largest_cache(const char *sysfs, size_t cpu, cpu_set_t *shared)
{
	int64_t largest = 0;
	char line[1024];

	CPU_ZERO(shared);
	CPU_SET(cpu, shared);
	for (int i = 0; i < MAX_CACHES; i++) {
		int64_t bytes;

		/* "32768K" */
		if (!read_line("", line, sizeof(line),
			       "%s/cpu/cpu%zu/cache/index%d/size", sysfs, cpu, i))
			break;
		bytes = strtoll(line, NULL, 10) * 1024;
		if (bytes <= largest)
			continue;
		largest = bytes;
		if (read_line("", line, sizeof(line),
			      "%s/cpu/cpu%zu/cache/index%d/shared_cpu_list", sysfs, cpu,
			      i))
			parse_list(line, shared);
	}
	return largest;
}

static void read_caches(const char *sysfs, const cpu_set_t *allowed, struct topology *t)
{
	cpu_set_t counted, shared;

	CPU_ZERO(&counted);
	for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		int64_t bytes;

		if (!CPU_ISSET(cpu, allowed) || CPU_ISSET(cpu, &counted))
			continue;
		bytes = largest_cache(sysfs, cpu, &shared);
		if (bytes > t->largest_cache_bytes)
			t->largest_cache_bytes = bytes;
		t->all_caches_bytes += bytes;
		CPU_OR(&counted, &counted, &shared);
	}
}

static void read_nodes(const char *sysfs, const cpu_set_t *allowed, struct topology *t)
{
	cpu_set_t online, of_node, both;
	char line[1024];

	if (!read_line("", line, sizeof(line), "%s/node/online", sysfs))
		return;
	parse_list(line, &online);
	for (int id = 0; id < CPU_SETSIZE && t->nodes_count < TOPOLOGY_MAX_NODES;
	     id++) {
		struct topology_node *node = &t->nodes[t->nodes_count];

		if (!CPU_ISSET((size_t)id, &online) ||
		    !read_line("", line, sizeof(line), "%s/node/node%d/cpulist", sysfs,
			       id))
			continue;
		t->nodes_count++;
		node->id = id;
		parse_list(line, &of_node);
		CPU_AND(&both, &of_node, allowed);
		print_list(&of_node, node->processors);
		print_list(&both, node->allowed);
		if (read_line("MemTotal:", line, sizeof(line), "%s/node/node%d/meminfo",
			      sysfs, id))
			node->memory_bytes = strtoll(line, NULL, 10) * 1024;
	}
}

void topology_read(const char *sysfs, const char *processors, struct topology *t)
{
	cpu_set_t allowed;

	memset(t, 0, sizeof(*t));
	if (processors)
		parse_list(processors, &allowed);
	else if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0)
		CPU_ZERO(&allowed);
	t->processors = CPU_COUNT(&allowed);
	print_list(&allowed, t->allowed);
	read_caches(sysfs, &allowed, t);
	read_nodes(sysfs, &allowed, t);
}
