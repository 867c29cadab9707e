/* SPDX-License-Identifier: Apache-2.0 */
/* config.c - the configuration files of a model's folder: see config.h. */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli.h"

#define INDEX_END ".safetensors.index.json"

/* ---- reading ------------------------------------------------------------- */

/* What strdup() and strndup() made; NULL also stops the command. */
static char *made(char *text)
{
	if (!text)
		cli_out_of_memory();
	return text;
}

char *config_folder(const char *path)
{
	const size_t n = strlen(path), end = strlen(INDEX_END);
	const char *slash = strrchr(path, '/');
	struct stat st;

	if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
		return made(strdup(path));
	if (n <= end || strcmp(path + n - end, INDEX_END) != 0)
		return NULL;
	if (!slash)
		return made(strdup("."));
	return made(slash == path ? strdup("/")
				  : strndup(path, (size_t)(slash - path)));
}

/* A whole file, with a zero after it; NULL with errno if it cannot be read, and
 * an empty text for an empty file. */
static char *read_text(const char *path, size_t *bytes)
{
	FILE *file = fopen(path, "rb");
	char *text = NULL;
	size_t capacity = 0;
	ssize_t n = -1;

	/* A JSON text has no zero in it, so this reads to the end. */
	if (!file)
		return NULL;
	n = getdelim(&text, &capacity, '\0', file);
	if (n < 0 && ferror(file)) {
		const int code = errno;

		fclose(file);
		free(text);
		errno = code;
		return NULL;
	}
	fclose(file);
	*bytes = n < 0 ? 0 : (size_t)n;
	return text;
}

/*
 * Makes JSON of what Python writes: NaN, Infinity and -Infinity become numbers.
 * No rule reads them; strings are left as they are.
 */
static void replace_infinities(char *text)
{
	static const char *const words[] = {"NaN", "-Infinity", "Infinity"};
	int in_string = 0;

	for (char *at = text; *at; at++) {
		if (in_string && *at == '\\' && at[1])
			at++;
		else if (*at == '"')
			in_string = !in_string;
		for (int i = 0; i < 3 && !in_string; i++) {
			const size_t n = strlen(words[i]);

			if (strncmp(at, words[i], n))
				continue;
			memset(at, ' ', n);
			*at = '0';
		}
	}
}

static json_t *parse(struct config *c, const char *path, const char *text, size_t bytes)
{
	char *copy = strndup(text, bytes);
	json_error_t error = {.text = "not enough memory"};
	json_t *root = NULL;

	if (copy) {
		replace_infinities(copy);
		root = json_loadb(copy, bytes, JSON_REJECT_DUPLICATES, &error);
	}
	free(copy);
	if (!root)
		cli_warn("%s: line %d: %s; it is left out", path, error.line,
			 error.text);
	else if (!json_is_object(root))
		cli_warn("%s: no JSON object; it is left out", path);
	if (json_is_object(root))
		return root;
	c->failed = 1;
	json_decref(root);
	return NULL;
}

/* NULL if there is no such file, or after a warning.  The text is the caller's.
 */
static json_t *read_file(struct config *c, const char *name, char **text)
{
	json_t *root = NULL;
	size_t bytes = 0;
	struct stat st;
	char *path;

	*text = NULL;
	if (asprintf(&path, "%s/%s", c->folder, name) < 0) {
		cli_out_of_memory();
		return NULL;
	}
	/* A link to nothing is no file that the model does without. */
	if (lstat(path, &st) == 0) {
		*text = read_text(path, &bytes);
		if (*text) {
			root = parse(c, path, *text, bytes);
		} else {
			cli_warn("%s: %s; it is left out", path, strerror(errno));
			c->failed = 1;
		}
	}
	free(path);
	return root;
}

static const char *text_at(const json_t *object, const char *key)
{
	const char *text = json_string_value(json_object_get(object, key));

	return text ? text : "";
}

