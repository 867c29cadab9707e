/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tuning.c - see tuning.h.  python/nibblas/_tuning.py reads the same file by
 * the same rules.
 */
#include "tuning.h"

#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "nibblas_tune.h"
#include "out_file.h"

#define MAX_FILE_BYTES 4096

/* ---- the file's name ----------------------------------------------------- */

/* The user's cache folder; false if the environment names none. */
static bool find_folder(char *path, size_t bytes)
{
	const char *cache = secure_getenv("XDG_CACHE_HOME");
	const char *home = secure_getenv("HOME");
	int n;

	/* The XDG rules ignore what is not absolute. */
	if (cache && *cache == '/')
		n = snprintf(path, bytes, "%s", cache);
	else if (home && *home == '/')
		n = snprintf(path, bytes, "%s/.cache", home);
	else
		return false;
	return n >= 0 && (size_t)n < bytes;
}

/* nibblas/tune-GPU-MULTIPROCESSORS-VERSION.json in the cache folder. */
static bool find_default(const struct nib_device_info *info, char *path, size_t bytes)
{
	size_t used;
	int n;

	if (!find_folder(path, bytes))
		return false;
	used = strlen(path);
	n = snprintf(path + used, bytes - used, "/nibblas/tune-%s-%d-%s.json",
		     info->hardware, info->multiprocessors, nib_version());
	if (n < 0 || (size_t)n >= bytes - used)
		return false;
	for (char *c = path + used + strlen("/nibblas/"); *c; c++)
		if (!strchr(".-", *c) && (*c < '0' || *c > '9') &&
		    (*c < 'A' || *c > 'Z') && (*c < 'a' || *c > 'z'))
			*c = '-';
	return true;
}

/* False if there is none to look for; tuning->reason says why. */
static bool name_file(const struct nib_device_info *info, struct tuning *tuning)
{
	const char *wanted = secure_getenv("NIB_TUNING");
	const char *arch = secure_getenv("NIB_CUDA_ARCH");
	const size_t bytes = sizeof(tuning->path);
	const char *none = "no file is looked for";

	tuning->path[0] = '\0';
	if ((!wanted || !*wanted) && arch && *arch) {
		snprintf(tuning->reason, sizeof(tuning->reason),
			 "%s: NIB_CUDA_ARCH selects other kernels", none);
		return false;
	}
	if (!wanted || !*wanted) {
		if (find_default(info, tuning->path, bytes))
			return true;
		tuning->path[0] = '\0';
		snprintf(tuning->reason, sizeof(tuning->reason),
			 "%s: neither XDG_CACHE_HOME nor HOME is an absolute "
			 "path, or it is too long",
			 none);
		return false;
	}
	if (strcmp(wanted, "off") != 0 && strlen(wanted) < bytes) {
		snprintf(tuning->path, bytes, "%s", wanted);
		return true;
	}
	if (strcmp(wanted, "off") == 0)
		snprintf(tuning->reason, sizeof(tuning->reason),
			 "%s: NIB_TUNING is 'off'", none);
	else
		snprintf(tuning->reason, sizeof(tuning->reason),
			 "%s: NIB_TUNING has %zu bytes, at most %zu", none,
			 strlen(wanted), bytes - 1);
	return false;
}

/* ---- reading ------------------------------------------------------------- */

/* A number of the file; 0, which is no cost, for one beyond int. */
static int number(json_int_t x)
{
	return x > 0 && x <= INT_MAX ? (int)x : 0;
}

/* An array of `count` integers. */
static bool read_numbers(const json_t *array, int count, int *numbers)
{
	if (json_array_size(array) != (size_t)count)
		return false;
	for (int i = 0; i < count; i++) {
		const json_t *item = json_array_get(array, (size_t)i);

		if (!json_is_integer(item))
			return false;
		numbers[i] = number(json_integer_value(item));
	}
	return true;
}

/*
 * The costs of an object, which are whole and of this GPU and version; else
 * false and a reason. costs: those of the device.
 */
static bool read_costs(json_t *root, const struct nib_device_info *info,
		       struct nib_costs *costs, struct tuning *tuning)
{
	const char *device, *version;
	json_int_t processors, revision, tile, split;
	json_t *rows, *steps;
	int tile_rows[NIB_MAX_TILE_SIZES];
	json_error_t e;
	const char *reason = "the file lacks a cost, or is of other tiles";

	if (json_unpack_ex(root, &e, 0, "{s:s, s:I, s:s, s:I, s:o, s:o, s:I, s:I !}",
			   "device", &device, "multiprocessors", &processors, "version",
			   &version, "revision", &revision, "tile_rows", &rows,
			   "step_cycles", &steps, "tile_cycles", &tile, "split_cycles",
			   &split)) {
		snprintf(tuning->reason, sizeof(tuning->reason), "the file: %.120s",
			 e.text);
		return false;
	}
	if (strcmp(device, info->hardware) != 0 || processors != info->multiprocessors)
		reason = "the file is of another GPU";
	else if (strcmp(version, nib_version()) != 0 || revision != costs->revision)
		reason = "the file is of another version";
	else if (read_numbers(rows, costs->sizes, tile_rows) &&
		 read_numbers(steps, costs->sizes, costs->step_cycles) &&
		 memcmp(tile_rows, costs->tile_rows,
			(size_t)costs->sizes * sizeof(*tile_rows)) == 0)
		reason = "";
	costs->tile_cycles = number(tile);
	costs->split_cycles = number(split);
	snprintf(tuning->reason, sizeof(tuning->reason), "%s", reason);
	return !*reason;
}

