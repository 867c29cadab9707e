/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config_write.c - the files next to the tensors of a quantised model:
 * config.json, hf_quant_config.json and the index.  See config.h.
 *
 * Only weights are quantised here, so ModelOpt's algorithm is W4A16_NVFP4, and
 * compressed-tensors' groups have no input_activations.
 */
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "config.h"
#include "out_file.h"
#include "out_folder.h"
#include "quantize.h"

#define QUANTISATION "quantization_config"

int config_write_json(const char *folder, const char *name, const json_t *root)
{
	char *path = out_folder_path(folder, name);
	struct out_file out = {0};
	int code = CLI_OK;

	if (!path)
		return CLI_FAILED;
	if (!root)
		code = cli_no_memory(name);
	else if (!out_file_open(&out, path))
		code = cli_error(CLI_FAILED, "%s: %s", path, strerror(errno));
	else if (json_dumpf(root, out.stream, JSON_INDENT(2)) && !ferror(out.stream))
		code = cli_no_memory(name);
	if (code)
		out_file_discard(&out);
	else if (!out_file_commit(&out))
		code = cli_error(CLI_FAILED, "%s: %s", path, strerror(errno));
	free(path);
	return code;
}

/* ---- modules that stay as they were -------------------------------------- */

/*
 * A part of the model that is copied whole is one pattern: engines know its
 * modules by other names than the file does.
 */
static const struct tower {
	const char *word, *glob, *regex;
} towers[] = {{"visual", "*visual*", "re:.*visual.*"},
	      {"vision", "*vision*", "re:.*vision.*"}};
#define N_TOWERS (sizeof(towers) / sizeof(towers[0]))

/* Whether no layer of the selection has the word in its name. */
static int is_copied_whole(const struct selection *s, const char *word)
{
	for (int64_t i = 0; i < s->count; i++)
		if (s->items[i].layer && strstr(s->items[i].layer, word))
			return 0;
	return 1;
}

/* Adds the module of a tensor that is copied and may be a linear's weight. */
static void add_module(json_t *names, const struct nib_file_tensor *t,
		       enum nib_checkpoint format, const int whole[static N_TOWERS])
{
	static const char experts[] = ".experts.", weight[] = ".weight";
	const char *last = strrchr(t->name, '.'), *pattern = NULL;
	const int is_fused = t->rank == 3 && strstr(t->name, experts);
	enum nib_dtype dtype;
	char *module;

	if (t->rank < 2 || tensor_dtype(t->dtype, &dtype) || !last ||
	    (!is_fused && !tensor_name_ends(t->name, weight)))
		return;
	for (size_t i = 0; i < N_TOWERS; i++)
		if (whole[i] && strstr(t->name, towers[i].word))
			pattern = format == NIB_CHECKPOINT_MODELOPT ? towers[i].glob
								    : towers[i].regex;
	module = strndup(t->name, (size_t)(last - t->name));
	if (!module)
		cli_out_of_memory();
	json_object_set_new(names,
			    pattern  ? pattern
			    : module ? module
				     : t->name,
			    json_null());
	free(module);
}

/* The names in an array; lm_head may have no tensor: it can be the embedding. */
json_t *config_list_modules(const struct selection *s, enum nib_checkpoint format)
{
	json_t *names = json_object(), *list = json_array();
	int whole[N_TOWERS], quantises_head = 0;
	const char *name;
	json_t *unused;

	for (size_t i = 0; i < N_TOWERS; i++)
		whole[i] = is_copied_whole(s, towers[i].word);
	for (int64_t i = 0; i < s->count; i++) {
		const struct selected *item = &s->items[i];

		if (!item->layer)
			add_module(names, item->tensor, format, whole);
		else if (!strcmp(item->layer, "lm_head") ||
			 tensor_name_ends(item->layer, ".lm_head"))
			quantises_head = 1;
	}
	if (!quantises_head)
		json_object_set_new(names, "lm_head", json_null());
	json_object_foreach(names, name, unused)
	    json_array_append_new(list, json_string(name));
	json_decref(names);
	return list;
}

/* ---- the configuration --------------------------------------------------- */

