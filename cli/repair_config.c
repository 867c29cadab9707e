/* SPDX-License-Identifier: Apache-2.0 */
/*
 * repair_config.c - what nib repair does about config.json and hf_quant_config.json:
 * see repair.h.  Only quantization_config changes, and only where the tensors determine
 * what it must say.
 */
#include <stdlib.h>
#include <string.h>

#include "quantize.h"
#include "repair.h"

static const char config_name[] = "config.json";

/* ---- a configuration from the tensors ------------------------------------ */

/* How many layers have an input scale, and whether the file has FP8 layers. */
static int64_t count_inputs(const struct nib_file *file, int *has_fp8)
{
	int64_t n = 0;

	*has_fp8 = 0;
	for (int64_t i = 0; i < nib_file_layer_tensors_count(file); i++) {
		const struct nib_layer_tensors *t = nib_file_layer_tensors_at(file, i);

		*has_fp8 |= (t->naming == NIB_NAMING_FP8 ||
			     t->naming == NIB_NAMING_FP8_BLOCKS) &&
			    t->scales;
	}
	for (int64_t i = 0; i < nib_file_layer_count(file); i++)
		n += nib_file_layer_at(file, i)->tensors->input_global != NULL;
	return n;
}

/* Names that are no layers of the file: those of floats that would be quantised, and
 * the rest of what nib quantize leaves out. */
static json_t *list_ignored(const struct repair_plan *plan, enum nib_checkpoint format)
{
	struct model_types types;
	struct select_options o = {.model = &types,
				   .ties_head = plan->config->ties_embeddings};
	struct selection s = {0};
	json_t *list = NULL;

	models_read(plan->config->model, &types);
	if (!select_tensors(plan->file, &o, &s))
		list = config_list_modules(&s, format);
	for (int64_t i = 0; i < s.count && list; i++)
		if (s.items[i].layer)
			json_array_append_new(list, json_string(s.items[i].layer));
	for (size_t i = json_array_size(list); i-- > 0;)
		if (nib_file_find_layer(plan->file,
					json_string_value(json_array_get(list, i))))
			json_array_remove(list, i);
	select_free(&s);
	return list;
}

/* The whole quantization_config; NULL after *why or without memory. */
static json_t *make_config(const struct repair_plan *plan, const char **why)
{
	const struct nib_file *file = plan->file;
	const int64_t layers = nib_file_layer_count(file);
	int has_fp8;
	const int64_t inputs = count_inputs(file, &has_fp8);
	json_t *ignore, *made;

	*why = !config_method_of(file) ? "the layers are of several formats"
	       : has_fp8	       ? "there are FP8 layers too"
	       : inputs && inputs < layers
		   ? "some layers have an input scale, and others none"
		   : NULL;
	if (*why)
		return NULL;
	ignore = list_ignored(plan, nib_file_layer_at(file, 0)->format);
	made = ignore ? config_make(nib_file_layer_at(file, 0)->format, ignore,
				    inputs == layers)
		      : NULL;
	json_decref(ignore);
	if (!made)
		cli_out_of_memory();
	return made;
}

static void plan_missing(struct repair_plan *plan)
{
	const char *why;

	plan->quant = make_config(plan, &why);
	if (!plan->quant && why)
		repair_say(plan, FIND_CONFIG, config_name, 0,
			   "no quantization_config, and %s", why);
	else if (plan->quant)
		repair_say(plan, FIND_CONFIG, config_name, 1,
			   "quantization_config made from the tensors");
}

/* ---- keys ---------------------------------------------------------------- */

static void plan_field(struct repair_plan *plan)
{
	const char *field = config_missing_field(plan->config, plan->file);
	const char *why = NULL;
	json_t *made, *value;

	if (!field || !plan->quant)
		return;
	made = make_config(plan, &why);
	value = json_object_get(made, field);
	if (value && !json_object_set(plan->quant, field, value))
		repair_say(plan, FIND_CONFIG_FIELD, config_name, 1,
			   "%s written, as the tensors determine it", field);
	else if (why)
		repair_say(plan, FIND_CONFIG_FIELD, config_name, 0, "no %s, and %s",
			   field, why);
	json_decref(made);
}

/* Whether a configuration that lacked quant_method lacks more. */
static void plan_fields(struct repair_plan *plan)
{
	struct config after = *plan->config;
	const char *field = config_missing_field(plan->config, plan->file);

	plan_field(plan);
	if (!field || strcmp(field, "quant_method") != 0 || plan->n_refused)
		return;
	after.model = json_pack("{s:O}", "quantization_config", plan->quant);
	after.method = config_method_of(plan->file);
	field = config_missing_field(&after, plan->file);
	if (field) {
		const struct config *before = plan->config;

		plan->config = &after;
		plan_field(plan);
		plan->config = before;
	}
	json_decref(after.model);
}

