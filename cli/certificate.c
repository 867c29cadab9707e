/* SPDX-License-Identifier: Apache-2.0 */
/* certificate.c - the certificate of a quantised checkpoint: see certificate.h. */
#include "certificate.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli.h"
#include "config.h"
#include "out_folder.h"

/* ---- the digest ----------------------------------------------------------- */

/* The remainders of a byte that is followed by 0 to 7 zero bytes: eight bytes a step,
 * 1.4 GB/s, where a table for one byte has 0.4. */
static uint32_t crc_tables[8][256];

static void make_crc_tables(void)
{
	for (uint32_t i = 0; i < 256; i++) {
		uint32_t crc = i;

		for (int bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (crc & 1 ? UINT32_C(0xEDB88320) : 0);
		crc_tables[0][i] = crc;
	}
	for (int t = 1; t < 8; t++)
		for (int i = 0; i < 256; i++) {
			const uint32_t crc = crc_tables[t - 1][i];

			crc_tables[t][i] = crc >> 8 ^ crc_tables[0][crc & 255];
		}
}

static uint32_t add_crc(uint32_t crc, const unsigned char *bytes, uint64_t n)
{
	for (; n >= 8; n -= 8, bytes += 8) {
		uint32_t next = 0;

		for (int i = 0; i < 4; i++)
			next ^= crc_tables[7 - i][bytes[i] ^ (crc >> 8 * i & 255)];
		for (int i = 4; i < 8; i++)
			next ^= crc_tables[7 - i][bytes[i]];
		crc = next;
	}
	for (; n; n--, bytes++)
		crc = crc >> 8 ^ crc_tables[0][(crc ^ *bytes) & 255];
	return crc;
}

void certificate_digest(const struct nib_layer_tensors *layer,
			char text[CERTIFICATE_DIGEST_TEXT])
{
	const struct nib_file_tensor *const parts[] = {
	    layer->codes, layer->scales, layer->global, layer->input_global,
	    layer->pre_quant_scale};
	uint32_t crc = UINT32_MAX;
	uint64_t n = 0;

	if (!crc_tables[0][1])
		make_crc_tables();
	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
		if (parts[i]) {
			crc = add_crc(crc, parts[i]->data, parts[i]->bytes);
			n += parts[i]->bytes;
		}
	snprintf(text, CERTIFICATE_DIGEST_TEXT, "crc32:%08" PRIx32 ":%" PRIu64, ~crc,
		 n);
}

/* ---- places --------------------------------------------------------------- */

char *certificate_path(const char *checkpoint)
{
	char *folder = config_folder(checkpoint), *path;

	/* Without memory a folder looks like a file. */
	if (!folder && cli_must_stop()) {
		cli_no_memory("names of files");
		return NULL;
	}
	if (folder) {
		path = out_folder_path(folder, CERTIFICATE_FILE);
		free(folder);
	} else if (asprintf(&path, "%s" CERTIFICATE_END, checkpoint) < 0) {
		cli_no_memory("names of files");
		path = NULL;
	}
	return path;
}

/* ---- writing -------------------------------------------------------------- */

const struct nib_layer_tensors *certificate_layer_of(const struct tensor_source *b)
{
	return b->layer ? b->layer->tensors : b->across;
}

/* Whether a layer has a relative error: JSON has no infinity. */
static int check_error(const char *name, const struct tensor_error *error)
{
	if (error->not_finite)
		return cli_error(CLI_INPUT,
				 "--certify: %s: %lld elements are inf or NaN: "
				 "must be finite",
				 name, (long long)error->not_finite);
	if (!isfinite(error->worst_relative))
		return cli_error(CLI_INPUT,
				 "--certify: %s: row %lld is zero in A and not in B: "
				 "it has no relative error",
				 name, (long long)error->worst_relative_row);
	return CLI_OK;
}

int certificate_add(json_t *layers, const struct tensor_source *b,
		    const struct tensor_error *error)
{
	const struct nib_layer_tensors *layer = certificate_layer_of(b);
	char digest[CERTIFICATE_DIGEST_TEXT];
	json_t *shape, *entry;
	int code = check_error(layer->name, error);

	if (code)
		return code;
	certificate_digest(layer, digest);
	shape = json_array();
	for (int i = 0; i < b->rank; i++)
		json_array_append_new(shape, json_integer(b->shape[i]));
	entry = json_pack("{s:o, s:s, s:f, s:I, s:f}", "shape", shape, "digest", digest,
			  "relative_error", tensor_relative(error), "worst_row",
			  (json_int_t)error->worst_relative_row, "worst_row_error",
			  error->worst_relative);
	return json_object_set_new(layers, layer->name, entry)
		   ? cli_no_memory("the certificate")
		   : CLI_OK;
}

/* Refuses a certificate that lacks a layer: what is compared is what A has. */
static int check_complete(const json_t *layers, const struct nib_file *file)
{
	struct tensor_source b;
	int64_t at = 0, count = 0;

	while (tensor_next(file, &at, &b)) {
		const struct nib_layer_tensors *layer;

		if (!b.layer && tensor_from_across(file, b.tensor, &b))
			continue;
		layer = certificate_layer_of(&b);
		if (!json_object_get(layers, layer->name))
			return cli_error(CLI_INPUT,
					 "--certify: %s: A has none: every NVFP4 layer "
					 "of B must have its original in A",
					 layer->name);
		count++;
	}
	return count ? CLI_OK : cli_error(CLI_INPUT, "--certify: B has no NVFP4 layer");
}

int certificate_write(json_t *layers, const struct nib_file *file, const char *path)
{
	const char *slash = strrchr(path, '/');
	char *folder;
	json_t *root;
	int code = check_complete(layers, file);

	if (code)
		return code;
	folder = slash ? strndup(path, (size_t)(slash - path + 1)) : strdup(".");
	if (!folder)
		return cli_no_memory("names of files");
	root = json_pack("{s:s, s:i, s:s+, s:O}", "format", CERTIFICATE_FORMAT,
			 "version", CERTIFICATE_VERSION, "tool", "nib ", nib_version(),
			 "layers", layers);
	code = config_write_json(folder, slash ? slash + 1 : path, root);
	json_decref(root);
	free(folder);
	return code;
}

/* ---- reading -------------------------------------------------------------- */

/* Whether an entry of the layers has what certificate_find() reads. */
static int is_layer(const json_t *entry)
{
	static const char *const activations[] = {"nvfp4", "int8", "dense"};
	const json_t *choice = json_object_get(entry, "activations");
	int is_known = !choice || json_is_null(choice);

	for (int i = 0; i < 3 && json_is_string(choice); i++)
		is_known |= !strcmp(json_string_value(choice), activations[i]);
	return json_is_string(json_object_get(entry, "digest")) &&
	       json_is_number(json_object_get(entry, "relative_error")) &&
	       json_is_number(json_object_get(entry, "worst_row_error")) &&
	       json_is_integer(json_object_get(entry, "worst_row")) && is_known;
}

static void check_format(json_t *root, char problem[CERTIFICATE_PROBLEM_TEXT])
{
	const char *format = json_string_value(json_object_get(root, "format"));
	const json_t *version = json_object_get(root, "version");
	json_t *layers = json_object_get(root, "layers"), *entry;
	const char *name;

	if (!format || strcmp(format, CERTIFICATE_FORMAT) != 0)
		snprintf(problem, CERTIFICATE_PROBLEM_TEXT, "format must be \"%s\"",
			 CERTIFICATE_FORMAT);
	else if (!json_is_integer(version) ||
		 json_integer_value(version) != CERTIFICATE_VERSION)
		snprintf(problem, CERTIFICATE_PROBLEM_TEXT, "version must be %d",
			 CERTIFICATE_VERSION);
	else if (!json_is_object(layers))
		snprintf(problem, CERTIFICATE_PROBLEM_TEXT, "layers must be an object");
	json_object_foreach(layers, name, entry) if (!*problem && !is_layer(entry))
	    snprintf(problem, CERTIFICATE_PROBLEM_TEXT,
		     "layers: %.120s: lacks a key, or a value has another "
		     "type",
		     name);
}

int certificate_read(const char *path, json_t **certificate,
		     char problem[CERTIFICATE_PROBLEM_TEXT])
{
	json_error_t error = {.text = ""};
	json_t *root = NULL;
	struct stat st;

	*certificate = NULL;
	*problem = '\0';
	if (lstat(path, &st))
		return CLI_OK;
	/* A FIFO would be waited for. */
	errno = 0;
	if (stat(path, &st))
		snprintf(problem, CERTIFICATE_PROBLEM_TEXT, "%s", strerror(errno));
	else if (!S_ISREG(st.st_mode))
		snprintf(problem, CERTIFICATE_PROBLEM_TEXT, "must be a regular file");
	else if (!(root = json_load_file(path, JSON_REJECT_DUPLICATES, &error)))
		snprintf(problem, CERTIFICATE_PROBLEM_TEXT, "line %d: %s", error.line,
			 error.text);
	else
		check_format(root, problem);
	if (!root && errno == ENOMEM)
		return cli_no_memory("the certificate");
	if (*problem)
		json_decref(root);
	else
		*certificate = root;
	return CLI_OK;
}

struct certificate_layer certificate_find(const json_t *certificate,
					  const struct nib_layer_tensors *layer)
{
	const json_t *entry =
	    json_object_get(json_object_get(certificate, "layers"), layer->name);
	struct certificate_layer found = {.state = CERTIFICATE_NONE};
	char digest[CERTIFICATE_DIGEST_TEXT];

	if (!entry)
		return found;
	certificate_digest(layer, digest);
	found.state =
	    strcmp(digest, json_string_value(json_object_get(entry, "digest")))
		? CERTIFICATE_STALE
		: CERTIFICATE_CURRENT;
	found.relative = json_number_value(json_object_get(entry, "relative_error"));
	found.worst_row_relative =
	    json_number_value(json_object_get(entry, "worst_row_error"));
	found.worst_row = json_integer_value(json_object_get(entry, "worst_row"));
	found.activations = json_string_value(json_object_get(entry, "activations"));
	return found;
}