/* The format of compressed-tensors: of a mixed model, those of its groups. */
static const char *group_formats(struct config *c, const json_t *quant)
{
	json_t *groups = json_object_get(quant, "config_groups"), *group;
	const char *name, *whole = text_at(quant, "format");
	size_t used = 0;

	if (*whole && strcmp(whole, "mixed-precision") != 0)
		return whole;
	json_object_foreach(groups, name, group)
	{
		const char *format = text_at(group, "format");
		const size_t left = sizeof(c->algorithms) - used;
		int more;

		if (!*format || strstr(c->algorithms, format))
			continue;
		more = snprintf(c->algorithms + used, left, "%s%.40s",
				used ? " + " : "", format);
		if (more < 0 || (size_t)more >= left)
			break;
		used += (size_t)more;
	}
	return used ? c->algorithms : whole;
}

/* ModelOpt writes what compressed-tensors would: an object with a type and a
 * number of bits. */
static const char *kv_cache_of(const json_t *quant)
{
	const json_t *scheme = json_object_get(quant, "kv_cache_scheme");

	if (json_is_string(scheme))
		return json_string_value(scheme);
	if (json_integer_value(json_object_get(scheme, "num_bits")) == 8)
		return strcmp(text_at(scheme, "type"), "int") ? "FP8" : "INT8";
	return text_at(quant, "kv_cache_quant_algo");
}

static void read_quantisation(struct config *c)
{
	const json_t *quant = json_object_get(c->model, "quantization_config");
	const json_t *older = json_object_get(c->quant_file, "quantization");

	c->method = c->algorithm = c->kv_cache = "";
	c->is_quantised = json_is_object(quant) || json_is_object(older);
	if (json_is_object(quant)) {
		c->method = text_at(quant, "quant_method");
		c->algorithm = text_at(quant, "quant_algo");
		if (!*c->algorithm)
			c->algorithm = group_formats(c, quant);
		c->kv_cache = kv_cache_of(quant);
		c->ignore = json_object_get(quant, "ignore");
		if (!c->ignore)
			c->ignore = json_object_get(quant, "exclude_modules");
	}
	if (!json_is_object(older))
		return;
	if (!*c->method)
		c->method = "modelopt";
	if (!*c->algorithm)
		c->algorithm = text_at(older, "quant_algo");
	if (!*c->kv_cache)
		c->kv_cache = text_at(older, "kv_cache_quant_algo");
	if (!c->ignore)
		c->ignore = json_object_get(older, "exclude_modules");
}

static int is_pattern(const char *entry)
{
	return !strncmp(entry, "re:", 3) || strpbrk(entry, "*?[");
}

static const char *entry_at(const json_t *list, size_t i)
{
	return json_string_value(json_array_get(list, i));
}

static struct regex **read_rules(const json_t *list)
{
	const size_t n = json_array_size(list);
	struct regex **rules = calloc(n + 1, sizeof(struct regex *));

	if (!rules)
		cli_out_of_memory();
	for (size_t i = 0; i < n && rules; i++) {
		const char *entry = entry_at(list, i);

		if (entry && is_pattern(entry))
			rules[i] = strncmp(entry, "re:", 3) ? regex_new_glob(entry)
							    : regex_new(entry + 3);
	}
	return rules;
}

static void free_rules(struct regex **rules, const json_t *list)
{
	for (size_t i = 0; rules && i < json_array_size(list); i++)
		regex_free(rules[i]);
	free(rules);
}

/* The entry of a list that a layer matches, or NULL. */
static const char *match(const json_t *list, struct regex *const *rules,
			 const char *layer)
{
	for (size_t i = 0; rules && i < json_array_size(list); i++) {
		const char *entry = entry_at(list, i);

		if (rules[i] ? regex_matches(rules[i], layer)
			     : entry && !strcmp(entry, layer))
			return entry;
	}
	return NULL;
}

/* The targets of all groups; NULL if one has none. */
static json_t *read_targets(const json_t *model)
{
	const json_t *quant = json_object_get(model, "quantization_config");
	json_t *groups = json_object_get(quant, "config_groups"), *group;
	json_t *all = json_object_size(groups) ? json_array() : NULL;
	const char *name;

	json_object_foreach(groups, name, group)
	{
		json_t *targets = json_object_get(group, "targets");

		if (all && json_array_size(targets)) {
			json_array_extend(all, targets);
		} else {
			json_decref(all);
			all = NULL;
		}
	}
	return all;
}

