/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config_check.c - what config.json says against what the tensors are: see inspect.h.
 */
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "inspect.h"
#include "quantize.h"

static const json_t *quantisation(const struct config *c)
{
	return json_object_get(c->model, "quantization_config");
}

static int has_text(const json_t *object, const char *key)
{
	const char *text = json_string_value(json_object_get(object, key));

	return text && *text;
}

const char *config_method_of(const struct nib_file *file)
{
	static const char *const methods[] = {[NIB_CHECKPOINT_MODELOPT] = "modelopt",
					      [NIB_CHECKPOINT_COMPRESSED_TENSORS] =
						  "compressed-tensors",
					      [NIB_CHECKPOINT_COMFY] = NULL};
	const int64_t n = nib_file_layer_count(file);

	for (int64_t i = 1; i < n; i++)
		if (nib_file_layer_at(file, i)->format !=
		    nib_file_layer_at(file, 0)->format)
			return NULL;
	return n ? methods[nib_file_layer_at(file, 0)->format] : NULL;
}

const char *config_missing_field(const struct config *c, const struct nib_file *file)
{
	const json_t *quant = quantisation(c), *groups;
	const char *method = config_method_of(file);

	if (!method || !json_is_object(quant))
		return NULL;
	if (!has_text(quant, "quant_method"))
		return "quant_method";
	/* Layers with the other format's names determine nothing. */
	if (strcmp(c->method, method) != 0)
		return NULL;
	groups = json_object_get(quant, "config_groups");
	if (!strcmp(c->method, "modelopt") && !*c->algorithm &&
	    !json_object_get(quant, "quantized_layers"))
		return "quant_algo";
	if (!strcmp(c->method, "compressed-tensors") && !json_object_size(groups))
		return "config_groups";
	if (!strcmp(c->method, "compressed-tensors") && !*c->algorithm)
		return "format";
	return NULL;
}

/* ---- activations --------------------------------------------------------- */

static int quantises_inputs(const struct config *c)
{
	json_t *groups = json_object_get(quantisation(c), "config_groups"), *group;
	const char *name;

	if (!strcmp(c->method, "modelopt"))
		return !strcmp(c->algorithm, "NVFP4");
	json_object_foreach(groups, name, group)
	{
		if (json_is_object(json_object_get(group, "input_activations")))
			return !strcmp(c->algorithm, "nvfp4-pack-quantized");
	}
	return 0;
}

int config_lacks_inputs(const struct config *c, const struct nib_file *file)
{
	const int64_t n = nib_file_layer_count(file);

	for (int64_t i = 0; i < nib_file_layer_tensors_count(file); i++)
		if (nib_file_layer_tensors_at(file, i)->input_global)
			return 0;
	return n && c->is_quantised && quantises_inputs(c);
}

/* ---- modules left out ---------------------------------------------------- */

static void set_true(void *arg, const char *pattern)
{
	(void)pattern;
	*(int *)arg = 1;
}

/* Whether an entry is a module that the layer is in: some engines take it so. */
static int is_below_entry(const struct config *c, const char *layer)
{
	for (size_t i = 0; i < json_array_size(c->ignore); i++) {
		const char *entry = json_string_value(json_array_get(c->ignore, i));
		const size_t n = entry ? strlen(entry) : 0;

		if (n && !strncmp(layer, entry, n) && layer[n] == '.')
			return 1;
	}
	return 0;
}

static int is_left_out(const struct config *c, const char *layer)
{
	return config_ignores(c, layer) || is_below_entry(c, layer) ||
	       !config_targets(c, layer);
}

/* The head, which nib quantize leaves as it is and engines quantise unless it is
 * left out.  The name without ".weight", to be freed; NULL: it is none. */
static char *head_of(const struct config *c, const struct nib_file_tensor *t)
{
	static const char weight[] = ".weight";
	enum nib_dtype dtype;
	char *name;

	if (t->rank != 2 || c->ties_embeddings || tensor_dtype(t->dtype, &dtype) ||
	    (strcmp(t->name, "lm_head.weight") != 0 &&
	     !tensor_name_ends(t->name, ".lm_head.weight")))
		return NULL;
	name = strndup(t->name, strlen(t->name) - (sizeof(weight) - 1));
	if (!name)
		cli_out_of_memory();
	return name;
}

int config_each_not_ignored(const struct config *c, const struct nib_file *file,
			    void (*found)(void *arg, const char *module), void *arg)
{
	struct model_types types;
	struct select_options options = {.model = &types,
					 .ties_head = c->ties_embeddings};
	struct selection s = {0};
	int is_unclear = 0, code;

	config_each_unclear(c, set_true, &is_unclear);
	if (!c->model || !nib_file_layer_count(file) || is_unclear ||
	    json_object_get(quantisation(c), "quantized_layers"))
		return CLI_OK;
	models_read(c->model, &types);
	code = select_tensors(file, &options, &s);
	for (int64_t i = 0; i < s.count && !code; i++) {
		const struct selected *item = &s.items[i];
		char *head = item->layer ? NULL : head_of(c, item->tensor);
		const char *name = item->layer ? item->layer : head;

		if (name && !is_left_out(c, name))
			found(arg, name);
		free(head);
	}
	select_free(&s);
	return code;
}

/* ---- findings ------------------------------------------------------------ */

static void add_unclear(void *findings, const char *pattern)
{
	findings_add(findings, FIND_RULE, "config.json", "'%.100s'", pattern);
}

/* The name lives with the file where a tensor's does, so the text has the module. */
static void add_not_ignored(void *findings, const char *module)
{
	findings_add(findings, FIND_NOT_IGNORED, "config.json",
		     "'%.160s' is not quantised, and no entry leaves it out", module);
}

static void find_fields(struct findings *findings, const struct config *c,
			const struct nib_file *file)
{
	const char *field = config_missing_field(c, file);

	if (field)
		findings_add(findings, FIND_CONFIG_FIELD, "config.json",
			     "quantization_config has no %s", field);
	if (config_lacks_inputs(c, file))
		findings_add(findings, FIND_CONFIG_INPUT, "config.json",
			     "%.40s, and no layer has an input scale", c->algorithm);
	if (config_each_not_ignored(c, file, add_not_ignored, findings))
		findings->failed = 1;
}

void findings_of_config(struct findings *findings, const struct config *c,
			const struct nib_file *file)
{
	const int64_t layers = nib_file_layer_count(file);
	const int says_nvfp4 = strstr(c->algorithm, "NVFP4") != NULL ||
			       strstr(c->algorithm, "nvfp4") != NULL;

	if (c->model && layers && !c->is_quantised)
		findings_add(findings, FIND_CONFIG, "config.json",
			     "%lld NVFP4 layer%s, and no quantization_config",
			     (long long)layers, cli_s(layers));
	if (says_nvfp4 && !layers && !findings->of_kind[FIND_ACROSS])
		findings_add(findings, FIND_CONFIG, "config.json",
			     "the algorithm is %.60s, and no tensors are NVFP4 "
			     "layers",
			     c->algorithm);
	config_each_unclear(c, add_unclear, findings);
	if (c->is_quantised)
		find_fields(findings, c, file);
	for (int64_t i = 0; i < layers; i++) {
		const char *name = nib_file_layer_at(file, i)->name;
		const char *entry = config_ignores(c, name);

		if (entry)
			findings_add(findings, FIND_CONFIG, name,
				     "an NVFP4 layer, and left out by '%.100s'", entry);
		else if (!config_targets(c, name))
			findings_add(findings, FIND_TARGETS, name,
				     "an NVFP4 layer that no entry matches");
	}
}
