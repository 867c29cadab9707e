/* SPDX-License-Identifier: Apache-2.0 */
/*
 * writer.c - writes a safetensors file in one pass: declare, write, commit.
 *
 * Bytes are written in the order of declaration.  The file has the tensors in the
 * order of falling alignment: the header defines each offset before the first
 * write.
 */
#include "writer.h"

#include <inttypes.h>
#include <search.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/text.h"
#include "file/array.h"

/* ------------------------------------------------------------------------ */
/* Strings: checked, copied, unique                                          */

static int compare_strings(const void *a, const void *b)
{
	return strcmp(a, b);
}

/* Frees a tree of strings, but not the strings: POSIX has no tdestroy(). */
static void free_tree(void **tree)
{
	/* A node begins with the pointer to its string. */
	while (*tree)
		tdelete(*(void **)*tree, tree, compare_strings);
}

static enum nib_status check_text(const char *text, const char *argument,
				  struct nib_error *err)
{
	char shown[NIB_SHOWN_BYTES];
	size_t n_bytes;

	if (!text)
		return nib_fail_argument(err, NIB_STATUS_BAD_ARGUMENT, argument,
					 " = NULL: must be a string");
	n_bytes = strlen(text);
	for (size_t i = 0; i < n_bytes;) {
		size_t length = nib_utf8_char_bytes(text + i, n_bytes - i);

		if (length == 0)
			return nib_fail_argument(err, NIB_STATUS_BAD_ARGUMENT, argument,
						 " = '%s': must be UTF-8",
						 nib_show_name(shown, text));
		i += length;
	}
	return NIB_STATUS_OK;
}

/*
 * Copies text and puts the copy into a tree; forget() undoes both.  Returns
 * NULL if the tree has the text already, and sets *status.
 */
static char *copy_unique(void **tree, const char *text, const char *argument,
			 enum nib_status *status, struct nib_error *err)
{
	char shown[NIB_SHOWN_BYTES];
	char *copy;

	*status = check_text(text, argument, err);
	if (*status || !text)
		return NULL;
	if (tfind(text, tree, compare_strings)) {
		*status = nib_fail_argument(err, NIB_STATUS_BAD_ARGUMENT, argument,
					    " = '%s': declared before",
					    nib_show_name(shown, text));
		return NULL;
	}
	copy = strdup(text);
	if (copy && tsearch(copy, tree, compare_strings))
		return copy;
	free(copy);
	*status = nib_fail(err, NIB_STATUS_OUT_OF_MEMORY, "out of memory for %s '%s'",
			   argument, nib_show_name(shown, text));
	return NULL;
}

static void forget(void **tree, char *copy)
{
	tdelete(copy, tree, compare_strings);
	free(copy);
}

/* ------------------------------------------------------------------------ */
/* Open and declare                                                          */

enum nib_status nib_writer_open(const char *path, struct nib_writer **writer,
				struct nib_error *err)
{
	struct nib_writer *w;
	enum nib_status status;

	if (!writer)
		return nib_fail_argument(err, NIB_STATUS_BAD_ARGUMENT, "writer",
					 " = NULL: must point to a pointer");
	*writer = NULL;
	if (!path)
		return nib_fail_argument(err, NIB_STATUS_BAD_ARGUMENT, "path",
					 " = NULL: must be a path");
	w = calloc(1, sizeof(*w));
	if (!w)
		return nib_fail(err, NIB_STATUS_OUT_OF_MEMORY,
				"out of memory for a writer");
	status = nib_atomic_file_open(&w->file, path, err);
	if (status) {
		free(w);
		return status;
	}
	*writer = w;
	return NIB_STATUS_OK;
}

static enum nib_status check_open(const struct nib_writer *writer,
				  struct nib_error *err)
{
	if (!writer)
		return nib_fail_argument(err, NIB_STATUS_BAD_ARGUMENT, "writer",
					 " = NULL: must be a writer");
	if (writer->has_header)
		return nib_fail_argument(
		    err, NIB_STATUS_BAD_ARGUMENT, "writer",
		    ": declared after the first write: the header is written");
	return NIB_STATUS_OK;
}

