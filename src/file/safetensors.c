/* SPDX-License-Identifier: Apache-2.0 */
/*
 * safetensors.c - reads and checks the header of one safetensors file (those of
 * several are joined by sharded.c):
 *
 *   8 bytes   length of the header, little-endian
 *   header    {"name": {"dtype": "U8", "shape": [2], "data_offsets": [0, 2]},
 *              ..., "__metadata__": {"key": "value", ...}}, padded with spaces
 *   data      the tensors, one after the other, without gaps
 *
 * The sizes in a header are compared with the file's before any allocation.
 */
#include "safetensors.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/json.h"
#include "core/text.h"
#include "file/array.h"
#include "file/dtype.h"
#include "file/other_format.h"

struct reader {
	struct nib_file *file;
	const char *path;
	struct nib_error *err;
	struct nib_json json;
	const unsigned char *data; /* after the header */
	uint64_t data_bytes;
	int64_t tensors_capacity, metadata_capacity;
	int has_metadata;
};

/* The fields of one tensor, in any order. */
enum field { DTYPE = 1, SHAPE = 2, DATA_OFFSETS = 4, ALL_FIELDS = 7 };

static enum nib_status out_of_memory(struct reader *r)
{
	char shown[NIB_SHOWN_BYTES];

	return nib_fail(r->err, NIB_STATUS_OUT_OF_MEMORY,
			"%s: out of memory for the header",
			nib_show_path(shown, r->path));
}

/* name is the tensor's, or NULL. */
__attribute__((format(printf, 3, 4))) static enum nib_status
bad_file(struct reader *r, const char *name, const char *format, ...)
{
	char path[NIB_SHOWN_BYTES], shown[NIB_SHOWN_BYTES], text[160];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	nib_show_path(path, r->path);
	if (!name)
		return nib_fail(r->err, NIB_STATUS_BAD_FILE, "%s: %s", path, text);
	return nib_fail(r->err, NIB_STATUS_BAD_FILE, "%s: tensor '%s': %s", path,
			nib_show_name(shown, name), text);
}

static enum nib_status bad_json(struct reader *r, const char *name)
{
	return bad_file(r, name, "byte %td of the header: %s",
			r->json.at - r->json.begin, r->json.problem);
}

/* ------------------------------------------------------------------------ */
/* One entry of the header                                                   */

static enum nib_status read_shape(struct reader *r, struct nib_file_tensor *tensor)
{
	if (!nib_json_expect(&r->json, '['))
		return bad_json(r, tensor->name);
	if (nib_json_take(&r->json, ']'))
		return NIB_STATUS_OK;
	do {
		char path[NIB_SHOWN_BYTES], name[NIB_SHOWN_BYTES];

		if (tensor->rank == NIB_MAX_RANK)
			return nib_fail(r->err, NIB_STATUS_UNSUPPORTED,
					"%s: tensor '%s': more than %d "
					"dimensions",
					nib_show_path(path, r->path),
					nib_show_name(name, tensor->name),
					NIB_MAX_RANK);
		if (!nib_json_int(&r->json, &tensor->shape[tensor->rank++]))
			return bad_json(r, tensor->name);
	} while (nib_json_take(&r->json, ','));
	if (!nib_json_expect(&r->json, ']'))
		return bad_json(r, tensor->name);
	return NIB_STATUS_OK;
}

static enum nib_status read_dtype(struct reader *r, struct nib_file_tensor *tensor)
{
	char shown[NIB_SHOWN_BYTES];
	const char *name = nib_json_string(&r->json);
	const struct nib_file_dtype *dtype;

	if (!name)
		return bad_json(r, tensor->name);
	dtype = nib_file_dtype_find(name);
	if (!dtype)
		return bad_file(r, tensor->name, "unknown dtype '%s'",
				nib_show_name(shown, name));
	tensor->dtype = dtype->name;
	return NIB_STATUS_OK;
}

/* Sets data and bytes after checking that the range is inside the file. */
static enum nib_status read_offsets(struct reader *r, struct nib_file_tensor *tensor)
{
	int64_t begin, end;

	if (!nib_json_expect(&r->json, '[') || !nib_json_int(&r->json, &begin) ||
	    !nib_json_expect(&r->json, ',') || !nib_json_int(&r->json, &end) ||
	    !nib_json_expect(&r->json, ']'))
		return bad_json(r, tensor->name);
	if (begin > end || (uint64_t)end > r->data_bytes)
		return bad_file(r, tensor->name,
				"data_offsets %" PRId64 "..%" PRId64
				" in a file with %" PRIu64 " bytes of data",
				begin, end, r->data_bytes);
	tensor->data = r->data + begin;
	tensor->bytes = (uint64_t)(end - begin);
	return NIB_STATUS_OK;
}

