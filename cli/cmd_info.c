/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_info.c - nib info: this machine as nibblas sees it. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "cli.h"
#include "table.h"

struct info_args {
	struct device_args device;
	struct format_args format;
};

/* The word of a sysfs choice in brackets: "always [madvise] never". */
static void read_choice(const char *path, char *word, size_t bytes)
{
	char line[256] = "", *begin, *end;
	FILE *file = fopen(path, "r");

	snprintf(word, bytes, "unknown");
	if (!file)
		return;
	if (fgets(line, sizeof(line), file) && (begin = strchr(line, '[')) &&
	    (end = strchr(begin, ']'))) {
		*end = '\0';
		snprintf(word, bytes, "%s", begin + 1);
	}
	fclose(file);
}

/* A line of /proc/meminfo in bytes; 0 if it is not there. */
static double read_meminfo(const char *key)
{
	FILE *file = fopen("/proc/meminfo", "r");
	char line[256];
	double kib = 0;
	size_t n = strlen(key);

	if (!file)
		return 0;
	while (fgets(line, sizeof(line), file))
		if (!strncmp(line, key, n) && line[n] == ':') {
			kib = strtod(line + n + 1, NULL);
			break;
		}
	fclose(file);
	return kib * 1024;
}

/*
 * The release of NVIDIA's kernel module, "580.82.07": the first word of its
 * line that is a number.  False if there is none.
 */
static int read_driver(char *word, size_t bytes)
{
	FILE *file = fopen("/proc/driver/nvidia/version", "r");
	char line[256] = "", *at, *next = NULL;

	if (!file)
		return 0;
	at = fgets(line, sizeof(line), file) ? strtok_r(line, " \t\n", &next)
					     : NULL;
	fclose(file);
	while (at && (*at < '0' || *at > '9'))
		at = strtok_r(NULL, " \t\n", &next);
	if (at)
		snprintf(word, bytes, "%s", at);
	return at != NULL;
}

static void add_size(json_t *about, const char *key, double bytes)
{
	if (bytes > 0)
		json_object_set_new(about, key,
				    json_integer((json_int_t)bytes));
}

static void add_text(json_t *about, const char *key, const char *text)
{
	json_object_set_new(about, key, json_string(text));
}

static void add_machine(json_t *about, const struct nib_device_info *info)
{
	char word[64], text[160];
	struct utsname os;

	add_text(about, "version", nib_version());
	add_text(about, "processor", info->hardware);
	add_text(about, "features", info->features);
	add_text(about, "backend", info->backend);
	json_object_set_new(about, "threads", json_integer(info->threads));
	add_size(about, "l1_data_bytes", (double)info->l1_bytes);
	add_size(about, "l2_bytes", (double)info->l2_bytes);
	add_size(about, "l3_bytes", (double)sysconf(_SC_LEVEL3_CACHE_SIZE));
	add_size(about, "memory_bytes", read_meminfo("MemTotal"));
	add_size(about, "memory_available_bytes", read_meminfo("MemAvailable"));
	read_choice("/sys/kernel/mm/transparent_hugepage/enabled", word,
		    sizeof(word));
	add_text(about, "huge_pages", word);
	if (!uname(&os)) {
		snprintf(text, sizeof(text), "%.64s %.64s", os.sysname,
			 os.release);
		add_text(about, "system", text);
	}
	if (read_driver(word, sizeof(word)))
		add_text(about, "nvidia_driver", word);
}

static void add_backends(json_t *about)
{
	json_t *backends = json_array();

	for (int i = 0; i < nib_backend_count(); i++) {
		struct nib_backend_info backend = {.struct_bytes =
						       sizeof(backend)};
		json_t *entry = json_object();

		if (nib_backend_get_info(i, &backend, NULL))
			continue;
		json_object_set_new(entry, "backend",
				    json_string(backend.backend));
		json_object_set_new(entry, "open",
				    json_boolean(backend.is_open));
		json_object_set_new(entry, "reason",
				    json_string(backend.reason));
		json_array_append_new(backends, entry);
	}
	json_object_set_new(about, "backends", backends);
}

/* Which costs the planner has (nib tune). */
static void add_tuning(json_t *entry, struct nib_device *device)
{
	struct nib_costs costs = {.struct_bytes = sizeof(costs)};

	if (nib_device_get_costs(device, &costs, NULL))
		return;
	json_object_set_new(entry, "tuned", json_boolean(costs.is_from_file));
	add_text(entry, "tuning_file", costs.path);
	add_text(entry, "untuned_reason", costs.reason);
}

