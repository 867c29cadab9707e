/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config.h - what stands beside the tensors of a model's folder: config.json
 * and hf_quant_config.json, read, and written for a folder that is quantised.
 */
#ifndef NIB_CONFIG_H
#define NIB_CONFIG_H

#include <jansson.h>

#include "cli.h"
#include "table.h"

struct config {
	char *folder;	    /* with no '/' at its end; NULL: there is none */
	json_t *model;	    /* config.json, or NULL */
	json_t *quant_file; /* hf_quant_config.json, or NULL */
	/* What they say: "modelopt", "NVFP4" and "FP8" or the like; or "". */
	const char *method, *algorithm, *kv_cache;
	const json_t *ignore; /* names of modules; NULL if there is no list */
	int is_quantised;     /* one of the files says how */
	int ties_embeddings;  /* lm_head is the embedding */
};

/*
 * Reads the files of a folder, or of the folder of an index, and nothing beside
 * a single file.  Warns about a file that is no JSON object and leaves it out.
 */
void config_read(struct config *config, const char *path);
void config_free(struct config *config);
/* Lines for people that say what the files say. */
void config_put(const struct config *config, struct table *table);

#endif
