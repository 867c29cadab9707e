/* SPDX-License-Identifier: Apache-2.0 */
/*
 * models.h - the models that transformers knows: which of their matrices are no
 * linear layers, or are layers that it does not load in NVFP4.  The table is
 * model_table.c, which tools/model_table.py writes from an installed transformers;
 * the configuration of a folder names the model.
 */
#ifndef NIB_MODELS_H
#define NIB_MODELS_H

#include <jansson.h>

/* Why a matrix stays as it is. */
enum model_reason {
	MODEL_EMBEDDING, /* a table whose rows are looked up */
	MODEL_CONV1D,	 /* GPT-2's layer, stored as [k, n] */
	MODEL_TIED,	 /* another tensor under one more name */
	MODEL_READ,	 /* a linear layer whose weight the model itself reads */
	MODEL_STACK,	 /* experts in an order that is not loaded in NVFP4 */
	MODEL_CONVERTED, /* transformers cuts it or joins it with others */
	MODEL_OTHER,	 /* a module of the model's own */
};

/* Words end with a space.  Types are those of model_type in config.json, and "*"
 * is every model's.  A name is that of a module, or an end of it after a dot,
 * and may have the wildcards of fnmatch(). */
struct model_rule {
	enum model_reason reason;
	const char *types; /* NULL ends the table */
	const char *names;
};

extern const struct model_rule model_table[];
/* All that transformers has, as words; NULL ends them. */
extern const char *const model_table_types[];
extern const char model_table_version[];

/* The types of a model, which may have parts of other types, as words. */
struct model_types {
	char words[512];
	int is_known; /* transformers has the type of the whole model */
};

/* Reads the types from config.json; NULL: there is none, and no type. */
void models_read(json_t *config, struct model_types *types);
/*
 * Whether the table has the tensor so named for a model of these types; then it
 * writes the reason, in words.
 */
int models_refuse(const struct model_types *types, const char *name, char *reason,
		  size_t bytes);

#endif
