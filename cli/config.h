/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config.h - the files next to the tensors of a model's folder: config.json
 * and hf_quant_config.json, read (config.c), and written with the index for a
 * folder that is quantised (config_write.c).
 */
#ifndef NIB_CONFIG_H
#define NIB_CONFIG_H

#include <jansson.h>

#include "cli.h"
#include "regex.h"
#include "table.h"

struct config {
	char *folder;	    /* with no '/' at its end; NULL: there is none */
	json_t *model;	    /* config.json, or NULL */
	char *model_text;   /* the same as the file has it */
	json_t *quant_file; /* hf_quant_config.json, or NULL */
	/* What they say: "modelopt", "NVFP4" and "FP8" or the like; or "". */
	const char *method, *algorithm, *kv_cache;
	char algorithms[128]; /* of a model with several: algorithm is here */
	/* Names of modules left out, and those of all groups' targets; NULL if
	 * there is no list.  Rules: of entries that are patterns, else NULL. */
	const json_t *ignore;
	json_t *targets;
	struct regex **ignore_rules, **target_rules;
	int is_quantised;    /* one of the files says how */
	int ties_embeddings; /* lm_head is the embedding */
	int failed;	     /* a file exists and could not be read */
};

#define CONFIG_MODEL	"config.json"
#define CONFIG_MODELOPT "hf_quant_config.json"

/* The folder that path is, or that the index path is in, to be freed; NULL for
 * others. */
char *config_folder(const char *path);
/*
 * Reads the files of a folder, or of the folder of an index, and nothing for
 * a single file.  Warns about a file that is no JSON object and leaves it out.
 */
void config_read(struct config *config, const char *path);
void config_free(struct config *config);
/*
 * The entry of the list of modules left out that a layer matches, or NULL: a
 * name, a glob, or "re:" and a regular expression.
 */
const char *config_ignores(const struct config *config, const char *layer);
/* Whether a layer is a target of one of the groups, as far as can be told: there
 * may be names of classes and patterns that are not understood. */
int config_targets(const struct config *config, const char *layer);
/* Calls found for each pattern of both lists that is not understood. */
void config_each_unclear(const struct config *config,
			 void (*found)(void *arg, const char *pattern), void *arg);
/* Lines for people that say what the files say. */
void config_put(const struct config *config, struct table *table);

/* ---- config_write.c ------------------------------------------------------ */

struct selection; /* quantize.h */

/*
 * Writes config.json and, in ModelOpt's format, hf_quant_config.json into a
 * folder: the text of the model's, with how the layers of a selection are now quantised
 * and which modules are not.  CLI_OK, or an exit code after a message.
 */
int config_write(const struct config *config, const char *folder,
		 enum nib_checkpoint format, const struct selection *selection);
/* Names of the modules that stay as they were, in an array. */
json_t *config_list_modules(const struct selection *selection,
			    enum nib_checkpoint format);
/* The object quantization_config for layers of a format; NULL without memory.
 * has_inputs: with an input scale each (W4A4).  ignore keeps its reference. */
json_t *config_make(enum nib_checkpoint format, json_t *ignore, int has_inputs);
/* config.json with this quantization_config in place of its own; NULL: as it is. */
int config_write_model(const struct config *config, const char *folder,
		       const json_t *quantisation);
int config_write_json(const char *folder, const char *name, const json_t *root);
/* The same for the index of the shards in folder, named as those of like. */
int config_write_index(const char *folder, const struct nib_file *like);

#endif
