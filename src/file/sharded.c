/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sharded.c - opens the path of a checkpoint: a file, a folder, or an index, which
 * joins several files (shards):
 *
 *   {"metadata": {...},
 *    "weight_map": {"name of a tensor": "model-00001-of-00002.safetensors"}}
 *
 * Each shard is read as a separate file (safetensors.c).  The index must match the
 * tensors of the shards.  Layers are then found among the tensors of all shards.
 */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/error.h"
#include "core/json.h"
#include "core/text.h"
#include "file/array.h"
#include "file/dtype.h"
#include "file/layers.h"
#include "file/other_format.h"

#define ONE_FILE  "model.safetensors"
#define INDEX	  "model.safetensors.index.json"
#define IS_TENSOR ".safetensors"
#define IS_INDEX  ".safetensors.index.json"

struct entry {
	const char *tensor, *shard;
};

struct joiner {
	const char *index; /* its path */
	struct nib_error *err;
	struct nib_file *file; /* the result */
	struct nib_json json;
	char *strings; /* of the index, decoded */
	struct entry *entries;
	int64_t n_entries, entries_capacity;
};

/* ---- errors -------------------------------------------------------------- */

static enum nib_status no_memory(struct joiner *j)
{
	char shown[NIB_SHOWN_BYTES];

	return nib_fail(j->err, NIB_STATUS_OUT_OF_MEMORY,
			"%s: out of memory for its shards",
			nib_show_path(shown, j->index));
}

static enum nib_status bad_json(struct joiner *j)
{
	char shown[NIB_SHOWN_BYTES];

	return nib_fail(j->err, NIB_STATUS_BAD_FILE, "%s: byte %td: %s",
			nib_show_path(shown, j->index), j->json.at - j->json.begin,
			j->json.problem);
}

__attribute__((format(printf, 3, 4))) static enum nib_status
bad_entry(struct joiner *j, const char *tensor, const char *format, ...)
{
	char path[NIB_SHOWN_BYTES], name[NIB_SHOWN_BYTES], text[200];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	return nib_fail(j->err, NIB_STATUS_BAD_FILE, "%s: tensor '%s': %s",
			nib_show_path(path, j->index), nib_show_name(name, tensor),
			text);
}

static enum nib_status no_map(struct joiner *j)
{
	nib_json_fail(&j->json,
		      "weight_map: must be an object that gives each tensor's file");
	return bad_json(j);
}

/* ---- the index ----------------------------------------------------------- */

/* Only files in the folder of the index are shards, so that no index can name
 * other files. */
static bool is_file_name(const char *shard)
{
	return *shard && !strchr(shard, '/') && strcmp(shard, ".") != 0 &&
	       strcmp(shard, "..") != 0;
}

static enum nib_status read_weight_map(struct joiner *j)
{
	char shown[NIB_SHOWN_BYTES];

	if (!nib_json_take(&j->json, '{'))
		return no_map(j);
	if (nib_json_take(&j->json, '}'))
		return NIB_STATUS_OK;
	do {
		struct entry entry = {.tensor = nib_json_string(&j->json)};

		if (!entry.tensor || !nib_json_expect(&j->json, ':'))
			return bad_json(j);
		entry.shard = nib_json_string(&j->json);
		if (!entry.shard)
			return bad_json(j);
		if (!is_file_name(entry.shard))
			return bad_entry(j, entry.tensor,
					 "the shard '%s' must be the name of a "
					 "file in the folder of the index, without '/'",
					 nib_show_name(shown, entry.shard));
		if (!nib_array_grow(&j->entries, j->n_entries, &j->entries_capacity,
				    sizeof(entry)))
			return no_memory(j);
		j->entries[j->n_entries++] = entry;
	} while (nib_json_take(&j->json, ','));
	if (!nib_json_expect(&j->json, '}'))
		return bad_json(j);
	return NIB_STATUS_OK;
}

/* Reads the weight_map; other keys of an index are skipped. */
static enum nib_status read_keys(struct joiner *j)
{
	bool has_map = false;
	enum nib_status status;

