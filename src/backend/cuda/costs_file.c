/* SPDX-License-Identifier: Apache-2.0 */
/*
 * costs_file.c - costs that were measured on this machine: the file's name, its
 * reader, which never fails a device (what is wrong with a file is a reason to
 * use the built-in costs), and its writer.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/error.h"
#include "core/json.h"
#include "cuda.h"

#define MAX_FILE_BYTES 4096

/* ---- its name ------------------------------------------------------------ */

/* The user's cache folder; false if the environment names none. */
static bool find_folder(char *path, size_t bytes)
{
	const char *cache = getenv("XDG_CACHE_HOME");
	const char *home = getenv("HOME");
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

/* "" for none, and why in costs_no_path. */
static void name_file(struct cuda_device *device)
{
	const size_t why_bytes = sizeof(device->costs_no_path);
	char *why = device->costs_no_path;
	const char *wanted = getenv("NIB_TUNING");
	const size_t bytes = sizeof(device->costs_path);
	char *path = device->costs_path;
	size_t used;
	int n;

	*path = '\0';
	if (wanted && *wanted) {
		if (strcmp(wanted, "off") == 0)
			snprintf(why, why_bytes, "NIB_TUNING is 'off'");
		else if (strlen(wanted) >= bytes)
			snprintf(why, why_bytes,
				 "NIB_TUNING has %zu bytes, at most %zu",
				 strlen(wanted), bytes - 1);
		else
			snprintf(path, bytes, "%s", wanted);
		return;
	}
	snprintf(why, why_bytes,
		 "neither XDG_CACHE_HOME nor HOME is an absolute path, or it "
		 "is too long");
	if (!find_folder(path, bytes)) {
		*path = '\0';
		return;
	}
	used = strlen(path);
	n = snprintf(path + used, bytes - used, "/nibblas/tune-%s-%d-%s.json",
		     device->hardware, device->multiprocessors, nib_version());
	if (n < 0 || (size_t)n >= bytes - used) {
		*path = '\0';
		return;
	}
	for (char *c = path + used + strlen("/nibblas/"); *c; c++)
		if (!strchr(".-", *c) && (*c < '0' || *c > '9') &&
		    (*c < 'A' || *c > 'Z') && (*c < 'a' || *c > 'z'))
			*c = '-';
}

/* ---- reading ------------------------------------------------------------- */

/* What must be in a file, each once. */
struct fields {
	char device[64], version[32];
	int64_t revision, multiprocessors, tile, split;
	int64_t tile_rows[NIB_TILE_SIZES], step[NIB_TILE_SIZES];
};

static bool read_text(struct nib_json *json, char *text, size_t bytes)
{
	const char *value = nib_json_string(json);

	if (value && (*text || strlen(value) >= bytes || !*value))
		return nib_json_fail(json,
				     "a text is there twice, or too long");
	if (value)
		snprintf(text, bytes, "%s", value);
	return value != NULL;
}

/* Numbers are positive: 0 is one that was not there. */
static bool read_number(struct nib_json *json, int64_t *number)
{
	if (*number)
		return nib_json_fail(json, "a number is there twice");
	if (!nib_json_int(json, number))
		return false;
	return (*number >= 1 && *number <= NIB_COSTS_MAX) ||
	       nib_json_fail(json, "a number is not in 1 to 1000000");
}

static bool read_numbers(struct nib_json *json, int64_t *numbers)
{
	for (int i = 0; i < NIB_TILE_SIZES; i++)
		if (!nib_json_expect(json, i ? ',' : '[') ||
		    !read_number(json, &numbers[i]))
			return false;
	return nib_json_expect(json, ']');
}

static bool read_field(struct nib_json *json, struct fields *f)
{
	const struct {
		const char *key;
		int64_t *number;
	} numbers[] = {
	    {"revision", &f->revision},
	    {"multiprocessors", &f->multiprocessors},
	    {"tile_cycles", &f->tile},
	    {"split_cycles", &f->split},
	};
	const char *key = nib_json_string(json);

	if (!key || !nib_json_expect(json, ':'))
		return false;
	for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++)
		if (strcmp(key, numbers[i].key) == 0)
			return read_number(json, numbers[i].number);
	if (strcmp(key, "device") == 0)
		return read_text(json, f->device, sizeof(f->device));
	if (strcmp(key, "version") == 0)
		return read_text(json, f->version, sizeof(f->version));
	if (strcmp(key, "tile_rows") == 0)
		return read_numbers(json, f->tile_rows);
	if (strcmp(key, "step_cycles") == 0)
		return read_numbers(json, f->step);
	return nib_json_fail(json, "a key is unknown");
}

static bool read_fields(struct nib_json *json, struct fields *f)
{
	if (!nib_json_expect(json, '{'))
		return false;
	do {
		if (!read_field(json, f))
			return false;
	} while (nib_json_take(json, ','));
	return nib_json_expect(json, '}') && nib_json_end(json);
}