enum nib_status nib_writer_metadata(struct nib_writer *writer, const char *key,
				    const char *value, struct nib_error *err)
{
	struct nib_file_pair *pair;
	enum nib_status status = check_open(writer, err);
	char *key_copy, *value_copy;

	if (!status)
		status = check_text(value, "value", err);
	if (status)
		return status;
	key_copy = copy_unique(&writer->keys, key, "key", &status, err);
	if (!key_copy)
		return status;
	value_copy = strdup(value);
	if (!value_copy ||
	    !nib_array_grow(&writer->metadata, writer->n_metadata,
			    &writer->metadata_capacity, sizeof(*writer->metadata))) {
		forget(&writer->keys, key_copy);
		free(value_copy);
		return nib_fail(err, NIB_STATUS_OUT_OF_MEMORY,
				"out of memory for metadata");
	}
	pair = &writer->metadata[writer->n_metadata++];
	pair->key = key_copy;
	pair->value = value_copy;
	return NIB_STATUS_OK;
}

static enum nib_status check_shape(struct nib_writer_tensor *t, const char *dtype,
				   int rank, const int64_t *shape,
				   struct nib_error *err)
{
	char shown[NIB_SHOWN_BYTES];

	if (!dtype)
		return nib_fail_argument(err, NIB_STATUS_BAD_ARGUMENT, "dtype",
					 " = NULL: must be one of safetensors'");
	t->dtype = nib_file_dtype_find(dtype);
	if (!t->dtype)
		return nib_fail_argument(err, NIB_STATUS_BAD_ARGUMENT, "dtype",
					 " = '%s': must be one of safetensors'",
					 nib_show_name(shown, dtype));
	if (rank < 0 || rank > NIB_MAX_RANK)
		return nib_fail_argument(err, NIB_STATUS_BAD_ARGUMENT, "rank",
					 " = %d: must be 0 .. %d", rank, NIB_MAX_RANK);
	if (rank > 0 && !shape)
		return nib_fail_argument(err, NIB_STATUS_BAD_ARGUMENT, "shape",
					 " = NULL: must point to rank sizes");
	t->rank = rank;
	for (int i = 0; i < rank; i++) {
		if (shape[i] < 0)
			return nib_fail_argument(
			    err, NIB_STATUS_BAD_ARGUMENT, "shape",
			    "[%d] = %" PRId64 ": must not be negative", i, shape[i]);
		t->shape[i] = shape[i];
	}
	if (!nib_file_shape_bytes(t->dtype, rank, shape, &t->bytes))
		return nib_fail_argument(err, NIB_STATUS_BAD_ARGUMENT, "shape",
					 ": its bytes overflow, or are no whole "
					 "number");
	return NIB_STATUS_OK;
}

enum nib_status nib_writer_declare(struct nib_writer *writer, const char *name,
				   const char *dtype, int rank, const int64_t *shape,
				   struct nib_error *err)
{
	struct nib_writer_tensor t = {0};
	enum nib_status status = check_open(writer, err);
	uint64_t total;

	if (!status)
		status = check_shape(&t, dtype, rank, shape, err);
	if (status)
		return status;
	if (__builtin_add_overflow(writer->total_bytes, t.bytes, &total) ||
	    total > INT64_MAX - 8 - NIB_MAX_HEADER_BYTES)
		return nib_fail_argument(err, NIB_STATUS_BAD_ARGUMENT, "shape",
					 ": the file would be too long");
	if (name && strcmp(name, "__metadata__") == 0)
		return nib_fail_argument(err, NIB_STATUS_BAD_ARGUMENT, "name",
					 " = '__metadata__': not for tensors");
	t.name = copy_unique(&writer->names, name, "name", &status, err);
	if (!t.name)
		return status;
	if (!nib_array_grow(&writer->tensors, writer->n_tensors,
			    &writer->tensors_capacity, sizeof(*writer->tensors))) {
		forget(&writer->names, t.name);
		return nib_fail(err, NIB_STATUS_OUT_OF_MEMORY,
				"out of memory for a tensor");
	}
	writer->tensors[writer->n_tensors++] = t;
	writer->total_bytes = total;
	return NIB_STATUS_OK;
}

void nib_writer_undeclare(struct nib_writer *writer, int64_t index)
{
	while (writer->n_tensors > index) {
		struct nib_writer_tensor *t = &writer->tensors[--writer->n_tensors];

		writer->total_bytes -= t->bytes;
		forget(&writer->names, t->name);
	}
}

/* ------------------------------------------------------------------------ */
/* The header, as JSON text                                                  */

/* Text that grows.  After a failed allocation text stays NULL. */
struct text {
	char *text;
	size_t used, capacity;
};