	if (!nib_json_take(&j->json, '{'))
		return no_map(j);
	if (nib_json_take(&j->json, '}'))
		goto end;
	do {
		const char *key = nib_json_string(&j->json);

		if (!key || !nib_json_expect(&j->json, ':'))
			return bad_json(j);
		if (strcmp(key, "weight_map") != 0) {
			if (!nib_json_skip(&j->json))
				return bad_json(j);
			continue;
		}
		if (has_map)
			nib_json_fail(&j->json, "a second weight_map");
		status = has_map ? bad_json(j) : read_weight_map(j);
		if (status)
			return status;
		has_map = true;
	} while (nib_json_take(&j->json, ','));
	if (!nib_json_expect(&j->json, '}'))
		return bad_json(j);
end:
	if (!nib_json_end(&j->json))
		return bad_json(j);
	if (j->n_entries > 0)
		return NIB_STATUS_OK;
	nib_json_fail(&j->json,
		      has_map ? "the weight_map is empty" : "there is no weight_map");
	return bad_json(j);
}

static enum nib_status read_index(struct joiner *j, const void *text, size_t n_bytes)
{
	char shown[NIB_SHOWN_BYTES];

	if (n_bytes > NIB_MAX_HEADER_BYTES)
		return nib_fail(j->err, NIB_STATUS_BAD_FILE,
				"%s: %zu bytes: an index has at most %d",
				nib_show_path(shown, j->index), n_bytes,
				NIB_MAX_HEADER_BYTES);
	j->strings = malloc(n_bytes ? n_bytes : 1);
	if (!j->strings)
		return no_memory(j);
	nib_json_init(&j->json, text, n_bytes, j->strings);
	return read_keys(j);
}

/* ---- the shards ---------------------------------------------------------- */

static int compare_shards(const void *a, const void *b)
{
	return strcmp(((const struct entry *)a)->shard,
		      ((const struct entry *)b)->shard);
}

static int compare_tensors(const void *a, const void *b)
{
	return strcmp(((const struct entry *)a)->tensor,
		      ((const struct entry *)b)->tensor);
}

/* Opens a shard.  An error names an entry of the index that needs the shard. */
static enum nib_status open_shard(struct joiner *j, const struct entry *entry,
				  struct nib_file **shard)
{
	const char *slash = strrchr(j->index, '/');
	const size_t folder = slash ? (size_t)(slash + 1 - j->index) : 0;
	const size_t n = strlen(entry->shard);
	char *path = malloc(folder + n + 1);
	char name[NIB_SHOWN_BYTES];
	struct nib_error err;
	enum nib_status status;

	if (!path)
		return no_memory(j);
	memcpy(path, j->index, folder);
	memcpy(path + folder, entry->shard, n + 1);
	status = nib_file_open_shard(path, shard, &err);
	free(path);
	if (status == NIB_STATUS_IO)
		return nib_fail(j->err, status,
				"%.130s; the index says that it holds '%s'",
				err.message, nib_show_name(name, entry->tensor));
	return status ? nib_fail(j->err, status, "%s", err.message) : NIB_STATUS_OK;
}

/* Opens each shard once, in the order of their names. */
static enum nib_status open_shards(struct joiner *j)
{
	struct nib_file *file = j->file;
	int64_t capacity = 0;

	qsort(j->entries, (size_t)j->n_entries, sizeof(*j->entries), compare_shards);
	for (int64_t i = 0; i < j->n_entries; i++) {
		const struct entry *entry = &j->entries[i];
		struct nib_shard *shard;
		enum nib_status status;

		if (i > 0 && compare_shards(entry - 1, entry) == 0)
			continue;
		if (!nib_array_grow(&file->shards, file->n_shards, &capacity,
				    sizeof(*file->shards)))
			return no_memory(j);
		shard = &file->shards[file->n_shards];
		*shard = (struct nib_shard){.name = strdup(entry->shard)};
		if (!shard->name)
			return no_memory(j);
		file->n_shards++;
		status = open_shard(j, entry, &shard->file);
		if (status)
			return status;
	}
	return NIB_STATUS_OK;
}

/* Joins the tensors of all shards, one shard after the other. */
static enum nib_status join_tensors(struct joiner *j)
{
	struct nib_file *file = j->file;
	int64_t n = 0;