/* Whether they are whole, and of this GPU and build; *reason says what not. */
static bool fits(const struct cuda_device *device, const struct fields *f,
		 const char **reason)
{
	bool same_sizes = true;

	for (int i = 0; i < NIB_TILE_SIZES; i++)
		same_sizes = same_sizes && f->step[i] &&
			     f->tile_rows[i] == nib_tile_size(i);
	*reason = "the file is of another GPU";
	if (strcmp(f->device, device->hardware) != 0 ||
	    f->multiprocessors != device->multiprocessors)
		return false;
	*reason = "the file is of another version";
	if (strcmp(f->version, nib_version()) != 0 ||
	    f->revision != NIB_COSTS_REVISION)
		return false;
	*reason = "the file lacks a cost, or is of other tiles";
	return same_sizes && f->tile && f->split;
}

/* False, and a reason, if the file is not there or not right. */
static bool read_costs(struct cuda_device *device, const char *text,
		       size_t bytes)
{
	char strings[MAX_FILE_BYTES];
	struct fields f = {0};
	struct nib_json json;
	const char *reason = NULL;

	nib_json_init(&json, text, bytes, strings);
	if (!read_fields(&json, &f)) {
		snprintf(device->costs_reason, sizeof(device->costs_reason),
			 "byte %td of the file: %s", json.at - json.begin,
			 json.problem);
		return false;
	}
	if (!fits(device, &f, &reason)) {
		snprintf(device->costs_reason, sizeof(device->costs_reason),
			 "%s", reason);
		return false;
	}
	for (int i = 0; i < NIB_TILE_SIZES; i++)
		device->costs.step[i] = (int32_t)f.step[i];
	device->costs.tile = (int32_t)f.tile;
	device->costs.split = (int32_t)f.split;
	return true;
}

void cuda_costs_open(struct cuda_device *device)
{
	char text[MAX_FILE_BYTES + 1];
	size_t bytes;
	FILE *file;

	device->costs = nib_cuda_costs;
	device->costs_from_file = false;
	name_file(device);
	if (!*device->costs_path) {
		snprintf(device->costs_reason, sizeof(device->costs_reason),
			 "no file is looked for: %s", device->costs_no_path);
		return;
	}
	file = fopen(device->costs_path, "re");
	if (!file) {
		snprintf(device->costs_reason, sizeof(device->costs_reason),
			 errno == ENOENT ? "there is no such file"
					 : "the file cannot be read");
		return;
	}
	bytes = fread(text, 1, sizeof(text), file);
	if (ferror(file) || bytes == sizeof(text))
		snprintf(device->costs_reason, sizeof(device->costs_reason),
			 "the file cannot be read, or has over %d bytes",
			 MAX_FILE_BYTES);
	else if (read_costs(device, text, bytes))
		device->costs_from_file = true;
	fclose(file);
	if (device->costs_from_file)
		device->costs_reason[0] = '\0';
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

static void put_numbers(FILE *file, const char *key, const int32_t *numbers)
{
	fprintf(file, " \"%s\": [", key);
	for (int i = 0; i < NIB_TILE_SIZES; i++)
		fprintf(file, "%s%d", i ? ", " : "", numbers[i]);
	fputs("],\n", file);
}

/* A JSON string; names of GPUs are ASCII. */
static void put_text(FILE *file, const char *key, const char *text)
{
	fprintf(file, " \"%s\": \"", key);
	for (; *text; text++) {
		if (*text == '"' || *text == '\\')
			fputc('\\', file);
		fputc(*text, file);
	}
	fputs("\",\n", file);
}

static bool write_costs(const struct cuda_device *device, FILE *file)
{
	const struct nib_cuda_costs *c = &device->costs;
	int32_t rows[NIB_TILE_SIZES];

	for (int i = 0; i < NIB_TILE_SIZES; i++)
		rows[i] = nib_tile_size(i);
	fputs("{\n", file);
	put_text(file, "device", device->hardware);
	fprintf(file, " \"multiprocessors\": %d,\n", device->multiprocessors);
	put_text(file, "version", nib_version());
	fprintf(file, " \"revision\": %d,\n", NIB_COSTS_REVISION);
	put_numbers(file, "tile_rows", rows);
	put_numbers(file, "step_cycles", c->step);
	fprintf(file, " \"tile_cycles\": %d,\n \"split_cycles\": %d\n}\n",
		c->tile, c->split);
	return !ferror(file);
}

/* Beside its place first: another process may be reading. */
enum nib_status cuda_costs_save(struct nib_device *base, struct nib_error *err)
{
	struct cuda_device *device = cuda_device(base);
	char part[sizeof(device->costs_path) + 32];
	FILE *file = NULL;
	bool ok;

	if (!*device->costs_path)
		return nib_fail(err, NIB_UNSUPPORTED,
				"%s: no file for its costs: %s", device->name,
				device->costs_no_path);
	snprintf(part, sizeof(part), "%s.%ld.part", device->costs_path,
		 (long)getpid());
	ok = make_folders(part);
	if (ok)
		file = fopen(part, "we");
	ok = file && write_costs(device, file);
	if (file)
		ok = fclose(file) == 0 && ok;
	ok = ok && rename(part, device->costs_path) == 0;
	if (!ok) {
		enum nib_status status =
		    nib_fail(err, NIB_IO, "%.160s: %s", device->costs_path,
			     strerror(errno));

		if (file)
			(void)unlink(part);
		return status;
	}
	device->costs_from_file = true;
	device->costs_reason[0] = '\0';
	return NIB_OK;
}
