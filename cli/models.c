/* SPDX-License-Identifier: Apache-2.0 */
/* models.c - looks models up in the table: see models.h. */
#include "models.h"

#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

#include "tensor.h"

static const char *const reasons[] = {
    [MODEL_EMBEDDING] = "an embedding",
    [MODEL_CONV1D] = "a Conv1D, [k, n]",
    [MODEL_TIED] = "tied to another tensor of the model",
    [MODEL_READ] = "a layer whose weight the model reads itself",
    [MODEL_STACK] = "experts, in an order that is not loaded in NVFP4",
    [MODEL_CONVERTED] = "transformers divides or joins it at load",
    [MODEL_OTHER] = "not a linear layer of the model",
};

/* The next word of *words, or NULL after the last; *n: its bytes. */
static const char *next_word(const char **words, size_t *n)
{
	const char *word = *words;

	*n = strcspn(word, " ");
	*words = word + *n + (word[*n] == ' ');
	return *n ? word : NULL;
}

static int has_word(const char *words, const char *word, size_t bytes)
{
	const char *one;
	size_t n;

	while ((one = next_word(&words, &n)))
		if (n == bytes && !strncmp(one, word, n))
			return 1;
	return 0;
}

/* Adds the type of a configuration and those of its parts. */
static void add_types(json_t *config, struct model_types *types)
{
	const char *type = json_string_value(json_object_get(config, "model_type"));
	const size_t used = strlen(types->words);
	const char *key;
	json_t *part;

	if (type && !strchr(type, ' ') &&
	    used + strlen(type) + 2 <= sizeof(types->words))
		snprintf(types->words + used, sizeof(types->words) - used, "%s ", type);
	json_object_foreach(config, key, part) add_types(part, types);
}

void models_read(json_t *config, struct model_types *types)
{
	const char *type = json_string_value(json_object_get(config, "model_type"));

	*types = (struct model_types){0};
	add_types(config, types);
	for (int i = 0; type && model_table_types[i] && !types->is_known; i++)
		types->is_known = has_word(model_table_types[i], type, strlen(type));
}

/* Whether a module, or the end of it after a dot, fits one of the patterns; ending:
 * ".weight", or "" for a tensor whose name is that of the module. */
static int fits(const char *patterns, const char *name, const char *ending)
{
	char glob[160];
	const char *word;
	size_t n;

	while ((word = next_word(&patterns, &n))) {
		snprintf(glob, sizeof(glob), "*.%.*s%s", (int)n, word, ending);
		if (!fnmatch(glob, name, 0) || !fnmatch(glob + 2, name, 0))
			return 1;
	}
	return 0;
}

/* Whether a rule is for one of the types. */
static int is_for(const struct model_rule *rule, const struct model_types *types)
{
	const char *words = types->words, *type;
	size_t n;

	if (!strcmp(rule->types, "* "))
		return 1;
	while ((type = next_word(&words, &n)))
		if (has_word(rule->types, type, n))
			return 1;
	return 0;
}

int models_refuse(const struct model_types *types, const char *name, char *reason,
		  size_t bytes)
{
	static const char weight[] = ".weight";
	const char *ending = tensor_name_ends(name, weight) ? weight : "";

	for (const struct model_rule *r = model_table; r->types; r++) {
		if (!is_for(r, types) || !fits(r->names, name, ending))
			continue;
		snprintf(reason, bytes, "%s", reasons[r->reason]);
		return 1;
	}
	return 0;
}