static json_t *modelopt_config(json_t *ignore, int has_inputs)
{
	json_t *config = json_pack(
	    "{s:{s:{s:{s:b, s:i, s:s, s:i}, s:[s]}}, s:O, s:s, s:{s:s, s:s}, "
	    "s:s}",
	    "config_groups", "group_0", "weights", "dynamic", 0, "num_bits", 4, "type",
	    "float", "group_size", NIB_NVFP4_BLOCK, "targets", "Linear", "ignore",
	    ignore, "quant_algo", has_inputs ? "NVFP4" : "W4A16_NVFP4", "producer",
	    "name", "nibblas", "version", nib_version(), "quant_method", "modelopt");
	json_t *group =
	    json_object_get(json_object_get(config, "config_groups"), "group_0");

	if (has_inputs)
		json_object_set_new(group, "input_activations",
				    json_pack("{s:b, s:i, s:s, s:i}", "dynamic", 0,
					      "num_bits", 4, "type", "float",
					      "group_size", NIB_NVFP4_BLOCK));
	return config;
}

static json_t *modelopt_file(json_t *ignore)
{
	return json_pack("{s:{s:s, s:s}, s:{s:s, s:n, s:i, s:O}}", "producer", "name",
			 "nibblas", "version", nib_version(), "quantization",
			 "quant_algo", "W4A16_NVFP4", "kv_cache_quant_algo",
			 "group_size", NIB_NVFP4_BLOCK, "exclude_modules", ignore);
}

static json_t *compressed_config(json_t *ignore, int has_inputs)
{
	static const char format[] = "nvfp4-pack-quantized";
	json_t *group,
	    *config = json_pack(
		"{s:{s:{s:[s], s:n, s:n, s:s, s:{s:i, s:s, s:b, s:s, s:i, s:b}}}, "
		"s:s, s:n, s:O, s:n, s:s, s:s}",
		"config_groups", "group_0", "targets", "Linear", "input_activations",
		"output_activations", "format", format, "weights", "num_bits", 4,
		"type", "float", "symmetric", 1, "strategy", "tensor_group",
		"group_size", NIB_NVFP4_BLOCK, "dynamic", 0, "format", format,
		"global_compression_ratio", "ignore", ignore, "kv_cache_scheme",
		"quant_method", "compressed-tensors", "quantization_status",
		"compressed");

	group = json_object_get(json_object_get(config, "config_groups"), "group_0");
	if (has_inputs)
		json_object_set_new(
		    group, "input_activations",
		    json_pack("{s:i, s:s, s:b, s:s, s:i, s:s}", "num_bits", 4, "type",
			      "float", "symmetric", 1, "strategy", "tensor_group",
			      "group_size", NIB_NVFP4_BLOCK, "dynamic", "local"));
	return config;
}

json_t *config_make(enum nib_checkpoint format, json_t *ignore, int has_inputs)
{
	return format == NIB_CHECKPOINT_MODELOPT
		   ? modelopt_config(ignore, has_inputs)
		   : compressed_config(ignore, has_inputs);
}

/* ---- several formats ----------------------------------------------------- */

#define FP8_ALGORITHM "FP8_PER_CHANNEL_PER_TOKEN"

static int has_fp8(const struct selection *s)
{
	for (int64_t i = 0; i < s->count; i++)
		if (s->items[i].layer && s->items[i].format == SELECT_FP8)
			return 1;
	return 0;
}

/* The names of the layers of a format. */
static json_t *list_layers(const struct selection *s, enum select_format format)
{
	json_t *list = json_array();

	for (int64_t i = 0; i < s->count; i++)
		if (s->items[i].layer && s->items[i].format == format)
			json_array_append_new(list, json_string(s->items[i].layer));
	return list;
}

/* What ModelOpt says of each layer. */
static json_t *quantised_layers(const struct selection *s)
{
	json_t *layers = json_object();

	for (int64_t i = 0; i < s->count; i++) {
		const struct selected *item = &s->items[i];

		if (item->layer)
			json_object_set_new(
			    layers, item->layer,
			    item->format == SELECT_FP8
				? json_pack("{s:s}", "quant_algo", FP8_ALGORITHM)
				: json_pack("{s:s, s:i}", "quant_algo", "W4A16_NVFP4",
					    "group_size", NIB_NVFP4_BLOCK));
	}
	return layers;
}

