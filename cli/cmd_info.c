/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_info.c - nib info: this machine as nibblas sees it.  What there is to say
 * is gathered as one JSON object, which the table for people is made from.
 */
#include <jansson.h>
#ifdef __GLIBC__
#include <gnu/libc-version.h>
#endif
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "cli.h"
#include "table.h"
#include "topology.h"
#include "tuning.h"

struct info_args {
	struct cli_shared shared;
	int report;
};

extern char **environ;

/* ---- what the system says ------------------------------------------------ */

/*
 * The line of a file of the system that begins with key, after it; "" if there
 * is none.
 */
static void read_line(const char *path, const char *key, char *line, int bytes)
{
	FILE *file = fopen(path, "r");
	size_t n = strlen(key);

	while (file && fgets(line, bytes, file))
		if (!strncmp(line, key, n)) {
			memmove(line, line + n, strlen(line + n) + 1);
			fclose(file);
			return;
		}
	*line = '\0';
	if (file)
		fclose(file);
}

static double read_meminfo(const char *key)
{
	char line[256];

	read_line("/proc/meminfo", key, line, sizeof(line));
	return strtod(line, NULL) * 1024;
}

/* The word in brackets of "always [madvise] never". */
static const char *read_huge_pages(char line[256])
{
	char *next = NULL, *word;

	read_line("/sys/kernel/mm/transparent_hugepage/enabled", "", line, 256);
	if (!strchr(line, '['))
		return "unknown";
	word = strtok_r(strchr(line, '[') + 1, "]", &next);
	return word ? word : "unknown";
}

/*
 * The release of NVIDIA's kernel module, "580.82.07": the first word of its
 * line that is a number; or NULL.
 */
static const char *read_driver(char line[256])
{
	char *next = NULL, *word;

	read_line("/proc/driver/nvidia/version", "", line, 256);
	word = strtok_r(line, " \t\n", &next);
	while (word && (*word < '0' || *word > '9'))
		word = strtok_r(NULL, " \t\n", &next);
	return word;
}

/* ---- gathering ----------------------------------------------------------- */

static void add_text(json_t *about, const char *key, const char *text)
{
	json_object_set_new(about, key, json_string(text));
}

/* Nothing for a number that the system does not say. */
static void add_number(json_t *about, const char *key, double n)
{
	if (n > 0)
		json_object_set_new(about, key, json_integer((json_int_t)n));
}

static void add_version(json_t *about, const char *key, int major, int minor)
{
	json_object_set_new(about, key, json_sprintf("%d.%d", major, minor));
}

static void add_machine(json_t *about, const struct nib_device_info *info)
{
	char line[256];
	const char *driver;
	struct utsname os;

	add_text(about, "version", nib_version());
	add_text(about, "processor", info->hardware);
	add_text(about, "features", info->features);
	add_text(about, "backend", info->backend);
	add_number(about, "threads", info->threads);
	add_number(about, "l1_data_bytes", (double)info->l1_bytes);
	add_number(about, "l2_bytes", (double)info->l2_bytes);
	add_number(about, "l3_bytes", (double)sysconf(_SC_LEVEL3_CACHE_SIZE));
	add_number(about, "memory_bytes", read_meminfo("MemTotal:"));
	add_number(about, "memory_available_bytes", read_meminfo("MemAvailable:"));
	add_text(about, "huge_pages", read_huge_pages(line));
	if (!uname(&os))
		json_object_set_new(about, "system",
				    json_sprintf("%s %s", os.sysname, os.release));
	driver = read_driver(line);
	if (driver)
		add_text(about, "nvidia_driver", driver);
}

/* Variables that change what nibblas does, and no others. */
static json_t *read_environment(void)
{
	static const char *const prefixes[] = {
	    "NIB", "OMP_", "GGML_BACKEND_PATH=", "CUDA_VISIBLE_DEVICES="};
	json_t *found = json_object();

	for (char **one = environ; *one; one++) {
		const char *value = strchr(*one, '=');
		size_t i = 0, count = sizeof(prefixes) / sizeof(*prefixes);
		char name[128];

		while (i < count && strncmp(*one, prefixes[i], strlen(prefixes[i])))
			i++;
		if (i == count || !value || value - *one >= (long)sizeof(name))
			continue;
		snprintf(name, sizeof(name), "%.*s", (int)(value - *one), *one);
		if (json_object_set_new(found, name, json_string(value + 1)))
			json_object_set_new(found, name, json_string("(not UTF-8)"));
	}
	return found;
}

