/* SPDX-License-Identifier: Apache-2.0 */
/* writer_header.c - the header of a safetensors file, as JSON text. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "file/writer.h"

/* Text that grows.  After a failed allocation text is NULL and stays so. */
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

__attribute__((format(printf, 2, 3))) static void
put_format(struct text *t, const char *format, ...)
{
	char piece[96];
	va_list args;
	int n;

	va_start(args, format);
	n = vsnprintf(piece, sizeof(piece), format, args);
	va_end(args);
	put(t, piece, (size_t)n);
}

/* s is UTF-8, which JSON takes as it is. */
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
	put_format(t, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}",
		   tensor->offset, tensor->offset + tensor->bytes);
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

/* Tensors of one alignment keep their order, so layers stay together. */
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

enum nib_status nib_writer_header(struct nib_writer *writer, char **header,
				  size_t *n_bytes, struct nib_error *err)
{
	struct text t = {.capacity = 4096};
	uint64_t length;

	t.text = malloc(t.capacity);
	put(&t, "........{", 9); /* the length comes last */
	if (writer->n_metadata > 0)
		put_metadata(&t, writer);
	put_tensors(&t, writer, writer->n_metadata > 0);
	put(&t, "}", 1);
	while (t.text && t.used % 8 != 0)
		put(&t, " ", 1);
	if (!t.text)
		return nib_fail(err, NIB_OUT_OF_MEMORY,
				"out of memory for the header of %" PRId64
				" tensors",
				writer->n_tensors);
	length = t.used - 8;
	if (length > NIB_MAX_HEADER_BYTES) {
		free(t.text);
		return nib_fail(err, NIB_UNSUPPORTED,
				"header of %" PRIu64 " bytes: at most %d",
				length, NIB_MAX_HEADER_BYTES);
	}
	for (int i = 0; i < 8; i++)
		t.text[i] = (char)(unsigned char)(length >> 8 * i);
	*header = t.text;
	*n_bytes = t.used;
	return NIB_OK;
}