static enum nib_status read_field(struct reader *r, unsigned *seen,
				  struct nib_file_tensor *tensor)
{
	static const char *const names[] = {"dtype", "shape", "data_offsets"};
	char shown[NIB_SHOWN_BYTES];
	const char *key = nib_json_string(&r->json);
	unsigned i = 0;

	if (!key)
		return bad_json(r, tensor->name);
	while (i < 3 && strcmp(key, names[i]) != 0)
		i++;
	if (i == 3)
		return bad_file(r, tensor->name, "unknown key '%s'",
				nib_show_name(shown, key));
	if (*seen & 1U << i)
		return bad_file(r, tensor->name, "duplicate key '%s'", key);
	*seen |= 1U << i;
	if (!nib_json_expect(&r->json, ':'))
		return bad_json(r, tensor->name);
	switch (1U << i) {
	case DTYPE:
		return read_dtype(r, tensor);
	case SHAPE:
		return read_shape(r, tensor);
	default:
		return read_offsets(r, tensor);
	}
}

static enum nib_status check_bytes(struct reader *r,
				   const struct nib_file_tensor *tensor)
{
	const struct nib_file_dtype *dtype = nib_file_dtype_find(tensor->dtype);
	uint64_t bytes;

	if (!nib_file_shape_bytes(dtype, tensor->rank, tensor->shape, &bytes))
		return bad_file(r, tensor->name,
				"shape * dtype overflows, or is no whole "
				"number of bytes");
	if (bytes != tensor->bytes)
		return bad_file(r, tensor->name,
				"shape and dtype make %" PRIu64
				" bytes, data_offsets %" PRIu64,
				bytes, tensor->bytes);
	return NIB_STATUS_OK;
}

static enum nib_status read_tensor(struct reader *r, const char *name)
{
	struct nib_file *file = r->file;
	struct nib_file_tensor *tensor;
	enum nib_status status;
	unsigned seen = 0;

	if (!nib_array_grow(&file->tensors, file->n_tensors, &r->tensors_capacity,
			    sizeof(*tensor)))
		return out_of_memory(r);
	tensor = &file->tensors[file->n_tensors];
	*tensor = (struct nib_file_tensor){.name = name};
	if (!nib_json_expect(&r->json, '{'))
		return bad_json(r, name);
	do {
		status = read_field(r, &seen, tensor);
		if (status)
			return status;
	} while (nib_json_take(&r->json, ','));
	if (!nib_json_expect(&r->json, '}'))
		return bad_json(r, name);
	if (seen != ALL_FIELDS)
		return bad_file(r, name, "no %s",
				!(seen & DTYPE)	  ? "dtype"
				: !(seen & SHAPE) ? "shape"
						  : "data_offsets");
	file->n_tensors++;
	return check_bytes(r, tensor);
}

static enum nib_status read_metadata(struct reader *r)
{
	struct nib_file *file = r->file;

	if (r->has_metadata)
		return bad_file(r, NULL, "duplicate key '__metadata__'");
	r->has_metadata = 1;
	if (!nib_json_expect(&r->json, '{'))
		return bad_json(r, "__metadata__");
	if (nib_json_take(&r->json, '}'))
		return NIB_STATUS_OK;
	do {
		struct nib_file_pair pair;

		pair.key = nib_json_string(&r->json);
		if (!pair.key || !nib_json_expect(&r->json, ':'))
			return bad_json(r, "__metadata__");
		pair.value = nib_json_string(&r->json);
		if (!pair.value)
			return bad_json(r, "__metadata__");
		if (!nib_array_grow(&file->metadata, file->n_metadata,
				    &r->metadata_capacity, sizeof(pair)))
			return out_of_memory(r);
		file->metadata[file->n_metadata++] = pair;
	} while (nib_json_take(&r->json, ','));
	if (!nib_json_expect(&r->json, '}'))
		return bad_json(r, "__metadata__");
	return NIB_STATUS_OK;
}

/* ------------------------------------------------------------------------ */
/* The whole header                                                          */

static enum nib_status read_entries(struct reader *r)
{
	enum nib_status status;