/* As ModelOpt writes the group: vLLM quantises x by token, without a scale in the
 * file. */
static json_t *modelopt_fp8(void)
{
	return json_pack("{s:{s:b, s:i, s:s}, s:{s:b, s:i, s:s, s:s}}",
			 "input_activations", "dynamic", 0, "num_bits", 8, "type",
			 "float", "weights", "dynamic", 0, "num_bits", 8, "type",
			 "float", "strategy", "channel");
}

/* x stays as it is. */
static json_t *compressed_fp8(void)
{
	return json_pack("{s:n, s:n, s:s, s:{s:i, s:s, s:b, s:s, s:b}}",
			 "input_activations", "output_activations", "format",
			 "float-quantized", "weights", "num_bits", 8, "type", "float",
			 "symmetric", 1, "strategy", "channel", "dynamic", 0);
}

/*
 * Makes a configuration of NVFP4 layers one of several formats.  All groups have names
 * as targets: vLLM matches "Linear" before the names of layers that it fuses.
 */
static void mix_config(json_t *config, enum nib_checkpoint format,
		       const struct selection *s)
{
	const int is_modelopt = format == NIB_CHECKPOINT_MODELOPT;
	json_t *groups = json_object_get(config, "config_groups");
	json_t *nvfp4 = list_layers(s, SELECT_NVFP4);
	json_t *fp8 = is_modelopt ? modelopt_fp8() : compressed_fp8();

	json_object_set_new(fp8, "targets", list_layers(s, SELECT_FP8));
	json_object_set_new(groups, "group_1", fp8);
	if (json_array_size(nvfp4))
		json_object_set(json_object_get(groups, "group_0"), "targets", nvfp4);
	else
		json_object_del(groups, "group_0");
	json_decref(nvfp4);
	if (is_modelopt) {
		json_object_set_new(config, "quantized_layers", quantised_layers(s));
		json_object_set_new(config, "quant_algo",
				    json_string("MIXED_PRECISION"));
	} else {
		json_object_set_new(config, "format", json_string("mixed-precision"));
	}
}

/* The same for hf_quant_config.json. */
static void mix_file(json_t *file, const struct selection *s)
{
	json_t *quantisation = json_object_get(file, "quantization");

	json_object_del(quantisation, "group_size");
	json_object_set_new(quantisation, "quant_algo", json_string("MIXED_PRECISION"));
	json_object_set_new(quantisation, "quantized_layers", quantised_layers(s));
}

/* ---- the text of config.json --------------------------------------------- */

/* Writes text with two more blanks before each line but the first. */
static void put_indented(FILE *file, const char *text)
{
	for (; *text; text++) {
		putc(*text, file);
		if (*text == '\n')
			fputs("  ", file);
	}
}

/* After a JSON value, which is known to be right; text is at its begin. */
static const char *skip_value(const char *text)
{
	int depth = 0, in_string = 0;

	for (; *text; text++) {
		if (in_string && *text == '\\' && text[1])
			text++;
		else if (*text == '"')
			in_string = !in_string;
		if (in_string)
			continue;
		if (!depth && (*text == ',' || *text == '}' || *text == ']'))
			break;
		depth +=
		    (*text == '{' || *text == '[') - (*text == '}' || *text == ']');
	}
	while (isspace((unsigned char)text[-1]))
		text--;
	return text;
}

/* The value of a key of the object that text is; NULL: it has none.  *end: after it. */
static const char *find_value(const char *text, const char *key, const char **end)
{
	const size_t n = strlen(key);

	text = strchr(text, '{');
	while (text && *text && *text != '}') {
		const char *name = strchr(text, '"'), *colon;

		if (!name)
			return NULL;
		/* Keys may have escapes, and colons. */
		for (colon = name + 1; *colon && *colon != '"'; colon++)
			colon += *colon == '\\' && colon[1];
		colon = strchr(colon, ':');
		if (!colon)
			return NULL;
		text = colon + 1 + strspn(colon + 1, " \t\r\n");
		*end = skip_value(text);
		if (!strncmp(name + 1, key, n) && name[1 + n] == '"')
			return text;
		text = *end + strspn(*end, " \t\r\n");
	}
	return NULL;
}