static void drop_inputs(json_t *quant)
{
	json_t *groups = json_object_get(quant, "config_groups"), *group;
	const char *name;

	json_object_foreach(groups, name, group)
	{
		if (json_object_get(group, "input_activations"))
			json_object_set_new(group, "input_activations", json_null());
	}
}

static void plan_inputs(struct repair_plan *plan)
{
	json_t *older = json_object_get(plan->quant_file, "quantization");

	if (!config_lacks_inputs(plan->config, plan->file))
		return;
	drop_inputs(plan->quant);
	if (json_object_get(plan->quant, "quant_algo"))
		json_object_set_new(plan->quant, "quant_algo",
				    json_string("W4A16_NVFP4"));
	if (json_object_get(older, "quant_algo"))
		json_object_set_new(older, "quant_algo", json_string("W4A16_NVFP4"));
	repair_say(plan, FIND_CONFIG_INPUT, config_name, 1,
		   "W4A16 in place of %.40s: activations stay 16 bits",
		   plan->config->algorithm);
}

/* ---- the modules left out ------------------------------------------------ */

/* The lists of both files, of which at most one is made where neither has any. */
static int find_lists(const struct repair_plan *plan, int makes, json_t *lists[2])
{
	json_t *older = json_object_get(plan->quant_file, "quantization");

	lists[0] = json_object_get(plan->quant, "ignore");
	if (!lists[0])
		lists[0] = json_object_get(plan->quant, "exclude_modules");
	lists[1] = json_object_get(older, "exclude_modules");
	if (!lists[0] && !lists[1] && makes) {
		const int at = plan->quant ? 0 : 1;

		lists[at] = json_array();
		json_object_set_new(at ? older : plan->quant,
				    at ? "exclude_modules" : "ignore", lists[at]);
	}
	return json_is_array(lists[0]) || json_is_array(lists[1]);
}

static void add_name(void *plan_, const char *module)
{
	struct repair_plan *plan = plan_;
	json_t *lists[2];

	if (!find_lists(plan, 1, lists))
		return;
	for (int i = 0; i < 2; i++)
		if (lists[i])
			json_array_append_new(lists[i], json_string(module));
	repair_say(plan, FIND_NOT_IGNORED, config_name, 1, "'%.160s' is left out now",
		   module);
}

/* An NVFP4 layer that an entry leaves out. */
static void plan_ignored(struct repair_plan *plan, const char *layer)
{
	const char *entry = config_ignores(plan->config, layer);
	json_t *lists[2];

	if (!entry || strcmp(entry, layer) != 0 || !find_lists(plan, 0, lists)) {
		repair_say(plan, FIND_CONFIG, layer, 0,
			   "the pattern '%.100s' leaves out this layer, and may others",
			   entry ? entry : "");
		return;
	}
	for (int i = 0; i < 2; i++)
		for (size_t j = json_array_size(lists[i]); j-- > 0;) {
			const char *text =
			    json_string_value(json_array_get(lists[i], j));

			if (text && !strcmp(text, layer))
				json_array_remove(lists[i], j);
		}
	repair_say(plan, FIND_CONFIG, layer, 1, "its entry is removed: it is NVFP4");
}

/* ---- all ----------------------------------------------------------------- */

static void plan_findings(struct repair_plan *plan)
{
	const struct config *c = plan->config;
	const int is_missing =
	    c->model && !c->is_quantised && nib_file_layer_count(plan->file);

	for (int64_t i = 0; i < plan->findings->count; i++) {
		const struct finding *f = &plan->findings->items[i];

		if (f->kind != FIND_CONFIG)
			continue;
		if (strcmp(f->name, config_name) != 0)
			plan_ignored(plan, f->name);
		else if (is_missing)
			plan_missing(plan);
		else
			repair_say(plan, FIND_CONFIG, f->name, 0, "%s", f->text);
	}
}

int repair_config(struct repair_plan *plan)
{
	const struct config *c = plan->config;
	json_t *quant = json_object_get(c->model, "quantization_config");
	int code = CLI_OK;

	if (json_is_object(quant))
		plan->quant = json_deep_copy(quant);
	if (c->quant_file)
		plan->quant_file = json_deep_copy(c->quant_file);
	plan_findings(plan);
	if (c->is_quantised) {
		plan_fields(plan);
		plan_inputs(plan);
		code = config_each_not_ignored(c, plan->file, add_name, plan);
	}
	/* Files that stay as they are are copied byte for byte. */
	if (json_equal(plan->quant, quant)) {
		json_decref(plan->quant);
		plan->quant = NULL;
	}
	if (json_equal(plan->quant_file, c->quant_file)) {
		json_decref(plan->quant_file);
		plan->quant_file = NULL;
	}
	return code;
}