/* Every GPU that the driver has, usable or not. */
static void add_gpus(json_t *about)
{
	json_t *gpus = json_array();

	for (int i = 0;; i++) {
		struct nib_device_info info = {.struct_bytes = sizeof(info)};
		struct nib_device *device;
		json_t *entry;
		struct nib_error err;
		enum nib_status status;
		char name[16], text[32];

		snprintf(name, sizeof(name), "cuda:%d", i);
		status = nib_device_open(name, NULL, &device, &err);
		if (status == NIB_NO_DEVICE)
			break;
		entry = json_object();
		add_text(entry, "name", name);
		add_text(entry, "reason", status ? err.message : "");
		json_array_append_new(gpus, entry);
		if (status)
			continue;
		nib_device_get_info(device, &info, NULL);
		add_text(entry, "hardware", info.hardware);
		add_text(entry, "backend", info.backend);
		add_text(entry, "features", info.features);
		add_size(entry, "memory_bytes", (double)info.memory_bytes);
		add_size(entry, "l2_bytes", (double)info.l2_bytes);
		snprintf(text, sizeof(text), "%d.%d",
			 info.driver_version / 1000,
			 info.driver_version % 1000 / 10);
		add_text(entry, "cuda_version", text);
		snprintf(text, sizeof(text), "%d.%d",
			 info.compute_capability / 10,
			 info.compute_capability % 10);
		add_text(entry, "compute_capability", text);
		add_size(entry, "multiprocessors", info.threads);
		add_size(entry, "clock_khz", info.clock_khz);
		add_size(entry, "memory_clock_khz", info.memory_clock_khz);
		add_size(entry, "memory_bus_bits", info.memory_bus_bits);
		add_tuning(entry, device);
		nib_device_close(device);
	}
	json_object_set_new(about, "gpus", gpus);
}

/* The line below a GPU: which costs its planner has. */
static void put_tuning(struct table *table, const json_t *gpu)
{
	const char *file =
	    json_string_value(json_object_get(gpu, "tuning_file"));
	const char *reason =
	    json_string_value(json_object_get(gpu, "untuned_reason"));
	char text[512];

	if (!file || !reason)
		return;
	if (json_is_true(json_object_get(gpu, "tuned")))
		snprintf(text, sizeof(text), "as measured by nib tune, %.400s",
			 file);
	else
		snprintf(text, sizeof(text), "built in, %s%s%.300s", reason,
			 *file ? ": " : "", file);
	table_text(table, "what", "  tile costs");
	table_text(table, "value", text);
	table_end_row(table);
}

static void put_gpu(struct table *table, const json_t *gpu)
{
	const char *reason = json_string_value(json_object_get(gpu, "reason"));
	char text[512], size[CLI_SIZE_TEXT], l2[CLI_SIZE_TEXT];

	table_text(table, "what",
		   json_string_value(json_object_get(gpu, "name")));
	if (*reason)
		snprintf(text, sizeof(text), "closed, %s", reason);
	else
		snprintf(
		    text, sizeof(text),
		    "%s, %lld multiprocessors at up to %.2f GHz, L2 %s, memory "
		    "%s at %.2f GHz, %s",
		    json_string_value(json_object_get(gpu, "hardware")),
		    (long long)json_integer_value(
			json_object_get(gpu, "multiprocessors")),
		    (double)json_integer_value(
			json_object_get(gpu, "clock_khz")) *
			1e-6,
		    cli_size_text((double)json_integer_value(
				      json_object_get(gpu, "l2_bytes")),
				  l2),
		    cli_size_text((double)json_integer_value(
				      json_object_get(gpu, "memory_bytes")),
				  size),
		    (double)json_integer_value(
			json_object_get(gpu, "memory_clock_khz")) *
			1e-6,
		    json_string_value(json_object_get(gpu, "features")));
	table_text(table, "value", text);
	table_end_row(table);
	put_tuning(table, gpu);
}

static void put_value(const char *key, const json_t *value, char *text,
		      size_t bytes)
{
	char size[CLI_SIZE_TEXT];

	if (json_is_string(value))
		snprintf(text, bytes, "%s", json_string_value(value));
	else if (strstr(key, "bytes"))
		snprintf(
		    text, bytes, "%s",
		    cli_size_text((double)json_integer_value(value), size));
	else
		snprintf(text, bytes, "%lld",
			 (long long)json_integer_value(value));
}