/* The JSON of the file; NULL and a reason. */
static json_t *read_file(struct tuning *tuning)
{
	char text[MAX_FILE_BYTES + 1];
	FILE *file = fopen(tuning->path, "re");
	json_error_t e;
	json_t *root;
	size_t bytes;
	bool is_bad;

	if (!file) {
		snprintf(tuning->reason, sizeof(tuning->reason), "%s",
			 errno == ENOENT ? "there is no such file"
					 : "the file cannot be read");
		return NULL;
	}
	bytes = fread(text, 1, sizeof(text), file);
	is_bad = ferror(file) || bytes == sizeof(text);
	fclose(file);
	if (is_bad) {
		snprintf(tuning->reason, sizeof(tuning->reason),
			 "the file cannot be read, or has over %d bytes",
			 MAX_FILE_BYTES);
		return NULL;
	}
	root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &e);
	if (!root)
		snprintf(tuning->reason, sizeof(tuning->reason),
			 "line %d of the file: %.120s", e.line, e.text);
	return root;
}

void tuning_load(struct nib_device *device, struct tuning *tuning)
{
	struct nib_device_info info = {.struct_bytes = sizeof(info)};
	struct nib_costs costs = {.struct_bytes = sizeof(costs)};
	struct nib_error err;
	struct tuning unused;
	json_t *root;

	if (!tuning)
		tuning = &unused;
	*tuning = (struct tuning){.path = ""};
	if (nib_device_get_costs(device, &costs, &err) ||
	    nib_device_get_info(device, &info, &err)) {
		snprintf(tuning->reason, sizeof(tuning->reason), "%.180s", err.message);
		return;
	}
	if (!name_file(&info, tuning))
		return;
	root = read_file(tuning);
	if (root && read_costs(root, &info, &costs, tuning) &&
	    nib_device_set_costs(device, &costs, &err))
		snprintf(tuning->reason, sizeof(tuning->reason), "the file: %.150s",
			 err.message);
	json_decref(root);
}

/* ---- writing ------------------------------------------------------------- */

/* The folders of path that are missing; it is cut meanwhile. */
static bool make_folders(char *path)
{
	for (char *c = strchr(path + 1, '/'); c; c = strchr(c + 1, '/')) {
		int failed;

		*c = '\0';
		failed = mkdir(path, 0777) != 0 && errno != EEXIST;
		*c = '/';
		if (failed)
			return false;
	}
	return true;
}

static json_t *array_of(const int *numbers, int count)
{
	json_t *array = json_array();

	for (int i = 0; i < count; i++)
		json_array_append_new(array, json_integer(numbers[i]));
	return array;
}

static json_t *json_of(const struct nib_costs *costs,
		       const struct nib_device_info *info)
{
	return json_pack("{s:s, s:i, s:s, s:i, s:o, s:o, s:i, s:i}", "device",
			 info->hardware, "multiprocessors", info->multiprocessors,
			 "version", nib_version(), "revision", costs->revision,
			 "tile_rows", array_of(costs->tile_rows, costs->sizes),
			 "step_cycles", array_of(costs->step_cycles, costs->sizes),
			 "tile_cycles", costs->tile_cycles, "split_cycles",
			 costs->split_cycles);
}

/* Whole or not at all: another process may be reading. */
static bool write_file(const json_t *root, char *path)
{
	struct out_file out;

	if (!make_folders(path) || !out_file_open(&out, path))
		return false;
	if (json_dumpf(root, out.stream, JSON_INDENT(1)) ||
	    fputc('\n', out.stream) == EOF) {
		out_file_discard(&out);
		return false;
	}
	return out_file_commit(&out);
}

enum nib_status tuning_save(struct nib_device *device, struct tuning *tuning,
			    struct nib_error *err)
{
	struct nib_device_info info = {.struct_bytes = sizeof(info)};
	struct nib_costs costs = {.struct_bytes = sizeof(costs)};
	enum nib_status status = nib_device_get_costs(device, &costs, err);
	json_t *root;

	if (!status)
		status = nib_device_get_info(device, &info, err);
	if (status)
		return status;
	root = json_of(&costs, &info);
	errno = ENOMEM;
	if (!root || !write_file(root, tuning->path)) {
		status = NIB_STATUS_IO;
		*err = (struct nib_error){.status = status};
		snprintf(err->message, sizeof(err->message), "%.160s: %s", tuning->path,
			 strerror(errno));
	}
	json_decref(root);
	return status;
}