/* What an issue needs besides: the build, the system's names, and variables. */
static void add_report(json_t *about)
{
	char line[256], *name;

#ifdef __clang__
	add_text(about, "compiler", __VERSION__);
#else
	add_text(about, "compiler", "gcc " __VERSION__);
#endif
#ifdef __GLIBC__
	json_object_set_new(about, "libc",
			    json_sprintf("glibc %s, built for %d.%d",
					 gnu_get_libc_version(), __GLIBC__,
					 __GLIBC_MINOR__));
#endif
	/* PRETTY_NAME="Debian GNU/Linux 12 (bookworm)" */
	read_line("/etc/os-release", "PRETTY_NAME=", line, sizeof(line));
	name = line + strspn(line, "\"'");
	name[strcspn(name, "\"'\n")] = '\0';
	add_text(about, "distribution", name);
	json_object_set_new(about, "environment", read_environment());
}

/* Where threads may run, and the memory that each node of the machine has. */
static void add_nodes(json_t *about)
{
	json_t *nodes = json_array();
	struct topology t;

	topology_read(TOPOLOGY_SYSFS, NULL, &t);
	add_text(about, "affinity", t.allowed);
	for (int i = 0; i < t.nodes_count; i++) {
		json_t *entry = json_object();

		json_object_set_new(entry, "node", json_integer(t.nodes[i].id));
		add_text(entry, "processors", t.nodes[i].processors);
		add_text(entry, "allowed", t.nodes[i].allowed);
		add_number(entry, "memory_bytes", (double)t.nodes[i].memory_bytes);
		json_array_append_new(nodes, entry);
	}
	json_object_set_new(about, "numa_nodes", nodes);
}

static void add_backends(json_t *about)
{
	json_t *backends = json_array();

	for (int i = 0; i < nib_backend_count(); i++) {
		struct nib_backend_info info = {.struct_bytes = sizeof(info)};
		json_t *entry;

		if (nib_backend_get_info(i, &info, NULL))
			continue;
		entry = json_object();
		add_text(entry, "backend", info.backend);
		json_object_set_new(entry, "open", json_boolean(info.is_open));
		add_text(entry, "reason", info.reason);
		json_array_append_new(backends, entry);
	}
	json_object_set_new(about, "backends", backends);
}

static void add_gpu(json_t *entry, struct nib_device *device)
{
	struct nib_device_info info = {.struct_bytes = sizeof(info)};
	struct tuning tuning;

	nib_device_get_info(device, &info, NULL);
	add_text(entry, "hardware", info.hardware);
	add_text(entry, "backend", info.backend);
	add_text(entry, "features", info.features);
	add_number(entry, "memory_bytes", (double)info.memory_bytes);
	add_number(entry, "l2_bytes", (double)info.l2_bytes);
	add_version(entry, "cuda_version", info.driver_version / 1000,
		    info.driver_version % 1000 / 10);
	add_version(entry, "compute_capability", info.compute_capability / 10,
		    info.compute_capability % 10);
	add_number(entry, "multiprocessors", info.multiprocessors);
	add_number(entry, "clock_khz", info.clock_khz);
	add_number(entry, "memory_clock_khz", info.memory_clock_khz);
	add_number(entry, "memory_bus_bits", info.memory_bus_bits);
	/* Which costs the planner has (nib tune). */
	tuning_load(device, &tuning);
	json_object_set_new(entry, "tuned", json_boolean(!*tuning.reason));
	add_text(entry, "tuning_file", tuning.path);
	add_text(entry, "untuned_reason", tuning.reason);
}