/* Replaces a key of the text of an object, or adds it as the last one.  All else of
 * the text stays as it is: numbers, their digits, and Infinity, which is no JSON. */
static void put_model(FILE *file, const struct config *c, const char *added)
{
	const char *end = strrchr(c->model_text, '}'), *after;
	const char *old = find_value(c->model_text, QUANTISATION, &after);

	if (old) {
		fwrite(c->model_text, 1, (size_t)(old - c->model_text), file);
		put_indented(file, added);
		fputs(after, file);
		return;
	}
	while (end > c->model_text && isspace((unsigned char)end[-1]))
		end--;
	fwrite(c->model_text, 1, (size_t)(end - c->model_text), file);
	fprintf(file,
		"%s\n  \"" QUANTISATION "\": ", json_object_size(c->model) ? "," : "");
	put_indented(file, added);
	fputs("\n}\n", file);
}

int config_write_model(const struct config *c, const char *folder,
		       const json_t *quantisation)
{
	char *path = out_folder_path(folder, CONFIG_MODEL);
	char *added = quantisation ? json_dumps(quantisation, JSON_INDENT(2)) : NULL;
	struct out_file out = {0};
	int code = CLI_OK;

	if (path && quantisation && !added)
		code = cli_no_memory(CONFIG_MODEL);
	else if (!path)
		code = CLI_FAILED;
	else if (!out_file_open(&out, path))
		code = cli_error(CLI_FAILED, "%s: %s", path, strerror(errno));
	if (!code) {
		if (added)
			put_model(out.stream, c, added);
		else
			fputs(c->model_text, out.stream);
		if (!out_file_commit(&out))
			code = cli_error(CLI_FAILED, "%s: %s", path, strerror(errno));
	}
	free(added);
	free(path);
	return code;
}

int config_write(const struct config *c, const char *folder, enum nib_checkpoint format,
		 const struct selection *s)
{
	json_t *ignore = config_list_modules(s, format), *quantisation = NULL,
	       *older = NULL;
	int code = CLI_OK;

	if (s->quantised && format == NIB_CHECKPOINT_MODELOPT) {
		older = modelopt_file(ignore);
		if (older && has_fp8(s))
			mix_file(older, s);
		code = config_write_json(folder, CONFIG_MODELOPT, older);
	}
	if (s->quantised)
		quantisation = config_make(format, ignore, 0);
	if (quantisation && has_fp8(s))
		mix_config(quantisation, format, s);
	if (!code && s->quantised && !quantisation)
		code = cli_no_memory(CONFIG_MODEL);
	if (!code && c->model)
		code = config_write_model(c, folder, quantisation);
	json_decref(ignore);
	json_decref(quantisation);
	json_decref(older);
	return code;
}

/* ---- the index ----------------------------------------------------------- */

/* Adds the tensors of a shard that is written. */
static int add_shard(json_t *map, const char *folder, const char *name,
		     json_int_t *total)
{
	char *path = out_folder_path(folder, name);
	struct nib_file *file;
	struct nib_error err;

	if (!path)
		return CLI_FAILED;
	if (nib_file_open(path, &file, &err)) {
		free(path);
		return cli_fail(NULL, &err);
	}
	free(path);
	for (int64_t i = 0; i < nib_file_tensor_count(file); i++) {
		const struct nib_file_tensor *t = nib_file_tensor_at(file, i);

		json_object_set_new(map, t->name, json_string(name));
		*total += (json_int_t)t->bytes;
	}
	nib_file_close(file);
	return CLI_OK;
}

int config_write_index(const char *folder, const struct nib_file *like)
{
	json_t *map = json_object(), *root;
	json_int_t total = 0;
	int code = CLI_OK;

	for (int64_t i = 0; i < nib_file_shard_count(like) && !code; i++)
		code = add_shard(map, folder, nib_file_shard_at(like, i), &total);
	root = json_pack("{s:{s:I}, s:O}", "metadata", "total_size", total,
			 "weight_map", map);
	if (!code)
		code = config_write_json(folder, "model.safetensors.index.json", root);
	json_decref(root);
	json_decref(map);
	return code;
}