	for (int64_t i = 0; i < file->n_shards; i++)
		n += file->shards[i].file->n_tensors;
	file->tensors = malloc((size_t)(n ? n : 1) * sizeof(*file->tensors));
	if (!file->tensors)
		return no_memory(j);
	for (int64_t i = 0; i < file->n_shards; i++) {
		const struct nib_file *shard = file->shards[i].file;

		for (int64_t t = 0; t < shard->n_tensors; t++) {
			file->tensors[file->n_tensors] = shard->tensors[t];
			file->tensors[file->n_tensors++].shard = i;
		}
	}
	return nib_file_index_names(file) ? NIB_STATUS_OK : no_memory(j);
}

/* Refuses a tensor that is in two shards. */
static enum nib_status check_twice(struct joiner *j)
{
	const struct nib_file *file = j->file;
	char a[NIB_SHOWN_BYTES], b[NIB_SHOWN_BYTES];

	for (int64_t i = 1; i < file->n_tensors; i++) {
		const struct nib_file_tensor *s = file->by_name[i - 1];
		const struct nib_file_tensor *t = file->by_name[i];

		if (strcmp(s->name, t->name) == 0)
			return bad_entry(j, t->name, "is in both %s and %s",
					 nib_show_name(a, file->shards[s->shard].name),
					 nib_show_name(b, file->shards[t->shard].name));
	}
	return NIB_STATUS_OK;
}

/* Refuses a tensor that is not in the shard that the index names. */
static enum nib_status check_entries(struct joiner *j)
{
	const struct nib_file *file = j->file;
	char a[NIB_SHOWN_BYTES];

	qsort(j->entries, (size_t)j->n_entries, sizeof(*j->entries), compare_tensors);
	for (int64_t i = 0; i < j->n_entries; i++) {
		const struct entry *entry = &j->entries[i];
		const struct nib_file_tensor *t = nib_file_find(file, entry->tensor);

		if (i > 0 && compare_tensors(entry - 1, entry) == 0)
			return bad_entry(j, entry->tensor,
					 "is twice in the weight_map");
		if (!t || strcmp(file->shards[t->shard].name, entry->shard))
			return bad_entry(j, entry->tensor,
					 "is not in %s, which the weight_map "
					 "names",
					 nib_show_name(a, entry->shard));
	}
	return NIB_STATUS_OK;
}

/* Opens the files of nib_file_open_shards(). */
static enum nib_status open_paths(struct joiner *j, const char *const *paths,
				  int64_t count)
{
	struct nib_file *file = j->file;

	file->shards = calloc((size_t)count, sizeof(*file->shards));
	if (!file->shards)
		return no_memory(j);
	for (int64_t i = 0; i < count; i++) {
		struct nib_shard *shard = &file->shards[i];
		enum nib_status status;

		shard->name = strdup(paths[i]);
		if (!shard->name)
			return no_memory(j);
		file->n_shards++;
		status = nib_file_open_shard(paths[i], &shard->file, j->err);
		if (status)
			return status;
	}
	return NIB_STATUS_OK;
}

static enum nib_status join(struct joiner *j, const struct nib_mapped_file *map)
{
	enum nib_status status = read_index(j, map->bytes, map->n_bytes);

	if (!status)
		status = open_shards(j);
	if (!status)
		status = join_tensors(j);
	if (!status)
		status = check_twice(j);
	if (!status)
		status = check_entries(j);
	return status;
}

/* Finds the layers of what was joined, or frees it. */
static enum nib_status finish(struct joiner *j, enum nib_status status,
			      struct nib_file **file)
{
	free(j->entries);
	free(j->strings);
	if (!status)
		status = nib_file_find_layers(j->file, j->index, j->err);
	if (status)
		nib_file_close(j->file);
	else
		*file = j->file;
	return status;
}

static enum nib_status open_index(const char *path, struct nib_file **file,
				  struct nib_error *err)
{
	struct joiner j = {.index = path, .err = err};
	struct nib_mapped_file map;
	enum nib_status status = nib_file_map(&map, path, err);

