/* SPDX-License-Identifier: Apache-2.0 */
/* comfy.c - ComfyUI's marks of quantised layers: see comfy.h. */
#include "comfy.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/json.h"
#include "core/text.h"
#include "file/array.h"
#include "file/safetensors.h"

#define METADATA "_quantization_metadata"
/* How many parts of a name a header may leave out.  Without a limit, a hostile file
 * with long names would cost time in the square of their length. */
#define PREFIX_PARTS 8
/* A usual mark has about twenty bytes. */
#define MARK_BYTES 4096

/* ---- the header ---------------------------------------------------------- */

static const char *metadata_of(const struct nib_file *file, const char *key)
{
	for (int64_t i = 0; i < file->n_metadata; i++)
		if (!strcmp(file->metadata[i].key, key))
			return file->metadata[i].value;
	return NULL;
}

/* {"X": {...}, ...} */
static enum nib_status read_layers(struct nib_comfy *comfy, struct nib_json *json,
				   bool by_modelopt)
{
	if (!nib_json_expect(json, '{') || nib_json_take(json, '}'))
		return NIB_STATUS_OK;
	do {
		struct nib_comfy_mark mark = {.by_modelopt = by_modelopt};

		mark.name = nib_json_string(json);
		if (!mark.name || !nib_json_expect(json, ':'))
			return NIB_STATUS_OK;
		mark.text = json->at;
		if (!nib_json_skip(json))
			return NIB_STATUS_OK;
		mark.bytes = (size_t)(json->at - mark.text);
		if (!nib_array_grow(&comfy->marks, comfy->n_marks, &comfy->capacity,
				    sizeof(mark)))
			return NIB_STATUS_OUT_OF_MEMORY;
		comfy->marks[comfy->n_marks++] = mark;
	} while (nib_json_take(json, ','));
	nib_json_expect(json, '}');
	return NIB_STATUS_OK;
}

/* Errors stay in json. */
static enum nib_status read_text(struct nib_comfy *comfy, struct nib_json *json,
				 bool by_modelopt)
{
	enum nib_status status = NIB_STATUS_OK;

	if (!nib_json_expect(json, '{') || nib_json_take(json, '}'))
		return NIB_STATUS_OK;
	do {
		const char *key = nib_json_string(json);

		if (!key || !nib_json_expect(json, ':'))
			return NIB_STATUS_OK;
		if (!strcmp(key, "layers"))
			status = read_layers(comfy, json, by_modelopt);
		else
			nib_json_skip(json);
		if (status || json->problem)
			return status;
	} while (nib_json_take(json, ','));
	nib_json_expect(json, '}');
	return NIB_STATUS_OK;
}

static enum nib_status read_header(struct nib_comfy *comfy, const struct nib_file *file)
{
	const char *text = metadata_of(file, METADATA);
	struct nib_json json;
	enum nib_status status;
	char *strings;

	if (!text)
		return NIB_STATUS_OK;
	if (!nib_array_grow(&comfy->strings, comfy->n_strings, &comfy->strings_capacity,
			    sizeof(strings)))
		return NIB_STATUS_OUT_OF_MEMORY;
	strings = malloc(strlen(text) + 1);
	if (!strings)
		return NIB_STATUS_OUT_OF_MEMORY;
	comfy->strings[comfy->n_strings++] = strings;
	nib_json_init(&json, text, strlen(text), strings);
	status = read_text(comfy, &json, metadata_of(file, "quantization_config"));
	if (!status && (json.problem || !nib_json_end(&json)))
		comfy->is_broken = true;
	return status;
}

static int compare(const void *a, const void *b)
{
	const struct nib_comfy_mark *s = a, *t = b;

	return strcmp(s->name, t->name);
}

enum nib_status nib_comfy_read(struct nib_comfy *comfy, const struct nib_file *file)
{
	enum nib_status status = read_header(comfy, file);

	for (int64_t i = 0; i < file->n_shards && !status; i++)
		status = read_header(comfy, file->shards[i].file);
	if (!status && comfy->n_marks)
		qsort(comfy->marks, (size_t)comfy->n_marks, sizeof(*comfy->marks),
		      compare);
	return status;
}

void nib_comfy_free(struct nib_comfy *comfy)
{
	for (int64_t i = 0; i < comfy->n_strings; i++)
		free(comfy->strings[i]);
	free(comfy->strings);
	free(comfy->marks);
	*comfy = (struct nib_comfy){0};
}

const struct nib_comfy_mark *nib_comfy_find(const struct nib_comfy *comfy,
					    const char *layer)
{
	for (int i = 0; i < PREFIX_PARTS && layer && comfy->n_marks; i++) {
		const struct nib_comfy_mark key = {.name = layer};
		const struct nib_comfy_mark *found = bsearch(
		    &key, comfy->marks, (size_t)comfy->n_marks, sizeof(key), compare);

		if (found)
			return found;
		layer = strchr(layer, '.');
		layer = layer ? layer + 1 : NULL;
	}
	return NULL;
}