	if (!nib_json_expect(&r->json, '{'))
		return bad_json(r, NULL);
	if (nib_json_take(&r->json, '}'))
		goto end;
	do {
		const char *name = nib_json_string(&r->json);

		if (!name || !nib_json_expect(&r->json, ':'))
			return bad_json(r, name);
		if (strcmp(name, "__metadata__") == 0)
			status = read_metadata(r);
		else
			status = read_tensor(r, name);
		if (status)
			return status;
	} while (nib_json_take(&r->json, ','));
	if (!nib_json_expect(&r->json, '}'))
		return bad_json(r, NULL);
end:
	if (!nib_json_end(&r->json))
		return bad_json(r, NULL);
	return NIB_STATUS_OK;
}

static int compare_data(const void *a, const void *b)
{
	const struct nib_file_tensor *s = a, *t = b;

	if (s->data != t->data)
		return (uintptr_t)s->data < (uintptr_t)t->data ? -1 : 1;
	if (s->bytes != t->bytes) /* empty ones first */
		return s->bytes < t->bytes ? -1 : 1;
	return strcmp(s->name, t->name);
}

static int compare_name(const void *a, const void *b)
{
	const struct nib_file_tensor *const *s = a, *const *t = b;

	return strcmp((*s)->name, (*t)->name);
}

static int compare_key(const void *a, const void *b)
{
	const struct nib_file_pair *s = a, *t = b;

	return strcmp(s->key, t->key);
}

/* Sorts the tensors by their data, which must be covered exactly once. */
static enum nib_status check_contiguous(struct reader *r)
{
	struct nib_file *file = r->file;
	uint64_t covered = 0;

	if (file->n_tensors > 0)
		qsort(file->tensors, (size_t)file->n_tensors, sizeof(*file->tensors),
		      compare_data);
	for (int64_t i = 0; i < file->n_tensors; i++) {
		const struct nib_file_tensor *t = &file->tensors[i];
		uint64_t begin = (uint64_t)((const unsigned char *)t->data - r->data);

		if (begin != covered)
			return bad_file(r, t->name,
					"data begins at %" PRIu64
					", the tensor before ends at %" PRIu64,
					begin, covered);
		covered += t->bytes;
	}
	if (covered != r->data_bytes)
		return bad_file(
		    r, NULL, "tensors cover %" PRIu64 " of %" PRIu64 " bytes of data",
		    covered, r->data_bytes);
	return NIB_STATUS_OK;
}

bool nib_file_index_names(struct nib_file *file)
{
	size_t n = (size_t)file->n_tensors;

	file->by_name = malloc((n ? n : 1) * sizeof(*file->by_name));
	if (!file->by_name)
		return false;
	for (size_t i = 0; i < n; i++)
		file->by_name[i] = &file->tensors[i];
	if (n > 0)
		qsort(file->by_name, n, sizeof(*file->by_name), compare_name);
	return true;
}

static enum nib_status index_names(struct reader *r)
{
	struct nib_file *file = r->file;

	if (!nib_file_index_names(file))
		return out_of_memory(r);
	for (int64_t i = 1; i < file->n_tensors; i++) {
		if (!compare_name(&file->by_name[i - 1], &file->by_name[i]))
			return bad_file(r, file->by_name[i]->name, "duplicate key");
	}
	return NIB_STATUS_OK;
}

/* Sorts the pairs by key and refuses duplicate keys. */
static enum nib_status check_metadata(struct reader *r)
{
	struct nib_file_pair *pairs = r->file->metadata;
	char shown[NIB_SHOWN_BYTES];

	if (r->file->n_metadata == 0)
		return NIB_STATUS_OK;
	qsort(pairs, (size_t)r->file->n_metadata, sizeof(*pairs), compare_key);
	for (int64_t i = 1; i < r->file->n_metadata; i++) {
		if (!compare_key(&pairs[i - 1], &pairs[i]))
			return bad_file(r, "__metadata__", "duplicate key '%s'",
					nib_show_name(shown, pairs[i].key));
	}
	return NIB_STATUS_OK;
}

/* Finds the header's length.  The error for a file without header names its format. */
static enum nib_status find_header(struct reader *r, const unsigned char *at,
				   size_t n_bytes, uint64_t *header_bytes)
{
	const char *other = nib_other_format(at, n_bytes);
	uint64_t n = 0;

	for (int i = 7; i >= 0 && n_bytes >= 8; i--)
		n = n << 8 | at[i];
	*header_bytes = n;
	if (n_bytes >= 8 && n <= NIB_MAX_HEADER_BYTES && n <= n_bytes - 8)
		return n && at[8] == '{' ? NIB_STATUS_OK
					 : bad_file(r, NULL,
						    "the header does not begin "
						    "with '{'");
	if (other)
		return bad_file(r, NULL, "is no safetensors file but %s", other);
	if (n_bytes < 8)
		return bad_file(r, NULL, "%zu bytes: too short for a header", n_bytes);
	if (n > NIB_MAX_HEADER_BYTES)
		return bad_file(r, NULL, "header of %" PRIu64 " bytes: at most %d", n,
				NIB_MAX_HEADER_BYTES);
	return bad_file(r, NULL, "header of %" PRIu64 " bytes in a file of %zu bytes",
			n, n_bytes);
}