static void put(struct text *t, const char *bytes, size_t n_bytes)
{
	if (!t->text)
		return;
	if (n_bytes > t->capacity - t->used) {
		size_t more = t->capacity;
		char *grown = NULL;

		while (more - t->used < n_bytes && more <= SIZE_MAX / 2)
			more *= 2;
		if (more - t->used >= n_bytes)
			grown = realloc(t->text, more);
		if (!grown)
			free(t->text);
		t->text = grown;
		t->capacity = more;
		if (!grown)
			return;
	}
	memcpy(t->text + t->used, bytes, n_bytes);
	t->used += n_bytes;
}

__attribute__((format(printf, 2, 3))) static void put_format(struct text *t,
							     const char *format, ...)
{
	char piece[96];
	va_list args;
	int n;

	va_start(args, format);
	n = vsnprintf(piece, sizeof(piece), format, args);
	va_end(args);
	put(t, piece, (size_t)n);
}

/* s is UTF-8, which JSON allows unescaped. */
static void put_string(struct text *t, const char *s)
{
	put(t, "\"", 1);
	for (; *s; s++) {
		if (*s == '"' || *s == '\\')
			put_format(t, "\\%c", *s);
		else if ((unsigned char)*s < 0x20)
			put_format(t, "\\u%04x", (unsigned)*s);
		else
			put(t, s, 1);
	}
	put(t, "\"", 1);
}

static void put_tensor(struct text *t, const struct nib_writer_tensor *tensor)
{
	put_string(t, tensor->name);
	put_format(t, ":{\"dtype\":\"%s\",\"shape\":[", tensor->dtype->name);
	for (int i = 0; i < tensor->rank; i++)
		put_format(t, i ? ",%" PRId64 : "%" PRId64, tensor->shape[i]);
	put_format(t, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", tensor->offset,
		   tensor->offset + tensor->bytes);
}

static void put_metadata(struct text *t, const struct nib_writer *writer)
{
	put_format(t, "\"__metadata__\":{");
	for (int64_t i = 0; i < writer->n_metadata; i++) {
		if (i > 0)
			put(t, ",", 1);
		put_string(t, writer->metadata[i].key);
		put(t, ":", 1);
		put_string(t, writer->metadata[i].value);
	}
	put(t, "}", 1);
}

static unsigned alignment_bytes(const struct nib_file_dtype *dtype)
{
	return dtype->bits < 16 ? 1 : dtype->bits / 8;
}

/* Gives each tensor its offset.  Tensors of one alignment keep their order, so that
 * the tensors of a layer stay together. */
static void put_tensors(struct text *t, struct nib_writer *writer, bool comma)
{
	uint64_t offset = 0;

	for (unsigned align = 8; align > 0; align /= 2) {
		for (int64_t i = 0; i < writer->n_tensors; i++) {
			struct nib_writer_tensor *tensor = &writer->tensors[i];

			if (alignment_bytes(tensor->dtype) != align)
				continue;
			tensor->offset = offset;
			offset += tensor->bytes;
			if (comma)
				put(t, ",", 1);
			put_tensor(t, tensor);
			comma = true;
		}
	}
}

/* Returns the header after its length; the caller frees it. */
static enum nib_status make_header(struct nib_writer *writer, char **header,
				   size_t *n_bytes, struct nib_error *err)
{
	struct text t = {.capacity = 4096};
	uint64_t length;

	t.text = malloc(t.capacity);
	put(&t, "........{", 9); /* the length is filled in last */
	if (writer->n_metadata > 0)
		put_metadata(&t, writer);
	put_tensors(&t, writer, writer->n_metadata > 0);
	put(&t, "}", 1);
	while (t.text && t.used % 8 != 0)
		put(&t, " ", 1);
	if (!t.text)
		return nib_fail(err, NIB_STATUS_OUT_OF_MEMORY,
				"out of memory for the header of %" PRId64 " tensors",
				writer->n_tensors);
	length = t.used - 8;
	if (length > NIB_MAX_HEADER_BYTES) {
		free(t.text);
		return nib_fail(err, NIB_STATUS_UNSUPPORTED,
				"header of %" PRIu64 " bytes: at most %d", length,
				NIB_MAX_HEADER_BYTES);
	}
	for (int i = 0; i < 8; i++)
		t.text[i] = (char)(unsigned char)(length >> 8 * i);
	*header = t.text;
	*n_bytes = t.used;
	return NIB_STATUS_OK;
}