void config_read(struct config *c, const char *path)
{
	*c = (struct config){.folder = config_folder(path)};
	if (c->folder) {
		char *unused;

		c->model = read_file(c, CONFIG_MODEL, &c->model_text);
		c->quant_file = read_file(c, CONFIG_MODELOPT, &unused);
		free(unused);
	}
	read_quantisation(c);
	c->targets = read_targets(c->model);
	c->ignore_rules = read_rules(c->ignore);
	c->target_rules = read_rules(c->targets);
	c->ties_embeddings =
	    json_is_true(json_object_get(c->model, "tie_word_embeddings"));
}

void config_free(struct config *c)
{
	free_rules(c->ignore_rules, c->ignore);
	free_rules(c->target_rules, c->targets);
	json_decref(c->targets);
	json_decref(c->model);
	json_decref(c->quant_file);
	free(c->model_text);
	free(c->folder);
	*c = (struct config){0};
}

const char *config_ignores(const struct config *c, const char *layer)
{
	return match(c->ignore, c->ignore_rules, layer);
}

int config_targets(const struct config *c, const char *layer)
{
	for (size_t i = 0; i < json_array_size(c->targets); i++) {
		const char *entry = entry_at(c->targets, i);

		/* A class, as "Linear", or a pattern that is not clear. */
		if (!entry || !c->target_rules ||
		    (!c->target_rules[i] && (is_pattern(entry) || !strchr(entry, '.'))))
			return 1;
	}
	return !json_array_size(c->targets) ||
	       match(c->targets, c->target_rules, layer);
}

static void each_unclear(const json_t *list, struct regex *const *rules,
			 void (*found)(void *arg, const char *pattern), void *arg)
{
	for (size_t i = 0; rules && i < json_array_size(list); i++) {
		const char *entry = entry_at(list, i);

		if (entry && !rules[i] && is_pattern(entry))
			found(arg, entry);
	}
}

void config_each_unclear(const struct config *c,
			 void (*found)(void *arg, const char *pattern), void *arg)
{
	each_unclear(c->ignore, c->ignore_rules, found, arg);
	each_unclear(c->targets, c->target_rules, found, arg);
}

/* How many layers of a mixed model have which algorithm. */
static void put_mixed(const struct config *c, struct table *table)
{
	const json_t *quant = json_object_get(c->model, "quantization_config");
	json_t *layers = json_object_get(quant, "quantized_layers");
	json_t *counts = json_object(), *item;
	const char *name;

	if (!layers)
		layers = json_object_get(json_object_get(c->quant_file, "quantization"),
					 "quantized_layers");
	json_object_foreach(layers, name, item)
	{
		const char *algorithm = text_at(item, "quant_algo");
		const json_int_t n =
		    json_integer_value(json_object_get(counts, algorithm));

		json_object_set_new(counts, algorithm, json_integer(n + 1));
	}
	json_object_foreach(counts, name, item)
	    table_note(table, "  layers of %.60s: %lld", *name ? name : "?",
		       (long long)json_integer_value(item));
	json_decref(counts);
}

#define IGNORED_SHOWN 4

static void put_ignored(const struct config *c, struct table *table)
{
	const size_t n = json_array_size(c->ignore);
	char text[512] = "";
	size_t used = 0;

	for (size_t i = 0; i < n && i < IGNORED_SHOWN; i++) {
		const char *name = entry_at(c->ignore, i);
		int more = snprintf(text + used, sizeof(text) - used, "%s%.100s",
				    i ? ", " : "", name ? name : "?");

		used += more > 0 ? (size_t)more : 0;
	}
	if (n)
		table_note(table, "  left as they were: %zu (%s%s)", n, text,
			   n > IGNORED_SHOWN ? ", ..." : "");
}

void config_put(const struct config *c, struct table *table)
{
	const char *model = json_string_value(
	    json_array_get(json_object_get(c->model, "architectures"), 0));

	if (c->model && !model)
		model = text_at(c->model, "model_type");
	if (model && *model)
		table_note(table, "  model: %.100s", model);
	if (c->is_quantised)
		table_note(table, "  quantised by: %.100s%s%.100s%s%.100s",
			   *c->method ? c->method : "?", *c->algorithm ? ", " : "",
			   c->algorithm, *c->kv_cache ? ", kv cache " : "",
			   c->kv_cache);
	put_mixed(c, table);
	put_ignored(c, table);
	if (c->ties_embeddings)
		table_note(table, "%s", "  tied: lm_head is the embedding");
}