	if (status)
		return status;
	j.file = calloc(1, sizeof(*j.file));
	status = j.file ? join(&j, &map) : no_memory(&j);
	nib_file_unmap(&map);
	return finish(&j, status, file);
}

/* Finds the layers of a file whose tensors are read; closes it if that fails. */
static enum nib_status find_layers(struct nib_file *file, const char *path,
				   struct nib_file **out, struct nib_error *err)
{
	enum nib_status status = nib_file_find_layers(file, path, err);

	if (status)
		nib_file_close(file);
	else
		*out = file;
	return status;
}

static enum nib_status open_single(const char *path, struct nib_file **out,
				   struct nib_error *err)
{
	struct nib_file *file;
	enum nib_status status = nib_file_open_shard(path, &file, err);

	return status ? status : find_layers(file, path, out, err);
}

/* ---- folders ------------------------------------------------------------- */

/* The files of a folder that could be its checkpoint. */
struct candidates {
	bool has_index, has_one; /* of the usual names */
	char *index, *tensors;	 /* other names: the last of each kind */
	int64_t n_indices, n_tensors;
	char other[NIB_SHOWN_BYTES]; /* the first of another format, or "" */
	const char *other_format;
};

static bool ends_with(const char *name, const char *end)
{
	const size_t n = strlen(name), m = strlen(end);

	return n > m && strcmp(name + n - m, end) == 0;
}

/* Puts a copy of name in the place of *kept; false without memory. */
static bool keep(char **kept, const char *name)
{
	free(*kept);
	*kept = strdup(name);
	return *kept != NULL;
}

static bool look_at(struct candidates *c, const char *name)
{
	if (name[0] == '.')
		return true;
	c->has_index |= strcmp(name, INDEX) == 0;
	c->has_one |= strcmp(name, ONE_FILE) == 0;
	if (ends_with(name, IS_INDEX)) {
		c->n_indices++;
		return keep(&c->index, name);
	}
	if (!c->other_format && nib_other_format_named(name)) {
		c->other_format = nib_other_format_named(name);
		nib_show_name(c->other, name);
	}
	if (!ends_with(name, IS_TENSOR))
		return true;
	c->n_tensors++;
	return keep(&c->tensors, name);
}

static enum nib_status list_folder(const char *path, struct candidates *c,
				   struct nib_error *err)
{
	const struct dirent *found;
	DIR *folder = opendir(path);
	int code = folder ? 0 : errno;

	while (folder && !code) {
		errno = 0;
		found = readdir(folder);
		if (!found) {
			code = errno;
			break;
		}
		if (!look_at(c, found->d_name))
			code = ENOMEM;
	}
	if (folder)
		closedir(folder);
	return code ? nib_fail_errno(err, path, "read the folder", code)
		    : NIB_STATUS_OK;
}

/* The name of the file to open, or NULL if the choice is not unique. */
static const char *choose(const struct candidates *c)
{
	if (c->has_index)
		return INDEX;
	if (c->has_one)
		return ONE_FILE;
	if (c->n_indices == 1)
		return c->index;
	return !c->n_indices && c->n_tensors == 1 ? c->tensors : NULL;
}

/*
 * Refuses a folder with a file of the usual name that its index does not name:
 * transformers would load that file, and vLLM the files of the index.
 */
static enum nib_status check_only_model(const char *shown, struct nib_file **file,
					struct nib_error *err)
{
	for (int64_t i = 0; i < nib_file_shard_count(*file); i++)
		if (!strcmp(nib_file_shard_at(*file, i), ONE_FILE))
			return NIB_STATUS_OK;
	nib_file_close(*file);
	*file = NULL;
	return nib_fail(err, NIB_STATUS_BAD_FILE,
			"%s: " ONE_FILE " and " INDEX
			", which does not name it, are two models: name one of "
			"the two files",
			shown);
}

static enum nib_status open_chosen(const char *path, const struct candidates *c,
				   struct nib_file **file, struct nib_error *err)
{
	const char *name = choose(c);
	char shown[NIB_SHOWN_BYTES];
	enum nib_status status;
	char *whole;
	size_t n;