/* ------------------------------------------------------------------------ */
/* Write and end                                                             */

static enum nib_status write_header(struct nib_writer *writer, struct nib_error *err)
{
	enum nib_status status;
	char *header = NULL;
	size_t n_bytes = 0;

	if (writer->has_header)
		return NIB_STATUS_OK;
	status = make_header(writer, &header, &n_bytes, err);
	if (status)
		return status;
	status =
	    nib_atomic_file_reserve(writer->file, n_bytes + writer->total_bytes, err);
	if (!status)
		status = nib_atomic_file_write(writer->file, 0, header, n_bytes, err);
	free(header);
	if (status)
		return status;
	writer->has_header = true;
	writer->data_begin = n_bytes;
	return NIB_STATUS_OK;
}

enum nib_status nib_writer_write(struct nib_writer *writer, const void *bytes,
				 size_t n_bytes, struct nib_error *err)
{
	const unsigned char *from = bytes;
	enum nib_status status;

	if (!writer)
		return nib_fail_argument(err, NIB_STATUS_BAD_ARGUMENT, "writer",
					 " = NULL: must be a writer");
	if (!bytes && n_bytes > 0)
		return nib_fail_argument(err, NIB_STATUS_BAD_ARGUMENT, "bytes",
					 " = NULL: must point to n_bytes");
	if (n_bytes > writer->total_bytes - writer->written_bytes)
		return nib_fail_argument(
		    err, NIB_STATUS_BAD_ARGUMENT, "n_bytes",
		    " = %zu: only %" PRIu64 " declared bytes are left", n_bytes,
		    writer->total_bytes - writer->written_bytes);
	status = write_header(writer, err);
	while (!status && n_bytes > 0) {
		const struct nib_writer_tensor *t = &writer->tensors[writer->at];
		uint64_t left = t->bytes - writer->at_bytes;
		size_t n = n_bytes < left ? n_bytes : (size_t)left;

		if (left == 0) {
			writer->at++;
			writer->at_bytes = 0;
			continue;
		}
		status = nib_atomic_file_write(
		    writer->file, writer->data_begin + t->offset + writer->at_bytes,
		    from, n, err);
		if (status)
			break;
		from += n;
		n_bytes -= n;
		writer->at_bytes += n;
		writer->written_bytes += n;
	}
	return status;
}

/* Frees everything but the file. */
static void free_writer(struct nib_writer *writer)
{
	free_tree(&writer->names);
	free_tree(&writer->keys);
	for (int64_t i = 0; i < writer->n_tensors; i++)
		free(writer->tensors[i].name);
	for (int64_t i = 0; i < writer->n_metadata; i++) {
		free((void *)(uintptr_t)writer->metadata[i].key);
		free((void *)(uintptr_t)writer->metadata[i].value);
	}
	free(writer->tensors);
	free(writer->metadata);
	free(writer);
}

static enum nib_status check_complete(struct nib_writer *writer, struct nib_error *err)
{
	char shown[NIB_SHOWN_BYTES];
	const struct nib_writer_tensor *t;

	if (writer->written_bytes == writer->total_bytes)
		return NIB_STATUS_OK;
	t = &writer->tensors[writer->at];
	while (writer->at_bytes == t->bytes) { /* done, or empty */
		t++;
		writer->at_bytes = 0;
	}
	return nib_fail_argument(
	    err, NIB_STATUS_BAD_ARGUMENT, "writer",
	    ": %" PRIu64 " of %" PRIu64 " bytes are not written, from byte %" PRIu64
	    " of tensor '%s' on",
	    writer->total_bytes - writer->written_bytes, writer->total_bytes,
	    writer->at_bytes, nib_show_name(shown, t->name));
}

enum nib_status nib_writer_commit(struct nib_writer *writer, struct nib_error *err)
{
	enum nib_status status;

	if (!writer)
		return nib_fail_argument(err, NIB_STATUS_BAD_ARGUMENT, "writer",
					 " = NULL: must be a writer");
	status = nib_atomic_file_check(writer->file, err);
	if (!status)
		status = check_complete(writer, err);
	if (!status)
		status = write_header(writer, err);
	if (status)
		nib_atomic_file_discard(writer->file);
	else
		status = nib_atomic_file_commit(writer->file, err);
	free_writer(writer);
	return status;
}

void nib_writer_discard(struct nib_writer *writer)
{
	if (!writer)
		return;
	nib_atomic_file_discard(writer->file);
	free_writer(writer);
}