/* Every GPU that the driver has, usable or not. */
static void add_gpus(json_t *about)
{
	json_t *gpus = json_array();

	for (int i = 0;; i++) {
		struct nib_device *device;
		struct nib_error err;
		enum nib_status status;
		json_t *entry;
		char name[16];

		snprintf(name, sizeof(name), "cuda:%d", i);
		status = nib_device_open(name, NULL, &device, &err);
		if (status == NIB_STATUS_NO_DEVICE)
			break;
		entry = json_object();
		add_text(entry, "name", name);
		add_text(entry, "reason", status ? err.message : "");
		if (!status) {
			add_gpu(entry, device);
			nib_device_close(device);
		}
		json_array_append_new(gpus, entry);
	}
	json_object_set_new(about, "gpus", gpus);
}

/* ---- for people ---------------------------------------------------------- */

static const char *text_of(const json_t *object, const char *key)
{
	const char *text = json_string_value(json_object_get(object, key));

	return text ? text : "";
}

static double number_of(const json_t *object, const char *key)
{
	return json_number_value(json_object_get(object, key));
}

static void put_row(struct table *table, const char *what, const char *value)
{
	table_text(table, "what", what);
	table_text(table, "value", value);
	table_end_row(table);
}

/* "memory_available_bytes", in bytes: "memory available", in GiB. */
static void put_value(struct table *table, const char *key, const json_t *value)
{
	char label[64], text[CLI_SIZE_TEXT];
	char *unit;

	snprintf(label, sizeof(label), "%s", key);
	unit = strstr(label, "_bytes");
	if (unit)
		*unit = '\0';
	for (char *c = label; *c; c++)
		*c = *c == '_' ? ' ' : *c;
	if (unit)
		cli_size_text(json_number_value(value), text);
	else
		snprintf(text, sizeof(text), "%.0f", json_number_value(value));
	put_row(table, label, json_is_string(value) ? json_string_value(value) : text);
}

static void put_node(struct table *table, const json_t *node)
{
	const char *allowed = text_of(node, "allowed");
	char label[32], size[CLI_SIZE_TEXT], text[512];

	snprintf(label, sizeof(label), "NUMA node %.0f", number_of(node, "node"));
	snprintf(text, sizeof(text), "processors %s, allowed %s, memory %s",
		 text_of(node, "processors"), *allowed ? allowed : "none",
		 cli_size_text(number_of(node, "memory_bytes"), size));
	put_row(table, label, text);
}

static void put_gpu(struct table *table, const json_t *gpu)
{
	const char *reason = text_of(gpu, "reason");
	const char *file = text_of(gpu, "tuning_file");
	char text[512], size[CLI_SIZE_TEXT], l2[CLI_SIZE_TEXT];

	if (*reason)
		snprintf(text, sizeof(text), "closed, %s", reason);
	else
		snprintf(text, sizeof(text),
			 "%s, %.0f multiprocessors at up to %.2f GHz, L2 %s, "
			 "memory %s at %.2f GHz, %s",
			 text_of(gpu, "hardware"), number_of(gpu, "multiprocessors"),
			 number_of(gpu, "clock_khz") * 1e-6,
			 cli_size_text(number_of(gpu, "l2_bytes"), l2),
			 cli_size_text(number_of(gpu, "memory_bytes"), size),
			 number_of(gpu, "memory_clock_khz") * 1e-6,
			 text_of(gpu, "features"));
	put_row(table, text_of(gpu, "name"), text);
	if (!json_object_get(gpu, "tuned"))
		return;
	if (json_is_true(json_object_get(gpu, "tuned")))
		snprintf(text, sizeof(text), "as measured by nib tune, %.400s", file);
	else
		snprintf(text, sizeof(text), "built in, %s%s%.300s",
			 text_of(gpu, "untuned_reason"), *file ? ": " : "", file);
	put_row(table, "  tile costs", text);
}