static enum nib_status read_header(struct reader *r, const void *bytes, size_t n_bytes)
{
	const unsigned char *at = bytes;
	uint64_t header_bytes;
	enum nib_status status = find_header(r, at, n_bytes, &header_bytes);

	if (status)
		return status;
	r->data = at + 8 + header_bytes;
	r->data_bytes = n_bytes - 8 - header_bytes;
	r->file->strings = malloc((size_t)header_bytes + 1);
	if (!r->file->strings)
		return out_of_memory(r);
	nib_json_init(&r->json, (const char *)at + 8, (size_t)header_bytes,
		      r->file->strings);
	status = read_entries(r);
	if (!status)
		status = check_contiguous(r);
	if (!status)
		status = index_names(r);
	if (!status)
		status = check_metadata(r);
	return status;
}

/* ------------------------------------------------------------------------ */
/* The public functions                                                      */

/* The file owns map, also if the call fails. */
static enum nib_status open_map(const void *bytes, size_t n_bytes, const char *path,
				struct nib_mapped_file map, struct nib_file **out,
				struct nib_error *err)
{
	struct nib_file *file = calloc(1, sizeof(*file));
	struct reader r = {.file = file, .path = path, .err = err};
	enum nib_status status;

	if (!file) {
		nib_file_unmap(&map);
		return out_of_memory(&r);
	}
	file->map = map;
	status = read_header(&r, bytes, n_bytes);
	if (status)
		nib_file_close_shard(file);
	else
		*out = file;
	return status;
}

enum nib_status nib_file_open_shard(const char *path, struct nib_file **file,
				    struct nib_error *err)
{
	struct nib_mapped_file map;
	enum nib_status status = nib_file_map(&map, path, err);

	if (status)
		return status;
	return open_map(map.bytes, map.n_bytes, path, map, file, err);
}

enum nib_status nib_file_open_bytes(const void *bytes, size_t n_bytes, const char *path,
				    struct nib_file **file, struct nib_error *err)
{
	return open_map(bytes, n_bytes, path, (struct nib_mapped_file){0}, file, err);
}

void nib_file_close_shard(struct nib_file *file)
{
	if (!file)
		return;
	free(file->metadata);
	free(file->by_name);
	free(file->tensors);
	free(file->strings);
	nib_file_unmap(&file->map);
	free(file);
}

int64_t nib_file_tensor_count(const struct nib_file *file)
{
	return file ? file->n_tensors : 0;
}

const struct nib_file_tensor *nib_file_tensor_at(const struct nib_file *file,
						 int64_t index)
{
	if (!file || index < 0 || index >= file->n_tensors)
		return NULL;
	return &file->tensors[index];
}

const struct nib_file_tensor *nib_file_find(const struct nib_file *file,
					    const char *name)
{
	const struct nib_file_tensor key = {.name = name}, *wanted = &key;
	const struct nib_file_tensor **found;

	if (!file || !name)
		return NULL;
	found = bsearch(&wanted, file->by_name, (size_t)file->n_tensors,
			sizeof(*file->by_name), compare_name);
	return found ? *found : NULL;
}

int64_t nib_file_shard_count(const struct nib_file *file)
{
	return file ? file->n_shards : 0;
}

const char *nib_file_shard_at(const struct nib_file *file, int64_t index)
{
	if (!file || index < 0 || index >= file->n_shards)
		return NULL;
	return file->shards[index].name;
}

/* The file whose metadata is returned: the first shard, if there are shards. */
static const struct nib_file *with_metadata(const struct nib_file *file)
{
	return file && file->n_shards ? file->shards[0].file : file;
}

int64_t nib_file_metadata_count(const struct nib_file *file)
{
	file = with_metadata(file);
	return file ? file->n_metadata : 0;
}

void nib_file_metadata_at(const struct nib_file *file, int64_t index, const char **key,
			  const char **value)
{
	struct nib_file_pair pair = {0};

	file = with_metadata(file);
	if (file && index >= 0 && index < file->n_metadata)
		pair = file->metadata[index];
	if (key)
		*key = pair.key;
	if (value)
		*value = pair.value;
}