	nib_show_path(shown, path);
	if (!name && !c->n_tensors && !c->n_indices)
		return nib_fail(err, NIB_STATUS_BAD_FILE,
				"%s: a folder without a safetensors file%s%s%s"
				"%s",
				shown, c->other_format ? "; " : "", c->other,
				c->other_format ? " is named as " : "",
				c->other_format ? c->other_format : "");
	if (!name)
		return nib_fail(err, NIB_STATUS_BAD_FILE,
				"%s: %" PRId64 " safetensors files and %" PRId64
				" indices, none named " INDEX " or " ONE_FILE
				": name one of them",
				shown, c->n_tensors, c->n_indices);
	n = strlen(path) + strlen(name) + 2;
	whole = malloc(n);
	if (!whole)
		return nib_fail_errno(err, path, "open", ENOMEM);
	snprintf(whole, n, "%s/%s", path, name);
	status = ends_with(name, IS_INDEX) ? open_index(whole, file, err)
					   : open_single(whole, file, err);
	free(whole);
	if (!status && c->has_index && c->has_one)
		status = check_only_model(shown, file, err);
	return status;
}

/* ---- opening and closing ------------------------------------------------- */

/* Refuses NULL arguments of an open call and sets *file to NULL. */
static enum nib_status check_open(const void *bytes, const char *name,
				  struct nib_file **file, struct nib_error *err)
{
	if (!file)
		return nib_fail_argument(err, NIB_STATUS_BAD_ARGUMENT, "file",
					 " = NULL: must point to a pointer");
	*file = NULL;
	if (!bytes)
		return nib_fail_argument(err, NIB_STATUS_BAD_ARGUMENT, name,
					 " = NULL: must point to the file's %s", name);
	return NIB_STATUS_OK;
}

enum nib_status nib_file_open(const char *path, struct nib_file **file,
			      struct nib_error *err)
{
	enum nib_status status = check_open(path, "path", file, err);
	struct candidates c = {0};
	struct stat st;

	if (status)
		return status;
	if (stat(path, &st) == 0 && S_ISDIR(st.st_mode)) {
		status = list_folder(path, &c, err);
		if (!status)
			status = open_chosen(path, &c, file, err);
		free(c.index);
		free(c.tensors);
		return status;
	}
	return ends_with(path, IS_INDEX) ? open_index(path, file, err)
					 : open_single(path, file, err);
}

enum nib_status nib_file_open_shards(const char *const *paths, int64_t count,
				     struct nib_file **file, struct nib_error *err)
{
	enum nib_status status = check_open(paths, "paths", file, err);
	struct joiner j = {.err = err};

	if (status)
		return status;
	if (count <= 0)
		return nib_fail_argument(err, NIB_STATUS_BAD_ARGUMENT, "count",
					 " = %" PRId64 ": must be positive", count);
	for (int64_t i = 0; i < count; i++)
		if (!paths[i])
			return nib_fail_argument(err, NIB_STATUS_BAD_ARGUMENT, "paths",
						 "[%" PRId64 "] = NULL: must be a path",
						 i);
	j.index = paths[0];
	j.file = calloc(1, sizeof(*j.file));
	status = j.file ? open_paths(&j, paths, count) : no_memory(&j);
	if (!status)
		status = join_tensors(&j);
	if (!status)
		status = check_twice(&j);
	return finish(&j, status, file);
}

enum nib_status nib_file_open_memory(const void *bytes, size_t n_bytes,
				     const char *path, struct nib_file **out,
				     struct nib_error *err)
{
	enum nib_status status = check_open(bytes, "bytes", out, err);
	struct nib_file *file;

	if (status)
		return status;
	path = path ? path : "memory";
	status = nib_file_open_bytes(bytes, n_bytes, path, &file, err);
	return status ? status : find_layers(file, path, out, err);
}

void nib_file_close(struct nib_file *file)
{
	if (!file)
		return;
	nib_file_free_layers(file);
	for (int64_t i = 0; i < file->n_shards; i++) {
		nib_file_close_shard(file->shards[i].file);
		free(file->shards[i].name);
	}
	free(file->shards);
	nib_file_close_shard(file);
}