/* ---- one mark ------------------------------------------------------------ */

struct mark_reader {
	struct nib_json json;
	struct nib_comfy_order *order;
	char *reason;
	size_t reason_bytes;
	bool has_format, is_refused;
};

__attribute__((format(printf, 2, 3))) static void refuse(struct mark_reader *r,
							 const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(r->reason, r->reason_bytes, format, args);
	va_end(args);
	r->is_refused = true;
}

static void read_format(struct mark_reader *r)
{
	const char *format = nib_json_string(&r->json);
	char shown[NIB_SHOWN_BYTES];

	r->has_format = format != NULL;
	if (format && strcmp(format, "nvfp4") != 0)
		refuse(r, "its mark of ComfyUI says %s: must be nvfp4",
		       nib_show_name(shown, format));
}

/* [rows, k] before they were padded to multiples of 16. */
static void read_shape(struct mark_reader *r)
{
	struct nib_json *json = &r->json;

	if (nib_json_expect(json, '[') && nib_json_int(json, &r->order->rows) &&
	    nib_json_expect(json, ',') && nib_json_int(json, &r->order->k))
		nib_json_expect(json, ']');
}

static bool is_space(char c)
{
	return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

/* An unknown key has no effect if its value is false or null. */
static void read_other(struct mark_reader *r, const char *key)
{
	const char *value = r->json.at;
	char shown[NIB_SHOWN_BYTES];
	size_t n;

	if (!nib_json_skip(&r->json))
		return;
	/* The text is not terminated, so strspn() could read past it. */
	while (value < r->json.at && is_space(*value))
		value++;
	n = (size_t)(r->json.at - value);
	if (!(n == 5 && !memcmp(value, "false", n)) &&
	    !(n == 4 && !memcmp(value, "null", n)))
		refuse(r,
		       "its mark of ComfyUI has %s, which changes the product "
		       "and is not supported",
		       nib_show_name(shown, key));
}

static void read_field(struct mark_reader *r, const char *key)
{
	/* The types of the products and of the original weight. */
	static const char *const harmless[] = {"full_precision_matrix_mult",
					       "orig_dtype"};
	int64_t size = NIB_NVFP4_BLOCK;

	for (size_t i = 0; i < sizeof(harmless) / sizeof(*harmless); i++)
		if (!strcmp(key, harmless[i])) {
			nib_json_skip(&r->json);
			return;
		}
	if (!strcmp(key, "format"))
		read_format(r);
	else if (!strcmp(key, "orig_shape"))
		read_shape(r);
	else if (strcmp(key, "group_size") != 0)
		read_other(r, key);
	else if (nib_json_int(&r->json, &size) && size != NIB_NVFP4_BLOCK)
		refuse(r, "its mark of ComfyUI has group_size %" PRId64 ": must be 16",
		       size);
}

static void read_fields(struct mark_reader *r)
{
	if (!nib_json_expect(&r->json, '{') || nib_json_take(&r->json, '}'))
		return;
	do {
		const char *key = nib_json_string(&r->json);

		if (!key || !nib_json_expect(&r->json, ':'))
			return;
		read_field(r, key);
		if (r->json.problem || r->is_refused)
			return;
	} while (nib_json_take(&r->json, ','));
	if (nib_json_expect(&r->json, '}'))
		nib_json_end(&r->json);
}

bool nib_comfy_parse(const struct nib_comfy_mark *mark, struct nib_comfy_order *order,
		     char *reason, size_t reason_bytes)
{
	struct mark_reader r = {
	    .order = order, .reason = reason, .reason_bytes = reason_bytes};
	char strings[MARK_BYTES];

	*order = (struct nib_comfy_order){0};
	if (mark->bytes > sizeof(strings)) {
		refuse(&r, "its mark of ComfyUI has %zu bytes: at most %d", mark->bytes,
		       MARK_BYTES);
		return false;
	}
	nib_json_init(&r.json, mark->text, mark->bytes, strings);
	read_fields(&r);
	if (!r.is_refused && (r.json.problem || !r.has_format))
		refuse(&r, "its mark of ComfyUI: %s",
		       r.json.problem ? r.json.problem : "no format");
	order->codes =
	    mark->by_modelopt ? NIB_CODE_ORDER_LOW_FIRST : NIB_CODE_ORDER_HIGH_FIRST;
	order->scales = NIB_SCALE_LAYOUT_TILED_128X4;
	order->scales_by_shape = mark->by_modelopt;
	return !r.is_refused;
}