/* "memory_available_bytes" -> "memory available". */
static void put_label(const char *key, char *label, size_t bytes)
{
	char *units;

	snprintf(label, bytes, "%s", key);
	units = strstr(label, "_bytes");
	if (units)
		*units = '\0';
	for (; *label; label++)
		if (*label == '_')
			*label = ' ';
}

static int print_for_people(const json_t *about, enum table_format format)
{
	static const struct table_column columns[] = {
	    {.key = "what", .title = "what"},
	    {.key = "value", .title = "value"},
	    {0},
	};
	struct table *table = table_new(columns, format, 0);
	const json_t *backends = json_object_get(about, "backends"), *value;
	const json_t *gpus = json_object_get(about, "gpus");
	const char *key;
	void *at;

	for (at = json_object_iter((json_t *)(uintptr_t)about); at;
	     at = json_object_iter_next((json_t *)(uintptr_t)about, at)) {
		char label[64], text[256];

		key = json_object_iter_key(at);
		value = json_object_iter_value(at);
		if (value == backends || value == gpus)
			continue;
		put_label(key, label, sizeof(label));
		put_value(key, value, text, sizeof(text));
		/* Programs get numbers, under the keys of JSON. */
		if (format == TABLE_FORMAT_CSV && json_is_integer(value))
			table_json(table, "value",
				   json_copy((json_t *)(uintptr_t)value));
		else
			table_text(table, "value", text);
		table_text(table, "what",
			   format == TABLE_FORMAT_CSV ? key : label);
		table_end_row(table);
	}
	for (size_t i = 0; i < json_array_size(backends); i++) {
		const json_t *backend = json_array_get(backends, i);
		int open = json_is_true(json_object_get(backend, "open"));
		char text[256], label[64];

		snprintf(
		    label, sizeof(label), "backend %s",
		    json_string_value(json_object_get(backend, "backend")));
		snprintf(text, sizeof(text), "%s%s", open ? "open" : "closed, ",
			 json_string_value(json_object_get(backend, "reason")));
		table_text(table, "what", label);
		table_text(table, "value", text);
		table_end_row(table);
	}
	for (size_t i = 0; i < json_array_size(gpus); i++)
		put_gpu(table, json_array_get(gpus, i));
	return table_end(table);
}

static int run_info(const void *args_, char *const *files, int n_files)
{
	const struct info_args *args = args_;
	enum table_format format = (enum table_format)args->format.format;
	struct nib_device_info info = {.struct_bytes = sizeof(info)};
	struct nib_device *device;
	json_t *about;
	int code = cli_open_device(&args->device, &device), refused = code;

	(void)files;
	(void)n_files;
	/* Who forces what this machine lacks wants to see what it has. */
	if (code && !args->device.isa && getenv("NIB_CPU")) {
		unsetenv("NIB_CPU");
		code = cli_open_device(&args->device, &device);
		if (!code)
			cli_warn("what follows is without NIB_CPU");
	}
	if (code)
		return code;
	nib_device_get_info(device, &info, NULL);
	about = json_object();
	if (!about) {
		nib_device_close(device);
		return cli_no_memory("description");
	}
	add_machine(about, &info);
	add_backends(about);
	add_gpus(about);
	if (format == TABLE_FORMAT_JSON || format == TABLE_FORMAT_JSONL) {
		json_dumpf(about, stdout,
			   format == TABLE_FORMAT_JSON ? JSON_INDENT(1)
						       : JSON_COMPACT);
		putchar('\n');
	} else {
		code = print_for_people(about, format);
	}
	json_decref(about);
	nib_device_close(device);
	return code ? code : refused;
}

static const struct cli_group groups[] = {
    {"Device", device_options, offsetof(struct info_args, device)},
    {"Output", format_options, offsetof(struct info_args, format)},
    {0},
};

const struct cli_command command_info = {
    .name = "info",
    .summary = "this machine: processor, caches, memory, backends, GPUs",
    .positional = "",
    .description =
	"A backend is one kind of hardware that nibblas has code for.  The backend\n"
	"that runs is the best open one; a closed one says why it is closed.\n"
	"GPUs are listed with what their driver says of them, in use or not.\n"
	"NIB_CPU=scalar|avx2|avx512bw|avx512 forces one instruction set.\n",
    .examples = "nib info\n"
		"nib info --format json | jq -r .backend\n",
    .groups = groups,
    .args_bytes = sizeof(struct info_args),
    .run = run_info,
};