static int print_table(json_t *about, enum table_format format)
{
	static const struct table_column columns[] = {
	    {.key = "what", .title = "what"},
	    {.key = "value", .title = "value"},
	    {0},
	};
	struct table *table = table_new(columns, format, 0);
	const char *key;
	json_t *value;
	size_t i;

	json_object_foreach(about, key, value)
	{
		if (json_is_array(value) || json_is_object(value))
			continue;
		if (format != TABLE_FORMAT_CSV) {
			put_value(table, key, value);
			continue;
		}
		/* Programs get numbers, under the keys of JSON. */
		table_text(table, "what", key);
		table_json(table, "value", json_incref(value));
		table_end_row(table);
	}
	json_array_foreach(json_object_get(about, "numa_nodes"), i, value)
	    put_node(table, value);
	json_array_foreach(json_object_get(about, "backends"), i, value)
	{
		char text[256], label[64];

		snprintf(label, sizeof(label), "backend %s", text_of(value, "backend"));
		snprintf(text, sizeof(text), "%s%s",
			 *text_of(value, "reason") ? "closed, " : "open",
			 text_of(value, "reason"));
		put_row(table, label, text);
	}
	json_array_foreach(json_object_get(about, "gpus"), i, value)
	    put_gpu(table, value);
	json_object_foreach(json_object_get(about, "environment"), key, value)
	    put_row(table, key, json_string_value(value));
	return table_end(table);
}

/* ---- the command --------------------------------------------------------- */

static int print_about(json_t *about, enum table_format format)
{
	size_t flags = format == TABLE_FORMAT_JSON ? JSON_INDENT(1) : JSON_COMPACT;
	char *text;

	if (format != TABLE_FORMAT_JSON && format != TABLE_FORMAT_JSONL)
		return print_table(about, format);
	text = json_dumps(about, flags);
	if (!text)
		return cli_no_memory("description");
	puts(text);
	free(text);
	return CLI_OK;
}

static int run_info(const void *args_)
{
	const struct info_args *args = args_;
	struct nib_device_info info = {.struct_bytes = sizeof(info)};
	struct nib_device *device;
	json_t *about;
	int code = cli_open_device(&args->shared.device, &device), refused = code;

	/* NIB_CPU may ask for what this machine lacks: then show what it has. */
	if (code && !args->shared.device.isa && getenv("NIB_CPU")) {
		unsetenv("NIB_CPU");
		code = cli_open_device(&args->shared.device, &device);
		if (!code)
			cli_warn("what follows is without NIB_CPU");
	}
	if (code)
		return code;
	nib_device_get_info(device, &info, NULL);
	about = json_object();
	add_machine(about, &info);
	add_nodes(about);
	add_backends(about);
	add_gpus(about);
	if (args->report)
		add_report(about);
	code = print_about(about, args->shared.format);
	json_decref(about);
	nib_device_close(device);
	return code ? code : refused;
}

#define ARG(member) offsetof(struct info_args, member)
static const struct cli_option options[] = {
    {"report", OPT_FLAG, ARG(report),
     .help = "also the compiler, libc, distribution and environment variables: "
	     "what an issue needs"},
    {0},
};

static const struct cli_group groups[] = {
    CLI_GROUP("What to show", options, 0),
    CLI_CPU_GROUP,
    CLI_OUTPUT_GROUP,
    {0},
};

const struct cli_command command_info = {
    .name = "info",
    .summary = "this machine: processor, caches, memory, backends, GPUs",
    .positional = "",
    .description =
	"Says what nibblas can use on this machine, and why it cannot use the\n"
	"rest.  A backend is the code for one kind of hardware: the best open\n"
	"one runs, a closed one says why it is closed.  Every GPU that the\n"
	"driver knows is listed.  affinity is the processors that this process may\n"
	"use; threads are not bound to them.  The instruction set is what NIB_CPU\n"
	"names: scalar, avx2, avxvnni, avx512bw, avx512vnni, amx, neon, neondot,\n"
	"neoni8mm or neonbf16.\n\n"
	"--report prints what an issue needs, to paste as one block.  It names only\n"
	"variables that begin with NIB or OMP_, GGML_BACKEND_PATH and\n"
	"CUDA_VISIBLE_DEVICES.\n",
    .examples = "nib info\n"
		"nib info --report\n"
		"nib info --format json | jq -r .backend\n",
    .groups = groups,
    .args_bytes = sizeof(struct info_args),
    .run = run_info,
};
